"""One history of a world by a seed: three nodes, each alone, their clients, and everything that can go wrong between.

Rules:
- The nodes and the clients are what users run, with their own sockets' code; clocks drift and step, links are cut one
  way or both, hosts are stopped, killed, lose their power, stand still or crawl.
- Where the power may go, `log.flush.interval.messages=1` makes an acknowledgement a promise about the disk.
- After the faults end every client must come to its end within `_CALM_MS`: no reply is waited for without end.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

from ottla.client import AsyncAdmin
from ottla.sim.checker import WorkloadLedger, check
from ottla.sim.disk import Crashed
from ottla.sim.host import Host
from ottla.sim.node import Clients, NodeHost
from ottla.sim.workload import PARTITIONS, consume, produce, read_all, read_commits, until_it_works
from ottla.sim.world import World

_SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.roll.ms": "9000",
    "log.index.size.max.bytes": "4096",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
}
_NODES = 3
_FAULTS_MS = 60_000
_BETWEEN_MS = 4_000
_DOWN_MS = 8_000
_CALM_MS = 300_000
_TOPIC = "records"


class History:
    """The world, its nodes and what their clients know."""

    def __init__(self, seed: int, *, power: bool) -> None:
        self.world = world = World(seed)
        #: The faults' own, so that a fault more does not change what clients draw.
        self.rng = Random(seed + 1)
        self.power = power
        settings = _SETTINGS | ({"log.flush.interval.messages": "1"} if power else {})
        self.nodes = [NodeHost(world, f"node{index}", settings) for index in range(_NODES)]
        self.ledgers = [WorkloadLedger(_TOPIC) for _ in self.nodes]
        self.clients: list[list[Host]] = []
        self.going = True
        self.tasks: list[asyncio.Task[None]] = []
        self.faults: dict[str, int] = {}
        #: Host -> how far its clock was set, in milliseconds.
        self._stepped: dict[str, int] = {}
        self.faults_ms = _FAULTS_MS

    def run(self) -> None:
        """Work under faults, end the faults, check."""
        with Clients(self.world):
            for node in self.nodes:
                self._guard(node)
                node.start()
            self._begin()
            self._fail_for(self.faults_ms)
            self._heal()
            self._end()

    def _begin(self) -> None:
        for index, (node, ledger) in enumerate(zip(self.nodes, self.ledgers, strict=True)):
            hosts = [self.world.host(f"{what}{index}") for what in ("producer", "rival", "consumer", "admin")]
            for host in hosts:
                host.boot()
            self.clients.append(hosts)
            servers = node.bootstrap_servers
            hosts[3].run(_create(servers))
            for host in hosts[:2]:
                rng = Random(f"{self.world.seed} {host.name}")
                self._start(host, produce(host.name, servers, ledger, rng, lambda: self.going))
            rng = Random(f"{self.world.seed} consumer{index}")
            self._start(hosts[2], consume(f"consumer{index}", "group", servers, ledger, rng, lambda: self.going))

    def _start(self, host: Host, work: Coroutine[Any, Any, None]) -> None:
        assert host.loop is not None
        self.tasks.append(host.loop.create_task(work))

    def _guard(self, node: NodeHost) -> None:
        """A death that the disk planned: the process goes, or the power."""

        def crashed() -> None:
            self._note("crash in an effect")
            self._down(node)

        node.host.on_crash = crashed

    # ---- faults

    @property
    def kinds(self) -> list[Callable[[NodeHost], None]]:
        return [
            self._kill,
            self._stop,
            self._crash_in_an_effect,
            self._cut,
            self._pause,
            self._slow,
            self._crawl,
            self._step_clock,
        ]

    def _fail_for(self, ms: int) -> None:
        end_us = self.world.now_us + ms * 1000
        while self.world.now_us < end_us:
            self.world.run_for(self.rng.randrange(_BETWEEN_MS))
            self.rng.choice(self.kinds)(self.rng.choice(self.nodes))
            for node in self.nodes:
                assert node.failure is None, f"{node.host.name}: {node.failure}"

    def _note(self, kind: str) -> None:
        self.faults[kind] = self.faults.get(kind, 0) + 1

    def _down(self, node: NodeHost) -> None:
        if self.power and self.rng.random() < 0.6:
            node.power_off()
        else:
            node.kill()
        self._start_later(node)

    def _start_later(self, node: NodeHost) -> None:
        def start() -> None:
            if node.host.loop is not None:
                return
            try:
                node.start()
            except Crashed:
                self._note("crash in recovery")
                self._down(node)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                self._note("no room to start")
                self._down(node)

        self.world.after(self.rng.randrange(_DOWN_MS) * 1000, start, "start")

    def _kill(self, node: NodeHost) -> None:
        if node.host.loop is not None:
            self._note("kill")
            self._down(node)

    def _stop(self, node: NodeHost) -> None:
        if node.node is not None and not node.host.paused:
            self._note("stop")
            try:
                node.stop()
            except Crashed:
                self._down(node)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                self._note("no room to stop")
                self._down(node)
            else:
                self._start_later(node)

    def _crash_in_an_effect(self, node: NodeHost) -> None:
        if node.host.loop is not None:
            node.disk.crash_at = node.disk.effects + self.rng.randrange(300)

    def _cut(self, node: NodeHost) -> None:
        self._note("cut")
        client = self.rng.choice(self.clients[self.nodes.index(node)])
        network = self.world.network
        there, back = (client, node.host), (node.host, client)
        ways = self.rng.choice([[there], [back], [there, back]])
        for source, target in ways:
            network.cut(source, target)
            self._later(partial(network.heal, source, target))

    def _pause(self, node: NodeHost) -> None:
        self._note("pause")
        node.host.pause()
        self._later(node.host.resume)

    def _slow(self, node: NodeHost) -> None:
        self._note("slow link")
        client = self.rng.choice(self.clients[self.nodes.index(node)])
        self.world.network.slow(client, node.host, self.rng.randrange(200_000))

    def _crawl(self, node: NodeHost) -> None:
        self._note("slow host")
        node.host.slowness = self.rng.choice([1, 5, 30])

    def _step_clock(self, node: NodeHost) -> None:
        self._note("clock step")
        ms = self.rng.randrange(-600_000, 600_000)
        node.host.clock.step(ms)
        self._stepped[node.host.name] = self._stepped.get(node.host.name, 0) + ms

    def _later(self, mend: Callable[[], None]) -> None:
        self.world.after(self.rng.randrange(_DOWN_MS) * 1000, mend, "mend")

    # ---- the end

    def _heal(self) -> None:
        self.world.network.heal_all()
        for node in self.nodes:
            node.disk.crash_at = None
            node.host.slowness = 1
            # Steps may add up to more than an hour, and then a node takes no records of clients with other clocks.
            node.host.clock.step(-self._stepped.pop(node.host.name, 0))
            node.host.resume()
        self.world.run_for(_DOWN_MS * 2)
        for node in self.nodes:
            if node.host.loop is None:
                node.start()

    def _end(self) -> None:
        self.going = False
        ended = self.world.run_until(lambda: all(each.done() for each in self.tasks), limit_ms=_CALM_MS)
        assert ended, "a client does not end after the faults did"
        for task in self.tasks:
            task.result()
        for node, ledger, hosts in zip(self.nodes, self.ledgers, self.clients, strict=True):
            admin = hosts[3]
            logs = admin.run(read_all(node.bootstrap_servers, _TOPIC), limit_ms=_CALM_MS)
            commits = admin.run(read_commits(node.bootstrap_servers, "group", _TOPIC), limit_ms=_CALM_MS)
            check(ledger, logs, commits)

    @property
    def acknowledged(self) -> int:
        return sum(each.acknowledged for each in self.ledgers)


async def _create(servers: str) -> None:
    async def ask() -> None:
        async with AsyncAdmin(servers) as admin:
            await admin.create_topic(_TOPIC, partitions=PARTITIONS)

    await until_it_works(ask)


def run_history(seed: int) -> History:
    """A history by a seed; AssertionError when a promise is broken. Odd seeds lose power, too."""
    history = History(seed, power=seed % 2 == 1)
    history.run()
    return history
