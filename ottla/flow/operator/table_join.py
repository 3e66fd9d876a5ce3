"""Joins of two tables by key: inner, left, outer.

Rules (verified with Kafka Streams 4.3):
- Inner: a change is emitted unless the other side's value is null.
- Left: a left change is dropped if the right value and the old and new left values are null; a right change is dropped
  if the left value is null. Outer: a change is dropped if the other side's value and its old and new values are null.
- The timestamp is the newer of the change's and the other side's; a deleted side has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from ottla.flow.operator.view import (
    IS_LATEST,
    NOT_PUT,
    Getter,
    StoreValues,
    Values,
    View,
    store_getter,
    value_of,
)
from ottla.flow.processor import Context, Processor
from ottla.flow.record import NO_TIMESTAMP, Change, Record, ValueAndTimestamp

#: A side of an inner join, the left or right side of a left join, a side of an outer join.
Side = Literal["inner", "left", "right", "outer"]


class JoinSide(View):
    """A side of a join: changes of `this` joined with the values of `other`. `joiner` takes (key, this, other)."""

    def __init__(
        self, side: Side, this: View, other: View, joiner: Callable[[Any, Any, Any], Any], versioned: bool
    ) -> None:
        self.side = side
        self.this = this
        self.other = other
        self.joiner = joiner
        self.versioned = versioned
        self._this_getter = this.getter()
        self.other_getter = other.getter()

    def __call__(self) -> Processor:
        return _JoinSide(self)

    def _enable_old(self, force: bool) -> bool:
        self.this.enable_old(True)
        self.other.enable_old(True)
        return True

    def getter(self) -> Getter:
        this, other = self._this_getter, self.other_getter
        stores = tuple(dict.fromkeys((*this.stores, *other.stores)))
        return Getter(stores, lambda context: _Joined(self, this.open(context), other.open(context)))


class _Joined:
    """The joined values, recomputed from both sides."""

    versioned = False

    def __init__(self, join: JoinSide, this: Values, other: Values) -> None:
        self._join = join
        self._this = this
        self._other = other

    def get(self, key: Any) -> ValueAndTimestamp | None:
        this, other = self._this.get(key), self._other.get(key)
        if self._join.side in ("inner", "left") and this is None:
            return None
        if self._join.side in ("inner", "right") and other is None:
            return None
        if this is None and other is None:
            return None
        value = self._join.joiner(key, value_of(this), value_of(other))
        times = [side[1] for side in (this, other) if side is not None]
        return None if value is None else ValueAndTimestamp(value, max(times))

    def get_as_of(self, key: Any, timestamp: int) -> ValueAndTimestamp | None:
        return self.get(key)


class _JoinSide(Processor):
    def __init__(self, join: JoinSide) -> None:
        self._join = join

    def init(self, context: Context) -> None:
        self.context = context
        self._other = self._join.other_getter.open(context)

    def process(self, record: Record) -> None:
        join, key, change = self._join, record.key, record.value
        if key is None or (join.versioned and not change.latest):
            self.context.drop()
            return
        other_row = self._other.get(key)
        other = value_of(other_row)
        nothing = change.new is None and change.old is None
        if other is None and (nothing or join.side in ("inner", "right")):
            return
        timestamp = max(record.timestamp, other_row[1] if other_row is not None and other is not None else NO_TIMESTAMP)
        new = join.joiner(key, change.new, other) if self._joins(change.new, other) else None
        old = join.joiner(key, change.old, other) if join.sending_old and self._joins(change.old, other) else None
        self.context.forward(Record(key, Change(new, old, change.latest), timestamp, record.headers))

    def _joins(self, value: Any, other: Any) -> bool:
        """Whether this side's value has a result, given the other side's value."""
        if self._join.side == "right":
            return True
        return value is not None or (self._join.side == "outer" and other is not None)


class JoinedTable(View):
    """The table of a join: the merge of both sides, with a store if `store` names one."""

    def __init__(self, this: JoinSide, other: JoinSide, store: str | None) -> None:
        self.this = this
        self.other = other
        self.store = store

    def __call__(self) -> Processor:
        return _Merge(self)

    def _enable_old(self, force: bool) -> bool:
        self.this.enable_old(True)
        self.other.enable_old(True)
        return True

    def getter(self) -> Getter:
        if self.store is not None:
            return store_getter(self.store)
        first, second = self.this.getter(), self.other.getter()
        return Getter(tuple(dict.fromkeys((*first.stores, *second.stores))), first.open)


class _Merge(Processor):
    def __init__(self, table: JoinedTable) -> None:
        self._table = table

    def init(self, context: Context) -> None:
        self.context = context
        self._store = StoreValues(context, self._table.store) if self._table.store else None

    def process(self, record: Record) -> None:
        change, latest = record.value, record.value.latest
        if self._store is not None:
            code = self._store.put(record.key, change.new, record.timestamp)
            if code == NOT_PUT:
                return
            latest = code == IS_LATEST
        old = change.old if self._table.sending_old else None
        self.context.forward(Record(record.key, Change(change.new, old, latest), record.timestamp, record.headers))
