"""A topic that got more partitions after a client had learned of it: the client asks again before it refuses one."""

import asyncio
import time

import pytest

import ottla
from ottla.client import Admin, AsyncProducer, ErrorCode, KafkaError, OffsetSpec, Producer, TopicPartition


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


def test_a_partition_that_fresh_metadata_lack_is_refused_soon(node: ottla.Node, topic: str) -> None:
    with Producer(node.bootstrap_servers, max_block_ms=300) as producer:
        began = time.monotonic()
        with pytest.raises(KafkaError, match=rf"topic {topic} has no partition 1 \(expected 0 to 0\)") as raised:
            producer.send(topic, b"v", partition=1)
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert time.monotonic() - began < 20
        producer.send(topic, b"v", partition=0).result(30)


def test_an_admin_call_about_a_new_partition_asks_for_its_leader(node: ottla.Node, topic: str) -> None:
    old, new = TopicPartition(topic, 0), TopicPartition(topic, 2)
    with Admin(node.bootstrap_servers) as admin:
        assert admin.list_offset(old, OffsetSpec.LATEST).offset == 0
        with Producer(node.bootstrap_servers) as producer:
            grown(node, topic)
            producer.send(topic, b"v", partition=2).result(30)
        assert admin.list_offset(new, OffsetSpec.LATEST).offset == 1
