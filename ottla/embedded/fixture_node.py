"""The node of the fixtures: `ottla.Node` with helpers for tests to write, read and wait.

Rules:
- Each call uses a client over the socket, and closes it.
- A wait that fails raises TimeoutError with the state it reached.
- Under asyncio, use the `_async` forms: they leave the event loop free for the service under test.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from ottla.client import Admin, Consumer, ConsumerRecord, KafkaError, Producer, RecordMetadata, TopicPartition
from ottla.embedded.node import Node
from ottla.kernel.argument import items_of, seconds, text_of, whole
from ottla.kernel.error import ErrorCode

if TYPE_CHECKING:
    from ottla.client.producer.producer import Headers
    from ottla.serde.serializer import Deserializer

#: A value, or a key and a value.
Written = bytes | str | None | tuple[bytes | str | None, bytes | str | None]

_PAUSE_S = 0.01


class FixtureNode(Node):
    """A node with helpers for tests: `produce`, `records`, `wait_for_lag`."""

    def produce(
        self,
        topic: str,
        values: Iterable[Written],
        *,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        timeout: float = 30.0,
    ) -> list[RecordMetadata]:
        """Write values or (key, value) pairs; returns each record's position when all are acknowledged.

        `timestamp` is in ms since 1970, `timeout` in seconds. A missing topic is created. KafkaError.
        """
        with Producer(self.bootstrap_servers, linger_ms=0) as producer:
            deliveries = []
            for item in items_of(values, "values, or (key, value) pairs"):
                key, value = item if isinstance(item, tuple) else (None, item)
                deliveries.append(
                    producer.send(topic, value, key, partition=partition, headers=headers, timestamp=timestamp)
                )
            return [delivery.result(timeout) for delivery in deliveries]

    def records(
        self,
        topic: str,
        count: int | None = None,
        *,
        key_deserializer: Deserializer | Literal["bytes", "str", "json"] | None = None,
        value_deserializer: Deserializer | Literal["bytes", "str", "json"] | None = None,
        committed: bool = False,
        timeout: float = 10.0,
    ) -> list[ConsumerRecord[Any, Any]]:
        """All records of a topic from its beginning, by partition and offset, read without a group.

        With `count` it waits for that many records, at most `timeout` seconds (TimeoutError); without, it returns the
        current ones. `committed` omits records of open and aborted transactions. KafkaError if there is no topic.
        """
        text_of(topic, "topic")
        wanted = 0 if count is None else whole(count, "count", 0)
        deadline = time.monotonic() + seconds(timeout)
        settings: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "allow_auto_create_topics": False,
            "default_api_timeout_ms": max(1, int(timeout * 1000)),
            "isolation_level": "read_committed" if committed else "read_uncommitted",
            "key_deserializer": key_deserializer,
            "value_deserializer": value_deserializer,
        }
        found: list[ConsumerRecord[Any, Any]] = []
        with Consumer(self.bootstrap_servers, **settings) as consumer:
            partitions = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            while len(found) < wanted or any(consumer.position(item) < ends[item] for item in partitions):
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError(f"topic {topic} has {len(found)} records after {timeout} s, expected {wanted}")
                found += consumer.poll(min(left_s, 0.1))
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def wait_for_lag(self, group: str, lag: int = 0, *, timeout: float = 10.0) -> None:
        """Wait until a group lags by at most `lag` records in all partitions that it has committed or owns.

        A partition without a commit counts with all its records. TimeoutError after `timeout` seconds.
        """
        text_of(group, "group")
        whole(lag, "lag", 0)
        deadline = time.monotonic() + seconds(timeout)
        state = "there is no such group"
        with Admin(self.bootstrap_servers) as admin:
            while True:
                try:
                    rows = admin.group_lag(group)
                except KafkaError as error:
                    if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                        raise
                else:
                    left = [(row.partition, row.lag if row.lag is not None else row.end_offset or 0) for row in rows]
                    state = ", ".join(f"{partition}: {item}" for partition, item in left) or "it reads nothing"
                    if left and sum(item for _, item in left) <= lag:
                        return
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"group {group} has not come to a lag of {lag} within {timeout} s ({state})")
                time.sleep(_PAUSE_S)

    # ---- for tests under asyncio

    async def produce_async(self, topic: str, values: Iterable[Written], **how: Any) -> list[RecordMetadata]:
        """`produce`, awaited."""
        return await asyncio.to_thread(self.produce, topic, values, **how)

    async def records_async(self, topic: str, count: int | None = None, **how: Any) -> list[ConsumerRecord[Any, Any]]:
        """`records`, awaited."""
        return await asyncio.to_thread(self.records, topic, count, **how)

    async def wait_for_lag_async(self, group: str, lag: int = 0, *, timeout: float = 10.0) -> None:
        """`wait_for_lag`, awaited."""
        await asyncio.to_thread(self.wait_for_lag, group, lag, timeout=timeout)
