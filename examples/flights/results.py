"""Reads the result topics while they grow."""

import json
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from examples.flights.feed import QUIET, RESULTS, WAIT_S

Row = dict[str, Any]


class Results:
    """Every row of the result topics so far, by topic, in the order of arrival."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.rows: dict[str, list[Row]] = {topic: [] for topic in RESULTS}
        self._positions = dict.fromkeys(RESULTS, 0)
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": "flights-demo", "enable.auto.commit": False, **QUIET}
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in RESULTS])

    def poll(self, wait_s: float = 0.0) -> int:
        """Take what has arrived; how many rows that were."""
        messages = self._consumer.consume(10_000, wait_s)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            topic, value, offset = message.topic(), message.value(), message.offset()
            assert topic is not None and value is not None and offset is not None
            self.rows[topic].append(json.loads(value))
            self._positions[topic] = offset + 1
        return len(messages)

    def finish(self) -> None:
        """Read to the ends of the topics and close."""
        for topic in RESULTS:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)
            deadline = time.monotonic() + WAIT_S
            while self._positions[topic] < end:
                if not self.poll(0.1) and time.monotonic() > deadline:
                    raise TimeoutError(f"{topic} could not be read to its end, offset {end}")
        self._consumer.close()
