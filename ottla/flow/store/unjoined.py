"""The store of a left or outer stream join's records, of both sides, that have no match yet.

An entry's key is `time (8 bytes) + side (1 byte: 0 right, 1 left) + key + number (4 bytes)`, the order in which Kafka
Streams emits them without a match. Kafka Streams keeps a list of values per key and time, in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.flow.serde import Serde
from ottla.flow.store.changelog import Cell, Log
from ottla.flow.store.ordered import OrderedBytes, after
from ottla.flow.store.spec import StoreSpec
from ottla.kernel.named import NamedTuple


class Candidate(NamedTuple):
    """A record that has no match yet. `entry_key` is its key in the store."""

    entry_key: bytes
    key: Any
    timestamp: int
    left: bool
    value: Any


class UnjoinedStore:
    """A store of unmatched records. `value` is the serde of the left values, `other` that of the right values."""

    def __init__(
        self,
        spec: StoreSpec,
        entries: OrderedBytes,
        key: Serde,
        value: Serde,
        other: Serde,
        topic: str,
        log: Log | None,
        sequence: Cell,
    ) -> None:
        self.name = spec.name
        self.spec = spec
        self.entries = entries
        self._key = key
        self._sides = {True: value, False: other}
        self._topic = topic
        self._log = log
        self._sequence = sequence

    def put(self, key: Any, timestamp: int, left: bool, value: Any) -> None:
        self._sequence.value = (self._sequence.value + 1) & 0x7FFFFFFF
        entry_key = self._entry_prefix(key, timestamp, left) + self._sequence.value.to_bytes(4, "big")
        data = self._sides[left].serialize(self._topic, value)
        self.entries.put(entry_key, data)
        if self._log is not None:
            self._log(self.name, entry_key, data, timestamp)

    def remove(self, key: Any, timestamp: int, left: bool) -> None:
        """Remove all records of a key and time, because they have a match."""
        prefix = self._entry_prefix(key, timestamp, left)
        for entry_key, _ in self.entries.scan(prefix, after(prefix)):
            if len(entry_key) == len(prefix) + 4:
                self._drop(entry_key, timestamp)

    def all(self) -> Iterator[Candidate]:
        """All candidates, by time, then right before left, then key, then arrival."""
        for entry_key, data in self.entries.scan(None, None):
            left = entry_key[8] == 1
            value = self._sides[left].deserialize(self._topic, data)
            key = self._key.deserialize(self._topic, entry_key[9:-4])
            yield Candidate(entry_key, key, int.from_bytes(entry_key[:8], "big"), left, value)

    def remove_candidate(self, candidate: Candidate) -> None:
        self._drop(candidate.entry_key, candidate.timestamp)

    def _entry_prefix(self, key: Any, timestamp: int, left: bool) -> bytes:
        return timestamp.to_bytes(8, "big") + (b"\x01" if left else b"\x00") + self._key.serialize(self._topic, key)

    def _drop(self, entry_key: bytes, timestamp: int) -> None:
        self.entries.delete(entry_key)
        if self._log is not None:
            self._log(self.name, entry_key, None, timestamp)
