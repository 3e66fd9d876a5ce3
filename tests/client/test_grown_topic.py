"""A topic that got more partitions after a client had learned of it: the client asks again before it refuses one."""

import asyncio
import time

import pyarrow as pa
import pytest

import ottla
from ottla.client import (
    Admin,
    AsyncProducer,
    ErrorCode,
    KafkaError,
    OffsetSpec,
    Producer,
    RecordMetadata,
    TopicPartition,
)


@pytest.fixture
def topic(node: ottla.Node, name: str) -> str:
    """A topic of one partition."""
    with Admin(node.bootstrap_servers) as admin:
        admin.create_topic(name, 1)
    return name


def grown(node: ottla.Node, topic: str) -> None:
    with Admin(node.bootstrap_servers) as admin:
        admin.create_partitions({topic: 3}).check()


def test_a_record_for_a_new_partition_is_sent(node: ottla.Node, topic: str) -> None:
    with Producer(node.bootstrap_servers) as producer:
        producer.send(topic, b"v", partition=0).result(30)
        grown(node, topic)
        assert producer.send(topic, b"v", partition=2).result(30).partition == 2


def test_a_record_for_a_new_partition_is_sent_from_a_loop(node: ottla.Node, topic: str) -> None:
    async def run() -> None:
        async with AsyncProducer(node.bootstrap_servers, partitioner=lambda topic, key, count: int(key or b"0")) as one:
            await (await one.send(topic, b"v", partition=0))
            grown(node, topic)
            assert (await (await one.send(topic, b"v", partition=1))).partition == 1

    asyncio.run(run())


def test_fresh_metadata_make_the_new_partitions_known_to_the_partitioner(node: ottla.Node, topic: str) -> None:
    def last(topic: str, key: bytes | None, count: int) -> int:
        return count - 1

    with Producer(node.bootstrap_servers, partitioner=last, metadata_max_age_ms=50) as producer:
        assert producer.send(topic, b"v").result(30).partition == 0
        grown(node, topic)
        until = time.monotonic() + 30
        while producer.send(topic, b"v").result(30).partition != 2:
            assert time.monotonic() < until


def test_a_partition_that_fresh_metadata_lack_is_refused_soon(node: ottla.Node, topic: str) -> None:
    with Producer(node.bootstrap_servers, max_block_ms=300) as producer:
        began = time.monotonic()
        with pytest.raises(KafkaError, match=rf"topic {topic} has no partition 1 \(expected 0 to 0\)") as raised:
            producer.send(topic, b"v", partition=1)
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert time.monotonic() - began < 20
        producer.send(topic, b"v", partition=0).result(30)


@pytest.mark.parametrize("sync", [True, False])
def test_rows_for_new_partitions_are_sent(node: ottla.Node, topic: str, sync: bool) -> None:
    """In the second slice of the table: what is before it is on its way already."""
    numbers = pa.array([0, None, 2, 1], pa.uint8())
    batches = [pa.record_batch({"value": [b"v"] * len(part), "to": part}) for part in (numbers[:1], numbers)]

    def table() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(batches[0].schema, batches)

    async def run() -> list[RecordMetadata]:
        async with AsyncProducer(node.bootstrap_servers) as producer:
            await (await producer.send(topic, b"v", partition=0))
            grown(node, topic)
            return await (await producer.send_table(topic, table(), partition="to"))

    if sync:
        with Producer(node.bootstrap_servers) as producer:
            producer.send(topic, b"v", partition=0).result(30)
            grown(node, topic)
            found = producer.send_table(topic, table(), partition="to").result(30)
    else:
        found = asyncio.run(run())
    assert {each.partition for each in found} == {0, 1, 2}


def test_rows_for_a_partition_that_fresh_metadata_lack_are_refused_as_by_send(node: ottla.Node, topic: str) -> None:
    with Producer(node.bootstrap_servers, max_block_ms=300) as producer:
        rows = pa.table({"value": [b"v", b"v"], "to": [0, 1]})
        with pytest.raises(KafkaError, match=rf"topic {topic} has no partition 1 \(expected 0 to 0\)") as raised:
            producer.send_table(topic, rows, partition="to")
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_admin_call_about_a_new_partition_asks_for_its_leader(node: ottla.Node, topic: str) -> None:
    old, new = TopicPartition(topic, 0), TopicPartition(topic, 2)
    with Admin(node.bootstrap_servers) as admin:
        assert admin.list_offset(old, OffsetSpec.LATEST).offset == 0
        with Producer(node.bootstrap_servers) as producer:
            grown(node, topic)
            producer.send(topic, b"v", partition=2).result(30)
        assert admin.list_offset(new, OffsetSpec.LATEST).offset == 1
