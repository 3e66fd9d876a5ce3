"""Exactly once over three brokers: transactions that read and write, groups of both protocols, a share group; by seeds.

Rules:
- As in `tests/world/replicated.py`, with other clients. Producers write `records`; two groups, one of each protocol,
  move every record once to a topic of their own, in transactions that commit their offsets; a share group takes all.
- A mover aborts now and then, and stands still for longer than its session; in some histories two movers have one
  transactional id, so that each start fences the other one.
- After the faults all of it must come to an end: every record moved and taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from ottla.client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    ConfigResource,
    ResourceType,
    TopicPartition,
)
from ottla.kernel.error import KafkaError, OttlaError
from ottla.sim.checker import Broken, check
from ottla.sim.host import Host
from ottla.sim.node import NodeHost
from ottla.sim.workload import PARTITIONS, produce, read_all, until_it_works
from tests.world.cluster import servers_of
from tests.world.history import _CALM_MS, _TOPIC
from tests.world.replicated import _REPLICATED, ReplicatedHistory

SETTINGS = _REPLICATED | {
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
}
_SHARERS = "sharers"
_ABORTED = b"aborted "
_TRANSACTION_MS = 15_000
_REQUEST_MS = 4_000
_PATIENCE_MS = 20_000
_PAUSE_S = (0.05, 0.8)
PROTOCOLS = ("classic", "consumer")


@dataclass(slots=True)
class MoveLedger:
    """What the movers of one group were told."""

    group: str
    topic: str
    #: By partition of `records`: the highest position whose transaction was confirmed.
    committed: dict[int, int] = field(default_factory=dict)
    #: (generation, partition) -> the member that had a record of it.
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    transactions: int = 0
    aborted: int = 0
    #: Bodies that failed: fenced, timed out, lost their partition.
    failed: int = 0

    def owns(self, generation: int, member: str, partition: int) -> None:
        """A member reads a partition in a generation. Broken when another one did."""
        before = self.owners.setdefault((generation, partition), member)
        if before != member:
            raise Broken(f"{self.group}: partition {partition} has two owners in {generation}: {before} and {member}")


@dataclass(slots=True)
class ShareLedger:
    """What the members of a share group were told."""

    #: (partition, offset) -> value.
    delivered: dict[tuple[int, int], bytes] = field(default_factory=dict)
    #: (partition, offset) -> the delivery count of the one that was accepted and confirmed.
    accepted: dict[tuple[int, int], int] = field(default_factory=dict)

    def given(self, partition: int, offset: int, value: bytes, count: int) -> None:
        """A record was delivered. Broken when it was accepted in an earlier delivery, or another one had its place."""
        if count > self.accepted.get((partition, offset), count):
            raise Broken(f"share group: partition {partition} at {offset} was accepted, and came in delivery {count}")
        before = self.delivered.setdefault((partition, offset), value)
        if before != value:
            raise Broken(f"share group: partition {partition} at {offset} was {before!r}, and then {value!r}")


async def move(
    name: str, servers: str, protocol: str, ledger: MoveLedger, rng: Random, going: Callable[[], bool]
) -> None:
    """Move records in transactions while `going`; whatever fails, begin again with the same transactional id."""
    own = {"bootstrap.servers": servers}
    if protocol == "classic":
        own["session.timeout.ms"] = str(_PATIENCE_MS // 3)
    while going():
        try:
            async with (
                AsyncConsumer(
                    own,
                    group_id=ledger.group,
                    group_protocol=protocol,
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                    max_poll_records=20,
                    request_timeout_ms=_REQUEST_MS,
                    default_api_timeout_ms=_PATIENCE_MS,
                ) as consumer,
                AsyncProducer(
                    servers,
                    transactional_id=name,
                    transaction_timeout_ms=_TRANSACTION_MS,
                    delivery_timeout_ms=_PATIENCE_MS,
                    request_timeout_ms=_REQUEST_MS,
                    max_block_ms=_PATIENCE_MS,
                ) as producer,
            ):
                await producer.init_transactions()
                consumer.subscribe([_TOPIC])
                while going():
                    await _move_some(consumer, producer, ledger, rng)
        except (KafkaError, OttlaError):
            ledger.failed += 1
            await asyncio.sleep(rng.uniform(*_PAUSE_S))


async def _move_some(
    consumer: AsyncConsumer[bytes, bytes], producer: AsyncProducer[bytes, bytes], ledger: MoveLedger, rng: Random
) -> None:
    records = await consumer.poll(rng.uniform(*_PAUSE_S))
    if not records:
        return
    member = consumer.group_metadata()
    for each in records:
        ledger.owns(member.generation_id, member.member_id, each.partition)
    positions = {TopicPartition(_TOPIC, each.partition): each.offset + 1 for each in records}
    aborts = rng.random() < 0.1
    await producer.begin_transaction()
    for each in records:
        # To another partition, which another broker may lead; the records of one go to one, in their order.
        value = _ABORTED + each.value if aborts else each.value
        await producer.send(ledger.topic, value, partition=(each.partition + 1) % PARTITIONS)
        if rng.random() < 0.05:
            await asyncio.sleep(rng.uniform(*_PAUSE_S))
    if aborts:
        await producer.flush()
        await producer.abort_transaction()
        ledger.aborted += 1
        for each in reversed(records):
            await consumer.seek(TopicPartition(_TOPIC, each.partition), each.offset)
        return
    await producer.send_offsets(member, positions)
    await producer.commit_transaction()
    ledger.transactions += 1
    for partition, position in positions.items():
        ledger.committed[partition.partition] = max(position, ledger.committed.get(partition.partition, 0))


async def share(servers: str, ledger: ShareLedger, rng: Random, going: Callable[[], bool]) -> None:
    """Take records as a member of a share group while `going`."""
    while going():
        try:
            async with AsyncShareConsumer(
                servers, group_id=_SHARERS, request_timeout_ms=_REQUEST_MS, default_api_timeout_ms=_PATIENCE_MS
            ) as consumer:
                consumer.subscribe([_TOPIC])
                while going():
                    records = await consumer.poll(rng.uniform(*_PAUSE_S))
                    for each in records:
                        ledger.given(each.partition, each.offset, each.value, each.delivery_count)
                    told = await consumer.commit()
                    for each in records:
                        if told.get(TopicPartition(_TOPIC, each.partition), OttlaError()) is None:
                            ledger.accepted[each.partition, each.offset] = each.delivery_count
        except (KafkaError, OttlaError):
            await asyncio.sleep(rng.uniform(*_PAUSE_S))


class EosHistory(ReplicatedHistory):
    """Three brokers under a controller, and clients that want every record once."""

    def __init__(self, seed: int, *, power: bool) -> None:
        super().__init__(seed, power=power, settings=SETTINGS)
        self.moves = [MoveLedger(f"movers-{each}", f"moved-{each}") for each in PROTOCOLS]
        self.shared = ShareLedger()
        self.moving = True
        self.movers: list[Host] = []
        self.producers: list[asyncio.Task[None]] = []

    def _begin(self) -> None:
        names = ["producer", "rival", "mover-0", "mover-1", "mover-2", "mover-3", "sharer-0", "sharer-1", "admin"]
        hosts = [self.world.host(name) for name in names]
        for host in hosts:
            host.boot()
        self.clients = [hosts]
        self.movers = hosts[2:6]
        servers, [ledger] = servers_of(self.brokers), self.ledgers
        hosts[-1].run(self._create(servers), limit_ms=_CALM_MS)
        for host in hosts[:2]:
            self._start(host, produce(host.name, servers, ledger, self._rng(host), lambda: self.going))
        self.producers, self.tasks = self.tasks, []
        for number, host in enumerate(self.movers):
            protocol, moves = PROTOCOLS[number % 2], self.moves[number % 2]
            # Two hosts have one transactional id in some histories: the later one fences the other.
            name = host.name if self.world.seed % 3 else f"mover-{protocol}"
            self._start(host, move(name, servers, protocol, moves, self._rng(host), lambda: self.moving))
        for host in hosts[6:8]:
            self._start(host, share(servers, self.shared, self._rng(host), lambda: self.moving))

    def _rng(self, host: Host) -> Random:
        return Random(f"{self.world.seed} {host.name}")

    async def _create(self, servers: str) -> None:
        async def ask() -> None:
            async with AsyncAdmin(servers) as admin:
                topics = {each.name for each in await admin.list_topics()}
                for name in (_TOPIC, *(each.topic for each in self.moves)):
                    if name not in topics:
                        await admin.create_topic(name, partitions=PARTITIONS, replication_factor=3)
                group = ConfigResource(ResourceType.GROUP, _SHARERS)
                told = await admin.alter_configs(
                    {group: {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "15000"}}
                )
                told.check()

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
        ended = world.run_until(lambda: all(each.done() for each in self.producers), limit_ms=_CALM_MS)
        assert ended, "a producer does not end after the faults did"
        for task in self.producers:
            task.result()
        logs = admin.run(read_all(servers, _TOPIC), limit_ms=_CALM_MS)
        check(self.ledgers[0], logs, {})
        wanted = {(index, offset): value for index, log in logs.items() for offset, value in log}

        def over() -> bool:
            moved = all(
                moves.committed.get(index, 0) > log[-1][0] for moves in self.moves for index, log in logs.items() if log
            )
            return any(each.done() for each in self.tasks) or (moved and self.shared.delivered.keys() >= wanted.keys())

        came = world.run_until(over, limit_ms=_CALM_MS)
        if came:
            admin.run(self._all_taken(servers), limit_ms=_CALM_MS)
        self.moving = False
        ended = world.run_until(lambda: all(each.done() for each in self.tasks), limit_ms=_CALM_MS)
        for task in self.tasks:
            if task.done():
                task.result()
        assert ended, "a mover does not end after the faults did"
        assert came, f"not everything is moved and taken: {self.behind(logs)}"
        for moves in self.moves:
            moved = admin.run(read_all(servers, moves.topic, isolation_level="read_committed"), limit_ms=_CALM_MS)
            check_moved(moves, logs, moved)
        for place, value in self.shared.delivered.items():
            if wanted.get(place) != value:
                raise Broken(f"the share group was given {value!r} at {place}, where {wanted.get(place)!r} is")
        assert world.run_until(self._is_level, limit_ms=_CALM_MS), self.described()
        self.look()

    async def _all_taken(self, servers: str) -> None:
        """Return when the share group has nothing left to give: what was accepted is over, known to be or not."""
        async with AsyncAdmin(servers) as admin:
            seen: object = None
            for _ in range(120):
                told = await admin.list_share_group_offsets(_SHARERS)
                if not told.errors and all(each.lag == 0 for each in told.values()):
                    return
                seen = dict(told), told.errors
                await asyncio.sleep(1)
            raise Broken(f"the share group does not come to its end: {seen}")

    def behind(self, logs: dict[int, list[tuple[int, bytes]]]) -> object:
        """What is missing, for people."""
        ends = {index: log[-1][0] + 1 if log else 0 for index, log in logs.items()}
        taken = {index: sum(place[0] == index for place in self.shared.delivered) for index in logs}
        return ends, [dict(sorted(each.committed.items())) for each in self.moves], taken


def check_moved(
    ledger: MoveLedger, logs: dict[int, list[tuple[int, bytes]]], moved: dict[int, list[tuple[int, bytes]]]
) -> None:
    """Everything that is in `records` was moved once, in its order, and nothing else."""
    for index, log in logs.items():
        there = [value for _, value in moved[(index + 1) % PARTITIONS]]
        wanted = [value for _, value in log]
        if there != wanted:
            same = zip(there, wanted, strict=False)
            at = next((at for at, (one, other) in enumerate(same) if one != other), min(len(there), len(wanted)))
            raise Broken(
                f"{ledger.topic}: of partition {index} {len(there)} records of {len(wanted)} are there, "
                f"and from {at} on {there[at : at + 3]} in the place of {wanted[at : at + 3]}"
            )


def run_eos(seed: int) -> EosHistory:
    """A history by a seed; AssertionError when a promise is broken. Odd seeds lose power, too."""
    history = EosHistory(seed, power=seed % 2 == 1)
    history.run()
    return history
