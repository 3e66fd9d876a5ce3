"""A node of the broker, unmodified, on a simulated host with a disk of its own, and a client's process on another.

    node = NodeHost(world, "one", {"node.id": "1"})
    node.start()
    client = ClientHost(world, "client")
    client.host.run(work(client))

Rules:
- The node's own sockets' code runs (`ottla/net`), on simulated sockets.
- `kill` keeps what was written, `power_off` loses what was not synced: as `ottla/sim/disk.py` says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from ottla.broker.metadata.format import format_directories
from ottla.broker.node import BrokerNode, Ports
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


class NodeHost:
    """A host with a disk and one node. `settings` go before those of a node that is alone."""

    def __init__(self, world: World, name: str, settings: Mapping[str, str] | None = None) -> None:
        self.world = world
        self.host = host = world.host(name)
        self.disk = SimDisk(world.rng)
        given = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{host.address}:{_PORT},CONTROLLER://{host.address}:{_PORT + 1}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"{host.address}:{_PORT + 1}",
            "log.dirs": "/data",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        self.settings = ServerSettings.parse(given | dict(settings or {}))
        self.node: BrokerNode | None = None
        #: Why the node ended itself, when it did.
        self.failure: str | None = None
        for directory in self.settings.log_dirs:
            self.disk.make_directory(directory)
        self.disk.sync_directory("/")
        format_directories(self.disk, self.settings, _CLUSTER_ID, clock=host.clock, rng=world.rng, standalone=True)

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host.address}:{_PORT}"

    def start(self) -> None:
        """A new process. The disk's `Crashed` comes out, and then it is dead."""
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
        node = BrokerNode(self.settings, cast(asyncio.AbstractEventLoop, loop), ports)
        node.on_failure = self._fail
        node.open()
        self.node = node

    def _fail(self, why: str) -> None:
        self.failure = self.failure or why

    def stop(self) -> None:
        """SIGTERM: the node ends in good order."""
        assert self.node is not None, "no node runs"
        node, self.node = self.node, None
        node.close()
        self.host.kill()
        self.disk.kill()

    def kill(self) -> None:
        """SIGKILL: the process is gone, what it wrote is in the page cache."""
        self.node = None
        self.host.kill()
        self.disk.kill()

    def power_off(self) -> None:
        """The power goes: what was not synced is lost, kept or torn."""
        self.node = None
        self.host.power_off()
        self.disk.crash()


class WorldClock:
    """The clock of whichever host's program runs now."""

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
    """Our clients take time and randomness from the world while this is entered."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> None:
        client_clock.replace(WorldClock(self._world), self._world.rng)

    def __exit__(self, *_: object) -> None:
        client_clock.replace(None, None)
