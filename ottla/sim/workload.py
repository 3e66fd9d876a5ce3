"""Clients in a world: producers and the consumers of a group.

Rules:
- The clients are ours, unmodified, each a process on its own host. They record what they were told in a
  `WorkloadLedger`.
- A client survives every error that Kafka's clients may meet: it leaves the outcome unknown, and starts over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from random import Random
from typing import Any

from ottla.client import AsyncConsumer, AsyncProducer, TopicPartition
from ottla.kernel.error import KafkaError, OttlaError
from ottla.sim.checker import Broken, SentRecord, WorkloadLedger
from ottla.sim.history import PollOperation, SendOperation

_PAUSE_S = (0.05, 1.5)
_BURST_MAX = 12
_DELIVERY_MS = 20_000
_REQUEST_MS = 4_000
#: Attempts, a second apart: longer than any broker session in a world.
_ATTEMPTS = 20
PARTITIONS = 3
Going = Callable[[], bool]
Seconds = tuple[float, float]


async def produce(
    name: str,
    servers: str,
    ledger: WorkloadLedger,
    rng: Random,
    going: Going,
    pause_s: Seconds = _PAUSE_S,
    given: Mapping[str, str] | None = None,
    **settings: Any,
) -> None:
    """Send bursts of numbered records as an idempotent producer while `going`, with a pause after each burst.

    `given` and `settings`: more settings of the producer, by Kafka's names and as keywords.
    """
    number = 0
    while going():
        try:
            async with AsyncProducer(
                {"bootstrap.servers": servers} | dict(given or {}),
                delivery_timeout_ms=_DELIVERY_MS,
                request_timeout_ms=_REQUEST_MS,
                max_block_ms=_DELIVERY_MS,
                **settings,
            ) as producer:
                while going():
                    burst = []
                    for _ in range(rng.randrange(1, _BURST_MAX)):
                        number += 1
                        burst.append(SentRecord(name, number, b"%s %d" % (name.encode(), number)))
                    ledger.sent += burst
                    await _deliver(producer, ledger, burst, rng)
                    await asyncio.sleep(rng.uniform(*pause_s))
        except (KafkaError, OttlaError):
            _start_over(ledger, name)
            await asyncio.sleep(rng.uniform(*_PAUSE_S))


def _start_over(ledger: WorkloadLedger, name: str) -> None:
    if ledger.history is not None:
        ledger.history.crash(name)


async def _deliver(producer: AsyncProducer, ledger: WorkloadLedger, burst: list[SentRecord], rng: Random) -> None:
    partition = rng.randrange(PARTITIONS)
    sends = [SendOperation(partition, each.value) for each in burst]
    with nullcontext() if ledger.history is None else ledger.history.operation(burst[0].producer, sends):
        try:
            await _send(producer, ledger.topic, burst, partition)
        finally:
            # A burst may fail after some of its records were acknowledged.
            sends[:] = [SendOperation(partition, each.value, each.offset) for each in burst]


async def _send(producer: AsyncProducer, topic: str, burst: list[SentRecord], partition: int) -> None:
    deliveries = [(each, await producer.send(topic, each.value, partition=partition)) for each in burst]
    failed: KafkaError | OttlaError | None = None
    for each, delivery in deliveries:
        try:
            told = await delivery
        except (KafkaError, OttlaError) as error:
            failed = error
        else:
            each.partition, each.offset = told.partition, told.offset if told.offset >= 0 else None
    if failed is not None:
        # Records after a lost one have no order relative to those in flight: start a new producer.
        raise failed


async def consume(
    name: str,
    group: str,
    servers: str,
    ledger: WorkloadLedger,
    rng: Random,
    going: Going,
    given: Mapping[str, str] | None = None,
    **settings: Any,
) -> None:
    """Consume as a member of a group while `going`, and commit after each poll. More settings as of `produce`."""
    seen = ledger.seen.setdefault(name, [])
    while going():
        try:
            async with AsyncConsumer(
                {"bootstrap.servers": servers, "enable.auto.commit": "false", "fetch.max.wait.ms": "2000"}
                | dict(given or {}),
                group_id=group,
                auto_offset_reset="earliest",
                request_timeout_ms=_REQUEST_MS,
                default_api_timeout_ms=_DELIVERY_MS,
                **settings,
            ) as consumer:
                seen.append(None)
                consumer.subscribe([ledger.topic])
                if ledger.history is not None:
                    ledger.history.subscribed(name, range(PARTITIONS))
                while going():
                    polls = [PollOperation()]
                    with nullcontext() if ledger.history is None else ledger.history.operation(name, polls):
                        records = await consumer.poll(rng.uniform(*_PAUSE_S))
                        found = [(each.partition, each.offset, each.value) for each in records]
                        polls[:] = [PollOperation(tuple(found))]
                        seen.extend(found)
                        if found:
                            await _commit(consumer, group, ledger, {index: offset + 1 for index, offset, _ in found})
        except (KafkaError, OttlaError):
            _start_over(ledger, name)
            await asyncio.sleep(rng.uniform(*_PAUSE_S))


async def _commit(consumer: AsyncConsumer, group: str, ledger: WorkloadLedger, positions: dict[int, int]) -> None:
    await consumer.commit({TopicPartition(ledger.topic, index): offset for index, offset in positions.items()})
    for index, offset in positions.items():
        ledger.committed[group, index] = max(offset, ledger.committed.get((group, index), 0))


async def commit_in_turn(
    group: str, servers: str, ledger: WorkloadLedger, rng: Random, going: Going, confirmed: Callable[[], None]
) -> None:
    """Commit increasing offsets as the only client of a group; Broken if a confirmed one is lost.

    `confirmed` is called after each commit. The commits are read before the next one, which would hide a loss.
    """
    partitions = [TopicPartition(ledger.topic, index) for index in range(PARTITIONS)]
    position = 0
    while going():
        try:
            async with AsyncConsumer(
                servers,
                group_id=group,
                enable_auto_commit=False,
                request_timeout_ms=_REQUEST_MS,
                default_api_timeout_ms=_DELIVERY_MS,
            ) as consumer:
                consumer.assign(partitions)
                while going():
                    await _still_there(consumer, group, ledger)
                    position += 1
                    await _commit(consumer, group, ledger, dict.fromkeys(range(PARTITIONS), position))
                    confirmed()
                    await asyncio.sleep(rng.uniform(*_PAUSE_S))
        except (KafkaError, OttlaError):
            await asyncio.sleep(rng.uniform(*_PAUSE_S))


async def _still_there(consumer: AsyncConsumer, group: str, ledger: WorkloadLedger) -> None:
    """Check the confirmed commits. Retries, since a deposed coordinator may give old answers until its session ends."""
    wanted = {TopicPartition(ledger.topic, index): at for (_, index), at in ledger.committed.items()}
    lost: list[str] = []
    for _ in range(_ATTEMPTS):
        told = await consumer.committed(list(wanted)) if wanted else {}
        found = {each: position.offset for each, position in told.items() if position is not None}
        lost = [f"{each}: {found.get(each)} of {at}" for each, at in wanted.items() if found.get(each, 0) < at]
        if not lost:
            return
        await asyncio.sleep(1)
    raise Broken(f"commits of {group} that were confirmed went back: {', '.join(lost)}")


async def read_all(servers: str, topic: str, *, committed: bool = False) -> dict[int, list[tuple[int, bytes]]]:
    """Every record of a topic: partition -> (offset, value). `committed`: only records of committed transactions."""
    isolation = "read_committed" if committed else "read_uncommitted"
    partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    found: dict[int, list[tuple[int, bytes]]] = {index: [] for index in range(PARTITIONS)}
    async with AsyncConsumer(
        servers, auto_offset_reset="earliest", fetch_max_wait_ms=50, isolation_level=isolation
    ) as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        await consumer.seek_to_beginning(partitions)
        while any([await consumer.position(each) < ends[each] for each in partitions]):
            for record in await consumer.poll(1.0):
                found[record.partition].append((record.offset, record.value))
    return found


async def read_commits(servers: str, group: str, topic: str) -> dict[tuple[str, int], int | None]:
    """The commits of a group: (group, partition) -> position."""
    async with AsyncConsumer(servers, group_id=group) as consumer:
        partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        consumer.assign(partitions)
        told = await consumer.committed(partitions)
    return {(group, each.partition): at.offset if at is not None else None for each, at in told.items()}


async def until_it_works(ask: Callable[[], Awaitable[None]], *, tries: int = 60) -> None:
    """Retry once a second, like an operator who waits for a node to come back."""
    for _ in range(tries - 1):
        try:
            return await ask()
        except (KafkaError, OttlaError):
            await asyncio.sleep(1)
    await ask()
