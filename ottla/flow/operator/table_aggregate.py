"""Grouping a table by something else, and its aggregates, which subtract the old value and add the new one.

A change travels through the repartition topic in Kafka Streams' form: the new or the old value with a flag of one
byte, or both with the length of the new one in front (KIP-904).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.flow.error import SerdeError, StreamsError
from ottla.flow.operator.view import IS_LATEST, NOT_PUT, Getter, StoreValues, View, store_getter, value_of
from ottla.flow.processor import Context, Processor
from ottla.flow.record import Change, Record
from ottla.flow.serde import Serde, WrappingSerde


class ChangeSerde(WrappingSerde):
    """A change of a table, in a repartition topic. `inner` is the serde of the values."""

    def __init__(self, inner: Serde | None) -> None:
        self.inner = inner
        self.name = f"change({inner or 'default'})"

    def bound(self, inner: Serde) -> ChangeSerde:
        return ChangeSerde(inner)

    def serialize(self, topic: str, value: Any) -> bytes:
        assert self.inner is not None
        new = None if value.new is None else self.inner.serialize(topic, value.new)
        old = None if value.old is None else self.inner.serialize(topic, value.old)
        if new is not None and old is not None:
            return _varint(len(new)) + new + old + b"\x02"
        if new is not None:
            return new + b"\x01"
        if old is not None:
            return old + b"\x00"
        raise SerdeError("a change without an old and a new value has no form in bytes")

    def deserialize(self, topic: str, data: bytes) -> Any:
        assert self.inner is not None
        flag, body = data[-1], data[:-1]
        if flag == 0:
            return Change(None, self.inner.deserialize(topic, body))
        if flag == 1:
            return Change(self.inner.deserialize(topic, body), None)
        if flag != 2:
            raise SerdeError(f"a change ends with the flag {flag} (expected 0, 1 or 2)")
        length, at = _read_varint(body)
        new, old = body[at : at + length], body[at + length :]
        return Change(self.inner.deserialize(topic, new), self.inner.deserialize(topic, old))


def _varint(number: int) -> bytes:
    """Kafka's zigzag varint."""
    value, out = number << 1, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes) -> tuple[int, int]:
    value = shift = at = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value >> 1, at


class TableGroupBy(Processor):
    """Each change under its new key: one record if the key stays, otherwise the old value's first."""

    def __init__(self, mapper: Callable[[Any, Any], Any], versioned: bool) -> None:
        self._mapper = mapper
        self._versioned = versioned

    def process(self, record: Record) -> None:
        if record.key is None:
            raise StreamsError("the key of a table that is grouped is None")
        change: Change = record.value
        if self._versioned and not change.latest:
            return
        new, old = self._mapped(record.key, change.new), self._mapped(record.key, change.old)
        if new is not None and old is not None and new[0] == old[0]:
            self._forward(record, new[0], Change(new[1], old[1], change.latest))
            return
        if old is not None:
            self._forward(record, old[0], Change(None, old[1], change.latest))
        if new is not None:
            self._forward(record, new[0], Change(new[1], None, change.latest))

    def _mapped(self, key: Any, value: Any) -> tuple[Any, Any] | None:
        pair = None if value is None else self._mapper(key, value)
        return None if pair is None or pair[0] is None or pair[1] is None else (pair[0], pair[1])

    def _forward(self, record: Record, key: Any, change: Change) -> None:
        self.context.forward(Record(key, change, record.timestamp, record.headers))


class TableAggregate(View):
    """`initializer` None is reduce."""

    def __init__(
        self,
        store: str,
        initializer: Callable[[], Any] | None,
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any],
    ) -> None:
        self.store = store
        self.initializer = initializer
        self.adder = adder
        self.subtractor = subtractor

    def __call__(self) -> Processor:
        return _TableAggregate(self)

    def getter(self) -> Getter:
        return store_getter(self.store)


class _TableAggregate(Processor):
    def __init__(self, table: TableAggregate) -> None:
        self._table = table

    def init(self, context: Context) -> None:
        self.context = context
        self._store = StoreValues(context, self._table.store)

    def process(self, record: Record) -> None:
        if record.key is None:
            raise StreamsError(f"the key of a table aggregate in {self._table.store} is None")
        table, key, change = self._table, record.key, record.value
        found = self._store.get(key)
        old = value_of(found)
        timestamp, newest = record.timestamp, max(record.timestamp, found[1] if found else -1)
        between = old
        if change.old is not None and old is not None:
            between = table.subtractor(key, change.old, old)
            timestamp = newest
        new = between
        if change.new is not None:
            if table.initializer is not None:
                new = table.adder(key, change.new, table.initializer() if between is None else between)
                timestamp = newest
            elif between is None:
                new = change.new
            else:
                new = table.adder(key, change.new, between)
                timestamp = newest
        code = self._store.put(key, new, timestamp)
        if code != NOT_PUT:
            update = Change(new, old if table.sending_old else None, code == IS_LATEST)
            self.context.forward(Record(key, update, timestamp, record.headers))
