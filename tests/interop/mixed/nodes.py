"""The nodes of a mixed cluster: processes of Ottla and of Apache Kafka on 127.0.0.1, from the same settings.

Rules:
- Each kind formats its own directories, all with one cluster id. The first controllers found a dynamic quorum
  (KIP-853); `joins` marks one that is added later; `static` gives every node `controller.quorum.voters` instead.
- A node keeps its ports, its directory and its output through restarts. Its kind may change (`become`).
- `start` returns at once; `until_ready` waits for a broker that answers, `until` for anything else.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.settings.properties import write
from tests.interop import toolchain
from tests.interop.server import free_ports, serves
from tests.node_processes import NodeProcesses

CLUSTER_ID = "Ottla-Interop-Mixed-01"
WAIT_S = 180.0
#: Sessions that a busy machine can keep, and small internal topics.
SETTINGS: Mapping[str, str] = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "5000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
}


@dataclass
class MixedNode:
    """One node. `roles` as in `process.roles`; `joins`: a controller that is no voter at first."""

    node_id: int
    kind: str
    roles: str = "broker"
    joins: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int = 0
    controller_port: int = 0
    #: The id of its metadata directory, where it founds the quorum.
    directory_id: str = ""

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles


class MixedCluster:
    """The nodes of one cluster. `with` formats and starts them, waits until all brokers serve, and ends them."""

    #: More arguments of every `storage format`.
    format_arguments: Sequence[str] = ()

    def __init__(
        self,
        directory: Path,
        nodes: Sequence[MixedNode],
        settings: Mapping[str, str] | None = None,
        *,
        static: bool = False,
    ) -> None:
        self.directory = directory
        self.nodes = {node.node_id: node for node in nodes}
        self._settings = {**SETTINGS, **_replicas(nodes), **(settings or {})}
        self._static = static
        level = os.environ.get("OTTLA_INTEROP_LOG", "warn")
        jvm = (*toolchain.quick_jvm("320m"), "-XX:-UsePerfData", f"-Dorg.slf4j.simpleLogger.defaultLogLevel={level}")
        self._processes = NodeProcesses(directory, jvm)
        for node in nodes:
            node.port, node.controller_port = free_ports(2)
            node.directory_id = _uuid(node.node_id)

    @property
    def bootstrap_servers(self) -> str:
        """Of every broker, running or not."""
        return ",".join(self.address(each.node_id) for each in self.nodes.values() if each.is_broker)

    @property
    def controllers(self) -> str:
        """Of every controller, running or not, for `--bootstrap-controller`."""
        return ",".join(f"127.0.0.1:{each.controller_port}" for each in self.nodes.values() if each.is_controller)

    def address(self, node_id: int) -> str:
        return f"127.0.0.1:{self.nodes[node_id].port}"

    def data(self, node_id: int) -> Path:
        return self._processes.home(node_id) / "data"

    def properties(self, node_id: int) -> Path:
        return self._processes.properties(node_id)

    def brokers(self, kind: str | None = None) -> list[int]:
        """The brokers, of one kind or all."""
        return [each.node_id for each in self.nodes.values() if each.is_broker and kind in (None, each.kind)]

    # ---- life

    def __enter__(self) -> Self:
        try:
            for node in self.nodes.values():
                self.format(node)
            for node in self.nodes.values():
                if not node.joins:
                    self.start(node.node_id)
            for node in self.nodes.values():
                if not node.joins:
                    self.until_ready(node.node_id)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.close()

    def format(self, node: MixedNode) -> None:
        """Write its server.properties, and format its directory if it has none."""
        self._processes.home(node.node_id).mkdir(parents=True, exist_ok=True)
        self.properties(node.node_id).write_text(write(self._properties(node)))
        how: list[str] = []
        if node.is_controller and not self._static:
            how = ["--no-initial-controllers"] if node.joins else ["--initial-controllers", self._founders()]
        self._processes.format(node.node_id, node.kind, CLUSTER_ID, *how, *self.format_arguments)

    def renew(self, node_id: int) -> None:
        """Give a node that does not run an empty disk; a controller joins again with it."""
        shutil.rmtree(self.data(node_id))
        node = self.nodes[node_id]
        node.joins = node.is_controller
        self.format(node)

    def start(self, node_id: int) -> None:
        """Start its process and return at once."""
        self._processes.start(node_id, self.nodes[node_id].kind)

    def until_ready(self, node_id: int) -> None:
        """Wait until a broker answers; a controller alone is not waited for."""
        if self.nodes[node_id].is_broker:
            until(lambda: self.runs(node_id) and serves(self.nodes[node_id].port), lambda: self.tail(node_id))

    def runs(self, node_id: int) -> bool:
        """AssertionError with its last words when it has ended by itself."""
        assert node_id not in self._processes.ended(), f"node {node_id} ended by itself:\n{self.tail(node_id)}"
        return self._processes.runs(node_id)

    def kill(self, node_id: int) -> None:
        """kill -9."""
        self._processes.kill(node_id)

    def stop(self, node_id: int) -> None:
        """SIGTERM; it must end by itself."""
        assert not self._processes.stop(node_id), f"node {node_id} does not stop:\n{self.tail(node_id)}"

    def restart(self, node_id: int) -> None:
        """In good order, and wait until it serves again."""
        self.stop(node_id)
        self.start(node_id)
        self.until_ready(node_id)

    def become(self, node_id: int, kind: str) -> None:
        """Stop the node in good order, and start the other kind on the same directory and addresses."""
        self.stop(node_id)
        self.nodes[node_id].kind = kind
        self.start(node_id)
        self.until_ready(node_id)

    # ---- parts

    def output(self, node_id: int) -> Path:
        return self._processes.output(node_id)

    def tail(self, node_id: int, lines: int = 30) -> str:
        """What it said last."""
        return self._processes.tail(node_id, lines)

    def _founders(self) -> str:
        founders = [each for each in self.nodes.values() if each.is_controller and not each.joins]
        return ",".join(f"{each.node_id}@127.0.0.1:{each.controller_port}:{each.directory_id}" for each in founders)

    def _properties(self, node: MixedNode) -> dict[str, str]:
        listeners = [f"PLAINTEXT://{self.address(node.node_id)}"] if node.is_broker else []
        if node.is_controller:
            listeners.append(f"CONTROLLER://127.0.0.1:{node.controller_port}")
        voters = [each for each in self.nodes.values() if each.is_controller]
        if self._static:
            quorum = {
                "controller.quorum.voters": ",".join(
                    f"{each.node_id}@127.0.0.1:{each.controller_port}" for each in voters
                )
            }
        else:
            quorum = {"controller.quorum.bootstrap.servers": self.controllers}
        own = {
            "process.roles": node.roles,
            "node.id": str(node.node_id),
            "listeners": ",".join(listeners),
            "log.dirs": str(self.data(node.node_id)),
        }
        return {**self._settings, **quorum, **own, **node.settings}


def until(done: Callable[[], bool], what: str | Callable[[], str], seconds: float = WAIT_S) -> None:
    """Return when `done`; AssertionError with `what` after too long."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise AssertionError(what if isinstance(what, str) else what())
        time.sleep(0.05)


def _replicas(nodes: Sequence[MixedNode]) -> dict[str, str]:
    brokers = sum(each.is_broker for each in nodes)
    replicas, in_sync = str(min(3, brokers)), "2" if brokers >= 3 else "1"
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _uuid(node_id: int) -> str:
    """A directory's id, 16 bytes in base64 without padding."""
    return f"{'MixedNodeOfOttla'}{node_id:05d}A"[:22]
