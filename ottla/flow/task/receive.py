"""Deserialization of input records and extraction of their timestamps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.flow.error import StreamsError
from ottla.flow.record import TIME_MAX, Headers, Input, Record
from ottla.flow.serde import Serde
from ottla.flow.topology import Extractor
from ottla.flow.window import time_ms
from ottla.kernel.named import NamedTuple

if TYPE_CHECKING:
    from ottla.flow.context import NodeContext
    from ottla.flow.engine import Task


class Received(NamedTuple):
    """The record that a timestamp extractor sees, with key and value deserialized."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers


class InvalidTimestamp(ValueError):
    """A record has no valid timestamp, and the extractor does not accept that."""


def fail_on_invalid_timestamp(record: Received, partition_time: int) -> int:
    """The record's own timestamp; an error if it is negative. The default (Kafka Streams: FailOnInvalidTimestamp)."""
    if record.timestamp < 0:
        raise InvalidTimestamp(
            f"invalid timestamp of the record at {record.topic}-{record.partition} offset {record.offset}: "
            f"{record.timestamp} (expected 0 or more); set another timestamp_extractor on the source"
        )
    return record.timestamp


def log_and_skip_on_invalid_timestamp(record: Received, partition_time: int) -> int:
    """The record's own timestamp; records with a negative one are dropped (LogAndSkipOnInvalidTimestamp)."""
    return record.timestamp


def use_partition_time_on_invalid_timestamp(record: Received, partition_time: int) -> int:
    """The record's own timestamp; if it is negative, the newest of its partition (UsePartitionTimeOnInvalidTimestamp).

    An error if the partition has none yet.
    """
    if record.timestamp >= 0:
        return record.timestamp
    if partition_time < 0:
        return fail_on_invalid_timestamp(record, partition_time)
    return partition_time


def wallclock_timestamp(record: Received, partition_time: int) -> int:
    """The time of processing (WallclockTimestampExtractor). The task recognizes this function and uses its clock."""
    return record.timestamp


def partition_time(topic: str, partition: int) -> str:
    """The name of the cell that holds a partition's newest timestamp, for extractors. The first record makes it."""
    return f"partition_time/{topic}/{partition}"


class Receiver:
    """Deserializes the records of one source topic. `rank` breaks ties between topics."""

    __slots__ = ("_extractor", "_task", "_times", "context", "key", "rank", "region", "value")

    def __init__(
        self, task: Task, context: NodeContext, key: Serde, value: Serde, extractor: Extractor | None, rank: int
    ) -> None:
        self._task = task
        self.context = context
        self.key = key
        self.value = value
        self._extractor = extractor
        self._times = task.cell
        self.rank = rank
        #: The steps downstream of this source that process many records at once (vector/region.py), or None.
        self.region: Any = None

    @property
    def has_extractor(self) -> bool:
        """Whether the program has a timestamp extractor for this source."""
        return self._extractor is not None

    def receive(self, received: Input) -> Record | None:
        """Deserialize a record. None if it is dropped."""
        task = self._task
        try:
            key = None if received.key is None else self.key.deserialize(received.topic, received.key)
            value = None if received.value is None else self.value.deserialize(received.topic, received.value)
        except Exception as error:
            task.current = received
            task.respond(task.settings.handlers.deserialization, self.context.name, None, error)
            return None
        timestamp = received.timestamp
        if self._extractor is not None or timestamp < 0:
            task.current = received
            timestamp = self._extract(received, key, value)
            if timestamp < 0:
                task.dropped += 1
                return None
        return Record(key, value, timestamp, received.headers)

    def _extract(self, received: Input, key: Any, value: Any) -> int:
        task, extractor = self._task, self._extractor or fail_on_invalid_timestamp
        if extractor is wallclock_timestamp:
            return task.now
        newest = self._times(partition_time(received.topic, received.partition))
        seen = Received(
            received.topic, received.partition, received.offset, received.timestamp, key, value, received.headers
        )
        try:
            timestamp = time_ms(extractor(seen, newest.value), "result")
            if timestamp > TIME_MAX:
                raise ValueError(f"the result is {timestamp} (expected milliseconds since 1970)")
        except Exception as error:
            message = f"the timestamp extractor of {self.context.name} failed: {type(error).__name__}: {error}"
            raise StreamsError(message) from error
        return timestamp

    def advance(self, received: Input, timestamp: int) -> None:
        """Advance the partition's time, for extractors, to a record that will be processed now.

        Not in `receive`: the commit before a record that waits would hold its time, and after a restart the extractor
        would see it for the same record.
        """
        if self._extractor is not None and self._extractor is not wallclock_timestamp:
            newest = self._times(partition_time(received.topic, received.partition))
            newest.value = max(newest.value, timestamp)
