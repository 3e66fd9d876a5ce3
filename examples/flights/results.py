"""Reads the result topics while they grow."""

import json
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from examples.flights.feed import QUIET, RESULTS, WAIT_S

Row = dict[str, Any]
#: The fields that name a row where a value is one row.
KEYS = {"carrier-delays": ("day", "carrier"), "weather-delays": ("week", "origin", "weather")}


class Newest:
    """The current content of each result topic: the last value of each key, and the number of values (`told`)."""

    def __init__(self) -> None:
        self.told = dict.fromkeys(RESULTS, 0)
        self._newest: dict[str, dict[Any, list[Row]]] = {topic: {} for topic in RESULTS}

    def add(self, topic: str, value: Any) -> None:
        """Take a value: all rows of a day, or a single row."""
        rows = value if isinstance(value, list) else [value]
        self.told[topic] += 1
        first = rows[0]
        key = (first.get("day"), None) if isinstance(value, list) else tuple(map(first.get, KEYS[topic]))
        self._newest[topic][key] = rows

    def rows(self, topic: str) -> list[Row]:
        return [row for rows in self._newest[topic].values() for row in rows]


class Results(Newest):
    """The result topics read so far, committed records only."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__()
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": "flights-demo", "enable.auto.commit": False, **QUIET}
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in RESULTS])

    def poll(self, wait_s: float = 0.0) -> int:
        """Take the records that have arrived; returns their number."""
        messages = self._consumer.consume(10_000, wait_s)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            topic, value = message.topic(), message.value()
            assert topic is not None and value is not None
            self.add(topic, json.loads(value))
        return len(messages)

    def finish(self) -> None:
        """Read to the ends of the topics and close."""
        for topic in RESULTS:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)
            deadline = time.monotonic() + WAIT_S
            while self._consumer.position([TopicPartition(topic, 0)])[0].offset < end - 1:  # the last is a marker
                if not self.poll(0.1) and time.monotonic() > deadline:
                    raise TimeoutError(f"{topic} could not be read to its end, offset {end}")
        self._consumer.close()
