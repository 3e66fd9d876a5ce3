"""Records with their context, changes of tables, windowed keys, and the bytes at both ends of a task."""

from __future__ import annotations

from operator import index
from typing import Any

from ottla.kernel.named import NamedTuple

#: (name, content) pairs in order; a name may occur twice.
Headers = tuple[tuple[str, bytes | None], ...]
#: Kafka's "no timestamp yet", and the initial value of every stream time.
NO_TIMESTAMP = -1
#: The end of an unlimited window.
TIME_MAX = (1 << 63) - 1


class Record:
    """A key, a value, a timestamp in ms since 1970, and headers. Immutable: the `with_` methods return a copy.

    ValueError if the timestamp is negative or no timestamp of Kafka.
    """

    __slots__ = ("headers", "key", "timestamp", "value")

    def __init__(self, key: Any, value: Any, timestamp: int, headers: Headers = ()) -> None:
        if timestamp.__class__ is not int or not 0 <= timestamp <= TIME_MAX:
            timestamp = _whole(timestamp)
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.headers = headers

    def with_key(self, key: Any) -> Record:
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: Any) -> Record:
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record:
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Record:
        return Record(self.key, self.value, self.timestamp, tuple(headers))

    def __repr__(self) -> str:
        return f"Record({self.key!r}, {self.value!r}, {self.timestamp}, {self.headers!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        mine = (self.key, self.value, self.timestamp, self.headers)
        return mine == (other.key, other.value, other.timestamp, other.headers)

    __hash__ = None  # type: ignore[assignment]


def _whole(timestamp: Any) -> int:
    """A timestamp of another integer class, such as NumPy's, as an int; ValueError if it is none."""
    if hasattr(timestamp, "__index__") and not isinstance(timestamp, bool) and 0 <= index(timestamp) <= TIME_MAX:
        return index(timestamp)
    raise ValueError(f"invalid timestamp: {timestamp} (expected milliseconds since 1970 as an int, 0 or more)")


class FixedKeyRecord(Record):
    """A record whose key cannot be changed, for `process_values`."""

    __slots__ = ()

    def with_key(self, key: Any) -> Record:
        raise TypeError("a fixed-key processor cannot change the key; use process() instead of process_values()")

    def with_value(self, value: Any) -> FixedKeyRecord:
        return FixedKeyRecord(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> FixedKeyRecord:
        return FixedKeyRecord(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> FixedKeyRecord:
        return FixedKeyRecord(self.key, self.value, self.timestamp, tuple(headers))


class RecordContext(NamedTuple):
    """The source topic, partition and offset of the record being processed, with its current timestamp and headers."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    headers: Headers


class Change:
    """An update of a table: the new value, the old value if an operator downstream needs it, and whether the update is
    the latest version of its key (False only for out-of-order updates of versioned tables).
    """

    __slots__ = ("latest", "new", "old")

    def __init__(self, new: Any, old: Any, latest: bool = True) -> None:
        self.new = new
        self.old = old
        self.latest = latest

    def __repr__(self) -> str:
        return f"Change({self.new!r}, {self.old!r}{'' if self.latest else ', latest=False'})"


class ValueAndTimestamp(NamedTuple):
    """A table's value and the timestamp (ms) of the update that wrote it."""

    value: Any
    timestamp: int


class Window(NamedTuple):
    """A window in ms since 1970. The end is exclusive for time windows, inclusive for session and sliding windows."""

    start: int
    end: int


class Windowed(NamedTuple):
    """The key of a windowed table."""

    key: Any
    window: Window

    def __str__(self) -> str:
        return f"[{self.key}@{self.window.start}/{self.window.end}]"


class Input(NamedTuple):
    """A record as read from a topic. `timestamp` is the broker's; a timestamp extractor may replace it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Output(NamedTuple):
    """A record to write. `partition` None: the default partitioner chooses the partition from `partition_by`, the bytes
    of the key or, for a windowed key, of its inner key (None: any partition).
    """

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()
    partition: int | None = None
    partition_by: bytes | None = None
