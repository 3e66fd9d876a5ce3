"""Grouped streams by window: TimeWindowedKStream (tumbling, hopping, unlimited, sliding) and SessionWindowedKStream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ottla.flow import plan
from ottla.flow.error import TopologyError
from ottla.flow.record import TIME_MAX, Windowed
from ottla.flow.serde import JSON, LONG, Serde, SessionWindowedSerde, TimeWindowedSerde, serde
from ottla.flow.store.spec import StoreSpec
from ottla.flow.where import here
from ottla.flow.window import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from ottla.streams.grouped import Fold, _kept, _reducer, average, averaged, counted, nothing, projected, zero
from ottla.streams.option import EmitStrategy, Materialized, store_of
from ottla.streams.table import KTable

if TYPE_CHECKING:
    from ottla.streams.grouped import KGroupedStream

K = TypeVar("K")
V = TypeVar("V")


def windowed_store(
    kept: Materialized, store: str, windows: plan.AggregateWindows, key: Serde | None, value: Serde | None
) -> StoreSpec:
    """The store of a windowed aggregate, with the retention that its windows need."""
    if isinstance(windows, SessionWindows):
        return store_of(kept, store, "session", key, value, windows.gap_ms + windows.grace_ms)
    if isinstance(windows, SlidingWindows):
        retention = 2 * windows.difference_ms + windows.grace_ms
        return store_of(kept, store, "timestamped_window", key, value, retention, windows.difference_ms)
    retention = min(windows.size_ms + windows.grace_ms, TIME_MAX)
    return store_of(kept, store, "timestamped_window", key, value, retention, windows.size_ms)


def merged(key: Any, one: Any, other: Any) -> Any:
    """The merger of avg."""
    return [one[0] + other[0], one[1] + other[1]] if one and other else one or other


def windowed_key(windows: plan.AggregateWindows, key: Serde | None) -> Serde:
    """The serde of the keys of a windowed table."""
    if isinstance(windows, SessionWindows):
        return SessionWindowedSerde(key)
    size = windows.difference_ms if isinstance(windows, SlidingWindows) else windows.size_ms
    return TimeWindowedSerde(key, size)


class _WindowedKStream(Generic[K, V]):
    """What both kinds share."""

    def __init__(self, grouped: KGroupedStream[K, V], windows: plan.AggregateWindows, on_close: bool = False) -> None:
        self._grouped = grouped
        self._windows = windows
        self._on_close = on_close

    def count(
        self, name: str | None = None, materialized: Materialized | str | StoreSpec | None = None
    ) -> KTable[Windowed, int]:
        """How many records each key has in each window."""
        kept = _kept(materialized)
        if materialized is not None and kept.store_name is None and not isinstance(self._windows, SlidingWindows):
            # Kafka Streams takes a number here that it does not use.
            self._grouped.builder.next_store("KSTREAM-AGGREGATE-")
        return self._table(
            "count", "KSTREAM-AGGREGATE-", zero, counted, lambda key, one, other: one + other, name, kept, LONG
        )

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        name: str | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
    ) -> KTable[Windowed, V]:
        """`reducer(aggregate, value)`; the first value is the aggregate itself."""

        def merger(key: Any, one: Any, other: Any) -> Any:
            return other if one is None else reducer(one, other)

        value = self._grouped.value_serde
        return self._table(
            "reduce", "KSTREAM-REDUCE-", None, _reducer(reducer), merger, name, _kept(materialized), value
        )

    def sum(
        self, expression: Any, name: str | None = None, materialized: Materialized | str | StoreSpec | None = None
    ) -> KTable[Windowed, Any]:
        """The sum of what a column expression (or a function of the value) gives; nulls are left out."""
        return self._projected(expression).reduce(Fold("sum"), name, materialized)

    def min(
        self, expression: Any, name: str | None = None, materialized: Materialized | str | StoreSpec | None = None
    ) -> KTable[Windowed, Any]:
        """The least."""
        return self._projected(expression).reduce(Fold("min"), name, materialized)

    def max(
        self, expression: Any, name: str | None = None, materialized: Materialized | str | StoreSpec | None = None
    ) -> KTable[Windowed, Any]:
        """The greatest."""
        return self._projected(expression).reduce(Fold("max"), name, materialized)

    def avg(
        self, expression: Any, name: str | None = None, materialized: Materialized | str | StoreSpec | None = None
    ) -> KTable[Windowed, float]:
        """The mean as a double. The store holds sum and count, as JSON."""
        kept = _kept(materialized)
        group = self._projected(expression)
        pairs = group._table("avg", "KSTREAM-AGGREGATE-", nothing, averaged, merged, name, kept, JSON)
        return pairs.map_values(average)

    def _projected(self, expression: Any) -> _WindowedKStream[K, Any]:
        return _WindowedKStream(projected(self._grouped, expression), self._windows, self._on_close)

    def _table(
        self,
        operation: str,
        prefix: str,
        initializer: Callable[[], Any] | None,
        aggregator: Callable[[Any, Any, Any], Any],
        merger: Callable[[Any, Any, Any], Any] | None,
        name: str | None,
        kept: Materialized,
        value: Serde | None,
    ) -> KTable[Windowed, Any]:
        where, grouped, builder = here(), self._grouped, self._grouped.builder
        store = builder.store_name(kept, prefix)
        named = builder.named(name, prefix)
        key = serde(kept.key_serde, where) or grouped.key_serde
        value = serde(kept.value_serde, where) or value
        spec = windowed_store(kept, store, self._windows, key, value)
        stream = grouped.source(store, where)
        schema = plan.Schema("table", windowed_key(self._windows, key), value, windows=self._windows, versioned=False)
        node = plan.Aggregate(
            named,
            (stream.node,),
            schema,
            where,
            spec,
            initializer,
            aggregator,
            merger,
            self._windows,
            self._on_close,
            operation=operation,
        )
        return KTable(builder, builder.add(node), stream.sources, store if kept.store_name is not None else None)


class TimeWindowedKStream(_WindowedKStream[K, V]):
    """Records by key and tumbling, hopping, unlimited or sliding window."""

    def emit_strategy(self, strategy: EmitStrategy) -> TimeWindowedKStream[K, V]:
        """Emit updates (the default), or one result when a window closes."""
        if strategy.on_close and isinstance(self._windows, UnlimitedWindows):
            raise TopologyError(
                "an unlimited window never closes: emit on close needs TimeWindows or SlidingWindows", here()
            )
        return TimeWindowedKStream(self._grouped, self._windows, strategy.on_close)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[K, V, Any], Any],
        name: str | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
    ) -> KTable[Windowed, Any]:
        """`aggregator(key, value, aggregate)`, beginning with `initializer()`. None deletes the window."""
        return self._table(
            "aggregate", "KSTREAM-AGGREGATE-", initializer, aggregator, None, name, _kept(materialized), None
        )


class SessionWindowedKStream(_WindowedKStream[K, V]):
    """Records by key and session."""

    def emit_strategy(self, strategy: EmitStrategy) -> SessionWindowedKStream[K, V]:
        """Emit updates (the default), or one result when a session closes."""
        return SessionWindowedKStream(self._grouped, self._windows, strategy.on_close)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[K, V, Any], Any],
        merger: Callable[[K, Any, Any], Any],
        name: str | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
    ) -> KTable[Windowed, Any]:
        """The same; `merger(key, one, other)` makes one aggregate of two sessions that meet."""
        return self._table(
            "aggregate", "KSTREAM-AGGREGATE-", initializer, aggregator, merger, name, _kept(materialized), None
        )


__all__ = ["SessionWindowedKStream", "TimeWindowedKStream", "TimeWindows"]
