"""Exactly once over three brokers: transactions that read and write, groups of both protocols, a share group; by seeds.

Rules:
- As in `tests/world/replicated.py`, with other clients, and other settings for each seed. Producers write `records`;
  two groups, one of each protocol, move every record once to a topic of their own, in transactions that commit their
  offsets; a share group takes all, or, in some histories, what the first group has moved. The topics of moved records
  may be compacted: each record has a key then.
- A mover aborts now and then, and stands still for longer than its session; in some histories two movers have one
  transactional id, so that each start fences the other one. One of them ends with the faults: together they might
  fence each other without an end.
- For each group a reader of committed records reads along what it moves.
- After the faults all of it must come to an end: every record moved and taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from ottla.client import (
    AsyncAdmin,
    ConfigResource,
    ResourceType,
)
from ottla.kernel.ids import TopicPartition
from ottla.sim.checker import Broken, check
from ottla.sim.exactly_once import MoveLedger, ShareLedger, all_taken, check_moved, move, share, watch
from ottla.sim.host import Host
from ottla.sim.node import NodeHost
from ottla.sim.workload import PARTITIONS, produce, read_all, until_it_works
from tests.world.cluster import servers_of
from tests.world.dealt import consumer, sharer, watcher
from tests.world.history import _CALM_MS, _TOPIC
from tests.world.replicated import _REPLICATED, DealtHistory

SETTINGS = _REPLICATED | {
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
}
SHARERS = "sharers"
PROTOCOLS = ("classic", "consumer")


class EosHistory(DealtHistory):
    """Three brokers, and clients that want every record once."""

    def __init__(self, seed: int, *, power: bool, voters: int = 1) -> None:
        super().__init__(seed, power=power, settings=SETTINGS, voters=voters)
        keyed = self.hands.compacts
        self.moves = [MoveLedger(f"movers-{each}", f"moved-{each}", keyed=keyed) for each in PROTOCOLS]
        self.shared = ShareLedger()
        self.shared_topic = self.moves[0].topic if self.hands.shares_moved else _TOPIC
        self.moving = True
        self.watching = True
        self.watchers: list[asyncio.Task[None]] = []
        self.movers: list[Host] = []
        self.first: list[asyncio.Task[None]] = []

    def _begin(self) -> None:
        names = ["producer", "rival", "mover-0", "mover-1", "mover-2", "mover-3", "sharer-0", "sharer-1"]
        names += ["watcher-0", "watcher-1", "admin"]
        hosts = [self.world.host(name) for name in names]
        for host in hosts:
            host.boot()
        self.clients = [hosts]
        self.movers = hosts[2:6]
        servers, [ledger] = servers_of(self.brokers), self.ledgers
        hosts[-1].run(self._create(servers), limit_ms=_CALM_MS)
        for host in hosts[:2]:
            given = self._given_to_producer(host)
            self._start(host, produce(host.name, servers, ledger, self._rng(host), lambda: self.going, given=given))
        # Those that end before the others are waited for: the producers, and the rivals of movers.
        self.first, self.tasks = self.tasks, []
        seed = self.world.seed
        shared = seed % 3 == 0
        for number, host in enumerate(self.movers):
            protocol, moves = PROTOCOLS[number % 2], self.moves[number % 2]
            name = f"mover-{protocol}" if shared else host.name
            going = self._in_faults if shared and number < len(PROTOCOLS) else self._in_all
            reads, writes = consumer(seed, host.name, protocol), self._given_to_producer(host)
            if self.hands.is_static:
                reads["group.instance.id"] = host.name
            self._start(host, move(name, servers, protocol, _TOPIC, moves, self._rng(host), going, reads, writes))
        if shared:
            self.first += self.tasks[: len(PROTOCOLS)]
            del self.tasks[: len(PROTOCOLS)]
        for host, moves in zip(hosts[8:10], self.moves, strict=True):
            given = watcher(seed, host.name)
            self._start(host, watch(servers, moves.topic, moves.seen, self._rng(host), lambda: self.watching, given))
        self.watchers = self.tasks[-2:]
        del self.tasks[-2:]
        for host in hosts[6:8]:
            work = share(
                SHARERS, servers, self.shared_topic, self.shared, self._rng(host), self._in_all, sharer(seed, host.name)
            )
            self._start(host, work)

    def _in_faults(self) -> bool:
        return self.going

    def _in_all(self) -> bool:
        return self.moving

    def _rng(self, host: Host) -> Random:
        return Random(f"{self.world.seed} {host.name}")

    async def _create(self, servers: str) -> None:
        own = {"cleanup.policy": "compact"} if self.hands.compacts else {}
        topics = {_TOPIC: self.hands.topics} | {each.topic: self.hands.topics | own for each in self.moves}
        await self._create_topics(servers, topics)

        async def ask() -> None:
            async with AsyncAdmin(servers) as admin:
                group = ConfigResource(ResourceType.GROUP, SHARERS)
                settings = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "15000"}
                settings |= {"share.isolation.level": "read_committed"} | self.hands.group
                (await admin.alter_configs({group: settings})).check()

        await until_it_works(ask)

    # ---- faults

    @property
    def kinds(self) -> list[Callable[[NodeHost], None]]:
        return [*super().kinds, self._pause_mover]

    def _pause_mover(self, node: NodeHost) -> None:
        """A client stands still: its session or its transaction runs out, and it comes back."""
        self._note("client pause")
        host = self.rng.choice(self.movers)
        host.pause()
        self.world.after(self.rng.randrange(25_000) * 1000, host.resume, "resume")

    # ---- the end

    def _end(self) -> None:
        for host in self.clients[0]:
            host.resume()
        self.going = False
        world, admin, servers = self.world, self.clients[0][-1], servers_of(self.brokers)
        ended = world.run_until(lambda: all(each.done() for each in self.first), limit_ms=_CALM_MS)
        assert ended, "a client does not end after the faults did"
        for task in self.first:
            task.result()
        logs = admin.run(read_all(servers, _TOPIC), limit_ms=_CALM_MS)
        check(self.ledgers[0], logs, {})
        count = sum(len(log) for log in logs.values())

        def over() -> bool:
            moved = all(
                moves.committed.get(index, 0) > log[-1][0] for moves in self.moves for index, log in logs.items() if log
            )
            return any(each.done() for each in self.tasks) or (moved and len(self.shared.delivered) >= count)

        came = world.run_until(over, limit_ms=_CALM_MS)
        if came:
            admin.run(all_taken(servers, SHARERS), limit_ms=_CALM_MS)
        self.moving = False
        ended = world.run_until(lambda: all(each.done() for each in self.tasks), limit_ms=_CALM_MS)
        for task in self.tasks:
            if task.done():
                task.result()
        assert ended, "a mover does not end after the faults did"
        assert came, f"not everything is moved and taken: {self.behind(logs)}"
        # A commit is confirmed before the partitions have its markers.
        assert world.run_until(self._is_decided, limit_ms=_CALM_MS), "a transaction stays open"
        moved = [admin.run(read_all(servers, moves.topic, committed=True), limit_ms=_CALM_MS) for moves in self.moves]

        def seen() -> bool:
            pairs = zip(self.moves, moved, strict=True)
            return all(
                len(moves.seen.get(index, [])) >= len(log) for moves, logs in pairs for index, log in logs.items()
            )

        world.run_until(lambda: seen() or any(each.done() for each in self.watchers), limit_ms=_CALM_MS)
        self.watching = False
        assert world.run_until(lambda: all(each.done() for each in self.watchers), limit_ms=_CALM_MS)
        for task in self.watchers:
            task.result()
        for moves, there in zip(self.moves, moved, strict=True):
            check_moved(moves, logs, there)
        taken = moved[0] if self.hands.shares_moved else logs
        wanted = {(index, offset): value for index, log in taken.items() for offset, value in log}
        for place in wanted.keys() | self.shared.delivered.keys():
            value = self.shared.delivered.get(place)
            if wanted.get(place) != value:
                raise Broken(f"the share group was given {value!r} at {place}, where {wanted.get(place)!r} is")
        assert world.run_until(self._is_level, limit_ms=_CALM_MS), self.described()
        self.look()

    def _is_decided(self) -> bool:
        """Does no log of moved records hold an open transaction?"""
        for node in self.brokers:
            for moves in self.moves:
                for index in range(PARTITIONS):
                    log = None if node.node is None else node.node.store.get(TopicPartition(moves.topic, index))
                    if log is not None and log.last_stable_offset != log.end_offset:
                        return False
        return True

    def behind(self, logs: dict[int, list[tuple[int, bytes]]]) -> object:
        """What is missing, for people."""
        ends = {index: log[-1][0] + 1 if log else 0 for index, log in logs.items()}
        taken = {index: sum(place[0] == index for place in self.shared.delivered) for index in logs}
        return ends, [dict(sorted(each.committed.items())) for each in self.moves], taken


def run_eos(seed: int, faults_ms: int | None = None, voters: int = 1) -> EosHistory:
    """A history by a seed; AssertionError when a promise is broken. Odd seeds lose power, too."""
    history = EosHistory(seed, power=seed % 2 == 1, voters=voters)
    history.faults_ms = faults_ms or history.faults_ms
    history.run()
    return history
