"""Producing and consuming against a real cluster."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    ConfigResource,
    Consumer,
    ConsumerRecord,
    ErrorCode,
    KafkaError,
    OttlaError,
    Producer,
    RebalanceListener,
    ResourceType,
    TopicPartition,
)
from tests.client.conftest import eventually, offsets


def partitions(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(3)]


def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []

    def enough() -> bool:
        found.extend(consumer.poll(0.5))
        return len(found) >= count

    eventually(enough, 30)
    assert len(found) == count
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(bootstrap: str, topic: str, codec: str) -> None:
    with Producer(bootstrap, compression_type=codec) as producer:
        deliveries = [
            producer.send(topic, b"value %d" % n, b"key %d" % n, headers={"h": b"x", "none": None}, timestamp=1000 + n)
            for n in range(100)
        ]
        deliveries.append(producer.send(topic, None, "tombstone", timestamp=5000))
        where = [one.result(30) for one in deliveries]
    with Consumer(bootstrap) as consumer:
        consumer.assign(partitions(topic))
        consumer.seek_to_beginning()
        found = {(one.partition, one.offset): one for one in read(consumer, 101)}
    for n, metadata in enumerate(where[:-1]):
        record = found[metadata.partition, metadata.offset]
        assert (record.key, record.value, record.timestamp) == (b"key %d" % n, b"value %d" % n, 1000 + n)
        assert list(record.headers) == [("h", b"x"), ("none", None)]
    last = found[where[-1].partition, where[-1].offset]
    assert (last.key, last.value, list(last.headers)) == (b"tombstone", None, [])


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_of_a_partition_keep_their_order(bootstrap: str, topic: str, acks: Any) -> None:
    with Producer(bootstrap, acks=acks) as producer:
        for n in range(5000):
            producer.send(topic, b"%d" % n, partition=1)
        producer.flush()
    with Consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 1)])
        consumer.seek_to_beginning()
        found = read(consumer, 5000)
    assert [int(one.value) for one in found] == list(range(5000))
    assert [one.offset for one in found] == list(range(5000))


def test_batches_that_the_topic_finds_too_large_are_halved(bootstrap: str, admin: Admin, topic: str) -> None:
    admin.alter_config(ConfigResource(ResourceType.TOPIC, topic), {"max.message.bytes": "2000"})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    eventually(lambda: admin.describe_config(resource, ["max.message.bytes"])["max.message.bytes"].value == "2000")
    with Producer(bootstrap, linger_ms=50) as producer:
        deliveries = [producer.send(topic, b"v" * 100, partition=0) for _ in range(200)]
        assert [one.result(30).offset for one in deliveries] == list(range(200))
        with pytest.raises(KafkaError) as error:
            producer.send(topic, b"v" * 3000, partition=0).result(30)
        assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE
        assert producer.send(topic, b"after", partition=0).result(30).offset == 200


def test_a_record_that_the_topic_finds_too_large_fails_alone(bootstrap: str, admin: Admin, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin.alter_config(resource, {"max.message.bytes": "2000"})
    eventually(lambda: admin.describe_config(resource, ["max.message.bytes"])["max.message.bytes"].value == "2000")
    with Producer(bootstrap, linger_ms=50) as producer:
        sizes = [3000 if number == 5 else 100 for number in range(40)]
        deliveries = [producer.send(topic, b"v" * size, partition=0) for size in sizes]
        with pytest.raises(KafkaError) as error:
            deliveries.pop(5).result(30)
        assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE
        assert [one.result(30).offset for one in deliveries] == list(range(39))


def test_a_topic_that_is_not_there_is_said_after_max_block_ms(bootstrap: str, name: str) -> None:
    with Producer(bootstrap, max_block_ms=300) as producer, pytest.raises(KafkaError) as error:
        producer.send("no spaces!", b"v")
    assert error.value.code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_value_that_is_no_bytes_needs_a_serializer(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer, pytest.raises(TypeError, match=r"value\.serializer"):
        producer.send(topic, {"a": 1})
    with Producer(bootstrap, value_serializer="json", key_serializer="str") as producer:
        producer.send(topic, {"a": [1, "ü"]}, key="k", partition=0).result(30)
    with Consumer(bootstrap, value_deserializer="json", key_deserializer="str") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        (record,) = read(consumer, 1)
    assert (record.key, record.value) == ("k", {"a": [1, "ü"]})


def test_positions_are_sought_paused_and_found_by_time(bootstrap: str, topic: str) -> None:
    one = TopicPartition(topic, 0)
    with Producer(bootstrap) as producer:
        for n in range(10):
            producer.send(topic, b"%d" % n, partition=0, timestamp=1000 * n)
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([one])
        assert consumer.position(one) == 0
        consumer.seek(one, 7)
        assert [record.offset for record in read(consumer, 3)] == [7, 8, 9]
        assert (consumer.position(one), consumer.lag(one)) == (10, 0)
        assert consumer.offsets_for_times({one: 3500}) == {one: (4, 4000)}
        assert consumer.offsets_for_times({one: 99_000}) == {one: None}
        assert (consumer.beginning_offsets([one]), consumer.end_offsets([one])) == ({one: 0}, {one: 10})
        consumer.pause([one])
        consumer.seek(one, 0)
        assert consumer.poll(0.2) == []
        consumer.resume([one])
        assert len(read(consumer, 10)) == 10
        with pytest.raises(OttlaError, match="not assigned"):
            consumer.seek(TopicPartition(topic, 1), 0)


def test_an_offset_that_is_gone_follows_the_reset_policy(bootstrap: str, topic: str) -> None:
    one = TopicPartition(topic, 0)
    with Producer(bootstrap) as producer:
        producer.send(topic, b"v", partition=0).result(30)
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([one])
        consumer.seek(one, 500)
        assert read(consumer, 1)[0].offset == 0
    with Consumer(bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([one])
        with pytest.raises(KafkaError, match="seek"):
            read(consumer, 1)


PROTOCOLS = [
    pytest.param({"partition_assignment_strategy": "range"}, id="range"),
    pytest.param({"partition_assignment_strategy": "cooperative-sticky"}, id="cooperative-sticky"),
    pytest.param({"group_protocol": "consumer"}, id="consumer"),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_shares_partitions_and_goes_on_where_it_committed(
    bootstrap: str, topic: str, protocol: dict[str, Any]
) -> None:
    keywords = {**protocol, "group_id": topic, "auto_offset_reset": "earliest", "heartbeat_interval_ms": 200}
    if "group_protocol" in protocol:
        del keywords["heartbeat_interval_ms"]
    with Producer(bootstrap) as producer:
        for n in range(300):
            producer.send(topic, b"%d" % n, partition=n % 3)
    with Consumer(bootstrap, **keywords) as first:
        first.subscribe([topic])
        assert len(read(first, 300)) == 300
        first.commit()
        assert sum(at or 0 for at in offsets(first.committed(partitions(topic))).values()) == 300
        with Consumer(bootstrap, **keywords) as second:
            second.subscribe([topic])

            def shared() -> bool:
                assert first.poll(0.05) == []
                assert second.poll(0.05) == []
                return bool(second.assignment()) and first.assignment() | second.assignment() == set(partitions(topic))

            eventually(shared, 30)
            eventually(lambda: shared() and not first.assignment() & second.assignment(), 30)

        def alone() -> bool:
            assert first.poll(0.05) == []
            return first.assignment() == set(partitions(topic))

        eventually(alone, 30)


def test_a_listener_is_called_in_the_programs_thread_and_may_use_the_consumer(bootstrap: str, topic: str) -> None:
    calls: list[tuple[str, int]] = []

    class Listener(RebalanceListener):
        def assigned(self, partitions: list[TopicPartition]) -> None:
            for one in partitions:
                consumer.seek(one, 2)
            calls.append(("assigned", len(partitions)))

        def revoked(self, partitions: list[TopicPartition]) -> None:
            consumer.commit()
            calls.append(("revoked", len(partitions)))

    with Producer(bootstrap) as producer:
        for n in range(4):
            producer.send(topic, b"%d" % n, partition=0)
    consumer = Consumer(bootstrap, group_id=topic, auto_offset_reset="latest", enable_auto_commit=False)
    with consumer:
        consumer.subscribe(topic, listener=Listener())
        assert [one.value for one in read(consumer, 2)] == [b"2", b"3"]
    assert calls == [("assigned", 3), ("revoked", 3)]
    with Admin(bootstrap) as admin:
        assert admin.list_group_offsets(topic)[TopicPartition(topic, 0)].offset == 4


def test_a_commit_within_an_iteration_covers_what_was_handed_out(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        for n in range(50):
            producer.send(topic, b"%d" % n, partition=2)
    with Consumer(bootstrap, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.subscribe(topic)
        for record in consumer:
            if record.offset == 20:
                consumer.commit()
                break
        assert offsets(consumer.committed([TopicPartition(topic, 2)])) == {TopicPartition(topic, 2): 21}


def test_a_pattern_subscribes_to_topics_that_come_later(bootstrap: str, admin: Admin, topic: str) -> None:
    with Consumer(bootstrap, group_id=topic, auto_offset_reset="earliest", metadata_max_age_ms=200) as consumer:
        consumer.subscribe(re.compile(re.escape(topic) + ".*"))
        eventually(lambda: consumer.poll(0.1) == [] and len(consumer.assignment()) == 3, 30)
        admin.create_topic(topic + "-later", 2)
        eventually(lambda: consumer.poll(0.1) == [] and len(consumer.assignment()) == 5, 30)


def test_asyncio_produces_and_consumes(bootstrap: str, topic: str) -> None:
    async def work() -> list[bytes]:
        async with AsyncProducer(bootstrap) as producer:
            deliveries = [await producer.send(topic, b"%d" % n, partition=0) for n in range(10)]
            assert [(await one).offset for one in deliveries] == list(range(10))
        async with AsyncConsumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            found: list[bytes] = []
            async for record in consumer:
                found.append(record.value)
                if len(found) == 10:
                    break
        return found

    assert asyncio.run(work()) == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize("make", [Producer, Consumer, Admin])
def test_a_closed_client_may_be_closed_again(bootstrap: str, make: Callable[[str], Producer]) -> None:
    client = make(bootstrap)
    client.close()
    client.close()
