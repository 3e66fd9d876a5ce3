"""The peer of aiokafka. One loop for the program's life; a job runs on it as a generator."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import for_code

from tests.interop.python.job import Json, data, headers, record_line, run, told_to_leave, wait_to_leave

#: An op without an answer is a generator all the same.
NOTHING: tuple[Json, ...] = ()
LOOP = asyncio.new_event_loop()
AsyncOp = Callable[[Json], AsyncIterator[Json]]


async def about(job: Json) -> AsyncIterator[Json]:
    yield {"client": f"aiokafka {aiokafka.__version__}"}


async def produce(job: Json) -> AsyncIterator[Json]:
    producer = AIOKafkaProducer(
        bootstrap_servers=job["bootstrap"],
        acks="all" if job["acks"] == "all" else int(job["acks"]),
        compression_type=None if job["codec"] == "none" else job["codec"],
        enable_idempotence=job["idempotent"],
        linger_ms=0 if job["each"] else 5,
        request_timeout_ms=20_000,
    )
    await producer.start()
    try:
        waiting = []
        for record in job["records"]:
            future = await producer.send(
                job["topic"],
                partition=record["p"],
                timestamp_ms=record["t"],
                key=data(record["k"]),
                value=data(record["v"]),
                headers=headers(record),
            )
            if job["each"]:
                yield _ack(await future, record)
            else:
                waiting.append((future, record))
        for future, record in waiting:
            yield _ack(await future, record)
    finally:
        await producer.stop()


async def transact(job: Json) -> AsyncIterator[Json]:
    producer = AIOKafkaProducer(bootstrap_servers=job["bootstrap"], transactional_id=job["id"])
    await producer.start()
    try:
        await producer.begin_transaction()
        for record in job["records"]:
            await producer.send(job["topic"], data(record["v"]), data(record["k"]), partition=record["p"])
        await producer.flush()
        if job["offsets"]:
            offsets = {TopicPartition(job["topic"], int(p)): offset for p, offset in job["offsets"].items()}
            await producer.send_offsets_to_transaction(offsets, job["group"])
        yield {"open": True}
        await asyncio.to_thread(wait_to_leave)
        await (producer.commit_transaction() if job["commit"] else producer.abort_transaction())
    finally:
        await producer.stop()


def _ack(written: Any, record: Json) -> Json:
    if written is None:  # acks=0
        return {"p": record["p"], "o": -1}
    return {"p": written.partition, "o": written.offset}


async def consume(job: Json) -> AsyncIterator[Json]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=job["bootstrap"],
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level=job["isolation"],
    )
    await consumer.start()
    try:
        starts = {TopicPartition(job["topic"], int(p)): offset for p, offset in job["from"].items()}
        consumer.assign(list(starts))
        for where, offset in starts.items():
            consumer.seek(where, offset)
        count, deadline = 0, time.monotonic() + job["timeout_ms"] / 1000
        while count < job["count"] and time.monotonic() < deadline:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    yield _line(record)
                    count += 1
    finally:
        await consumer.stop()


def _line(record: Any) -> Json:
    return record_line(record.partition, record.offset, record.timestamp, record.key, record.value, record.headers)


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Notes what changed, for the job to say."""

    def __init__(self) -> None:
        self.changes: list[Json] = []

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self.changes.append({"revoked": [[p.topic, p.partition] for p in revoked]})

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.changes.append({"assigned": [[p.topic, p.partition] for p in assigned]})


async def group(job: Json) -> AsyncIterator[Json]:
    only_range = job.get("assignor") == "range"
    consumer = AIOKafkaConsumer(
        bootstrap_servers=job["bootstrap"],
        group_id=job["group"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=5_000,
        heartbeat_interval_ms=500,
        partition_assignment_strategy=(
            (RangePartitionAssignor,) if only_range else (RangePartitionAssignor, RoundRobinPartitionAssignor)
        ),
    )
    listener = Listener()
    consumer.subscribe(job["topics"], listener=listener)
    await consumer.start()
    try:
        while not told_to_leave():
            polled = await consumer.getmany(timeout_ms=100)
            while listener.changes:
                yield listener.changes.pop(0)
            for records in polled.values():
                for record in records:
                    yield _line(record)
            if polled:
                await consumer.commit()
    finally:
        await consumer.stop()


async def offsets(job: Json) -> AsyncIterator[Json]:
    consumer = AIOKafkaConsumer(bootstrap_servers=job["bootstrap"])
    await consumer.start()
    try:
        where = TopicPartition(job["topic"], job["partition"])
        if job["at"] == "earliest":
            yield {"offset": (await consumer.beginning_offsets([where]))[where]}
        elif job["at"] == "latest":
            yield {"offset": (await consumer.end_offsets([where]))[where]}
        else:
            found = (await consumer.offsets_for_times({where: job["at"]}))[where]
            yield {"offset": -1 if found is None else found.offset}
    finally:
        await consumer.stop()


class Admin:
    """The admin client for the length of a job."""

    def __init__(self, job: Json) -> None:
        self._client = AIOKafkaAdminClient(bootstrap_servers=job["bootstrap"])

    async def __aenter__(self) -> Any:
        await self._client.start()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


def _check(code: int) -> None:
    if code:
        raise for_code(code)


async def create(job: Json) -> AsyncIterator[Json]:
    async with Admin(job) as admin:
        topic = NewTopic(job["topic"], job["partitions"], 1, topic_configs=job.get("configs", {}))
        for result in (await admin.create_topics([topic])).topic_errors:
            _check(result[1])
    for line in NOTHING:
        yield line


async def delete(job: Json) -> AsyncIterator[Json]:
    async with Admin(job) as admin:
        for _, code in (await admin.delete_topics([job["topic"]])).topic_error_codes:
            _check(code)
    for line in NOTHING:
        yield line


async def add_partitions(job: Json) -> AsyncIterator[Json]:
    async with Admin(job) as admin:
        response = await admin.create_partitions({job["topic"]: NewPartitions(job["partitions"])})
        for result in response.topic_errors:
            _check(result[1])
    for line in NOTHING:
        yield line


async def topics(job: Json) -> AsyncIterator[Json]:
    async with Admin(job) as admin:
        yield {"topics": sorted(await admin.list_topics())}


async def describe(job: Json) -> AsyncIterator[Json]:
    async with Admin(job) as admin:
        (topic,) = await admin.describe_topics([job["topic"]])
        _check(topic["error_code"])
        lines = [
            {"p": p["partition"], "leader": p["leader"], "replicas": list(p["replicas"])} for p in topic["partitions"]
        ]
        yield {"partitions": lines}


async def configs(job: Json) -> AsyncIterator[Json]:
    async with Admin(job) as admin:
        (response,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, job["topic"])])
        (resource,) = response.resources
        _check(resource[0])
        yield {"configs": {entry[0]: entry[1] for entry in resource[4]}}


async def groups(job: Json) -> AsyncIterator[Json]:
    async with Admin(job) as admin:
        yield {"groups": sorted(name for name, *_ in await admin.list_consumer_groups())}


async def committed(job: Json) -> AsyncIterator[Json]:
    async with Admin(job) as admin:
        found = await admin.list_consumer_group_offsets(job["group"])
        yield {"offsets": {str(p.partition): o.offset for p, o in found.items() if p.topic == job["topic"]}}


def code_of(problem: BaseException) -> int | None:
    code = getattr(problem, "errno", None)
    return code if isinstance(code, int) else None


def on_loop(op: AsyncOp) -> Callable[[Json], Iterator[Json]]:
    def generator(job: Json) -> Iterator[Json]:
        lines = op(job)
        while True:
            try:
                yield LOOP.run_until_complete(anext(lines))
            except StopAsyncIteration:
                return

    return generator


OPS = (
    about,
    produce,
    transact,
    consume,
    group,
    offsets,
    create,
    delete,
    add_partitions,
    topics,
    describe,
    configs,
    groups,
    committed,
)

if __name__ == "__main__":
    # What the coordinator does goes to stderr: it is shown when a scene fails.
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    run({op.__name__: on_loop(op) for op in OPS}, code_of)
