"""Aggregates of streams without windows: count, reduce, aggregate, cogroup.

Rules (verified with Kafka Streams 4.3):
- Records with a null key or value are dropped. A null result deletes the key and is emitted as a tombstone.
- The result's timestamp is the newer of the aggregate's and the record's.
- The old value that goes downstream for a new key is null; without a cache it is the initializer's (reduce: null).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.flow.operator.view import FIXED, IS_LATEST, NOT_PUT, Getter, StoreValues, View, store_getter, value_of
from ottla.flow.processor import Context
from ottla.flow.record import Change, Headers
from ottla.flow.setting import without_cache
from ottla.flow.task.push import Fused, Node, Push


class StreamAggregate(View):
    """The table of an aggregate without windows. `initializer` None: reduce, where the first value is the aggregate."""

    def __init__(
        self,
        store: str,
        initializer: Callable[[], Any] | None,
        aggregator: Callable[[Any, Any, Any], Any],
    ) -> None:
        self.store = store
        self.initializer = initializer
        self.aggregator = aggregator

    def __call__(self) -> Fused:
        return _Aggregate(self)

    def getter(self) -> Getter:
        return store_getter(self.store)


class _Aggregate(Fused):
    def __init__(self, table: StreamAggregate) -> None:
        self._table = table

    def init(self, context: Context) -> None:
        self._store = StoreValues(context, self._table.store)
        self._sends_initial = without_cache(context.app_configs)

    def fused(self, node: Node) -> Push:
        initializer, aggregator, send_old = self._table.initializer, self._table.aggregator, self._table.sending_old
        send_initial = send_old and self._sends_initial
        get, put, emit, emit_at, on_error = self._store.get, self._store.put, node.emit, node.emit_at, node.on_error

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                node.drop()
                return
            try:
                stored = get(key)
                if stored is not None:
                    old, before = stored
                    time = timestamp if timestamp > before else before
                    own = old if not send_old or old.__class__ in FIXED else value_of(get(key))
                    new = aggregator(key, value, own)
                else:
                    time = timestamp
                    if initializer is None:
                        old, new = None, value
                    else:
                        old = initializer()
                        new = aggregator(key, value, old)
                        if not send_initial:
                            old = None
                code = put(key, new, time)
            except Exception as error:
                on_error(key, value, timestamp, headers, error)
                return
            if code != NOT_PUT:
                send = emit if time == timestamp else emit_at
                send(key, Change(new, old if send_old else None, code == IS_LATEST), time, headers)

        return push


class CogroupTable(View):
    """The table of a cogroup, whose parents aggregate into one store."""

    def __init__(self, parents: list[View], getter: Getter) -> None:
        self._parents = parents
        self._getter = getter

    def __call__(self) -> Fused:
        from ottla.flow.operator.stateless import PassThrough

        return PassThrough()

    def _enable_old(self, force: bool) -> bool:
        for parent in self._parents:
            parent.enable_old(force)
        return True

    def getter(self) -> Getter:
        return self._getter
