"""The ordered map of bytes that every store is built on, and its implementation in memory.

A backend that keeps a task's state elsewhere implements `OrderedBytes` and is passed to the task (`engine.Task`,
`backend`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

#: The maximum number of keys in a chunk.
_CHUNK = 512


class OrderedBytes(Protocol):
    """A map from bytes to bytes, ordered by the keys' bytes."""

    def get(self, key: bytes) -> bytes | None: ...

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> None:
        """Remove the key if it is there."""

    def scan(self, low: bytes | None, high: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """The entries with `low <= key < high` (None: open), in order. Entries may be put and deleted during a scan,
        which omits those that are deleted before their turn.
        """

    def keys(self) -> Iterable[bytes]:
        """All keys, in any order. The map must not change during the iteration."""

    def __len__(self) -> int: ...


class MemoryBytes:
    """An ordered map in memory: a dict, plus its keys in sorted chunks from the first scan on."""

    def __init__(self, entries: Mapping[bytes, bytes] | None = None) -> None:
        self._entries: dict[bytes, bytes] = dict(entries or {})
        self._chunks: list[list[bytes]] = []
        self._maxes: list[bytes] = []
        #: Keys that are not in a chunk yet; None before the first scan, when there are no chunks.
        self._unsorted: set[bytes] | None = None
        #: The keys put or deleted since the last `take_changes`, and whether they existed before.
        self._touched: dict[bytes, bool] = {}

    @classmethod
    def of(cls, entries: dict[bytes, bytes]) -> MemoryBytes:
        """A map that takes over `entries` without a copy."""
        instance = cls()
        instance._entries = entries
        return instance

    def get(self, key: bytes) -> bytes | None:
        return self._entries.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        entries = self._entries
        if key in entries:
            self._touched.setdefault(key, True)
        else:
            self._touched.setdefault(key, False)
            if self._unsorted is not None:
                self._unsorted.add(key)
        entries[key] = value

    def delete(self, key: bytes) -> None:
        if self._entries.pop(key, None) is None:
            return
        self._touched.setdefault(key, True)
        if self._unsorted is None:
            return
        if key in self._unsorted:
            self._unsorted.remove(key)
            return
        at = bisect_left(self._maxes, key)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, key)]
        if chunk:
            self._maxes[at] = chunk[-1]
        else:
            del self._chunks[at], self._maxes[at]

    def scan(self, low: bytes | None, high: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        entries = self._entries
        while True:
            keys = self._stretch(low, high, reverse)
            if not keys:
                return
            for key in keys:
                value = entries.get(key)
                if value is not None:
                    yield key, value
            if reverse:
                high = keys[-1]
            else:
                low = keys[-1] + b"\x00"

    def keys(self) -> Iterable[bytes]:
        return self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> dict[bytes, bytes]:
        """A copy of all entries."""
        return dict(self._entries)

    def take_changes(self) -> dict[bytes, bytes | None]:
        """The changed entries (None: deleted) since the last call. Keys that were added and deleted are omitted."""
        get, touched = self._entries.get, self._touched
        self._touched = {}
        return {key: value for key, before in touched.items() if (value := get(key)) is not None or before}

    def _stretch(self, low: bytes | None, high: bytes | None, reverse: bool) -> list[bytes]:
        """The keys of the first chunk of the range (for reverse, the last), in scan order."""
        if self._unsorted is None or self._unsorted:
            self._sort()
        if not self._chunks:
            return []
        if reverse:
            at = len(self._chunks) - 1 if high is None else min(bisect_left(self._maxes, high), len(self._chunks) - 1)
        else:
            at = 0 if low is None else bisect_left(self._maxes, low)
        while 0 <= at < len(self._chunks):
            chunk = self._chunks[at]
            start = 0 if low is None else bisect_left(chunk, low)
            end = len(chunk) if high is None else bisect_left(chunk, high)
            if start < end:
                keys = chunk[start:end]
                return keys[::-1] if reverse else keys
            if reverse and start == len(chunk):
                return []
            if not reverse and end < len(chunk):
                return []
            at += -1 if reverse else 1
        return []

    def _sort(self) -> None:
        if self._unsorted is None or 64 < len(self._unsorted) > len(self._entries) / 4:
            keys = sorted(self._entries)
            self._chunks = [keys[at : at + _CHUNK // 2] for at in range(0, len(keys), _CHUNK // 2)]
            self._maxes = [chunk[-1] for chunk in self._chunks]
        else:
            for key in self._unsorted:
                self._insert(key)
        self._unsorted = set()

    def _insert(self, key: bytes) -> None:
        if not self._chunks:
            self._chunks, self._maxes = [[key]], [key]
            return
        at = min(bisect_right(self._maxes, key), len(self._chunks) - 1)
        chunk = self._chunks[at]
        insort(chunk, key)
        self._maxes[at] = chunk[-1]
        if len(chunk) > _CHUNK:
            half = len(chunk) // 2
            self._chunks[at : at + 1] = [chunk[:half], chunk[half:]]
            self._maxes[at : at + 1] = [chunk[half - 1], chunk[-1]]


def after(prefix: bytes) -> bytes | None:
    """The first key after all keys that begin with a prefix; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
