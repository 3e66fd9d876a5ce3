"""KGroupedStream: records grouped by key, ready to be aggregated or windowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ottla.flow import plan
from ottla.flow.check import checked
from ottla.flow.column.batch import BatchFunction
from ottla.flow.column.expression import Expression
from ottla.flow.column.fold import FOLDS
from ottla.flow.error import TopologyError
from ottla.flow.serde import JSON, LONG, Serde, serde
from ottla.flow.store.spec import StoreSpec
from ottla.flow.where import Where, here
from ottla.flow.window import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows
from ottla.streams.function import with_key
from ottla.streams.option import Materialized, materialized, store_of
from ottla.streams.table import KTable

if TYPE_CHECKING:
    from ottla.streams.cogrouped import CogroupedKStream
    from ottla.streams.stream import KStream
    from ottla.streams.windowed import SessionWindowedKStream, TimeWindowedKStream

K = TypeVar("K")
V = TypeVar("V")


def count_record(key: Any, value: Any, count: int) -> int:
    """The aggregator of count."""
    return count + 1


# The name lets the engine fold many records at once (flow/vector/aggregate.py).
count_record.fold = "count"  # type: ignore[attr-defined]


def uncount_record(key: Any, value: Any, count: int) -> int:
    """The subtractor of a table's count."""
    return count - 1


uncount_record.fold = "count"  # type: ignore[attr-defined]


class BuiltInReducer:
    """A built-in reducer: sum, min or max. Nulls are ignored."""

    def __init__(self, name: str) -> None:
        self.fold = name
        self._function = FOLDS[name]

    def __call__(self, aggregate: Any, value: Any) -> Any:
        return aggregate if value is None else self._function(aggregate, value)

    def __reduce__(self) -> Any:
        return BuiltInReducer, (self.fold,)


def zero() -> int:
    """The initializer of count."""
    return 0


@checked
class KGroupedStream(Generic[K, V]):
    """Records grouped by key (Kafka Streams: KGroupedStream). Aggregations drop null keys and null values.

    `name` names the aggregation's operator, `materialized` its state store.
    """

    def __init__(self, stream: KStream[K, V], name: str | None, key: Serde | None, value: Serde | None) -> None:
        self.stream = stream
        self.builder = stream.builder
        self.name = name
        self.key_serde = key
        self.value_serde = value
        self._repartitioned: KStream[K, V] | None = None

    def count(
        self, name: str | None = None, materialized: Materialized | str | StoreSpec | None = None
    ) -> KTable[K, int]:
        """Count the records of each key."""
        store_options = _store_options(materialized)
        if materialized is not None and store_options.store_name is None:
            # Kafka Streams uses up a number here.
            self.builder.next_store("KSTREAM-AGGREGATE-")
        return self._aggregate("count", "KSTREAM-AGGREGATE-", zero, count_record, name, store_options, LONG)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        name: str | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
    ) -> KTable[K, V]:
        """Combine the values of each key by `reducer(aggregate, value)`; the first value starts the aggregate."""
        aggregator = _reducer(reducer)
        return self._aggregate(
            "reduce", "KSTREAM-REDUCE-", None, aggregator, name, _store_options(materialized), self.value_serde
        )

    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[K, V, Any], Any],
        name: str | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
    ) -> KTable[K, Any]:
        """Fold the records of each key by `aggregator(key, value, aggregate)`, starting from `initializer()`.

        The result may be of any type; None deletes the aggregate.
        """
        return self._aggregate(
            "aggregate", "KSTREAM-AGGREGATE-", initializer, aggregator, name, _store_options(materialized), None
        )

    def sum(
        self,
        expression: Callable[..., Any] | Expression | BatchFunction,
        name: str | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
    ) -> KTable[K, Any]:
        """The sum of a column expression, or of a function of the value; nulls are ignored. Not in Kafka Streams."""
        return project(self, expression).reduce(BuiltInReducer("sum"), name, materialized)

    def min(
        self,
        expression: Callable[..., Any] | Expression | BatchFunction,
        name: str | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
    ) -> KTable[K, Any]:
        """The minimum of a column expression, or of a function of the value; nulls are ignored."""
        return project(self, expression).reduce(BuiltInReducer("min"), name, materialized)

    def max(
        self,
        expression: Callable[..., Any] | Expression | BatchFunction,
        name: str | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
    ) -> KTable[K, Any]:
        """The maximum of a column expression, or of a function of the value; nulls are ignored."""
        return project(self, expression).reduce(BuiltInReducer("max"), name, materialized)

    def avg(
        self,
        expression: Callable[..., Any] | Expression | BatchFunction,
        name: str | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
    ) -> KTable[K, float]:
        """The mean as a double; nulls are ignored. The store holds the sum and the count as JSON."""
        store_options = _store_options(materialized)
        group = project(self, expression)
        pairs = group._aggregate("avg", "KSTREAM-AGGREGATE-", no_average, add_to_average, name, store_options, JSON)
        return pairs.map_values(average)

    def cogroup(self, aggregator: Callable[[K, V, Any], Any]) -> CogroupedKStream[K]:
        """Start a cogroup: one aggregate over several grouped streams, each with its own aggregator (KIP-150)."""
        from ottla.streams.cogrouped import CogroupedKStream

        return CogroupedKStream(((self, aggregator),))

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...

    @overload
    def windowed_by(
        self, windows: TimeWindows | UnlimitedWindows | SlidingWindows | Windows
    ) -> TimeWindowedKStream[K, V]: ...

    def windowed_by(self, windows: Any) -> Any:
        """Aggregate by key and window: TimeWindows, SlidingWindows, UnlimitedWindows, SessionWindows, or a subclass of
        Windows.
        """
        from ottla.streams.windowed import SessionWindowedKStream, TimeWindowedKStream

        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self, windows)
        check_windows(windows)
        return TimeWindowedKStream(self, windows)

    def source(self, store: str, where: Where) -> KStream[K, V]:
        """The stream to aggregate, repartitioned if needed. All aggregates of a named group share its topic."""
        if not self.stream.needs_repartition:
            return self.stream
        stream = self.stream.repartitioned(self.name or store, self.key_serde, self.value_serde, where)
        if self.name is None or self._repartitioned is None:
            self._repartitioned = stream
        return self._repartitioned

    def _aggregate(
        self,
        operation: str,
        prefix: str,
        initializer: Callable[[], Any] | None,
        aggregator: Callable[[Any, Any, Any], Any],
        name: str | None,
        store_options: Materialized,
        value: Serde | None,
    ) -> KTable[K, Any]:
        where = here()
        store = self.builder.store_name(store_options, prefix)
        node_name = self.builder.named(name, prefix)
        key = serde(store_options.key_serde, where) or self.key_serde
        value = serde(store_options.value_serde, where) or value
        spec = store_of(store_options, store, "timestamped_key_value", key, value)
        stream = self.source(store, where)
        schema = plan.Schema("table", spec.key, spec.value, versioned=spec.versioned)
        node = plan.Aggregate(
            node_name, (stream.node,), schema, where, spec, initializer, aggregator, operation=operation
        )
        queryable = store if store_options.store_name is not None else None
        return KTable(self.builder, self.builder.add(node), stream.sources, queryable)


def check_windows(windows: Any) -> None:
    """TopologyError unless these are windows, other than sessions, for an aggregate."""
    if isinstance(windows, Windows):
        windows.check()
    elif not isinstance(windows, (TimeWindows, UnlimitedWindows, SlidingWindows)):
        raise TopologyError(
            f"invalid windows: {windows!r} (expected TimeWindows, SlidingWindows, SessionWindows, UnlimitedWindows or "
            "an instance of a subclass of Windows)",
            here(),
        )


def _store_options(given: Materialized | str | StoreSpec | None) -> Materialized:
    return materialized(given)


def _reducer(reducer: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """A reducer as an aggregator. The aggregate is never None."""

    def aggregator(key: Any, value: Any, aggregate: Any) -> Any:
        return reducer(aggregate, value)

    if isinstance(reducer, BuiltInReducer):
        aggregator.fold = reducer.fold  # type: ignore[attr-defined]
    return aggregator


def project(grouped: KGroupedStream[K, Any], expression: Any) -> KGroupedStream[K, Any]:
    """The group with each value replaced by a column expression or a function of it."""
    stream = grouped.stream.map_values(expression)
    return KGroupedStream(stream, grouped.name, grouped.key_serde, stream.value_serde)


def add_to_average(key: Any, value: Any, aggregate: Any) -> Any:
    """The aggregator of avg: [sum, count] of the non-null values."""
    if value is None:
        return aggregate
    return [float(value), 1] if aggregate is None else [aggregate[0] + value, aggregate[1] + 1]


def no_average() -> None:
    """The initializer of avg."""


def average(pair: list[Any]) -> float:
    """The mean of [sum, count]."""
    return float(pair[0]) / int(pair[1])


__all__ = ["KGroupedStream", "count_record", "with_key", "zero"]
