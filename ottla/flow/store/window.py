"""Window stores: a value by key and window start, kept until it is older than the newest start by the retention.

Rules:
- An entry's key is `key + start (8 bytes) + sequence number (4 bytes)`, as in Kafka Streams' changelogs. The number is
  0 unless the store keeps every value of a key and time (duplicates.py).
- Two indexes in memory are built from the entries: by start when the store is opened, by key on the first fetch.
- An entry with `start <= newest start - retention` is hidden. The emit-on-close scan of a persistent store still shows
  the newest hidden moment, that of an in-memory store does not (verified with Kafka Streams 4.3).
- Puts that are older than the retention are dropped.
- Hidden entries are removed when the newest start enters another eighth of the retention, so that the remaining entries
  depend only on the starts, not on their order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from typing import Any

from ottla.flow.record import TIME_MAX, Headers, ValueAndTimestamp, Window, Windowed
from ottla.flow.store.key_value import CACHED_MAX, IMMUTABLE
from ottla.flow.store.ordered import OrderedBytes
from ottla.flow.store.spec import StoreSpec
from ottla.flow.store.store import TimedStore

#: The prefix of each entry's key, and the end of all entries.
BY_KEY, END = b"k", b"l"


class WindowStore(TimedStore):
    """A window store of plain values (Kafka Streams: WindowStore). `observed` is the newest start put."""

    def __init__(self, spec: StoreSpec, entries: OrderedBytes, *shared: Any) -> None:
        super().__init__(spec, entries, *shared)
        self._expiry_step_ms = max(1, spec.retention_ms // 8)
        #: By key bytes, the `start + sequence` of its entries, ascending; built on the first fetch of a key.
        self._spans: dict[bytes, list[bytes]] | None = None
        #: The starts, ascending, and the entries of each start in the order of arrival.
        self._starts: list[int] = []
        self._at: dict[int, dict[bytes, None]] = {}
        #: The bytes of recently used keys.
        self._key_bytes_cache: dict[Any, bytes] = {}
        #: By key and start, recently put values and the keys of their entries.
        self._recent: dict[tuple[Any, int], tuple[ValueAndTimestamp, bytes]] = {}
        self._load()

    def _load(self) -> None:
        """Build the index by start."""
        for entry_key in self.entries.keys():  # noqa: SIM118
            self._at.setdefault(int.from_bytes(entry_key[-12:-4], "big"), {})[entry_key] = None
        self._starts = sorted(self._at)

    def put(self, key: Any, value: Any, start: int, headers: Headers = (), deleted_ms: int | None = None) -> None:
        """Set the value of a window; None deletes it. `headers` go to the changelog; `deleted_ms` is a delete's time
        there (default: the time of the current record).
        """
        late = start < self._observed.value - self.spec.retention_ms
        entry_key = self._key_bytes(key) + start.to_bytes(8, "big") + bytes(4)
        if value is None or (isinstance(value, ValueAndTimestamp) and value[0] is None):
            data, logged, timestamp = None, None, self._now() if deleted_ms is None else deleted_ms
        else:
            data, logged, timestamp = self._write(value)
        # Kafka Streams logs expired records too.
        if self._log is not None:
            self._log(self.name, entry_key, logged, timestamp, headers)
        if late:
            return
        if start > self._observed.value:
            before, self._observed.value = self._observed.value, start
            if before // self._expiry_step_ms != start // self._expiry_step_ms:
                self._expire()
        if key.__class__ in IMMUTABLE:
            self._recent.pop((key, start), None)
        else:
            # A cached key may have the same bytes.
            self._recent.clear()
        if data is not None:
            by_key = BY_KEY + entry_key
            if self.entries.get(by_key) is None:
                self._index(start, by_key)
            self.entries.put(by_key, data)
        else:
            self._delete(BY_KEY + entry_key)

    def fetch_one(self, key: Any, start: int) -> Any:
        """The value of one window, or None."""
        if start <= self._observed.value - self.spec.retention_ms or start < 0:
            return None
        data = self.entries.get(BY_KEY + self._key_bytes(key) + start.to_bytes(8, "big") + bytes(4))
        return None if data is None else self._read(data)

    def _key_bytes(self, key: Any) -> bytes:
        """The bytes of a key."""
        if key.__class__ not in IMMUTABLE:
            return self._key.serialize(self._topic, key)
        key_bytes = self._key_bytes_cache.get(key)
        if key_bytes is None:
            if len(self._key_bytes_cache) >= CACHED_MAX:
                self._key_bytes_cache.clear()
            key_bytes = self._key_bytes_cache[key] = self._key.serialize(self._topic, key)
        return key_bytes

    def fetch(self, key: Any, earliest: int, latest: int) -> Iterator[tuple[int, Any]]:
        """(start, value) of a key's windows that start in [earliest, latest] (ms), ascending."""
        yield from self._fetch(key, earliest, latest, reverse=False)

    def backward_fetch(self, key: Any, earliest: int, latest: int) -> Iterator[tuple[int, Any]]:
        """As `fetch`, in descending order."""
        yield from self._fetch(key, earliest, latest, reverse=True)

    def fetch_range(self, low: Any, high: Any, earliest: int, latest: int) -> Iterator[tuple[Windowed, Any]]:
        """Windows of the keys in [low, high] (None: open), by key, then start."""
        first = None if low is None else self._key.serialize(self._topic, low)
        last = None if high is None else self._key.serialize(self._topic, high)
        for key_bytes, start, data in self._scan(earliest, latest, reverse=False):
            if (first is None or key_bytes >= first) and (last is None or key_bytes <= last):
                yield self._windowed(key_bytes, start), self._read(data)

    def fetch_all(self, earliest: int, latest: int) -> Iterator[tuple[Windowed, Any]]:
        """All windows that start in [earliest, latest], by key, then start."""
        for key_bytes, start, data in self._scan(earliest, latest, reverse=False):
            yield self._windowed(key_bytes, start), self._read(data)

    def backward_fetch_all(self, earliest: int, latest: int) -> Iterator[tuple[Windowed, Any]]:
        """As `fetch_all`, in descending order."""
        for key_bytes, start, data in self._scan(earliest, latest, reverse=True):
            yield self._windowed(key_bytes, start), self._read(data)

    def all(self) -> Iterator[tuple[Windowed, Any]]:
        """All windows of all keys, by key, then start."""
        yield from self.fetch_all(0, TIME_MAX)

    def backward_all(self) -> Iterator[tuple[Windowed, Any]]:
        """As `all`, in descending order."""
        yield from self.backward_fetch_all(0, TIME_MAX)

    def fetch_closed(self, earliest: int, latest: int) -> Iterator[tuple[Windowed, Any]]:
        """Windows that start in [earliest, latest], by start, then key: the emit-on-close scan."""
        hidden = self._observed.value - self.spec.retention_ms
        first = max(earliest, hidden + 1 if self.spec.in_memory else hidden, 0)
        if first > latest:
            return
        starts = self._starts
        for start in starts[bisect_left(starts, first) : bisect_right(starts, latest)]:
            for entry_key in sorted(self._at.get(start, ()), key=lambda entry_key: entry_key[1:-12] + entry_key[-4:]):
                data = self.entries.get(entry_key)
                if data is not None:
                    yield self._windowed(entry_key[1:-12], start), self._read(data)

    def _fetch(self, key: Any, earliest: int, latest: int, *, reverse: bool) -> Iterator[tuple[int, Any]]:
        first = max(earliest, self._observed.value - self.spec.retention_ms + 1, 0)
        if first > latest:
            return
        key_bytes = self._key_bytes(key)
        spans = self._spans_of_key(key_bytes)
        if not spans:
            return
        low, high = first.to_bytes(8, "big"), latest.to_bytes(8, "big") + b"\xff\xff\xff\xff"
        matching = spans[bisect_left(spans, low) : bisect_right(spans, high)]
        get, prefix = self.entries.get, BY_KEY + key_bytes
        for span in reversed(matching) if reverse else matching:
            data = get(prefix + span)
            if data is not None:
                yield int.from_bytes(span[:8], "big"), self._read(data)

    def _index(self, start: int, entry_key: bytes) -> None:
        """Add a new entry to the indexes."""
        if self._spans is not None:
            self._span(self._spans, entry_key)
        self._entries_at(start)[entry_key] = None

    def _entries_at(self, start: int) -> dict[bytes, None]:
        """The entries with this start."""
        at = self._at.get(start)
        if at is None:
            at = self._at[start] = {}
            if not self._starts or start > self._starts[-1]:
                self._starts.append(start)
            else:
                insort(self._starts, start)
        return at

    def _spans_of_key(self, key_bytes: bytes) -> list[bytes] | None:
        if self._spans is None:
            self._spans = {}
            for start in self._starts:
                for entry_key in self._at[start]:
                    self._span(self._spans, entry_key)
        return self._spans.get(key_bytes)

    def _span(self, by_key_bytes: dict[bytes, list[bytes]], entry_key: bytes) -> None:
        key_bytes, span = entry_key[1:-12], entry_key[-12:]
        spans = by_key_bytes.get(key_bytes)
        if spans is None:
            by_key_bytes[key_bytes] = [span]
        elif spans[-1] < span:
            spans.append(span)
        else:
            insort(spans, span)

    def _delete(self, entry_key: bytes) -> None:
        """Remove an entry if it is there."""
        if self.entries.get(entry_key) is None:
            return
        self.entries.delete(entry_key)
        self._unspan(entry_key)
        start = int.from_bytes(entry_key[-12:-4], "big")
        at = self._at[start]
        del at[entry_key]
        if not at:
            del self._at[start]
            del self._starts[bisect_left(self._starts, start)]

    def _unspan(self, entry_key: bytes) -> None:
        if self._spans is None:
            return
        spans = self._spans[entry_key[1:-12]]
        del spans[bisect_left(spans, entry_key[-12:])]
        if not spans:
            del self._spans[entry_key[1:-12]]

    def _scan(self, earliest: int, latest: int, *, reverse: bool) -> Iterator[tuple[bytes, int, bytes]]:
        first = max(earliest, self._observed.value - self.spec.retention_ms + 1)
        for entry_key, data in self.entries.scan(BY_KEY, END, reverse):
            start = int.from_bytes(entry_key[-12:-4], "big")
            if first <= start <= latest:
                yield entry_key[1:-12], start, data

    def _expire(self) -> None:
        oldest = self._observed.value // self._expiry_step_ms * self._expiry_step_ms - self.spec.retention_ms
        if oldest <= 0:
            return
        count = bisect_left(self._starts, oldest)
        for start in self._starts[:count]:
            for entry_key in self._at.pop(start):
                self.entries.delete(entry_key)
                self._unspan(entry_key)
        del self._starts[:count]

    def _windowed(self, key_bytes: bytes, start: int) -> Windowed:
        key = self._key.deserialize(self._topic, key_bytes)
        return Windowed(key, Window(start, min(start + self.spec.window_ms, TIME_MAX)))

    def _write(self, value: Any) -> tuple[bytes, bytes, int]:
        data = self._value.serialize(self._topic, value)
        return data, data, self._now()

    def _read(self, data: bytes) -> Any:
        return self._value.deserialize(self._topic, data)


class Timestamped(WindowStore):
    """A window store of `ValueAndTimestamp`."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._encode = self._value.writer(self._topic)

    def _write(self, value: Any) -> tuple[bytes, bytes, int]:
        try:
            data = self._encode(value[0])
        except Exception:
            data = self._value.serialize(self._topic, value[0])
        return value[1].to_bytes(8, "big", signed=True) + data, data, value[1]

    def _read(self, data: bytes) -> ValueAndTimestamp:
        timestamp = int.from_bytes(data[:8], "big", signed=True)
        return ValueAndTimestamp(self._value.deserialize(self._topic, data[8:]), timestamp)


class TimestampedWindowStore(Timestamped):
    """A window store of `ValueAndTimestamp`. Immutable keys and values that were put recently are cached as objects."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._exact: frozenset[type] = self._value.exact if self._log is None else frozenset()
        #: The last key and start that were fetched and not cached, and the key of their entry.
        self._fetched: tuple[Any, int, bytes] = (None, -1, b"")

    def fetch_one(self, key: Any, start: int) -> Any:
        if start <= self._observed.value - self.spec.retention_ms or key.__class__ not in IMMUTABLE:
            return super().fetch_one(key, start)
        cached = self._recent.get((key, start))
        if cached is not None:
            return cached[0]
        if start < 0:
            return None
        entry_key = BY_KEY + self._key_bytes(key) + start.to_bytes(8, "big") + bytes(4)
        self._fetched = (key, start, entry_key)
        data = self.entries.get(entry_key)
        return None if data is None else self._read(data)

    def put(self, key: Any, value: Any, start: int, headers: Headers = (), deleted_ms: int | None = None) -> None:
        if value is None or value[0].__class__ not in self._exact or key.__class__ not in IMMUTABLE:
            super().put(key, value, start, headers, deleted_ms)
            return
        observed, window = self._observed.value, (key, start)
        if not observed - self.spec.retention_ms <= start <= observed:
            super().put(key, value, start, headers)
            if start > observed:
                self._remember(window, value, self._entry_key(key, start))
            return
        data = self._write(value)[0]
        cached = self._recent.get(window)
        if cached is not None:
            # The entry exists, so the indexes need no change.
            self._recent[window] = (value, cached[1])
            self.entries.put(cached[1], data)
            return
        entry_key = self._entry_key(key, start)
        if self.entries.get(entry_key) is None:
            self._index(start, entry_key)
        self.entries.put(entry_key, data)
        self._remember(window, value, entry_key)

    def _entry_key(self, key: Any, start: int) -> bytes:
        """The key of a window's entry, which was often fetched just before."""
        fetched = self._fetched
        if fetched[0] is key and fetched[1] == start:
            return fetched[2]
        return BY_KEY + self._key_bytes(key) + start.to_bytes(8, "big") + bytes(4)

    def _remember(self, window: tuple[Any, int], value: ValueAndTimestamp, entry_key: bytes) -> None:
        if len(self._recent) >= CACHED_MAX:
            self._recent.clear()
        self._recent[window] = (value, entry_key)

    def entry_keys(self, keys: Sequence[bytes], starts: Sequence[int]) -> list[bytes]:
        """The entry keys of windows, by key bytes and start, for `read_many` and `write_many`."""
        spans = {start: start.to_bytes(8, "big") + bytes(4) for start in set(starts)}
        return [BY_KEY + key_bytes + spans[start] for key_bytes, start in zip(keys, starts, strict=True)]

    def read_many(self, entry_keys: Sequence[bytes]) -> list[bytes | None]:
        """The entries of windows that are not hidden: 8 bytes of timestamp, then the value's bytes."""
        return [self.entries.get(entry_key) for entry_key in entry_keys]

    def write_many(self, entry_keys: Sequence[bytes], starts: Sequence[int], entries: Sequence[bytes]) -> None:
        """Put entries of windows that are not hidden, in order of ascending start."""
        self._recent.clear()
        put, log, before, entries_at = self.entries.put, self._log, None, {}
        for entry_key, start, data in zip(entry_keys, starts, entries, strict=True):
            if start != before:
                before = start
                if start > self._observed.value:
                    newest, self._observed.value = self._observed.value, start
                    if newest // self._expiry_step_ms != start // self._expiry_step_ms:
                        self._expire()
                entries_at = self._entries_at(start)
            if self._spans is not None and entry_key not in entries_at:
                self._span(self._spans, entry_key)
            entries_at[entry_key] = None
            put(entry_key, data)
            if log is not None:
                log(self.name, entry_key[1:], data[8:], int.from_bytes(data[:8], "big", signed=True))
