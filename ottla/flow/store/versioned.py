"""Versioned key-value stores (KIP-889): every value of a key with the time from which it is valid.

An entry's key is `key + valid-from (8 bytes)`; a value begins with the byte 1, a tombstone is the byte 0. Times that
are older than the newest time minus the history retention can be neither read nor written. A tombstone of that
age is dropped with all versions before it, so that deleted keys take no space.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from ottla.flow.store.store import TimedStore
from ottla.kernel.named import NamedTuple

#: Results of `put`: the record is the latest of its key; the record is older than the retention and was not stored.
IS_LATEST, NOT_PUT = -1, -(1 << 63)
_TOMBSTONE = b"\x00"


class VersionedRecord(NamedTuple):
    """A value, the time (ms) from which it is valid, and the time until which it is (None: open, or not looked up)."""

    value: Any
    timestamp: int
    valid_to: int | None = None


class VersionedStore(TimedStore):
    """A versioned store (Kafka Streams: VersionedKeyValueStore). `observed` is the newest time put, over all keys."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        #: The times and entry keys of tombstones, a heap. Some may have been replaced or dropped since.
        self._tombstones = [
            (entry_key[-8:], entry_key)
            for entry_key in self.entries.keys()  # noqa: SIM118
            if self.entries.get(entry_key) == _TOMBSTONE
        ]
        heapq.heapify(self._tombstones)

    def put(self, key: Any, value: Any, timestamp: int) -> int:
        """Put a version; None deletes as of that time. Returns until when it is valid, IS_LATEST or NOT_PUT."""
        key_bytes = self._key.serialize(self._topic, key)
        data = None if value is None else self._value.serialize(self._topic, value)
        if timestamp > self._observed.value:
            self._observed.value = timestamp
        elif self._expired(timestamp):
            # Kafka Streams logs expired records too.
            if self._log is not None:
                self._log(self.name, key_bytes, data, timestamp)
            return NOT_PUT
        entry_key = key_bytes + timestamp.to_bytes(8, "big")
        later = next(self._versions(key_bytes, timestamp + 1, None), None)
        self.entries.put(entry_key, _TOMBSTONE if data is None else b"\x01" + data)
        if data is None:
            heapq.heappush(self._tombstones, (entry_key[-8:], entry_key))
        self._forget(key_bytes)
        self._forget_deleted()
        if self._log is not None:
            self._log(self.name, key_bytes, data, timestamp)
        return IS_LATEST if later is None else later[0]

    def delete(self, key: Any, timestamp: int) -> VersionedRecord | None:
        """Delete as of a time. Returns the value that was valid then; None if the time is before the history."""
        old = None if self._expired(timestamp) else self.get(key, timestamp)
        self.put(key, None, timestamp)
        return old

    def get(self, key: Any, as_of: int | None = None) -> VersionedRecord | None:
        """The latest value, or the one that was valid at `as_of` (ms); before the history, the latest or none."""
        key_bytes = self._key.serialize(self._topic, key)
        # What remains of the earlier versions there depends on when they were dropped.
        latest = None if as_of is not None and self._expired(as_of) else as_of
        version = next(self._versions(key_bytes, None, latest, reverse=True), None)
        if version is None or version[1] == _TOMBSTONE or (as_of is not None and version[0] > as_of):
            return None
        return VersionedRecord(self._value.deserialize(self._topic, version[1][1:]), version[0])

    def versions(self, key: Any, earliest: int = 0, latest: int | None = None) -> Iterator[VersionedRecord]:
        """The values that were valid at some time in [earliest, latest], newest first (MultiVersionedKeyQuery)."""
        key_bytes = self._key.serialize(self._topic, key)
        end: int | None = None
        for timestamp, data in self._versions(key_bytes, None, None, reverse=True):
            if data != _TOMBSTONE and (latest is None or timestamp <= latest) and (end is None or end > earliest):
                yield VersionedRecord(self._value.deserialize(self._topic, data[1:]), timestamp, end)
            end = timestamp

    def _expired(self, timestamp: int) -> bool:
        """Whether a time is before the history."""
        return timestamp < self._observed.value - self.spec.retention_ms

    def _versions(
        self, key_bytes: bytes, earliest: int | None, latest: int | None, reverse: bool = False
    ) -> Iterator[tuple[int, bytes]]:
        low = key_bytes + (earliest or 0).to_bytes(8, "big")
        high = key_bytes + (b"\xff" * 8 if latest is None else latest.to_bytes(8, "big")) + b"\x00"
        size = len(key_bytes) + 8
        for entry_key, data in self.entries.scan(low, high, reverse):
            # Skip longer keys with the same prefix.
            if len(entry_key) == size:
                yield int.from_bytes(entry_key[-8:], "big"), data

    def _forget(self, key_bytes: bytes) -> None:
        """Drop versions that ceased to be valid before the history begins."""
        oldest = self._observed.value - self.spec.retention_ms
        if oldest <= 0:
            return
        expired = [time for time, _ in self._versions(key_bytes, None, oldest)]
        for time in expired[:-1]:
            self.entries.delete(key_bytes + time.to_bytes(8, "big"))

    def _forget_deleted(self) -> None:
        """Drop tombstones from before the history, and the versions before them."""
        oldest = self._observed.value - self.spec.retention_ms
        if oldest < 0:
            return
        last = oldest.to_bytes(8, "big")
        while self._tombstones and self._tombstones[0][0] <= last:
            _, entry_key = heapq.heappop(self._tombstones)
            if self.entries.get(entry_key) != _TOMBSTONE:
                continue
            key_bytes, deleted = entry_key[:-8], int.from_bytes(entry_key[-8:], "big")
            for time in [time for time, _ in self._versions(key_bytes, None, deleted)]:
                self.entries.delete(key_bytes + time.to_bytes(8, "big"))
