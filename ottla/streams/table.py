"""KTable and GlobalKTable: the latest value of each key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from ottla.flow import plan
from ottla.flow.check import check_supplier, checked
from ottla.flow.column.expression import Expression
from ottla.flow.column.function import ColumnFunction, PairFunction, without_time
from ottla.flow.error import TopologyError
from ottla.flow.processor import Supplier
from ottla.flow.serde import Serde, serde
from ottla.flow.store.spec import StoreSpec
from ottla.flow.where import Where, here
from ottla.flow.window import SessionWindows
from ottla.streams.function import Function, serde_of, with_key
from ottla.streams.option import Grouped, Materialized, Suppressed, TableJoined, materialized, store_of

if TYPE_CHECKING:
    from ottla.streams.builder import StreamsBuilder
    from ottla.streams.grouped_table import KGroupedTable
    from ottla.streams.stream import KStream

K = TypeVar("K")
V = TypeVar("V")
MaterializedLike = Materialized | str | StoreSpec | None


@checked
class KTable(Generic[K, V]):
    """A table: the latest value of each key (Kafka Streams: KTable). Its changes flow downstream; None deletes a key.

    `materialized` names a state store, or describes one (`Materialized`, `ottla.streams.stores`). Without it the table
    keeps a store only where an operator needs one.
    """

    def __init__(
        self, builder: StreamsBuilder, node: plan.Node, sources: frozenset[str], queryable: str | None
    ) -> None:
        self.builder = builder
        self.node = node
        #: The sources of this table's sub-topology.
        self.sources = sources
        #: The name of the store that queries can read, or None.
        self.queryable_store_name = queryable

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.node.name}>"

    @property
    def key_serde(self) -> Serde | None:
        """The serde of the keys; None if it is the default or not known."""
        return self.node.schema.key

    @property
    def value_serde(self) -> Serde | None:
        """The serde of the values; None if it is the default or not known."""
        return self.node.schema.value

    def filter(
        self,
        predicate: Callable[[K, V], Any] | Expression,
        name: str | None = None,
        materialized: MaterializedLike = None,
    ) -> KTable[K, V]:
        """Keep the rows for which `predicate(key, value)` is true; all others become tombstones."""
        return self._derive("filter", predicate, "KTABLE-FILTER-", name, materialized, self.value_serde)

    def filter_not(
        self,
        predicate: Callable[[K, V], Any] | Expression,
        name: str | None = None,
        materialized: MaterializedLike = None,
    ) -> KTable[K, V]:
        """Keep the rows for which `predicate(key, value)` is false; all others become tombstones."""
        return self._derive("filter_not", predicate, "KTABLE-FILTER-", name, materialized, self.value_serde)

    def map_values(
        self, mapper: Callable[..., Any] | Expression, name: str | None = None, materialized: MaterializedLike = None
    ) -> KTable[K, Any]:
        """Replace each value by `mapper(value)` or `mapper(key, value)`. The mapper is not called for nulls."""
        return self._derive("map_values", with_key(mapper), "KTABLE-MAPVALUES-", name, materialized, None)

    def transform_values(
        self, supplier: Supplier, *stores: str, name: str | None = None, materialized: MaterializedLike = None
    ) -> KTable[K, Any]:
        """Replace each value by a transformer, one per task: `supplier()` returns an object with
        `transform(key, value)`, which is called for nulls too, and optionally `init(context)` and `close()`. The named
        stores are available from the context.
        """
        check_supplier(supplier, here())
        return self._derive("transform_values", supplier, "KTABLE-TRANSFORMVALUES-", name, materialized, None, stores)

    def to_stream(self, mapper: Callable[[K, V], Any] | None = None, name: str | None = None) -> KStream[Any, V]:
        """The table's changes as a stream; `mapper(key, value)`, if given, returns the new keys."""
        from ottla.streams.stream import KStream

        node_name = self.builder.named(name, "KTABLE-TOSTREAM-")
        schema = plan.Schema("stream", self.key_serde, self.value_serde, windows=self.node.schema.windows)
        node = self.builder.add(plan.Stateless(node_name, (self.node,), schema, here(), "to_stream"))
        stream: KStream[Any, V] = KStream(self.builder, node, self.sources)
        return stream if mapper is None else stream.select_key(mapper)

    def suppress(self, suppressed: Suppressed) -> KTable[K, V]:
        """Hold updates back, for a time or until the window closes. TopologyError if the table is versioned."""
        where = here()
        if self.node.is_versioned:
            raise TopologyError("a versioned table cannot be suppressed", where)
        name = suppressed.name or self.builder.next_name("KTABLE-SUPPRESS-")
        close_ms = _close_ms(self.node, where) if suppressed.wait_ms is None else 0
        store = f"{suppressed.name}-store" if suppressed.name else self.builder.next_store("KTABLE-SUPPRESS-")
        logging = suppressed.buffer.logging
        spec = StoreSpec(store, "suppress_buffer", self.key_serde, self.value_serde, logging=logging)
        schema = replace(self.node.schema, versioned=False)
        node = self.builder.add(plan.Suppress(name, (self.node,), schema, where, suppressed.rule(close_ms), spec))
        return KTable(self.builder, node, self.sources, None)

    def group_by(
        self,
        selector: Callable[[K, V], tuple[Any, Any]] | tuple[Expression, Expression],
        grouped: Grouped | None = None,
        *,
        name: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
    ) -> KGroupedTable[Any, Any]:
        """Regroup the rows under the pair `selector(key, value) -> (key, value)`, for an aggregation. A pair of column
        expressions does the same.
        """
        from ottla.streams.grouped_table import KGroupedTable

        where, options = here(), grouped or Grouped()
        name = name or options.name
        key, value = serde(key_serde or options.key_serde, where), serde(value_serde or options.value_serde, where)
        mapper: Any = selector
        if isinstance(mapper, tuple):
            mapper = PairFunction(*mapper)
            given = [None if inner is None else inner.column_type for inner in (self.key_serde, self.value_serde)]
            kinds = mapper.kinds(*given)
            key, value = key or serde_of(kinds[0]), value or serde_of(kinds[1])
        node_name = self.builder.named(name, "KTABLE-SELECT-")
        schema = plan.Schema("table", key, value, partitioned=False)
        node = self.builder.add(plan.TableGroup(node_name, (self.node,), schema, where, mapper))
        return KGroupedTable(self, node, name, key, value)

    def join(
        self,
        other: KTable[Any, Any],
        joiner: Callable[..., Any],
        name: str | None = None,
        materialized: MaterializedLike = None,
        *,
        foreign_key: Callable[..., Any] | None = None,
        table_joined: TableJoined | None = None,
    ) -> KTable[K, Any]:
        """Inner join by key, or by foreign key (KIP-213).

        `joiner(value, other_value)` or `joiner(key, value, other_value)` returns the result's value. With
        `foreign_key(value)` or `foreign_key(key, value)`, each row is joined with the row of `other` under that key.
        """
        return self._join("inner", other, joiner, name, materialized, foreign_key, table_joined)

    def left_join(
        self,
        other: KTable[Any, Any],
        joiner: Callable[..., Any],
        name: str | None = None,
        materialized: MaterializedLike = None,
        *,
        foreign_key: Callable[..., Any] | None = None,
        table_joined: TableJoined | None = None,
    ) -> KTable[K, Any]:
        """Left join: as `join`, but rows without a match are joined with None."""
        return self._join("left", other, joiner, name, materialized, foreign_key, table_joined)

    def outer_join(
        self,
        other: KTable[K, Any],
        joiner: Callable[..., Any],
        name: str | None = None,
        materialized: MaterializedLike = None,
    ) -> KTable[K, Any]:
        """Outer join by key: unmatched rows of both tables are joined with None."""
        return self._join("outer", other, joiner, name, materialized, None, None)

    def _derive(
        self,
        operation: Literal["filter", "filter_not", "map_values", "transform_values"],
        function: Function | Expression,
        prefix: str,
        name: str | None,
        given: MaterializedLike,
        value: Serde | None,
        stores: tuple[str, ...] = (),
    ) -> KTable[K, Any]:
        where, store_options = here(), materialized(given)
        if isinstance(function, (Expression, ColumnFunction)):
            function = without_time(function if isinstance(function, Expression) else function.expression)
        if given is not None and store_options.store_name is None and operation != "transform_values":
            # Kafka Streams uses up a number here.
            self.builder.next_store(prefix)
        node_name = self.builder.named(name, prefix)
        key = serde(store_options.key_serde, where) or self.key_serde
        value = serde(store_options.value_serde, where) or value
        spec = None
        if store_options.store_name is not None:
            spec = store_of(store_options, store_options.store_name, "timestamped_key_value", key, value)
        versioned = None if given is None else spec is not None and spec.versioned
        schema = plan.Schema("table", key, value, windows=self.node.schema.windows, versioned=versioned)
        node = self.builder.add(
            plan.TableMap(node_name, (self.node,), schema, where, operation, function, spec, stores)
        )
        return KTable(self.builder, node, self.sources, store_options.store_name)

    def _join(
        self,
        kind: Literal["inner", "left", "outer"],
        other: KTable[Any, Any],
        joiner: Callable[..., Any],
        name: str | None,
        given: MaterializedLike,
        foreign_key: Callable[..., Any] | None,
        table_joined: TableJoined | None,
    ) -> KTable[K, Any]:
        from ottla.streams import foreign_key_join

        where = here()
        if getattr(other, "builder", None) is not self.builder or not isinstance(other, KTable):
            raise TopologyError(f"{other!r} is not a table of the same StreamsBuilder", where)
        if foreign_key is not None:
            options = table_joined or TableJoined()
            options = replace(options, name=name or options.name)
            return foreign_key_join.join(
                self, other, with_key(foreign_key, what="foreign_key"), joiner, kind == "left", options, given, where
            )
        if table_joined is not None:
            raise TopologyError("table_joined= is for joins by foreign key; pass foreign_key=, or name=", where)
        builder = self.builder
        store_options = materialized(given)
        store = builder.store_name(store_options, "KTABLE-MERGE-") if given is not None else None
        merged = builder.named(name, "KTABLE-MERGE-")
        sources = self.sources | other.sources
        builder.copartition(sources, where)
        this_name = builder.named(name, "KTABLE-JOINTHIS-", "-join-this")
        other_name = builder.named(name, "KTABLE-JOINOTHER-", "-join-other")
        key, value = serde(store_options.key_serde, where) or self.key_serde, serde(store_options.value_serde, where)
        spec = store_of(store_options, store, "timestamped_key_value", key, value) if store is not None else None
        schema = plan.Schema("table", key, value, versioned=spec is not None and spec.versioned)
        function = with_key(joiner, 2, "joiner")
        parents = (self.node, other.node)
        node = plan.TableJoin(merged, parents, schema, where, kind, function, this_name, other_name, spec)
        return KTable(builder, builder.add(node), sources, store)


def _close_ms(node: plan.Node, where: Where, chain: str = "") -> int:
    """How long after its end a window closes, in ms, according to the aggregate upstream."""
    if isinstance(node, plan.Aggregate) and node.windows is not None:
        windows = node.windows
        return windows.grace_ms + (windows.gap_ms if isinstance(windows, SessionWindows) else 0)
    chain = f"{node.name}->{chain}" if chain else node.name
    if not node.parents:
        raise TopologyError(f"until_window_closes needs a windowed aggregate upstream, not {chain}", where)
    return max(_close_ms(parent, where, chain) for parent in node.parents)


class GlobalKTable(Generic[K, V]):
    """A table that every task holds whole, for joins with streams (Kafka Streams: GlobalKTable)."""

    def __init__(self, builder: StreamsBuilder, node: plan.Node, store: str, queryable: bool) -> None:
        self.builder = builder
        self.node = node
        self.store = store
        self.queryable_store_name = store if queryable else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.node.name}>"
