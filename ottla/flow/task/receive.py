"""From the bytes of an input record to a record with a timestamp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.flow.error import StreamsError
from ottla.flow.record import Headers, Input, Record
from ottla.flow.serde import Serde
from ottla.flow.topology import Extractor
from ottla.kernel.named import NamedTuple

if TYPE_CHECKING:
    from ottla.flow.context import NodeContext
    from ottla.flow.engine import Task


class Received(NamedTuple):
    """What a timestamp extractor sees: the record with its key and value read."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers


class InvalidTimestamp(ValueError):
    """A record without a timestamp, for an extractor that does not accept that."""


def fail_on_invalid_timestamp(record: Received, partition_time: int) -> int:
    """The record's own timestamp; an error if it has none (the default)."""
    if record.timestamp < 0:
        raise InvalidTimestamp(
            f"record at {record.topic}-{record.partition} offset {record.offset} has the invalid timestamp "
            f"{record.timestamp} (expected 0 or more): give the source another timestamp_extractor"
        )
    return record.timestamp


def log_and_skip_on_invalid_timestamp(record: Received, partition_time: int) -> int:
    """The record's own timestamp; records without one are dropped."""
    return record.timestamp


def use_partition_time_on_invalid_timestamp(record: Received, partition_time: int) -> int:
    """The record's own timestamp, or the newest one of its partition."""
    if record.timestamp >= 0:
        return record.timestamp
    if partition_time < 0:
        return fail_on_invalid_timestamp(record, partition_time)
    return partition_time


def wallclock_timestamp(record: Received, partition_time: int) -> int:
    """The time of processing: the task puts its clock in place of this function (WallclockTimestampExtractor)."""
    return record.timestamp


class Receiver:
    """A topic of a source. `rank` breaks ties between topics."""

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
        #: The steps behind this source that take many records at once (vector/region.py).
        self.region: Any = None

    @property
    def extracts(self) -> bool:
        """The program gives timestamps itself."""
        return self._extractor is not None

    def receive(self, received: Input) -> Record | None:
        """The record; None if it is dropped."""
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
        newest = self._times(f"partition_time/{received.topic}/{received.partition}")
        seen = Received(
            received.topic, received.partition, received.offset, received.timestamp, key, value, received.headers
        )
        try:
            timestamp = extractor(seen, newest.value)
        except Exception as error:
            told = f"the timestamp extractor of {self.context.name} failed: {type(error).__name__}: {error}"
            raise StreamsError(told) from error
        newest.value = max(newest.value, timestamp)
        return timestamp
