"""Buffers that hold records back by time: suppress (one slot for each key) and stream-table joins with grace.

An entry's key is `time (8 bytes) + key`, so entries leave by time; ties leave in the order of the keys' bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from ottla.flow.record import Change, Headers, Record, RecordContext
from ottla.flow.serde import Serde
from ottla.flow.store.changelog import Cell, Log
from ottla.flow.store.ordered import OrderedBytes
from ottla.flow.store.spec import StoreSpec
from ottla.flow.store.store import Store
from ottla.kernel.named import NamedTuple

_SLOT, _KEY = b"t", b"k"


class HeldRecord(NamedTuple):
    """A record that leaves a buffer, with the context in which it was put there."""

    record: Record
    context: RecordContext


class _Stored(NamedTuple):
    """The content of an entry. `prior` is the value from before the key was buffered."""

    prior: bytes | None
    old: bytes | None
    new: bytes | None
    latest: bool
    timestamp: int
    headers: Headers
    topic: str
    partition: int
    offset: int


_NUMBERS = struct.Struct(">?qiqi")


def _pack(stored: _Stored) -> bytes:
    numbers = (stored.latest, stored.timestamp, stored.partition, stored.offset, len(stored.headers))
    texts: list[bytes | None] = [stored.prior, stored.old, stored.new, stored.topic.encode()]
    for name, content in stored.headers:
        texts += (name.encode(), content)
    pieces = [_NUMBERS.pack(*numbers)]
    pieces += [b"\xff\xff\xff\xff" if text is None else len(text).to_bytes(4, "big") + text for text in texts]
    return b"".join(pieces)


def _unpack(data: bytes) -> _Stored:
    latest, timestamp, partition, offset, headers = _NUMBERS.unpack_from(data)
    at = _NUMBERS.size
    texts: list[bytes | None] = []
    for _ in range(4 + 2 * headers):
        length = int.from_bytes(data[at : at + 4], "big", signed=True)
        at += 4
        texts.append(None if length < 0 else data[at : at + length])
        at += max(length, 0)
    prior, old, new, topic = texts[:4]
    named = tuple(((name or b"").decode(), content) for name, content in zip(texts[4::2], texts[5::2], strict=True))
    return _Stored(prior, old, new, latest, timestamp, named, (topic or b"").decode(), partition, offset)


class SuppressBuffer(Store):
    """The buffer of suppress: a slot for each key. A slot keeps the time of the first update; later updates replace its
    content.

    `size` is the number of bytes of keys and contents, which maxBytes limits.
    """

    def __init__(self, spec: StoreSpec, entries: OrderedBytes, key: Serde, value: Serde, topic: str, log: Log | None):
        super().__init__(spec, entries, key, value, topic, log)
        self._count = 0
        self._bytes = 0
        #: The first slot; None if it must be looked up.
        self._first: bytes | None = None
        for entry_key, data in entries.scan(_SLOT, None):
            self._count += 1
            self._bytes += len(entry_key) + len(data)

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        return self._bytes

    def put(self, time: int, record: Record, origin: tuple[str, int, int]) -> None:
        """Hold a change back, in the key's slot if there is one. `origin`: topic, partition and offset."""
        key_bytes = self._key.serialize(self._topic, record.key)
        change: Change = record.value
        old, new = self._bytes_of(change.old), self._bytes_of(change.new)
        slot = self.entries.get(_KEY + key_bytes)
        prior = old
        if slot is None:
            entry_key = _SLOT + time.to_bytes(8, "big") + key_bytes
            self.entries.put(_KEY + key_bytes, entry_key[1:9])
            self._count += 1
            if self._count == 1 or (self._first is not None and entry_key < self._first):
                self._first = entry_key
        else:
            entry_key = _SLOT + slot + key_bytes
            held = self.entries.get(entry_key)
            assert held is not None
            prior = _unpack(held).prior
            self._bytes -= len(entry_key) + len(held)
        stored = _Stored(
            prior,
            old,
            new,
            change.latest,
            record.timestamp,
            record.headers,
            *origin,
        )
        data = _pack(stored)
        self.entries.put(entry_key, data)
        self._bytes += len(entry_key) + len(data)
        if self._log is not None:
            self._log(self.name, key_bytes, data, record.timestamp)

    def first_time(self) -> int | None:
        """The time of the first slot."""
        entry_key = self._first_slot()
        return None if entry_key is None else int.from_bytes(entry_key[1:9], "big")

    def pop(self, *, last_old: bool) -> HeldRecord:
        """Remove and return the content of the first slot. LookupError if the buffer is empty.

        The change's old value is what downstream still sees, or with `last_old` that of the last update.
        """
        entry_key = self._first_slot()
        data = None if entry_key is None else self.entries.get(entry_key)
        if entry_key is None or data is None:
            raise LookupError(f"buffer {self.name} is empty")
        key_bytes = entry_key[9:]
        self._first = None
        self.entries.delete(entry_key)
        self.entries.delete(_KEY + key_bytes)
        self._count -= 1
        self._bytes -= len(entry_key) + len(data)
        stored = _unpack(data)
        if self._log is not None:
            self._log(self.name, key_bytes, None, stored.timestamp)
        old = stored.old if last_old else stored.prior
        change = Change(self._value_of(stored.new), self._value_of(old), stored.latest)
        key = self._key.deserialize(self._topic, key_bytes)
        return HeldRecord(Record(key, change, stored.timestamp, stored.headers), _context(stored))

    def prior(self, key: Any) -> tuple[bool, Any]:
        """(whether the key is held back, the value that downstream still sees)."""
        key_bytes = self._key.serialize(self._topic, key)
        slot = self.entries.get(_KEY + key_bytes)
        if slot is None:
            return False, None
        held = self.entries.get(_SLOT + slot + key_bytes)
        assert held is not None
        return True, self._value_of(_unpack(held).prior)

    def _first_slot(self) -> bytes | None:
        if self._first is None and self._count:
            self._first = next(self.entries.scan(_SLOT, None))[0]
        return self._first

    def _bytes_of(self, value: Any) -> bytes | None:
        return None if value is None else self._value.serialize(self._topic, value)

    def _value_of(self, data: bytes | None) -> Any:
        return None if data is None else self._value.deserialize(self._topic, data)


def _context(stored: _Stored) -> RecordContext:
    return RecordContext(stored.topic, stored.partition, stored.offset, stored.timestamp, stored.headers)


class JoinBuffer(Store):
    """The buffer of a join with grace: stream records that wait until stream time is `grace` past them. `observed` is
    the newest timestamp put.
    """

    def __init__(
        self,
        spec: StoreSpec,
        entries: OrderedBytes,
        key: Serde,
        value: Serde,
        topic: str,
        log: Log | None,
        observed: Cell,
        sequence: Cell,
    ):
        super().__init__(spec, entries, key, value, topic, log)
        self._observed = observed
        self._sequence = sequence

    def put(self, record: Record, context: RecordContext) -> bool:
        """Hold a record back. False if its time to wait has passed already."""
        if record.key is None:
            raise TypeError(f"{self.name}: a left join with a grace period cannot buffer a record with key None")
        if self._observed.value - self.spec.grace_ms > record.timestamp:
            return False
        self._observed.value = max(self._observed.value, record.timestamp)
        self._sequence.value = (self._sequence.value + 1) & 0x7FFFFFFF
        key_bytes = self._key.serialize(self._topic, record.key)
        data = self._value.serialize(self._topic, record.value)
        stored = _Stored(
            None, None, data, True, record.timestamp, record.headers, context.topic, context.partition, context.offset
        )
        entry_key = record.timestamp.to_bytes(8, "big") + key_bytes + self._sequence.value.to_bytes(4, "big")
        packed = _pack(stored)
        self.entries.put(entry_key, packed)
        if self._log is not None:
            self._log(self.name, entry_key, packed, record.timestamp)
        return True

    def due(self) -> Iterator[HeldRecord]:
        """Remove and yield the records that have waited long enough, by time, then key."""
        limit = self._observed.value - self.spec.grace_ms + 1
        if limit <= 0:
            return
        for entry_key, data in self.entries.scan(None, limit.to_bytes(8, "big")):
            self.entries.delete(entry_key)
            stored = _unpack(data)
            if self._log is not None:
                self._log(self.name, entry_key, None, stored.timestamp)
            assert stored.new is not None
            value = self._value.deserialize(self._topic, stored.new)
            key = self._key.deserialize(self._topic, entry_key[8:-4])
            yield HeldRecord(Record(key, value, stored.timestamp, stored.headers), _context(stored))
