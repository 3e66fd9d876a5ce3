"""Regrouping of a table under new keys, and its aggregates, which subtract the old value and add the new one.

Changes go through the repartition topic in Kafka Streams' format (KIP-904): the new or the old value, or the length of
the new value and both values, then a flag of one byte.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.flow.error import SerdeError, StreamsError
from ottla.flow.operator.view import FIXED, IS_LATEST, NOT_PUT, Getter, StoreValues, View, store_getter, value_of
from ottla.flow.processor import Context
from ottla.flow.record import Change, Headers
from ottla.flow.serde import Serde, WrappingSerde
from ottla.flow.task.push import Fused, Node, Push


class ChangeSerde(WrappingSerde):
    """The serde of a table's changes in a repartition topic. `inner` is the serde of the values."""

    def __init__(self, inner: Serde | None) -> None:
        self.inner = inner
        self.name = f"change({inner or 'default'})"

    def bound(self, inner: Serde) -> ChangeSerde:
        return ChangeSerde(inner)

    def serialize(self, topic: str, value: Any) -> bytes:
        assert self.inner is not None
        return _write(partial(self.inner.serialize, topic), value)

    def deserialize(self, topic: str, data: bytes) -> Any:
        assert self.inner is not None
        return _read(partial(self.inner.deserialize, topic), data)

    def writer(self, topic: str) -> Callable[[Any], bytes]:
        assert self.inner is not None
        return partial(_write, self.inner.writer(topic))

    def reader(self, topic: str) -> Callable[[bytes], Any]:
        assert self.inner is not None
        return partial(_read, self.inner.reader(topic))


def _write(write: Callable[[Any], bytes], change: Change) -> bytes:
    if change.new is not None:
        new = write(change.new)
        if change.old is None:
            return new + b"\x01"
        return varint(len(new)) + new + write(change.old) + b"\x02"
    if change.old is not None:
        return write(change.old) + b"\x00"
    raise SerdeError("cannot serialize a change with neither an old nor a new value")


def _read(read: Callable[[bytes], Any], data: bytes) -> Change:
    flag, body = data[-1], data[:-1]
    if flag == 0:
        return Change(None, read(body))
    if flag == 1:
        return Change(read(body), None)
    if flag != 2:
        raise SerdeError(f"invalid flag at the end of a change: {flag} (expected 0, 1 or 2)")
    length, at = _read_varint(body)
    return Change(read(body[at : at + length]), read(body[at + length :]))


_SHORT = [bytes([number << 1]) for number in range(64)]


def varint(number: int) -> bytes:
    """Kafka's zigzag varint."""
    if number < 64:
        return _SHORT[number]
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


class TableGroupBy(Fused):
    """group_by of a table: one record per change if the new key stays, otherwise one for the old value, then one for
    the new value.
    """

    def __init__(self, mapper: Callable[[Any, Any], Any], versioned: bool) -> None:
        self.mapper = mapper
        self.versioned = versioned

    def fused(self, node: Node) -> Push:
        emit, on_error, mapped, versioned = node.emit, node.on_error, self._mapped, self.versioned

        def push(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            try:
                if key is None:
                    raise StreamsError("cannot group a table's row with key None")
                if versioned and not change.latest:
                    return
                new, old = mapped(key, change.new), mapped(key, change.old)
            except Exception as error:
                on_error(key, change, timestamp, headers, error)
                return
            if new is not None and old is not None and is_same_key(new[0], old[0]):
                emit(new[0], Change(new[1], old[1], change.latest), timestamp, headers)
                return
            if old is not None:
                emit(old[0], Change(None, old[1], change.latest), timestamp, headers)
            if new is not None:
                emit(new[0], Change(new[1], None, change.latest), timestamp, headers)

        return push

    def _mapped(self, key: Any, value: Any) -> tuple[Any, Any] | None:
        pair = None if value is None else self.mapper(key, value)
        return None if pair is None or pair[0] is None or pair[1] is None else (pair[0], pair[1])


def is_same_key(one: Any, other: Any) -> bool:
    """Whether two keys are equal and of the same classes: 1, 1.0 and True are equal in Python and not in JSON."""
    if one.__class__ is not other.__class__ or one != other:
        return False
    if isinstance(one, dict):
        return all(map(is_same_key, one.items(), other.items()))
    if isinstance(one, (list, tuple)):
        return all(map(is_same_key, one, other))
    return not isinstance(one, float) or repr(one) == repr(other)


class TableAggregate(View):
    """An aggregate of a regrouped table. `initializer` None: reduce."""

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

    def __call__(self) -> Fused:
        return TableAggregateProcessor(self)

    def getter(self) -> Getter:
        return store_getter(self.store)


class TableAggregateProcessor(Fused):
    """The processor of a `TableAggregate`."""

    def __init__(self, table: TableAggregate) -> None:
        self.table = table

    def init(self, context: Context) -> None:
        self.values = StoreValues(context, self.table.store)

    def fused(self, node: Node) -> Push:
        emit, emit_at, on_error, get, put = node.emit, node.emit_at, node.on_error, self.values.get, self.values.put
        update, send_old, store = self._updated, self.table.sending_old, self.table.store

        def push(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            try:
                if key is None:
                    raise StreamsError(f"cannot aggregate a row with key None in store {store}")
                stored = get(key)
                old = value_of(stored)
                own = old if not send_old or old.__class__ in FIXED else value_of(get(key))
                new, updated = update(key, change, own)
                time = timestamp if not updated or stored is None or stored[1] < timestamp else stored[1]
                code = put(key, new, time)
            except Exception as error:
                on_error(key, change, timestamp, headers, error)
                return
            if code != NOT_PUT:
                send = emit if time == timestamp else emit_at
                send(key, Change(new, old if send_old else None, code == IS_LATEST), time, headers)

        return push

    def _updated(self, key: Any, change: Change, old: Any) -> tuple[Any, bool]:
        """The new aggregate, and whether adder or subtractor made it; only then is its timestamp the newer of both."""
        table, between, updated = self.table, old, False
        if change.old is not None and old is not None:
            between, updated = table.subtractor(key, change.old, old), True
        if change.new is None:
            return between, updated
        if table.initializer is not None:
            return table.adder(key, change.new, table.initializer() if between is None else between), True
        if between is None:
            return change.new, updated
        return table.adder(key, change.new, between), True
