"""Clients with exactly-once expectations in a world: transactional movers, and members of a share group.

Rules:
- As in `ottla/sim/workload.py`. A `MoveLedger` and a `ShareLedger` record what the clients were told. They raise Broken
  at once if a partition has two owners in one generation, or an accepted record is delivered again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from ottla.client import (
    Acknowledge,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    ShareRecord,
    TopicPartition,
)
from ottla.kernel.error import KafkaError, OttlaError
from ottla.sim.checker import Broken
from ottla.sim.workload import PARTITIONS

_ABORTED = b"aborted "
_TRANSACTION_MS = 15_000
_REQUEST_MS = 4_000
_PATIENCE_MS = 20_000
_PAUSE_S = (0.05, 0.8)
#: How often a member of a share group acknowledges so.
_WORDS = {Acknowledge.ACCEPT: 85, Acknowledge.RELEASE: 10, Acknowledge.REJECT: 5}

#: Settings of a client by Kafka's names.
Settings = Mapping[str, str]
_NO_SETTINGS: Settings = {}

#: Partition -> (offset, value) of its records.
Log = dict[int, list[tuple[int, bytes]]]


@dataclass(slots=True)
class MoveLedger:
    """What the movers of one group were told."""

    group: str
    topic: str
    #: The records of `topic` that a read_committed consumer saw.
    seen: Log = field(default_factory=dict)
    #: Source partition -> the highest position whose transaction was confirmed.
    committed: dict[int, int] = field(default_factory=dict)
    #: Has each record a key? Compacted topics require one.
    keyed: bool = False
    #: (generation, partition) -> the member that read records of it: a static one by its own name.
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    transactions: int = 0
    aborted: int = 0
    #: Rounds that failed: fenced, timed out, lost their partition.
    failed: int = 0

    def add_owner(self, generation: int, member: str, partition: int) -> None:
        """Record that a member reads a partition in a generation. Broken if another member did."""
        before = self.owners.setdefault((generation, partition), member)
        if before != member:
            raise Broken(f"{self.group}: partition {partition} has two owners in {generation}: {before} and {member}")


@dataclass(slots=True)
class ShareLedger:
    """What the members of a share group were told."""

    #: (partition, offset) -> value.
    delivered: dict[tuple[int, int], bytes] = field(default_factory=dict)
    #: (partition, offset) -> the delivery count of the confirmed acceptance.
    accepted: dict[tuple[int, int], int] = field(default_factory=dict)

    def add_delivery(self, partition: int, offset: int, value: bytes, count: int) -> None:
        """Note a delivery. Broken if an earlier delivery was accepted, or the offset held another record."""
        if count > self.accepted.get((partition, offset), count):
            raise Broken(f"share group: partition {partition} at {offset} was accepted, and came in delivery {count}")
        before = self.delivered.setdefault((partition, offset), value)
        if before != value:
            raise Broken(f"share group: partition {partition} at {offset} was {before!r}, and then {value!r}")


async def move(
    name: str,
    servers: str,
    protocol: str,
    topic: str,
    ledger: MoveLedger,
    rng: Random,
    going: Callable[[], bool],
    reads: Settings = _NO_SETTINGS,
    writes: Settings = _NO_SETTINGS,
) -> None:
    """Move records in transactions while `going`; after any failure, start over with the same transactional id.

    `reads` and `writes`: more settings of the consumer and the producer.
    """
    own = {"bootstrap.servers": servers, "max.poll.records": "20", **reads}
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
                    request_timeout_ms=_REQUEST_MS,
                    default_api_timeout_ms=_PATIENCE_MS,
                ) as consumer,
                AsyncProducer(
                    {"bootstrap.servers": servers, **writes},
                    transactional_id=name,
                    transaction_timeout_ms=_TRANSACTION_MS,
                    delivery_timeout_ms=_PATIENCE_MS,
                    request_timeout_ms=_REQUEST_MS,
                    max_block_ms=_PATIENCE_MS,
                ) as producer,
            ):
                await producer.init_transactions()
                consumer.subscribe([topic])
                while going():
                    await _move_some(topic, consumer, producer, ledger, rng)
        except (KafkaError, OttlaError):
            ledger.failed += 1
            await asyncio.sleep(rng.uniform(*_PAUSE_S))


async def _move_some(
    topic: str,
    consumer: AsyncConsumer[bytes, bytes],
    producer: AsyncProducer[bytes, bytes],
    ledger: MoveLedger,
    rng: Random,
) -> None:
    records = await consumer.poll(rng.uniform(*_PAUSE_S))
    if not records:
        return
    member = consumer.group_metadata()
    for each in records:
        ledger.add_owner(member.generation_id, member.group_instance_id or member.member_id, each.partition)
    positions = {TopicPartition(topic, each.partition): each.offset + 1 for each in records}
    aborts = rng.random() < 0.1
    await producer.begin_transaction()
    for each in records:
        # To another partition, which another broker may lead; the records of one partition stay together, in order.
        value = _ABORTED + each.value if aborts else each.value
        key = value if ledger.keyed else None
        await producer.send(ledger.topic, value, key=key, partition=(each.partition + 1) % PARTITIONS)
        if rng.random() < 0.05:
            await asyncio.sleep(rng.uniform(*_PAUSE_S))
    if aborts:
        await producer.flush()
        await producer.abort_transaction()
        ledger.aborted += 1
        for each in reversed(records):
            await consumer.seek(TopicPartition(topic, each.partition), each.offset)
        return
    await producer.send_offsets(member, positions)
    await producer.commit_transaction()
    ledger.transactions += 1
    for partition, position in positions.items():
        ledger.committed[partition.partition] = max(position, ledger.committed.get(partition.partition, 0))


async def watch(
    servers: str, topic: str, seen: Log, rng: Random, going: Callable[[], bool], given: Settings = _NO_SETTINGS
) -> None:
    """Read committed records while `going`, resuming after failures; Broken if the offsets go back."""
    while going():
        try:
            async with AsyncConsumer(
                {"bootstrap.servers": servers, **given},
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                request_timeout_ms=_REQUEST_MS,
                default_api_timeout_ms=_PATIENCE_MS,
            ) as consumer:
                places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
                consumer.assign(places)
                for place in places:
                    records = seen.setdefault(place.partition, [])
                    await consumer.seek(place, records[-1][0] + 1 if records else 0)
                while going():
                    for record in await consumer.poll(rng.uniform(*_PAUSE_S)):
                        records = seen[record.partition]
                        if records and record.offset <= records[-1][0]:
                            raise Broken(f"{topic}-{record.partition}: {record.offset} comes after {records[-1][0]}")
                        records.append((record.offset, record.value))
        except (KafkaError, OttlaError):
            await asyncio.sleep(rng.uniform(*_PAUSE_S))


async def share(
    group: str,
    servers: str,
    topic: str,
    ledger: ShareLedger,
    rng: Random,
    going: Callable[[], bool],
    given: Settings = _NO_SETTINGS,
) -> None:
    """Consume as a member of a share group while `going`; in explicit mode, give some records back or reject them."""
    while going():
        try:
            async with AsyncShareConsumer(
                {"bootstrap.servers": servers, **given},
                group_id=group,
                request_timeout_ms=_REQUEST_MS,
                default_api_timeout_ms=_PATIENCE_MS,
            ) as consumer:
                consumer.subscribe([topic])
                while going():
                    records = await consumer.poll(rng.uniform(*_PAUSE_S))
                    for each in records:
                        ledger.add_delivery(each.partition, each.offset, each.value, each.delivery_count)
                    settled = _acknowledge(consumer, records, rng) if consumer.explicit else records
                    results = await consumer.commit()
                    for each in settled:
                        if results.get(TopicPartition(topic, each.partition), OttlaError()) is None:
                            ledger.accepted[each.partition, each.offset] = each.delivery_count
        except (KafkaError, OttlaError):
            await asyncio.sleep(rng.uniform(*_PAUSE_S))


def _acknowledge(
    consumer: AsyncShareConsumer[bytes, bytes], records: list[ShareRecord[bytes, bytes]], rng: Random
) -> list[ShareRecord[bytes, bytes]]:
    """Acknowledge each record in some way; returns those that may not come again."""
    settled = []
    for each in records:
        word = rng.choices(list(_WORDS), list(_WORDS.values()))[0]
        consumer.acknowledge(each, word)
        if word is not Acknowledge.RELEASE:
            settled.append(each)
    return settled


async def all_taken(servers: str, group: str) -> None:
    """Wait until the share group has no lag, so that no record can be delivered again."""
    async with AsyncAdmin(servers) as admin:
        seen: object = None
        for _ in range(120):
            results = await admin.list_share_group_offsets(group)
            if not results.errors and all(each.lag == 0 for each in results.values()):
                return
            seen = dict(results), results.errors
            await asyncio.sleep(1)
        raise Broken(f"the share group does not come to its end: {seen}")


def check_moved(ledger: MoveLedger, logs: Log, moved: Log) -> None:
    """Check that every source record was moved exactly once, in order, and that readers saw exactly those."""
    for index, log in logs.items():
        _same(f"{ledger.topic}: of partition {index}", [value for _, value in moved[(index + 1) % PARTITIONS]], log)
    for index, records in moved.items():
        seen = ledger.seen.get(index, [])
        if seen != records:
            at = next((at for at, pair in enumerate(zip(seen, records, strict=False)) if pair[0] != pair[1]), len(seen))
            raise Broken(
                f"{ledger.topic}-{index}: a reader saw {seen[at : at + 3]} where {records[at : at + 3]} is, "
                f"{len(seen)} records of {len(records)}"
            )


def _same(what: str, there: list[bytes], log: list[tuple[int, bytes]]) -> None:
    wanted = [value for _, value in log]
    if there != wanted:
        same = zip(there, wanted, strict=False)
        at = next((at for at, (one, other) in enumerate(same) if one != other), min(len(there), len(wanted)))
        raise Broken(
            f"{what} {len(there)} records of {len(wanted)} are there, "
            f"and from {at} on {there[at : at + 3]} in the place of {wanted[at : at + 3]}"
        )
