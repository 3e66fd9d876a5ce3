"""Windowed groups: TimeWindowedKStream (tumbling, hopping, unlimited, sliding) and SessionWindowedKStream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ottla.flow import plan
from ottla.flow.check import checked
from ottla.flow.column.batch import BatchFunction
from ottla.flow.column.expression import Expression
from ottla.flow.error import TopologyError
from ottla.flow.record import TIME_MAX, Windowed
from ottla.flow.serde import JSON, LONG, Serde, SessionWindowedSerde, TimeWindowedSerde, serde
from ottla.flow.store.spec import StoreSpec
from ottla.flow.where import here
from ottla.flow.window import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows
from ottla.streams.grouped import (
    BuiltInReducer,
    _reducer,
    _store_options,
    add_to_average,
    average,
    count_record,
    no_average,
    project,
    zero,
)
from ottla.streams.option import EmitStrategy, Materialized, store_of
from ottla.streams.table import KTable

if TYPE_CHECKING:
    from ottla.streams.grouped import KGroupedStream

K = TypeVar("K")
V = TypeVar("V")


def windowed_store(
    store_options: Materialized, store: str, windows: plan.AggregateWindows, key: Serde | None, value: Serde | None
) -> StoreSpec:
    """The store of a windowed aggregate, with the retention its windows need."""
    if isinstance(windows, SessionWindows):
        return store_of(store_options, store, "session", key, value, windows.gap_ms + windows.grace_ms)
    if isinstance(windows, SlidingWindows):
        retention = 2 * windows.difference_ms + windows.grace_ms
        return store_of(store_options, store, "timestamped_window", key, value, retention, windows.difference_ms)
    retention = min(windows.size_ms + windows.grace_ms, TIME_MAX)
    return store_of(store_options, store, "timestamped_window", key, value, retention, windows.size_ms)


def merge_averages(key: Any, first: Any, second: Any) -> Any:
    """The session merger of avg."""
    return [first[0] + second[0], first[1] + second[1]] if first and second else first or second


def windowed_key(windows: plan.AggregateWindows, key: Serde | None) -> Serde:
    """The serde of a windowed table's keys."""
    if isinstance(windows, SessionWindows):
        return SessionWindowedSerde(key)
    size = windows.difference_ms if isinstance(windows, SlidingWindows) else windows.size_ms
    return TimeWindowedSerde(key, size)


@checked
class _WindowedKStream(Generic[K, V]):
    """The aggregations that all windows share."""

    def __init__(self, grouped: KGroupedStream[K, V], windows: plan.AggregateWindows, on_close: bool = False) -> None:
        self._grouped = grouped
        self._windows = windows
        self._on_close = on_close

    def count(
        self, name: str | None = None, materialized: Materialized | str | StoreSpec | None = None
    ) -> KTable[Windowed, int]:
        """Count the records of each key in each window."""
        store_options = _store_options(materialized)
        if (
            materialized is not None
            and store_options.store_name is None
            and not isinstance(self._windows, SlidingWindows)
        ):
            # Kafka Streams uses up a number here.
            self._grouped.builder.next_store("KSTREAM-AGGREGATE-")
        return self._table(
            "count",
            "KSTREAM-AGGREGATE-",
            zero,
            count_record,
            lambda key, first, second: first + second,
            name,
            store_options,
            LONG,
        )

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        name: str | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
    ) -> KTable[Windowed, V]:
        """Combine the values by `reducer(aggregate, value)`; the first value starts the window's aggregate.

        The reducer also merges two sessions.
        """

        def merger(key: Any, first: Any, second: Any) -> Any:
            return second if first is None else reducer(first, second)

        value = self._grouped.value_serde
        return self._table(
            "reduce", "KSTREAM-REDUCE-", None, _reducer(reducer), merger, name, _store_options(materialized), value
        )

    def sum(
        self,
        expression: Callable[..., Any] | Expression | BatchFunction,
        name: str | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
    ) -> KTable[Windowed, Any]:
        """The sum of a column expression, or of a function of the value; nulls are ignored. Not in Kafka Streams."""
        return self._projected(expression).reduce(BuiltInReducer("sum"), name, materialized)

    def min(
        self,
        expression: Callable[..., Any] | Expression | BatchFunction,
        name: str | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
    ) -> KTable[Windowed, Any]:
        """The minimum of a column expression, or of a function of the value; nulls are ignored."""
        return self._projected(expression).reduce(BuiltInReducer("min"), name, materialized)

    def max(
        self,
        expression: Callable[..., Any] | Expression | BatchFunction,
        name: str | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
    ) -> KTable[Windowed, Any]:
        """The maximum of a column expression, or of a function of the value; nulls are ignored."""
        return self._projected(expression).reduce(BuiltInReducer("max"), name, materialized)

    def avg(
        self,
        expression: Callable[..., Any] | Expression | BatchFunction,
        name: str | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
    ) -> KTable[Windowed, float]:
        """The mean as a double; nulls are ignored. The store holds the sum and the count as JSON."""
        store_options = _store_options(materialized)
        group = self._projected(expression)
        pairs = group._table(
            "avg", "KSTREAM-AGGREGATE-", no_average, add_to_average, merge_averages, name, store_options, JSON
        )
        return pairs.map_values(average)

    def _projected(self, expression: Any) -> _WindowedKStream[K, Any]:
        return _WindowedKStream(project(self._grouped, expression), self._windows, self._on_close)

    def _table(
        self,
        operation: str,
        prefix: str,
        initializer: Callable[[], Any] | None,
        aggregator: Callable[[Any, Any, Any], Any],
        merger: Callable[[Any, Any, Any], Any] | None,
        name: str | None,
        store_options: Materialized,
        value: Serde | None,
    ) -> KTable[Windowed, Any]:
        where, grouped, builder = here(), self._grouped, self._grouped.builder
        store = builder.store_name(store_options, prefix)
        node_name = builder.named(name, prefix)
        key = serde(store_options.key_serde, where) or grouped.key_serde
        value = serde(store_options.value_serde, where) or value
        spec = windowed_store(store_options, store, self._windows, key, value)
        stream = grouped.source(store, where)
        schema = plan.Schema("table", windowed_key(self._windows, key), value, windows=self._windows, versioned=False)
        node = plan.Aggregate(
            node_name,
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
        return KTable(
            builder, builder.add(node), stream.sources, store if store_options.store_name is not None else None
        )


@checked
class TimeWindowedKStream(_WindowedKStream[K, V]):
    """Records grouped by key and tumbling, hopping, unlimited or sliding window (Kafka Streams: TimeWindowedKStream).

    Keys of the resulting tables are `Windowed`. Records of closed windows and records with a null key are dropped.
    """

    def emit_strategy(self, strategy: EmitStrategy) -> TimeWindowedKStream[K, V]:
        """Emit each update (the default), or one final result when a window closes (KIP-825; TimeWindows and
        SlidingWindows only).
        """
        if strategy.on_close and isinstance(self._windows, UnlimitedWindows):
            raise TopologyError(
                "an unlimited window never closes; on_window_close() needs TimeWindows or SlidingWindows", here()
            )
        if strategy.on_close and isinstance(self._windows, Windows):
            raise TopologyError(
                "on_window_close() needs TimeWindows or SlidingWindows; for windows of your own use "
                "suppress(Suppressed.until_window_closes(...))",
                here(),
            )
        return TimeWindowedKStream(self._grouped, self._windows, strategy.on_close)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[K, V, Any], Any],
        name: str | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
    ) -> KTable[Windowed, Any]:
        """Fold the records of each window by `aggregator(key, value, aggregate)`, starting from `initializer()`.

        None deletes the window.
        """
        return self._table(
            "aggregate", "KSTREAM-AGGREGATE-", initializer, aggregator, None, name, _store_options(materialized), None
        )


@checked
class SessionWindowedKStream(_WindowedKStream[K, V]):
    """Records grouped by key and session (Kafka Streams: SessionWindowedKStream). Null keys are dropped."""

    def emit_strategy(self, strategy: EmitStrategy) -> SessionWindowedKStream[K, V]:
        """Emit each update (the default), or one final result when a session closes (KIP-825)."""
        return SessionWindowedKStream(self._grouped, self._windows, strategy.on_close)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[K, V, Any], Any],
        merger: Callable[[K, Any, Any], Any],
        name: str | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
    ) -> KTable[Windowed, Any]:
        """Fold the records of each session by `aggregator(key, value, aggregate)`, starting from `initializer()`.

        When a record joins sessions, `merger(key, aggregate, other_aggregate)` merges their aggregates.
        """
        return self._table(
            "aggregate", "KSTREAM-AGGREGATE-", initializer, aggregator, merger, name, _store_options(materialized), None
        )


__all__ = ["SessionWindowedKStream", "TimeWindowedKStream", "TimeWindows"]
