"""Aggregates of streams without windows: count, reduce, aggregate, cogroup.

Rules (Kafka Streams 4.3, tried):
- A null key or value is dropped. A null result deletes the key and is emitted as a tombstone.
- The result's timestamp is the newest of the aggregate's and the record's.
- The old value that goes downstream for a new key is the initializer's, not null (reduce: null).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.flow.operator.view import IS_LATEST, NOT_PUT, Getter, StoreValues, View, store_getter
from ottla.flow.processor import Context, Processor
from ottla.flow.record import Change, Record


class StreamAggregate(View):
    """`initializer` None is reduce: the first value is the aggregate."""

    def __init__(
        self,
        store: str,
        initializer: Callable[[], Any] | None,
        aggregator: Callable[[Any, Any, Any], Any],
    ) -> None:
        self.store = store
        self.initializer = initializer
        self.aggregator = aggregator

    def __call__(self) -> Processor:
        return _Aggregate(self)

    def getter(self) -> Getter:
        return store_getter(self.store)


class _Aggregate(Processor):
    def __init__(self, table: StreamAggregate) -> None:
        self._table = table
        self._initializer = table.initializer
        self._aggregator = table.aggregator

    def init(self, context: Context) -> None:
        self.context = context
        self._store = StoreValues(context, self._table.store)

    def process(self, record: Record) -> None:
        key, value, timestamp = record.key, record.value, record.timestamp
        if key is None or value is None:
            self.context.drop()
            return
        found = self._store.get(key)
        if found is not None:
            old = found[0]
            timestamp = max(timestamp, found[1])
            new = self._aggregator(key, value, old)
        elif self._initializer is None:
            old, new = None, value
        else:
            old = self._initializer()
            new = self._aggregator(key, value, old)
        code = self._store.put(key, new, timestamp)
        if code != NOT_PUT:
            change = Change(new, old if self._table.sending_old else None, code == IS_LATEST)
            self.context.forward(Record(key, change, timestamp, record.headers))


class CogroupTable(View):
    """The merge of the aggregates of several streams in one store."""

    def __init__(self, parents: list[View], getter: Getter) -> None:
        self._parents = parents
        self._getter = getter

    def __call__(self) -> Processor:
        from ottla.flow.operator.stateless import PassThrough

        return PassThrough()

    def _enable_old(self, force: bool) -> bool:
        for parent in self._parents:
            parent.enable_old(force)
        return True

    def getter(self) -> Getter:
        return self._getter
