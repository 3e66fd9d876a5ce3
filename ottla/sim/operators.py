"""Operators in a world: they move partitions, and create and delete a topic.

Rules: as in `ottla/sim/workload.py`. An operator survives every error that Kafka's tools may meet.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

from ottla.client import AsyncAdmin, AsyncConsumer, AsyncProducer, TopicPartition
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.sim.checker import Broken
from ottla.sim.workload import Going, until_it_works

REPLICAS = 3
_SHORT_LIVED = "short-lived"
_REQUEST_MS = 4_000
_LIMIT_MS = 20_000
#: Attempts, a second apart: longer than any broker session.
_ATTEMPTS = 20


async def reassign(servers: str, nodes: list[int], rng: Random, going: Going, done: Counter[str]) -> None:
    """Reassign partitions, elect leaders and cancel reassignments, one at a time, while `going`."""
    while going():
        try:
            async with AsyncAdmin(servers, request_timeout_ms=_REQUEST_MS, default_api_timeout_ms=_LIMIT_MS) as admin:
                while going():
                    await asyncio.sleep(rng.uniform(0.5, 3))
                    await _change(admin, nodes, rng, done)
        except (KafkaError, OttlaError):
            await asyncio.sleep(1)


async def _change(admin: AsyncAdmin, nodes: list[int], rng: Random, done: Counter[str]) -> None:
    kind = rng.choice(["elect", "call off", "move", "move"])
    if kind == "elect":
        changed = (await admin.elect_leaders()).succeeded
    elif kind == "call off":
        moving = await admin.list_partition_reassignments()
        changed = (await admin.alter_partition_reassignments(dict.fromkeys(moving))).succeeded
    else:
        names = [each.name for each in await admin.list_topics(internal=True)]
        topics = (await admin.describe_topics(names)).succeeded
        places = [TopicPartition(name, part.partition) for name, topic in topics.items() for part in topic.partitions]
        chosen = rng.sample(places, rng.randrange(1, 5))
        wanted = {place: rng.sample(nodes, REPLICAS) for place in chosen}
        changed = (await admin.alter_partition_reassignments(wanted)).succeeded
    done[kind] += len(changed)


async def cycle_topic(servers: str, rng: Random, going: Going, lives: list[int]) -> None:
    """Create, write, read and delete a topic while `going`; Broken if it holds records of an earlier topic.

    Only the controller knows whether the topic exists: a broker that lags behind still lists a deleted topic, and may
    serve its old records until its session ends.
    """
    life = 0
    while going():
        life += 1
        await _changed(servers, ErrorCode.TOPIC_ALREADY_EXISTS, _make)
        changed = await _write(servers, life, rng.randrange(1, 30))
        wrong = ""
        for _ in range(_ATTEMPTS):
            found = await _read(servers)
            foreign = [value for value in found if not value.startswith(b"%d " % life)]
            missing = sorted(set(changed) - set(found))
            if not foreign and not missing:
                break
            wrong = f"holds {foreign[:3]} and lacks {missing[:3]} of {len(changed)} that were acknowledged"
            await asyncio.sleep(1)
        else:
            raise Broken(f"the topic of life {life} {wrong}")
        lives.append(len(changed))
        await _changed(servers, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _delete)
        await asyncio.sleep(rng.uniform(0, 2))


async def _make(admin: AsyncAdmin) -> None:
    await admin.create_topic(_SHORT_LIVED, partitions=1, replication_factor=REPLICAS)


async def _delete(admin: AsyncAdmin) -> None:
    await admin.delete_topic(_SHORT_LIVED)


async def _changed(servers: str, done: ErrorCode, change: Callable[[AsyncAdmin], Awaitable[None]]) -> None:
    """Retry until the controller has made the change, now or by an earlier request whose answer was lost."""

    async def ask() -> None:
        async with AsyncAdmin(servers, request_timeout_ms=_REQUEST_MS, default_api_timeout_ms=_LIMIT_MS) as admin:
            try:
                await change(admin)
            except KafkaError as error:
                if error.code != done:
                    raise

    await until_it_works(ask)


async def _write(servers: str, life: int, count: int) -> list[bytes]:
    """Write records; returns the acknowledged ones."""
    changed: list[bytes] = []
    try:
        async with AsyncProducer(
            servers, delivery_timeout_ms=_LIMIT_MS, request_timeout_ms=_REQUEST_MS, max_block_ms=_LIMIT_MS
        ) as producer:
            for number in range(count):
                value = b"%d %d" % (life, number)
                await (await producer.send(_SHORT_LIVED, value))
                changed.append(value)
    except (KafkaError, OttlaError):
        pass
    return changed


async def _read(servers: str) -> list[bytes]:
    found: list[bytes] = []

    async def ask() -> None:
        found.clear()
        place = TopicPartition(_SHORT_LIVED, 0)
        async with AsyncConsumer(servers, auto_offset_reset="earliest", fetch_max_wait_ms=50) as consumer:
            consumer.assign([place])
            end = (await consumer.end_offsets([place]))[place]
            while await consumer.position(place) < end:
                found.extend(record.value for record in await consumer.poll(1.0))

    await until_it_works(ask)
    return found
