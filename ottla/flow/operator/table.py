"""A topic or a stream as a table, and filter, map_values and transform_values of tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.flow.operator.view import (
    IS_LATEST,
    NOT_PUT,
    Derived,
    Getter,
    StoreValues,
    View,
    store_getter,
    value_of,
)
from ottla.flow.processor import Context, Processor, Supplier
from ottla.flow.record import Change, Headers, Record, ValueAndTimestamp
from ottla.flow.task.push import Fused, Node, Push


class SourceTable(View):
    """A topic or stream as a table. It has a store only if `materialized`."""

    def __init__(self, store: str, materialized: bool) -> None:
        self.store = store
        self.materialized = materialized

    def __call__(self) -> Fused:
        return TableSourceProcessor(self.store if self.materialized else None, self.sending_old)

    def _enable_old(self, force: bool) -> bool:
        if not force and not self.materialized:
            return False
        self.materialized = True
        return True

    def getter(self) -> Getter:
        self.materialized = True
        return store_getter(self.store)


class TableSourceProcessor(Fused):
    """The processor of a `SourceTable`. `store` is None if it keeps none."""

    def __init__(self, store: str | None, sends_old: bool) -> None:
        self._name = store
        self.sends_old = sends_old

    def init(self, context: Context) -> None:
        self.store = StoreValues(context, self._name) if self._name else None

    def fused(self, node: Node) -> Push:
        emit, on_error, drop, store, send_old = node.emit, node.on_error, node.drop, self.store, self.sends_old

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            old, code = None, IS_LATEST
            if key is None:
                drop()
                return
            if store is not None:
                try:
                    if send_old:
                        old = value_of(store.get(key))
                    code = store.put(key, value, timestamp)
                except Exception as error:
                    on_error(key, value, timestamp, headers, error)
                    return
            if code == NOT_PUT:
                drop()
            else:
                emit(key, Change(value, old, code == IS_LATEST), timestamp, headers)

        return push


class GlobalTable(Processor):
    """Writes a global table's store."""

    def __init__(self, store: str) -> None:
        self._name = store

    def init(self, context: Context) -> None:
        self.context = context
        self._store = context.get_state_store(self._name)

    def process(self, record: Record) -> None:
        if record.key is None:
            self.context.drop()
            return
        value = None if record.value is None else ValueAndTimestamp(record.value, record.timestamp)
        self._store.put(record.key, value)


class _DerivedTable(View):
    """A table computed from one parent. `store` is the name of its own store, or None."""

    def __init__(self, parent: View, store: str | None) -> None:
        self.parent = parent
        self.store = store
        self.send_old = False

    def _enable_old(self, force: bool) -> bool:
        if self.store is not None or self.parent.enable_old(force):
            self.send_old = True
        return self.send_old

    def getter(self) -> Getter:
        if self.store is not None:
            return store_getter(self.store)
        parent = self.parent.getter()
        return Getter(parent.stores, lambda context: Derived(parent.open(context), self._compute(context)))

    def _compute(self, context: Context) -> Callable[[Any, ValueAndTimestamp | None], ValueAndTimestamp | None]:
        """The function that computes a value from the parent's."""
        raise TypeError(type(self).__name__)


class FilteredTable(_DerivedTable):
    """filter, and filter_not if `negate`."""

    def __init__(
        self, parent: View, predicate: Callable[[Any, Any], Any], negate: bool, store: str | None, versioned: bool
    ) -> None:
        super().__init__(parent, store)
        self.predicate = predicate
        self.negate = negate
        self.versioned = versioned
        self.send_old = parent.enable_old(False)

    def __call__(self) -> Processor:
        return TableFilterProcessor(self)

    def kept(self, key: Any, value: Any) -> Any:
        if value is not None and bool(self.predicate(key, value)) is not self.negate:
            return value
        return None

    def _compute(self, context: Context) -> Callable[[Any, ValueAndTimestamp | None], ValueAndTimestamp | None]:
        def compute(key: Any, parent_value: ValueAndTimestamp | None) -> ValueAndTimestamp | None:
            return parent_value if parent_value is not None and self.kept(key, parent_value[0]) is not None else None

        return compute


class _Stored(Processor):
    """Writes a derived table's store, if it has one, and forwards the change."""

    def __init__(self, table: _DerivedTable) -> None:
        self.table = table

    def init(self, context: Context) -> None:
        self.context = context
        self._store = StoreValues(context, self.table.store) if self.table.store else None

    def _emit(self, record: Record, new: Any, old: Any) -> None:
        latest = record.value.latest
        if self._store is not None:
            code = self._store.put(record.key, new, record.timestamp)
            if code == NOT_PUT:
                return
            latest = code == IS_LATEST
        self.context.forward(record.with_value(Change(new, old, latest)))


class TableFilterProcessor(_Stored):
    """The processor of a `FilteredTable`."""

    table: FilteredTable

    def process(self, record: Record) -> None:
        table, change = self.table, record.value
        new, old = table.kept(record.key, change.new), None
        if table.send_old:
            old = value_of(self._store.get(record.key)) if self._store else table.kept(record.key, change.old)
            if not table.versioned and old is None and new is None:
                return
        self._emit(record, new, old)


class MappedTable(_DerivedTable):
    """map_values. The mapper is not called for nulls."""

    def __init__(self, parent: View, mapper: Callable[[Any, Any], Any], store: str | None) -> None:
        super().__init__(parent, store)
        self.mapper = mapper

    def __call__(self) -> Processor:
        return TableMapProcessor(self)

    def mapped(self, key: Any, value: Any) -> Any:
        return None if value is None else self.mapper(key, value)

    def _compute(self, context: Context) -> Callable[[Any, ValueAndTimestamp | None], ValueAndTimestamp | None]:
        def compute(key: Any, parent_value: ValueAndTimestamp | None) -> ValueAndTimestamp | None:
            value = None if parent_value is None else self.mapper(key, parent_value[0])
            return None if value is None or parent_value is None else ValueAndTimestamp(value, parent_value[1])

        return compute


class TableMapProcessor(_Stored):
    """The processor of a `MappedTable`."""

    table: MappedTable

    def process(self, record: Record) -> None:
        table, change = self.table, record.value
        new, old = table.mapped(record.key, change.new), None
        if table.send_old:
            old = value_of(self._store.get(record.key)) if self._store else table.mapped(record.key, change.old)
        self._emit(record, new, old)


class TransformedTable(_DerivedTable):
    """transform_values: the supplier makes an object with `transform(key, value)` and optionally `init(context)` and
    `close()`. It is called for nulls too.
    """

    def __init__(self, parent: View, supplier: Supplier, store: str | None) -> None:
        super().__init__(parent, store)
        self.supplier = supplier

    def __call__(self) -> Processor:
        return _Transform(self)

    def _compute(self, context: Context) -> Callable[[Any, ValueAndTimestamp | None], ValueAndTimestamp | None]:
        transformer = _opened(self.supplier, context)

        def compute(key: Any, parent_value: ValueAndTimestamp | None) -> ValueAndTimestamp | None:
            value = transformer.transform(key, value_of(parent_value))
            return None if value is None else ValueAndTimestamp(value, parent_value[1] if parent_value else -1)

        return compute


def _opened(supplier: Supplier, context: Context) -> Any:
    transformer = supplier()
    if hasattr(transformer, "init"):
        transformer.init(context)
    return transformer


class _Transform(_Stored):
    table: TransformedTable

    def init(self, context: Context) -> None:
        super().init(context)
        self._transformer = _opened(self.table.supplier, context)

    def process(self, record: Record) -> None:
        table, change = self.table, record.value
        new, old = self._transformer.transform(record.key, change.new), None
        if table.send_old:
            if self._store is not None:
                old = value_of(self._store.get(record.key))
            else:
                old = self._transformer.transform(record.key, change.old)
        self._emit(record, new, old)

    def close(self) -> None:
        if hasattr(self._transformer, "close"):
            self._transformer.close()
