"""Key-value stores, plain and timestamped. A timestamped value is stored behind its timestamp (8 bytes), as in Kafka
Streams.

The changelog holds a timestamped value without its timestamp, which is the record's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ottla.flow.record import ValueAndTimestamp
from ottla.flow.serde import Serde
from ottla.flow.store.changelog import Log
from ottla.flow.store.ordered import OrderedBytes, after
from ottla.flow.store.spec import StoreSpec
from ottla.flow.store.store import Store

#: Immutable classes whose objects are equal only if their bytes are.
IMMUTABLE = frozenset((str, bytes, int))
#: The maximum number of entries cached as objects.
CACHED_MAX = 1 << 16
_pair = tuple.__new__


class KeyValueStore(Store):
    """A key-value store (Kafka Streams: KeyValueStore). Scans go in the order of the keys' bytes. Ranges include both
    ends; None is open. TypeError if a key is None.
    """

    def __init__(
        self,
        spec: StoreSpec,
        entries: OrderedBytes,
        key: Serde,
        value: Serde,
        topic: str,
        log: Log | None,
        now: Callable[[], int],
    ) -> None:
        super().__init__(spec, entries, key, value, topic, log)
        self._now = now

    def get(self, key: Any) -> Any:
        """The value of a key, or None."""
        if key is None:
            raise TypeError(f"store {self.name}: the key is None")
        data = self.entries.get(self._key.serialize(self._topic, key))
        return None if data is None else self._read(data)

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key; None deletes."""
        if key is None:
            raise TypeError(f"store {self.name}: the key is None")
        self._put(self._key.serialize(self._topic, key), value)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set the value unless there is one. Returns the previous value."""
        old = self.get(key)
        if old is None:
            self.put(key, value)
        return old

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Put several (key, value) pairs."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: Any) -> Any:
        """Delete a key. Returns its old value."""
        old = self.get(key)
        self.put(key, None)
        return old

    def range(self, low: Any = None, high: Any = None) -> Iterator[tuple[Any, Any]]:
        """(key, value) of the keys from `low` to `high`."""
        yield from self._range(low, high, reverse=False)

    def reverse_range(self, low: Any = None, high: Any = None) -> Iterator[tuple[Any, Any]]:
        """As `range`, in descending order."""
        yield from self._range(low, high, reverse=True)

    def all(self) -> Iterator[tuple[Any, Any]]:
        """(key, value) of all keys."""
        yield from self._range(None, None, reverse=False)

    def reverse_all(self) -> Iterator[tuple[Any, Any]]:
        """As `all`, in descending order."""
        yield from self._range(None, None, reverse=True)

    def prefix_scan(self, prefix: Any, serde: Serde | None = None) -> Iterator[tuple[Any, Any]]:
        """(key, value) of the keys whose bytes begin with `prefix`, as `serde` (default: the key serde) writes it."""
        start = (serde or self._key).serialize(self._topic, prefix)
        for key, data in self.entries.scan(start, after(start)):
            yield self._key.deserialize(self._topic, key), self._read(data)

    def approximate_num_entries(self) -> int:
        """The number of entries."""
        return len(self.entries)

    def _range(self, low: Any, high: Any, *, reverse: bool) -> Iterator[tuple[Any, Any]]:
        start = None if low is None else self._key.serialize(self._topic, low)
        end = None if high is None else self._key.serialize(self._topic, high) + b"\x00"
        for key, data in self.entries.scan(start, end, reverse):
            yield self._key.deserialize(self._topic, key), self._read(data)

    def _read(self, data: bytes) -> Any:
        return self._value.deserialize(self._topic, data)

    def _put(self, key: bytes, value: Any) -> None:
        if value is None:
            self.entries.delete(key)
            data = None
        else:
            data = self._value.serialize(self._topic, value)
            self.entries.put(key, data)
        if self._log is not None:
            self._log(self.name, key, data, self._now())


class TimestampedKeyValueStore(KeyValueStore):
    """A key-value store of `ValueAndTimestamp`. Recently used values are cached as objects if they are immutable."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        #: By key, its bytes and its value.
        self._recent: dict[Any, tuple[bytes, ValueAndTimestamp]] = {}
        self._write = self._value.writer(self._topic)
        #: The classes of values that `put` caches; none if each write is logged.
        self._exact: frozenset[type] = self._value.exact if self._log is None else frozenset()

    def get(self, key: Any) -> ValueAndTimestamp | None:
        if key.__class__ not in IMMUTABLE:
            stored: ValueAndTimestamp | None = super().get(key)
            return stored
        cached = self._recent.get(key)
        if cached is not None:
            return cached[1]
        key_bytes = self._key.serialize(self._topic, key)
        data = self.entries.get(key_bytes)
        if data is None:
            return None
        value = self._read(data)
        if value[0].__class__ in IMMUTABLE:
            self._cache(key, key_bytes, value)
        return value

    def put(self, key: Any, value: Any) -> None:
        if key.__class__ not in IMMUTABLE:
            # A cached key may have the same bytes.
            self._recent.clear()
            super().put(key, value)
            return
        if value is None or value[0].__class__ not in self._exact:
            self._recent.pop(key, None)
            super().put(key, value)
            return
        cached = self._recent.get(key)
        key_bytes = cached[0] if cached is not None else self._key.serialize(self._topic, key)
        content, timestamp = value
        try:
            data = self._write(content)
        except Exception:
            data = self._value.serialize(self._topic, content)
        self.entries.put(key_bytes, timestamp.to_bytes(8, "big", signed=True) + data)
        if cached is not None:
            self._recent[key] = (key_bytes, value)
        else:
            self._cache(key, key_bytes, value)

    def read_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The entries of keys, given as bytes: 8 bytes of timestamp, then the value's bytes."""
        return [self.entries.get(key_bytes) for key_bytes in keys]

    def write_many(self, keys: Sequence[bytes], entries: Sequence[bytes]) -> None:
        """Put entries, given as bytes."""
        self._recent.clear()
        put, log = self.entries.put, self._log
        for key_bytes, data in zip(keys, entries, strict=True):
            put(key_bytes, data)
            if log is not None:
                log(self.name, key_bytes, data[8:], int.from_bytes(data[:8], "big", signed=True))

    def write_rows(self, keys: Sequence[bytes], entries: Sequence[bytes | None], times: Sequence[int]) -> None:
        """Put entries, given as bytes; None deletes. `times` are the times of the records that wrote them."""
        self._recent.clear()
        put, delete, log = self.entries.put, self.entries.delete, self._log
        for key_bytes, data, time in zip(keys, entries, times, strict=True):
            if data is None:
                delete(key_bytes)
            else:
                put(key_bytes, data)
            if log is not None:
                log(self.name, key_bytes, None if data is None else data[8:], time)

    def _cache(self, key: Any, key_bytes: bytes, value: ValueAndTimestamp) -> None:
        if len(self._recent) >= CACHED_MAX:
            self._recent.clear()
        self._recent[key] = (key_bytes, value)

    def _read(self, data: bytes) -> ValueAndTimestamp:
        timestamp = int.from_bytes(data[:8], "big", signed=True)
        return _pair(ValueAndTimestamp, (self._value.deserialize(self._topic, data[8:]), timestamp))

    def _put(self, key: bytes, value: Any) -> None:
        if value is None or value[0] is None:
            self.entries.delete(key)
            if self._log is not None:
                self._log(self.name, key, None, self._now())
            return
        content, timestamp = value
        data = self._value.serialize(self._topic, content)
        self.entries.put(key, timestamp.to_bytes(8, "big", signed=True) + data)
        if self._log is not None:
            self._log(self.name, key, data, timestamp)


class LruStore(KeyValueStore):
    """A store of the `capacity` most recently used keys (Kafka Streams: Stores.lruMap). The order of use is not part of
    the state: after a restart, keys count as used in the order of their bytes.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._used: OrderedDict[bytes, None] = OrderedDict((key, None) for key, _ in self.entries.scan(None, None))

    def get(self, key: Any) -> Any:
        value = super().get(key)
        if value is not None:
            self._used.move_to_end(self._key.serialize(self._topic, key))
        return value

    def _put(self, key: bytes, value: Any) -> None:
        super()._put(key, value)
        if value is None:
            self._used.pop(key, None)
            return
        self._used[key] = None
        self._used.move_to_end(key)
        while len(self._used) > self.spec.capacity:
            oldest, _ = self._used.popitem(last=False)
            super()._put(oldest, None)
