"""An unmodified node on a simulated host with its own disk, and support for clients on other hosts.

    node = NodeHost(world, "one", {"node.id": "1"})
    node.start()
    client = ClientHost(world, "client")
    client.host.run(work(client))

Rules:
- The node runs its real network code (`ottla/net`) on simulated sockets.
- `kill` keeps all writes, `power_off` may lose unsynced ones (see `ottla/sim/disk.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from ottla.broker.controller_node import ControllerNode
from ottla.broker.metadata.format import format_directories
from ottla.broker.metadata_node import MetadataNode, Ports
from ottla.broker.node import BrokerNode
from ottla.client.connection import clock as client_clock
from ottla.net.listener import ListeningSocket
from ottla.net.outbound import Outbound
from ottla.settings.server.settings import ServerSettings
from ottla.sim.disk import SimDisk
from ottla.sim.host import Host
from ottla.sim.loop import SimPool
from ottla.sim.machine import SimWorker
from ottla.sim.world import World

_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
_PORT = 9092


def controller_address(host: Host) -> str:
    """The controller address of a host's node."""
    return f"{host.address}:{_PORT + 1}"


class NodeHost:
    """A host with a disk and one node. `settings` override those of a standalone node."""

    def __init__(
        self,
        world: World,
        host: str | Host,
        settings: Mapping[str, str] | None = None,
        cluster_id: str = _CLUSTER_ID,
    ) -> None:
        self.world = world
        self.host = host = world.host(host) if isinstance(host, str) else host
        self.disk = SimDisk(world.rng)
        roles = (settings or {}).get("process.roles", "broker,controller")
        listeners = []
        if "broker" in roles:
            listeners.append(f"PLAINTEXT://{host.address}:{_PORT}")
        if "controller" in roles:
            listeners.append(f"CONTROLLER://{self.controller_address}")
        given = {
            "process.roles": roles,
            "node.id": "1",
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": self.controller_address,
            "log.dirs": "/data",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        self.settings = ServerSettings.parse(given | dict(settings or {}))
        self.running: MetadataNode | None = None
        #: Why the node shut itself down; None if it did not.
        self.failure: str | None = None
        #: Called when the node shuts itself down.
        self.on_failure: Callable[[str], None] = lambda _: None
        #: True while the node serves clients.
        self.is_ready = False
        for directory in self.settings.log_dirs:
            self.disk.make_directory(directory)
        self.disk.sync_directory("/")
        founds = self.settings.is_controller and not self.settings.controller_quorum_voters
        format_directories(self.disk, self.settings, cluster_id, clock=host.clock, rng=world.rng, standalone=founds)

    @property
    def controller_address(self) -> str:
        """The node's address as a controller."""
        return controller_address(self.host)

    @property
    def node(self) -> BrokerNode | None:
        """The broker, while it runs."""
        return self.running if isinstance(self.running, BrokerNode) else None

    @property
    def decides(self) -> bool:
        """Whether this node believes that it is the active controller."""
        leader = self.running.quorum.leader if self.running is not None else None
        return leader is not None and leader.node_id == self.settings.node_id

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host.address}:{_PORT}"

    def start(self) -> None:
        """Start a new process. `Crashed` of the disk propagates; the process is dead then."""
        loop = self.host.boot()
        self.failure = None
        listener: Any = partial(ListeningSocket, new_socket=self.host.socket, now=loop.time)
        outbound: Any = partial(Outbound, new_socket=self.host.socket)
        ports = Ports(
            self.disk,
            self.host.clock,
            self.world.rng,
            lambda *_: SimPool(loop),
            listener,
            loop.time,
            SimWorker,
            outbound,
        )
        node = self.new_node(self.settings, cast(asyncio.AbstractEventLoop, loop), ports)
        node.on_failure = self._fail
        self.is_ready = False
        node.on_ready = self._ready
        node.open()
        self.running = node

    def new_node(self, settings: ServerSettings, loop: asyncio.AbstractEventLoop, ports: Ports) -> MetadataNode:
        """Create the node of a new process."""
        return (BrokerNode if settings.is_broker else ControllerNode)(settings, loop, ports)

    def _ready(self) -> None:
        self.is_ready = True

    def _fail(self, why: str) -> None:
        self.failure = self.failure or why
        self.on_failure(why)

    def stop(self) -> None:
        """SIGTERM: shut the node down cleanly."""
        assert self.running is not None, "no node runs"
        node, self.running = self.running, None
        node.close()
        self.host.kill()
        self.disk.kill()

    def kill(self) -> None:
        """SIGKILL: end the process; its writes stay in the page cache."""
        self.running = None
        self.host.kill()
        self.disk.kill()

    def power_off(self) -> None:
        """Fail the power: unsynced writes are lost, kept or torn."""
        self.running = None
        self.host.power_off()
        self.disk.crash()


class WorldClock:
    """The clock of the host whose program is running."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now_ms(self) -> int:
        return self._host().clock.now_ms()

    def monotonic_ms(self) -> int:
        return self._host().clock.monotonic_ms()

    def _host(self) -> Host:
        host = self._world.network.current
        assert host is not None, "a client runs on a host of the world"
        return host


class Clients:
    """A context in which our clients take time and randomness from the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> None:
        client_clock.replace(WorldClock(self._world), self._world.rng)

    def __exit__(self, *_: object) -> None:
        client_clock.replace(None, None)
