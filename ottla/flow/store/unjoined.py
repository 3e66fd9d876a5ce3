"""The store of a left or outer stream join's records, of both sides, that have no match yet.

An entry's key is `time (8 bytes) + side (1 byte: 0 right, 1 left) + key + number (4 bytes)`, the order in which Kafka
Streams emits them without a match. Kafka Streams keeps a list of values per key and time, in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ottla.flow.serde import Serde
from ottla.flow.store.changelog import Cell, Log
from ottla.flow.store.ordered import OrderedBytes
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
        self.entries = entries
        self._key = key
        self._sides = {True: value, False: other}
        self._topic = topic
        self._log = log
        self._sequence = sequence
        #: The entry keys of each time, side and key, in the order of arrival.
        self._arrived: dict[bytes, list[bytes]] = {}
        for entry_key in sorted(entries.keys()):
            self._arrived.setdefault(entry_key[:-4], []).append(entry_key)

    @property
    def serdes(self) -> tuple[Serde, Serde, Serde]:
        """The serdes of keys, left values and right values."""
        return self._key, self._sides[True], self._sides[False]

    def put(self, key: Any, timestamp: int, left: bool, value: Any) -> None:
        (entry_key,) = self.entry_keys([_prefix(timestamp, left, self._key.serialize(self._topic, key))])
        self.skip(1)
        self.put_entry(entry_key, self._sides[left].serialize(self._topic, value))

    def entry_keys(self, prefixes: Sequence[bytes]) -> list[bytes]:
        """The entry keys that the next records get, in the order of arrival."""
        first = self._sequence.value + 1
        return [prefix + (number & 0x7FFFFFFF).to_bytes(4, "big") for number, prefix in enumerate(prefixes, first)]

    def skip(self, count: int) -> None:
        """Count the numbers of so many records as given."""
        self._sequence.value = (self._sequence.value + count) & 0x7FFFFFFF

    def put_entry(self, entry_key: bytes, data: bytes) -> None:
        """Put a record, given as bytes."""
        self.entries.put(entry_key, data)
        self._arrived.setdefault(entry_key[:-4], []).append(entry_key)
        if self._log is not None:
            self._log(self.name, entry_key, data, int.from_bytes(entry_key[:8], "big"))

    def remove(self, key: Any, timestamp: int, left: bool) -> None:
        """Remove all records of a key and time, because they have a match."""
        for entry_key in self.arrived(_prefix(timestamp, left, self._key.serialize(self._topic, key))):
            self.remove_entry(entry_key)

    def arrived(self, prefix: bytes) -> tuple[bytes, ...]:
        """The entry keys that consist of this prefix and a number."""
        return tuple(self._arrived.get(prefix, ()))

    def all(self) -> Iterator[Candidate]:
        """All candidates, by time, then right before left, then key, then arrival."""
        for entry_key, data in self.entries.scan(None, None):
            left = entry_key[8] == 1
            value = self._sides[left].deserialize(self._topic, data)
            key = self._key.deserialize(self._topic, entry_key[9:-4])
            yield Candidate(entry_key, key, int.from_bytes(entry_key[:8], "big"), left, value)

    def remove_entry(self, entry_key: bytes) -> None:
        """Remove a record that is there, or that was put and removed within a batch: then only the changelog tells."""
        self.entries.delete(entry_key)
        arrived = self._arrived.get(entry_key[:-4])
        if arrived is not None and entry_key in arrived:
            arrived.remove(entry_key)
            if not arrived:
                del self._arrived[entry_key[:-4]]
        if self._log is not None:
            self._log(self.name, entry_key, None, int.from_bytes(entry_key[:8], "big"))


def _prefix(timestamp: int, left: bool, key: bytes) -> bytes:
    return timestamp.to_bytes(8, "big") + (b"\x01" if left else b"\x00") + key
