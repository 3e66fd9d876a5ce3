"""Cogroups: several grouped streams aggregated into one table (KIP-150), with and without windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ottla.flow import plan
from ottla.flow.check import checked
from ottla.flow.error import TopologyError
from ottla.flow.record import Windowed
from ottla.flow.serde import serde
from ottla.flow.store.spec import StoreSpec
from ottla.flow.where import here
from ottla.flow.window import SessionWindows
from ottla.streams.grouped import KGroupedStream, _store_options, check_windows
from ottla.streams.option import Materialized, store_of
from ottla.streams.stream import KStream
from ottla.streams.table import KTable
from ottla.streams.windowed import windowed_key, windowed_store

K = TypeVar("K")
Pairs = tuple[tuple[KGroupedStream[Any, Any], Callable[[Any, Any, Any], Any]], ...]
MaterializedLike = Materialized | str | StoreSpec | None


@checked
class CogroupedKStream(Generic[K]):
    """Grouped streams, each with its aggregator (Kafka Streams: CogroupedKStream)."""

    def __init__(self, pairs: Pairs) -> None:
        self._pairs = pairs

    def cogroup(self, grouped: KGroupedStream[K, Any], aggregator: Callable[[K, Any, Any], Any]) -> CogroupedKStream[K]:
        """Add a grouped stream with its `aggregator(key, value, aggregate)`."""
        if grouped.builder is not self._pairs[0][0].builder:
            raise TopologyError("the grouped streams of a cogroup must come from the same StreamsBuilder", here())
        return CogroupedKStream((*self._pairs, (grouped, aggregator)))

    def aggregate(
        self, initializer: Callable[[], Any], name: str | None = None, materialized: MaterializedLike = None
    ) -> KTable[K, Any]:
        """Fold the records of all streams into one table, starting from `initializer()`."""
        return _table(self._pairs, initializer, None, None, name, materialized)

    def windowed_by(self, windows: Any) -> Any:
        """Aggregate by key and window: TimeWindows, SlidingWindows, UnlimitedWindows, SessionWindows, or a subclass of
        Windows.
        """
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self._pairs, windows)
        check_windows(windows)
        return TimeWindowedCogroupedKStream(self._pairs, windows)


@checked
class TimeWindowedCogroupedKStream(Generic[K]):
    """A cogroup in tumbling, hopping, unlimited or sliding windows."""

    def __init__(self, pairs: Pairs, windows: plan.AggregateWindows) -> None:
        self._pairs = pairs
        self._windows = windows

    def aggregate(
        self, initializer: Callable[[], Any], name: str | None = None, materialized: MaterializedLike = None
    ) -> KTable[Windowed, Any]:
        """Fold the records of all streams into one windowed table, starting from `initializer()`."""
        return _table(self._pairs, initializer, None, self._windows, name, materialized)


@checked
class SessionWindowedCogroupedKStream(Generic[K]):
    """A cogroup in session windows."""

    def __init__(self, pairs: Pairs, windows: SessionWindows) -> None:
        self._pairs = pairs
        self._windows = windows

    def aggregate(
        self,
        initializer: Callable[[], Any],
        merger: Callable[[K, Any, Any], Any],
        name: str | None = None,
        materialized: MaterializedLike = None,
    ) -> KTable[Windowed, Any]:
        """Fold the records of all streams into one windowed table, starting from `initializer()`.

        When a record joins sessions, `merger(key, aggregate, other_aggregate)` merges their aggregates.
        """
        return _table(self._pairs, initializer, merger, self._windows, name, materialized)


def _table(
    pairs: Pairs,
    initializer: Callable[[], Any],
    merger: Callable[[Any, Any, Any], Any] | None,
    windows: plan.AggregateWindows | None,
    name: str | None,
    materialized: MaterializedLike,
) -> KTable[Any, Any]:
    where, store_options, builder = here(), _store_options(materialized), pairs[0][0].builder
    prefix = "COGROUPKSTREAM-AGGREGATE-"
    store = builder.store_name(store_options, prefix)
    key = serde(store_options.key_serde, where) or pairs[0][0].key_serde
    value = serde(store_options.value_serde, where)
    if windows is None:
        spec, table_key = store_of(store_options, store, "timestamped_key_value", key, value), key
    else:
        spec, table_key = windowed_store(store_options, store, windows, key, value), windowed_key(windows, key)
    streams: dict[KGroupedStream[Any, Any], KStream[Any, Any]] = {}
    for grouped, _ in pairs:
        streams[grouped] = grouped.source(store, where)
    sources: frozenset[str] = frozenset().union(*(stream.sources for stream in streams.values()))
    builder.copartition(sources, where)
    schema = plan.Schema("table", table_key, value, windows=windows, versioned=spec.versioned)
    nodes = []
    for number, (grouped, aggregator) in enumerate(pairs):
        node_name = builder.named(name, prefix, f"-cogroup-agg-{number}")
        parent = streams[grouped].node
        nodes.append(
            builder.add(
                plan.Aggregate(
                    node_name,
                    (parent,),
                    schema,
                    where,
                    spec,
                    initializer,
                    aggregator,
                    merger,
                    windows,
                    shared=number > 0,
                )
            )
        )
    merged = builder.named(name, "COGROUPKSTREAM-MERGE-", "-cogroup-merge")
    node = builder.add(plan.CogroupMerge(merged, tuple(nodes), schema, where, spec))
    return KTable(builder, node, sources, store if store_options.store_name is not None else None)
