"""Three brokers on loopback, each in a rack of its own. The first is the controller as well."""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.interop import server as servers
from tests.interop import toolchain
from tests.interop.server import Server

#: Small and soon up: nothing here is about speed.

#: A broker that died is noticed after the session; a replica that lags is out of the ISR after the lag.
_SETTINGS: Mapping[str, str] = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "6",
    "default.replication.factor": "3",
    "min.insync.replicas": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
    "auto.leader.rebalance.enable": "false",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
}


@dataclass
class Broker(Server):
    """One of the three; the others find the cluster at the first one's controller."""

    node_id: int = 1
    controller_port: int = 0

    def _properties(self, controller_port: int) -> str:
        if self.node_id == 1:
            self.controller_port = controller_port
        listeners = f"PLAINTEXT://127.0.0.1:{self.port}"
        own = {
            "process.roles": "broker,controller" if self.node_id == 1 else "broker",
            "node.id": str(self.node_id),
            "broker.rack": f"rack-{self.node_id}",
            "listeners": listeners + (f",CONTROLLER://127.0.0.1:{controller_port}" if self.node_id == 1 else ""),
            "advertised.listeners": listeners,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "log.dirs": str(self.log_dir),
        }
        return "".join(f"{name}={value}\n" for name, value in {**_SETTINGS, **own}.items())

    def pause(self) -> None:
        """It hangs: its connections stay open, and it answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def ready(self) -> None:
        """Return when it serves; it was launched."""
        self._await_ready()


class Brokers:
    """Of Apache Kafka, if no kind is given. Whoever makes it calls `start`, and `stop` at the end."""

    def __init__(self, directory: Path, kind: servers.Kind | None = None) -> None:
        kind = kind or servers.apache(toolchain.quick_jvm("384m"))
        joining = servers.Kind(kind.name, tuple(word for word in kind.format if word != "--standalone"), kind.start)
        self.of = {
            number: Broker(kind if number == 1 else joining, directory / str(number), node_id=number)
            for number in (1, 2, 3)
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(one.bootstrap for one in self.of.values())

    def start(self) -> None:
        first, *others = self.of.values()
        first.format()
        for one in others:
            one.controller_port = first.controller_port
            one.format()
        for one in self.of.values():
            one.launch()
        for one in self.of.values():
            one.ready()

    def mend(self) -> None:
        """Bring up whatever a test has stopped."""
        for one in self.of.values():
            if one.process is None:
                one.start()

    def stop(self) -> None:
        for one in self.of.values():
            one.kill()
