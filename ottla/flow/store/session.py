"""Session stores: an aggregate by key and session, kept until it is older than the newest end by the retention.

An entry's key is `key + end (8 bytes) + start (8 bytes)`, as in Kafka Streams' changelogs; a second entry orders them
by end. A session with `end <= newest end - retention` is hidden, but the emit-on-close scan of a persistent store shows
it until its segment is dropped (verified with Kafka Streams 4.3).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from ottla.flow.record import TIME_MAX, Window, Windowed
from ottla.flow.store.spec import StoreSpec
from ottla.flow.store.store import TimedStore

_BY_KEY, _BY_TIME = b"k", b"t"
#: The minimum length of a persistent store's segment, in ms.
_SEGMENT_MS = 60_000


#: (end, start) to bytes in the same order, and back.
_TIMES, _READ_TIMES = struct.Struct(">QQ").pack, struct.Struct(">QQ").unpack


class SessionStore(TimedStore):
    """A session store (Kafka Streams: SessionStore). `observed` is the newest end put."""

    def __init__(self, spec: StoreSpec, *shared: Any) -> None:
        super().__init__(spec, *shared)
        self._retention = spec.retention_ms
        #: The length of a segment in ms; a persistent store drops whole segments.
        self._segment = 1 if spec.in_memory else max(spec.retention_ms // 2, _SEGMENT_MS)
        #: All sessions that end before this time have been dropped.
        self._expired = 0

    def put(self, session: Windowed, value: Any) -> None:
        """Set the aggregate of a session; None deletes it."""
        start, end = session.window
        key_bytes = self._key.serialize(self._topic, session.key)
        times = _TIMES(end, start)
        data = None if value is None else self._value.serialize(self._topic, value)
        late = end < self._oldest_kept()
        # Kafka Streams logs expired records too.
        if self._log is not None:
            self._log(self.name, key_bytes + times, data, self._now())
        if late:
            return
        if end > self._observed.value:
            self._observed.value = end
            self._expire()
        if data is None:
            self.entries.delete(_BY_KEY + key_bytes + times)
            self.entries.delete(_BY_TIME + times + key_bytes)
        else:
            self.entries.put(_BY_KEY + key_bytes + times, data)
            self.entries.put(_BY_TIME + times + key_bytes, b"")

    def remove(self, session: Windowed) -> None:
        """Delete a session."""
        self.put(session, None)

    def find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> Iterator[tuple[Windowed, Any]]:
        """A key's sessions with `end >= earliest_end` and `start <= latest_start` (ms), by end, then start."""
        yield from self._find(key, earliest_end, latest_start, reverse=False)

    def backward_find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> Iterator[tuple[Windowed, Any]]:
        """As `find_sessions`, in descending order."""
        yield from self._find(key, earliest_end, latest_start, reverse=True)

    def fetch(self, key: Any) -> Iterator[tuple[Windowed, Any]]:
        """All sessions of a key."""
        yield from self._find(key, 0, TIME_MAX, reverse=False)

    def backward_fetch(self, key: Any) -> Iterator[tuple[Windowed, Any]]:
        """As `fetch`, in descending order."""
        yield from self._find(key, 0, TIME_MAX, reverse=True)

    def fetch_range(self, low: Any, high: Any) -> Iterator[tuple[Windowed, Any]]:
        """All sessions of the keys in [low, high] (None: open)."""
        first = None if low is None else self._key.serialize(self._topic, low)
        last = None if high is None else self._key.serialize(self._topic, high)
        for entry_key, data in self.entries.scan(_BY_KEY, _BY_TIME):
            key_bytes, end = entry_key[1:-16], int.from_bytes(entry_key[-16:-8], "big")
            if (
                end <= self._hidden
                or (first is not None and key_bytes < first)
                or (last is not None and key_bytes > last)
            ):
                continue
            yield self._windowed(key_bytes, entry_key[-16:]), self._value.deserialize(self._topic, data)

    def all(self) -> Iterator[tuple[Windowed, Any]]:
        """All sessions of all keys."""
        yield from self.fetch_range(None, None)

    def fetch_session(self, key: Any, start: int, end: int) -> Any:
        """The aggregate of one session, or None."""
        if end <= self._hidden:
            return None
        key_bytes = self._key.serialize(self._topic, key)
        data = self.entries.get(_BY_KEY + key_bytes + end.to_bytes(8, "big") + start.to_bytes(8, "big"))
        return None if data is None else self._value.deserialize(self._topic, data)

    def find_closed(self, earliest_end: int, latest_end: int) -> Iterator[tuple[Windowed, Any]]:
        """Sessions with an end in [earliest_end, latest_end], by end, start, key: the emit-on-close scan."""
        first = max(earliest_end, self._hidden + 1 if self.spec.in_memory else 0, 0)
        if first > latest_end:
            return
        low, high = _BY_TIME + first.to_bytes(8, "big"), _BY_TIME + (latest_end + 1).to_bytes(8, "big")
        for entry_key, _ in self.entries.scan(low, high):
            times, key_bytes = entry_key[1:17], entry_key[17:]
            data = self.entries.get(_BY_KEY + key_bytes + times)
            if data is not None:
                yield self._windowed(key_bytes, times), self._value.deserialize(self._topic, data)

    @property
    def _hidden(self) -> int:
        return self._observed.value - self.spec.retention_ms

    def _oldest_kept(self) -> int:
        """The oldest end that is still kept."""
        hidden = self._observed.value - self._retention
        return hidden + 1 if self.spec.in_memory else hidden // self._segment * self._segment

    def _find(self, key: Any, earliest: int, latest: int, *, reverse: bool) -> Iterator[tuple[Windowed, Any]]:
        first = max(earliest, self._hidden + 1, 0)
        key_bytes = self._key.serialize(self._topic, key)
        size = len(key_bytes) + 17
        prefix = _BY_KEY + key_bytes
        low, high = prefix + first.to_bytes(8, "big"), prefix + b"\xff" * 17
        for entry_key, data in self.entries.scan(low, high, reverse):
            # Skip longer keys with the same prefix.
            if len(entry_key) == size and int.from_bytes(entry_key[-8:], "big") <= latest:
                yield self._windowed(key_bytes, entry_key[-16:]), self._value.deserialize(self._topic, data)

    def _windowed(self, key_bytes: bytes, times: bytes) -> Windowed:
        end, start = _READ_TIMES(times)
        return Windowed(self._key.deserialize(self._topic, key_bytes), Window(start, end))

    def _expire(self) -> None:
        oldest = self._oldest_kept()
        if oldest <= self._expired:
            return
        self._expired = oldest
        for entry_key, _ in self.entries.scan(_BY_TIME, _BY_TIME + oldest.to_bytes(8, "big")):
            self.entries.delete(entry_key)
            self.entries.delete(_BY_KEY + entry_key[17:] + entry_key[1:17])
