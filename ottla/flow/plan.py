"""The logical plan of a DSL program: immutable nodes in the order of the calls.

Each node knows its parents, the line of the user's program that made it, and the schema of its output: the serdes of
key and value, whether it is a stream or a table, whether records are still partitioned by their key (`partitioned`),
and the windows of its keys. `lower.py` turns a plan into a `Topology`; `explain.py` prints it.

Names are final when a node is made: the DSL numbers operators and stores as Kafka Streams does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ottla.flow.operator.suppress import SuppressRule
from ottla.flow.processor import Supplier
from ottla.flow.serde import Serde
from ottla.flow.store.spec import StoreSpec
from ottla.flow.topology import Extractor, Partitioner
from ottla.flow.where import Where
from ottla.flow.window import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows

AggregateWindows = TimeWindows | UnlimitedWindows | Windows | SlidingWindows | SessionWindows
Function = Callable[..., Any]
#: How a function runs: per record in Python, as a column expression, or on batches of columns.
Lane = Literal["record", "column", "batch"]


@dataclass(frozen=True, slots=True)
class Schema:
    """The output of a node. A serde of None is the application's default."""

    kind: Literal["stream", "table", "global table", "nothing"] = "stream"
    key: Serde | None = None
    value: Serde | None = None
    #: Records are partitioned by their key; False after an operator that may change keys.
    partitioned: bool = True
    windows: AggregateWindows | None = None
    #: Whether the table is versioned; None: as its parent.
    versioned: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A step of the plan. Nodes are compared by identity."""

    name: str
    parents: tuple[Node, ...]
    schema: Schema
    where: Where

    @property
    def is_versioned(self) -> bool:
        """Whether the node's output is a versioned table."""
        if self.schema.versioned is not None or not self.parents:
            return bool(self.schema.versioned)
        return self.parents[0].is_versioned


@dataclass(frozen=True, slots=True, eq=False)
class StreamSource(Node):
    """Topics, or a pattern, as a stream."""

    topics: tuple[str, ...]
    pattern: Any = None
    extractor: Extractor | None = None
    reset: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TableSource(Node):
    """A topic as a table. `materialized`: the program named its store."""

    topic: str
    source: str
    store: StoreSpec
    materialized: bool
    extractor: Extractor | None = None
    reset: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class GlobalSource(Node):
    """A topic as a global store, or as a global table if `supplier` is None."""

    topic: str
    source: str
    store: StoreSpec
    supplier: Supplier | None = None
    extractor: Extractor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AddStore(Node):
    """A state store for processors."""

    store: StoreSpec


@dataclass(frozen=True, slots=True, eq=False)
class Stateless(Node):
    """A stateless operator. `function` takes key and value."""

    operation: Literal[
        "filter",
        "filter_not",
        "map",
        "map_values",
        "flat_map",
        "flat_map_values",
        "select_key",
        "foreach",
        "peek",
        "print",
        "merge",
        "to_stream",
    ]
    function: Function | None = None
    lane: Lane = "record"


@dataclass(frozen=True, slots=True, eq=False)
class Branch(Node):
    """A split stream; its arms are its children."""


@dataclass(frozen=True, slots=True, eq=False)
class Arm(Node):
    """A branch of a split stream. `predicate` None: the default branch."""

    predicate: Function | None


@dataclass(frozen=True, slots=True, eq=False)
class Process(Node):
    """A custom processor, one for each task."""

    supplier: Supplier
    stores: tuple[str, ...]
    fixed_key: bool


@dataclass(frozen=True, slots=True, eq=False)
class SinkNode(Node):
    """An output topic, or a function that names one for each record."""

    topic: str | Function
    partitioner: Partitioner | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Repartition(Node):
    """A repartition topic. The node's name is that of the source that reads it."""

    topic: str
    sink: str
    filter: str
    partitions: int | None = None
    partitioner: Partitioner | None = None
    #: The program called repartition(); False: an operator needs the topic.
    explicit: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate(Node):
    """count, reduce or aggregate of a grouped stream. `initializer` None: reduce."""

    store: StoreSpec
    initializer: Function | None
    aggregator: Function
    merger: Function | None = None
    windows: AggregateWindows | None = None
    on_close: bool = False
    #: The store was added by an earlier stream of a cogroup.
    shared: bool = False
    operation: str = "aggregate"


@dataclass(frozen=True, slots=True, eq=False)
class CogroupMerge(Node):
    """The table of a cogroup; its parents are the aggregates."""

    store: StoreSpec


@dataclass(frozen=True, slots=True, eq=False)
class ToTable(Node):
    """A stream as a table."""

    store: StoreSpec
    materialized: bool


@dataclass(frozen=True, slots=True, eq=False)
class TableMap(Node):
    """filter, filter_not, map_values or transform_values of a table. `store` None: the result has no store."""

    operation: Literal["filter", "filter_not", "map_values", "transform_values"]
    function: Function
    store: StoreSpec | None
    stores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class TableGroup(Node):
    """A table regrouped under new keys and values."""

    mapper: Function


@dataclass(frozen=True, slots=True, eq=False)
class TableRepartition(Node):
    """The repartition topic of a regrouped table."""

    topic: str
    sink: str


@dataclass(frozen=True, slots=True, eq=False)
class TableAggregate(Node):
    """count, reduce or aggregate of a regrouped table. `initializer` None: reduce."""

    store: StoreSpec
    initializer: Function | None
    adder: Function
    subtractor: Function
    operation: str = "aggregate"


@dataclass(frozen=True, slots=True, eq=False)
class TableJoin(Node):
    """A join of two tables by key. The node's name is that of the merge."""

    kind: Literal["inner", "left", "outer"]
    joiner: Function
    this: str
    other: str
    store: StoreSpec | None


@dataclass(frozen=True, slots=True, eq=False)
class ForeignKeyNames:
    """The names of the parts of a foreign-key join."""

    send: str
    registration_sink: str
    registration_source: str
    registration_topic: str
    receive: str
    answer: str
    answer_all: str
    response_sink: str
    response_source: str
    response_topic: str
    resolve: str


@dataclass(frozen=True, slots=True, eq=False)
class ForeignKeyJoin(Node):
    """A join of two tables by foreign key. The node's name is that of the result."""

    left: bool
    extractor: Function
    joiner: Function
    names: ForeignKeyNames
    subscriptions: StoreSpec
    store: StoreSpec
    materialized: bool
    partitioner: Partitioner | None = None
    other_partitioner: Partitioner | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Suppress(Node):
    """A table whose updates are held back."""

    rule: SuppressRule
    store: StoreSpec


@dataclass(frozen=True, slots=True, eq=False)
class StreamJoin(Node):
    """A join of two streams within a window. The node's name is that of the merge."""

    kind: Literal["inner", "left", "outer"]
    joiner: Function
    windows: JoinWindows
    this_windowed: str
    other_windowed: str
    this: str
    other: str
    this_store: StoreSpec
    other_store: StoreSpec
    candidates: StoreSpec | None


@dataclass(frozen=True, slots=True, eq=False)
class StreamTableJoin(Node):
    """A join of a stream with a table (the second parent), or with a global table (`selector`, `global_store`)."""

    left: bool
    joiner: Function
    selector: Function | None = None
    buffer: StoreSpec | None = None
    global_store: str | None = None


#: The fields of nodes that hold a store, or None.
STORES = ("store", "this_store", "other_store", "candidates", "subscriptions", "buffer")


def stores_of(node: Node) -> Iterator[StoreSpec]:
    """The stores that a node adds."""
    if getattr(node, "shared", False) or isinstance(node, CogroupMerge):
        return
    for name in STORES:
        store = getattr(node, name, None)
        if store is not None and not (getattr(node, "materialized", True) is False and name == "store"):
            yield store


@dataclass(frozen=True, slots=True)
class Plan:
    """All nodes in the order of the calls, and the sources that must be co-partitioned."""

    nodes: tuple[Node, ...] = ()
    copartitioned: tuple[tuple[frozenset[str], Where], ...] = ()
    #: The enabled values of Kafka Streams' topology.optimization.
    optimizations: frozenset[str] = field(default_factory=frozenset)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def children(self, node: Node) -> list[Node]:
        return [child for child in self.nodes if node in child.parents]

    def explain(self, lanes: Mapping[Node, str] | None = None) -> str:
        """The plan as text: each step with its schema, partitioning, times, lane, and line in the program."""
        from ottla.flow.explain import explain

        return explain(self, lanes or {})

    def svg(self) -> str:
        """The plan as an SVG drawing."""
        from ottla.flow.drawing import draw

        return draw(self)
