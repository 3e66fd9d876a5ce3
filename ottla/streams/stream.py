"""KStream: a stream of records."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ottla.flow import plan
from ottla.flow.check import check_name, check_supplier, checked, named
from ottla.flow.column.batch import BatchFunction
from ottla.flow.column.expression import Expression
from ottla.flow.column.kind import type_of
from ottla.flow.error import TopologyError
from ottla.flow.processor import Supplier
from ottla.flow.record import RecordContext
from ottla.flow.serde import Serde, serde
from ottla.flow.store.spec import StoreSpec
from ottla.flow.topology import Partitioner
from ottla.flow.where import Where, here
from ottla.flow.window import Duration, JoinWindows
from ottla.streams.function import (
    Function,
    callable_of,
    lane_of,
    serde_of,
    stream_joiner,
    table_selector,
    with_key,
)
from ottla.streams.option import (
    Grouped,
    Joined,
    Materialized,
    Produced,
    Repartitioned,
    StreamJoined,
    materialized,
    store_of,
)

if TYPE_CHECKING:
    from ottla.streams.branch import BranchedKStream
    from ottla.streams.builder import StreamsBuilder
    from ottla.streams.grouped import KGroupedStream
    from ottla.streams.table import GlobalKTable, KTable

K = TypeVar("K")
V = TypeVar("V")
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")


@checked
class KStream(Generic[K, V]):
    """A stream of records (Kafka Streams: KStream). Operators return a new stream and leave this one unchanged.

    Functions are Python callables, called once per record. filter, map_values, select_key, group_by and branch also
    take a column expression (`col("value.amount") > 10`); filter, map_values and flat_map also take a `batch`
    function; joins with tables take both. Functions see null keys and values as None. `name` names the operator in the
    topology; without it the operator gets Kafka Streams' generated name.
    """

    def __init__(self, builder: StreamsBuilder, node: plan.Node, sources: frozenset[str]) -> None:
        self.builder = builder
        self.node = node
        #: The sources of this stream's sub-topology.
        self.sources = sources
        #: The repartition topic that unnamed joins of this stream share, as in Kafka Streams (KStreamImpl).
        self._repartition: plan.Repartition | None = None

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

    @property
    def needs_repartition(self) -> bool:
        """Whether an operator may have changed keys, so that the next keyed operator needs a repartition topic."""
        return not self.node.schema.partitioned

    # ---- stateless operators

    def filter(
        self, predicate: Callable[[K, V], Any] | Expression | BatchFunction, name: str | None = None
    ) -> KStream[K, V]:
        """Keep the records for which `predicate(key, value)` is true."""
        return self._stateless("filter", predicate, "KSTREAM-FILTER-", name, self.node.schema)

    def filter_not(
        self, predicate: Callable[[K, V], Any] | Expression | BatchFunction, name: str | None = None
    ) -> KStream[K, V]:
        """Drop the records for which `predicate(key, value)` is true."""
        return self._stateless("filter_not", predicate, "KSTREAM-FILTER-", name, self.node.schema)

    def map(self, mapper: Callable[[K, V], tuple[Any, Any]], name: str | None = None) -> KStream[Any, Any]:
        """Replace each record by the pair `mapper(key, value) -> (key, value)`. Keyed operators then repartition."""
        return self._stateless("map", mapper, "KSTREAM-MAP-", name, plan.Schema(partitioned=False))

    def map_values(
        self, mapper: Callable[..., Any] | Expression | BatchFunction, name: str | None = None
    ) -> KStream[K, Any]:
        """Replace each value by `mapper(value)` or `mapper(key, value)`; keys and partitioning stay."""
        schema = replace(self.node.schema, value=None)
        return self._stateless("map_values", with_key(mapper), "KSTREAM-MAPVALUES-", name, schema)

    def flat_map(
        self, mapper: Callable[[K, V], Iterable[tuple[Any, Any]]] | BatchFunction, name: str | None = None
    ) -> KStream[Any, Any]:
        """Replace each record by the (key, value) pairs that `mapper(key, value)` yields."""
        return self._stateless("flat_map", mapper, "KSTREAM-FLATMAP-", name, plan.Schema(partitioned=False))

    def flat_map_values(self, mapper: Callable[..., Iterable[Any]], name: str | None = None) -> KStream[K, Any]:
        """Replace each value by the values that `mapper(value)` or `mapper(key, value)` yields."""
        schema = replace(self.node.schema, value=None)
        return self._stateless("flat_map_values", with_key(mapper), "KSTREAM-FLATMAPVALUES-", name, schema)

    def select_key(self, mapper: Callable[[K, V], Any] | Expression, name: str | None = None) -> KStream[Any, V]:
        """Replace each key by `mapper(key, value)`. Keyed operators then repartition."""
        schema = plan.Schema(value=self.value_serde, partitioned=False)
        return self._stateless("select_key", mapper, "KSTREAM-KEY-SELECT-", name, schema)

    def peek(self, action: Callable[[K, V], Any], name: str | None = None) -> KStream[K, V]:
        """Call `action(key, value)` for its side effect and pass the record on."""
        return self._stateless("peek", action, "KSTREAM-PEEK-", name, self.node.schema)

    def foreach(self, action: Callable[[K, V], Any], name: str | None = None) -> None:
        """Call `action(key, value)` for each record and end the stream."""
        self._stateless("foreach", action, "KSTREAM-FOREACH-", name, plan.Schema("nothing"))

    def print(self, label: str | None = None, file: Any = None, name: str | None = None) -> None:
        """Write each record as `[label]: key, value` to `file` (default: standard output) and end the stream.

        `label` defaults to the name of the stream's node.
        """
        text = label if label is not None else self.node.name

        def write(key: Any, value: Any) -> None:
            (file or sys.stdout).write(f"[{text}]: {key}, {value}\n")

        self._stateless("print", write, "KSTREAM-PRINTER-", name, plan.Schema("nothing"))

    def split(self, name: str | None = None) -> BranchedKStream[K, V]:
        """Split the stream: each record goes to the first branch whose predicate is true."""
        from ottla.streams.branch import BranchedKStream

        node = plan.Branch(self.builder.named(name, "KSTREAM-BRANCH-"), (self.node,), self.node.schema, here())
        return BranchedKStream(self, self.builder.add(node))

    def merge(self, other: KStream[K, V], name: str | None = None) -> KStream[K, V]:
        """The records of both streams, in processing order."""
        where = here()
        self._same_builder(other, where)
        partitioned = self.node.schema.partitioned and other.node.schema.partitioned
        parents = tuple(dict.fromkeys((self.node, other.node)))
        schema = plan.Schema(partitioned=partitioned)
        node_name = self.builder.named(name, "KSTREAM-MERGE-")
        node = self.builder.add(plan.Stateless(node_name, parents, schema, where, "merge"))
        return KStream(self.builder, node, self.sources | other.sources)

    def process(
        self, supplier: Supplier, *stores: str, name: str | None = None, key_serde: Any = None, value_serde: Any = None
    ) -> KStream[Any, Any]:
        """Run a custom processor, one per task, with access to the named stores.

        `supplier()` returns an object with `process(record)` (`Processor`). It may forward records under any key, so
        keyed operators then repartition. `key_serde` and `value_serde` are those of the forwarded records.
        """
        where = here()
        check_supplier(supplier, where)
        schema = plan.Schema(key=serde(key_serde, where), value=serde(value_serde, where), partitioned=False)
        node_name = self._processor_name(name, "KSTREAM-PROCESSOR-", where)
        node = self.builder.add(plan.Process(node_name, (self.node,), schema, where, supplier, stores, False))
        return KStream(self.builder, node, self.sources)

    def process_values(
        self, supplier: Supplier, *stores: str, name: str | None = None, value_serde: Any = None
    ) -> KStream[K, Any]:
        """Run a custom processor that cannot change keys. It gets and forwards `FixedKeyRecord`; see `process`."""
        where = here()
        check_supplier(supplier, where)
        schema = replace(self.node.schema, value=serde(value_serde, where))
        node_name = self._processor_name(name, "KSTREAM-PROCESSVALUES-", where)
        node = self.builder.add(plan.Process(node_name, (self.node,), schema, where, supplier, stores, True))
        return KStream(self.builder, node, self.sources)

    # ---- sinks and tables

    def to(
        self,
        topic: str | Callable[[K, V, RecordContext], str],
        produced: Produced | None = None,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> None:
        """Write to a topic, or for each record to the topic that `topic(key, value, context)` returns.

        `partitioner(topic, key, value, partitions)` returns a partition, several, or None for Kafka's default.
        """
        where, options = here(), produced or Produced()
        key = serde(key_serde or options.key_serde, where) or self.key_serde
        value = serde(value_serde or options.value_serde, where) or self.value_serde
        node_name = self.builder.named(name or options.name, "KSTREAM-SINK-")
        schema = plan.Schema("nothing", key, value)
        self.builder.add(
            plan.SinkNode(node_name, (self.node,), schema, where, topic, partitioner or options.partitioner)
        )

    def repartition(
        self,
        repartitioned: Repartitioned | None = None,
        *,
        name: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        partitioner: Partitioner | None = None,
        partitions: int | None = None,
    ) -> KStream[K, V]:
        """Write to a repartition topic and read it back, so that records are partitioned by their current key.

        Records with a null key are dropped, unless a left or outer join of streams follows (KIP-962). `partitions`
        defaults to those of the topics the stream is joined with, or those of its source. TopologyError if it is
        less than 1.
        """
        where, options = here(), repartitioned or Repartitioned()
        partitions = options.partitions if partitions is None else partitions
        if partitions is not None and partitions < 1:
            raise TopologyError(f"invalid number of partitions: {partitions} (expected at least 1)", where)
        prefix = name or options.name or self.builder.next_name("KSTREAM-REPARTITION-")
        key = serde(key_serde or options.key_serde, where) or self.key_serde
        value = serde(value_serde or options.value_serde, where) or self.value_serde
        node = self.repartition_node(prefix, key, value, where)
        node = replace(node, partitioner=partitioner or options.partitioner, partitions=partitions, explicit=True)
        return KStream(self.builder, self.builder.add(node), frozenset({node.name}))

    def to_table(
        self, materialized: Materialized | str | StoreSpec | None = None, name: str | None = None
    ) -> KTable[K, V]:
        """Turn the stream into a table: the latest value of each key. A null value deletes; null keys are dropped."""
        from ottla.streams.table import KTable

        where, store_options = here(), _materialized(materialized)
        node_name = self.builder.named(name, "KSTREAM-TOTABLE-")
        store = self.builder.store_name(store_options, "KSTREAM-TOTABLE-")
        key, value = (
            serde(store_options.key_serde, where) or self.key_serde,
            serde(store_options.value_serde, where) or self.value_serde,
        )
        stream: KStream[K, V] = self
        if self.needs_repartition:
            node = self.builder.add(self.repartition_node(node_name, key, value, where))
            stream = KStream(self.builder, node, frozenset({node.name}))
        spec = store_of(store_options, store, "timestamped_key_value", key, value)
        schema = plan.Schema("table", key, value, versioned=spec.versioned)
        queryable = store_options.store_name is not None
        table = self.builder.add(plan.ToTable(node_name, (stream.node,), schema, where, spec, queryable))
        return KTable(self.builder, table, stream.sources, store if queryable else None)

    # ---- grouping

    def group_by_key(
        self,
        grouped: Grouped | None = None,
        *,
        name: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
    ) -> KGroupedStream[K, V]:
        """Group the records by their key, for an aggregation. `name` names the repartition topic, if one is needed."""
        from ottla.streams.grouped import KGroupedStream

        where, options = here(), grouped or Grouped()
        key = serde(key_serde or options.key_serde, where) or self.key_serde
        value = serde(value_serde or options.value_serde, where) or self.value_serde
        return KGroupedStream(self, name or options.name, key, value)

    def group_by(
        self,
        selector: Callable[[K, V], Any] | Expression,
        grouped: Grouped | None = None,
        *,
        name: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
    ) -> KGroupedStream[Any, V]:
        """Group the records by the new key `selector(key, value)`, through a repartition topic."""
        from ottla.streams.grouped import KGroupedStream

        where, options = here(), grouped or Grouped()
        name = name or options.name
        stream = self.select_key(selector, name=name)
        value = serde(value_serde or options.value_serde, where) or self.value_serde
        return KGroupedStream(stream, name, serde(key_serde or options.key_serde, where) or stream.key_serde, value)

    # ---- joins

    def join(
        self,
        other: KStream[K, Any] | KTable[K, Any] | GlobalKTable[Any, Any],
        joiner: Callable[..., Any] | Expression | BatchFunction,
        windows: JoinWindows | Joined | None = None,
        joined: StreamJoined | Joined | None = None,
        *,
        key_selector: Callable[[K, V], Any] | Expression | None = None,
        name: str | None = None,
        grace: Duration | None = None,
    ) -> KStream[K, Any]:
        """Inner join with a stream within `windows`, with a table by key, or with a global table.

        `joiner(value, other_value)` or `joiner(key, value, other_value)` returns the result's value. It may be a column
        expression of `key`, `left` and `right`, or a `batch` function. `key_selector(key, value)`, or a column
        expression, returns the global table's key. `grace` (versioned tables only) makes records wait that long for
        late updates of the table. `Joined(...)` may stand in place of `windows`, as in Kafka Streams. TopologyError if
        an argument is missing for this kind of join, or is for another kind, or `other` is of another builder.
        """
        stream: KStream[K, Any] = self._join("inner", other, joiner, windows, joined, key_selector, name, grace)
        return stream

    def left_join(
        self,
        other: KStream[K, Any] | KTable[K, Any] | GlobalKTable[Any, Any],
        joiner: Callable[..., Any] | Expression | BatchFunction,
        windows: JoinWindows | Joined | None = None,
        joined: StreamJoined | Joined | None = None,
        *,
        key_selector: Callable[[K, V], Any] | Expression | None = None,
        name: str | None = None,
        grace: Duration | None = None,
    ) -> KStream[K, Any]:
        """Left join: as `join`, but records without a match are joined with None."""
        stream: KStream[K, Any] = self._join("left", other, joiner, windows, joined, key_selector, name, grace)
        return stream

    def outer_join(
        self,
        other: KStream[K, Any],
        joiner: Callable[..., Any] | Expression | BatchFunction,
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Outer join with a stream within `windows`: unmatched records of both sides are joined with None."""
        stream: KStream[K, Any] = self._join("outer", other, joiner, windows, joined, None, name, None)
        return stream

    # ---- for other operators

    def repartition_node(self, prefix: str, key: Serde | None, value: Serde | None, where: Where) -> plan.Repartition:
        """The node of a repartition topic, named and numbered; the caller adds it to the plan."""
        suffix = "-repartition"
        topic = prefix if prefix.endswith(suffix) else prefix + suffix
        sink = self.builder.next_name("KSTREAM-SINK-")
        keys = self.builder.next_name("KSTREAM-FILTER-")
        source = self.builder.next_name("KSTREAM-SOURCE-")
        if not _GENERATED.fullmatch(prefix):
            sink, keys, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
        return plan.Repartition(source, (self.node,), plan.Schema("stream", key, value), where, topic, sink, keys)

    def repartitioned(self, prefix: str, key: Serde | None, value: Serde | None, where: Where) -> KStream[K, V]:
        """This stream, or its repartitioned copy if an operator may have changed keys."""
        if not self.needs_repartition:
            return self
        node = self.repartition_node(prefix, key or self.key_serde, value or self.value_serde, where)
        if prefix != self.node.name:
            return KStream(self.builder, self.builder.add(node), frozenset({node.name}))
        if self._repartition is None:
            self._repartition = self.builder.add(node)
        return KStream(self.builder, self._repartition, frozenset({self._repartition.name}))

    def _stateless(
        self,
        operation: Any,
        function: Function | Expression | BatchFunction,
        prefix: str,
        name: str | None,
        schema: plan.Schema,
    ) -> KStream[Any, Any]:
        where = here()
        lane, callable_ = lane_of(function), callable_of(function)
        if lane != "record":
            schema = self._typed(operation, callable_, schema)
        node = plan.Stateless(self.builder.named(name, prefix), (self.node,), schema, where, operation, callable_, lane)
        return KStream(self.builder, self.builder.add(node), self.sources)

    def _typed(self, operation: str, function: Any, schema: plan.Schema) -> plan.Schema:
        """The schema with the serde of a column step's result, if its type is known here."""
        if isinstance(function, BatchFunction):
            function.is_flat = operation == "flat_map"
            if function.is_flat and function.key_kind is None:
                raise TopologyError("the batch function of flat_map needs key= (the type of its keys)", here())
            if operation == "map_values":
                return replace(schema, value=serde_of(function.kind))
            return (
                replace(schema, key=serde_of(function.key_kind), value=serde_of(function.kind))
                if function.is_flat
                else schema
            )
        if operation not in ("map_values", "select_key"):
            return schema
        kinds = [None if inner is None else inner.column_type for inner in (self.key_serde, self.value_serde)]
        result_serde = serde_of(type_of(function.expression, *kinds))
        return replace(schema, value=result_serde) if operation == "map_values" else replace(schema, key=result_serde)

    def _join(
        self, kind: Any, other: Any, joiner: Any, windows: Any, joined: Any, selector: Any, name: Any, grace: Any
    ) -> Any:
        from ottla.streams import stream_join
        from ottla.streams.table import GlobalKTable, KTable

        where = here()
        self._same_builder(other, where)
        if isinstance(windows, Joined):  # join(table, joiner, Joined(...)), as in Kafka Streams
            windows, joined = None, windows
        given = {"windows": windows, "joined": joined, "key_selector": selector, "grace": grace}
        if isinstance(other, GlobalKTable):
            _takes_only("a global table", given, ("key_selector",), where)
            if selector is None:
                raise TopologyError("a join with a global table needs key_selector= (key, value) -> table key", where)
            function, selected = stream_joiner(joiner), table_selector(selector)
            return stream_join.with_global_table(self, other, selected, function, kind == "left", name, where)
        if isinstance(other, KTable):
            _takes_only("a table", given, ("grace", Joined), where)
            options = joined or Joined()
            options = replace(options, name=name or options.name, grace=grace if grace is not None else options.grace)
            return stream_join.with_table(self, other, stream_joiner(joiner), options, kind == "left", where)
        if not isinstance(windows, JoinWindows):
            raise TopologyError("a join of two streams needs windows= (JoinWindows)", where)
        _takes_only("a stream", given, ("windows", StreamJoined), where)
        options = joined or StreamJoined()
        return stream_join.with_stream(
            self, other, stream_joiner(joiner), windows, replace(options, name=name or options.name), kind, where
        )

    def _processor_name(self, name: str | None, prefix: str, where: Where) -> str:
        """The name given, which uses up no number, or the next generated one."""
        if name is None:
            return self.builder.next_name(prefix)
        check_name(name, "name", where)
        return name

    def _same_builder(self, other: Any, where: Where) -> None:
        if getattr(other, "builder", None) is not self.builder:
            raise TopologyError(f"{other!r} is not a stream or table of the same StreamsBuilder", where)


def _takes_only(what: str, given: dict[str, Any], takes: tuple[str | type, ...], where: Where) -> None:
    """TopologyError if a join with `what` was given an argument that it does not take. A class: that of `joined`."""
    for name, value in given.items():
        if value is not None and name not in takes and not (name == "joined" and type(value) in takes):
            words = " and ".join(word if isinstance(word, str) else f"joined={word.__name__}(...)" for word in takes)
            raise TopologyError(f"a join with {what} takes no {name}={named(value)} (only {words})", where)


def _materialized(given: Materialized | str | StoreSpec | None) -> Materialized:
    return materialized(given)
