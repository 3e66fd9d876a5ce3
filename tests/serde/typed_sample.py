"""A program of a user, as mypy's strict mode sees it: the types of what clients give, spelt out.

`assert_type` is checked by mypy in `make check`; `test_manner` runs it against a node.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, assert_type

from ottla.client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    CommittedOffset,
    Consumer,
    ConsumerMetrics,
    ConsumerRecord,
    Delivery,
    KafkaError,
    OffsetSpec,
    OttlaError,
    Producer,
    ProducerMetrics,
    RebalanceListener,
    RecordMetadata,
    TopicPartition,
    serde,
)


class Listener(RebalanceListener):
    """Overrides what it needs."""

    def assigned(self, partitions: list[TopicPartition]) -> None:
        assert_type(partitions[0].topic, str)


def synchronous(bootstrap: str) -> int:
    """Produce, consume, look around."""
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        created = admin.create_topic("typed", 1, configs={"retention.ms": 1_000_000})
        assert_type(created.partitions, int)
        offset = admin.list_offset(TopicPartition("typed", 0), OffsetSpec.EARLIEST)
        assert_type(offset.offset, int)
        failed = admin.delete_topics(["unknown-topic"])
        assert_type(failed.errors, dict[str, KafkaError])
    with Producer(bootstrap, client_id="typed", linger_ms=0) as producer:
        delivery = producer.send("typed", b"value", key="key", headers={"a": b"b"})
        assert_type(delivery, Delivery)
        assert_type(delivery.result(30), RecordMetadata)
        assert_type(producer.metrics(), ProducerMetrics)
        assert_type(producer.metrics().topics["typed"].byte_total, int)
    with Consumer(bootstrap, group_id="typed", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["typed"], listener=Listener())
        records = consumer.poll(0.0)
        assert_type(records, list[ConsumerRecord])
        record = next(one for one in each(consumer))
        assert_type(record.offset, int)
        assert_type(record.value, Any)
        consumer.commit(record)
        assert_type(consumer.committed(consumer.assignment()), dict[TopicPartition, CommittedOffset | None])
        assert_type(consumer.metrics(), ConsumerMetrics)
        lag: Mapping[TopicPartition, int] = consumer.metrics().records_lag
        return sum(lag.values())


def generic(bootstrap: str) -> list[dict[str, int]]:
    """Keys and values have types where the program says them; settings are completed and checked."""
    producer: Producer[str, dict[str, int]] = Producer(bootstrap, key_serializer="str", value_serializer="json")
    producer.send("generic", {"n": 5}, key="five")
    producer.send("generic", {"n": 6}, key=None)
    producer.close()
    with contextlib.suppress(OttlaError):
        producer.send("generic", "five")  # type: ignore[arg-type]
    with contextlib.suppress(OttlaError):
        Producer(bootstrap, linger=5)  # type: ignore[call-arg]
    with Consumer[str, dict[str, int]](
        bootstrap, key_deserializer="str", value_deserializer="json", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition("generic", 0)])
        records = consumer.poll(30.0)
        assert_type(records, list[ConsumerRecord[str, dict[str, int]]])
        assert_type(records[0].key, str)
        assert_type(records[0].headers, tuple[tuple[str, bytes | None], ...])
        return [record.value for record in records]


def each(consumer: Consumer) -> Iterator[ConsumerRecord]:
    """Iteration is typed as well."""
    yield from consumer


async def asynchronous(bootstrap: str) -> list[int]:
    """The same words, awaited."""
    async with AsyncAdmin(bootstrap) as admin, AsyncProducer(bootstrap) as producer:
        described = await admin.describe_topic("typed")
        assert_type([part.partition for part in described.partitions], list[int])
        delivery = await producer.send("typed", "text")
        assert_type(await delivery, RecordMetadata)
    offsets: list[int] = []
    async with AsyncConsumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("typed", 0)])
        async for record in consumer:
            assert_type(record, ConsumerRecord)
            offsets.append(record.offset)
            if len(offsets) == 2:
                break
        assert_type(serde.text(), serde.Serde)
    return offsets
