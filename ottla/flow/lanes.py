"""The lane of each step of a plan (one record at a time, or columns), and the types that column steps get."""

from __future__ import annotations

from ottla.flow import plan
from ottla.flow.column.batch import BatchFunction, JoinBatch
from ottla.flow.column.function import ColumnFunction, FoldFunction, JoinFunction, PairFunction
from ottla.flow.column.kind import Type, type_of
from ottla.flow.error import TopologyError
from ottla.flow.serde import Serde
from ottla.flow.window import TimeWindows

Kinds = tuple[Type, Type]
RECORD = "record: a Python call for each record"


def lanes(program: plan.Plan, key: Serde | None, value: Serde | None) -> dict[plan.Node, str]:
    """The lane of each step that has a function or aggregates. `key` and `value` are the application's default serdes.
    TopologyError if the types of a step do not match.
    """
    kinds: dict[plan.Node, Kinds] = {}
    lane_of: dict[plan.Node, str] = {}
    global_tables: dict[str, Kinds] = {}
    for node in program:
        parents = [kinds[parent] for parent in node.parents]
        if isinstance(node, plan.StreamTableJoin):
            table = parents[1] if node.global_store is None else global_tables[node.global_store]
            lane_of[node], kinds[node] = _join(node, parents[0], table)
            continue
        if isinstance(node, plan.StreamJoin):
            lane_of[node], kinds[node] = _stream_join(node, *parents)
            continue
        kinds[node] = _kinds(node, parents, (key, value))
        if isinstance(node, plan.GlobalSource):
            global_tables[node.store.name] = kinds[node]
        if isinstance(node, plan.TableGroup):
            lane_of[node] = _group(node, parents[0])
        if isinstance(node, plan.TableAggregate) and isinstance(node.adder, FoldFunction):
            lane_of[node] = _fold(node, parents[0], kinds[node][1])
        elif isinstance(node, (plan.Aggregate, plan.TableAggregate)):
            lane_of[node] = _built_in(node, parents[0], program.children(node))
        if isinstance(node, (plan.Process, plan.TableJoin, plan.ForeignKeyJoin)):
            lane_of[node] = RECORD
        function = getattr(node, "function", None) or getattr(node, "predicate", None)
        if function is not None:
            lane_of[node] = _lane(node, function, kinds[node.parents[0]])
    return lane_of


def _lane(node: plan.Node, function: object, given: Kinds) -> str:
    if isinstance(function, ColumnFunction):
        kind = type_of(function.expression, *given)
        is_test = isinstance(node, plan.Arm) or getattr(node, "operation", "").startswith("filter")
        if is_test and kind not in (None, "boolean"):
            raise TopologyError(f"{function.expression!r} is a {kind} (expected a boolean)", node.where)
        lane = f"column: {function.expression!r}"
        if isinstance(node, plan.Arm) or (isinstance(node, plan.TableMap) and node.store is not None):
            return f"{lane}, for each record"
        return lane if None not in given else f"{lane}, for each record, because its input types are not known"
    if isinstance(function, BatchFunction):
        if None in given or not isinstance(node, plan.Stateless):
            raise TopologyError(_NO_TYPES, node.where)
        function.inputs = given
        return f"batch: {function.form}"
    return RECORD


_NO_TYPES = (
    "a batch function needs to know the types of keys and values; give the source serdes with types "
    "(string, long, double, bytes, serdes.columns), and use no Python function between source and batch"
)


def _group(node: plan.TableGroup, given: Kinds) -> str:
    """The lane of a table's group_by."""
    if not isinstance(node.mapper, PairFunction):
        return RECORD
    lane = f"column: {node.mapper.key.expression!r}, {node.mapper.value.expression!r}"
    if None in given:
        return f"{lane}, for each record, because its input types are not known"
    return f"{lane}, for each record, because the table is versioned" if node.parents[0].is_versioned else lane


def _built_in(node: plan.Aggregate | plan.TableAggregate, given: Kinds, children: list[plan.Node]) -> str:
    """The lane of an aggregate: count, sum, min and max take columns (vector/region.py), all others records."""
    windows = node.windows if isinstance(node, plan.Aggregate) else None
    fold = getattr(node.aggregator if isinstance(node, plan.Aggregate) else node.adder, "fold", None)
    if fold is None:
        return RECORD
    why = None
    if None in given:
        why = "its input types are not known"
    elif getattr(node, "on_close", False):
        why = "its windows are emitted when they close"
    elif windows is not None and not isinstance(windows, TimeWindows):
        why = "its windows are neither tumbling nor hopping"
    elif node.store.versioned:
        why = "its store is versioned"
    elif not all(isinstance(child, plan.Stateless) for child in children):
        why = "a step of tables follows"
    return f"column: {fold}" + (f", for each record, because {why}" if why else "")


def _fold(node: plan.TableAggregate, given: Kinds, kind: Type) -> str:
    """The lane of a table's aggregate with expressions as adder and subtractor. `kind`: the type of the aggregates."""
    functions = [each for each in (node.adder, node.subtractor) if isinstance(each, FoldFunction)]
    for function in functions:
        function.inputs = (given[0], kind, given[1])
        if function.kind not in (None, kind) and kind is not None:
            raise TopologyError(f"{function.expression!r} is a {function.kind} (expected a {kind})", node.where)
    lane = f"column: {', '.join(repr(function.expression) for function in functions)}"
    if None in (*given, kind):
        return f"{lane}, for each record, because its input types are not known"
    return f"{lane}, for each record, because its store is versioned" if node.store.versioned else lane


def _join(node: plan.StreamTableJoin, stream: Kinds, table: Kinds) -> tuple[str, Kinds]:
    """The lane of a stream-table join, and the types that it emits. `table`: the types of the table."""
    selector, name, why = node.selector, stream[0], None
    if isinstance(selector, ColumnFunction):
        name = type_of(selector.expression, *stream)
    if node.buffer is not None:
        why = "records wait for the grace period"
    elif selector is not None and not isinstance(selector, ColumnFunction):
        why = "key_selector is a Python function"
    return _joined(node, stream, table, name, why)


def _stream_join(node: plan.StreamJoin, left: Kinds, right: Kinds) -> tuple[str, Kinds]:
    """The lane of a stream-stream join, and the types that it emits."""
    topics = [_topics(parent) for parent in node.parents]
    why = "both sides come from one stream" if topics[0] & topics[1] else None
    return _joined(node, left, right, left[0], why)


def _topics(node: plan.Node) -> set[str]:
    """The topics, or the names of the sources, that a stream's records come from."""
    if isinstance(node, plan.StreamSource) and node.topics:
        return set(node.topics)
    if isinstance(node, plan.Repartition) or not node.parents:
        return {node.name}
    return set[str]().union(*map(_topics, node.parents))


def _joined(
    node: plan.StreamJoin | plan.StreamTableJoin, stream: Kinds, other: Kinds, name: Type, why: str | None
) -> tuple[str, Kinds]:
    """The lane of a join by keys of type `name`, and the types that it emits. `why`: why it takes single records."""
    joiner = node.joiner
    if not isinstance(joiner, (JoinFunction, JoinBatch)):
        return RECORD, (stream[0], None)
    joiner.inputs = (*stream, other[1])
    if name is not None and other[0] is not None and name != other[0]:
        raise TopologyError(f"the keys of the join are of two types: {name} and {other[0]}", node.where)
    if None in (*joiner.inputs, other[0], name):
        why = "its input types are not known"
    if isinstance(joiner, JoinBatch):
        if None in joiner.inputs:
            raise TopologyError(_NO_TYPES, node.where)
        lane = f"batch: {joiner.function.form}"
    else:
        lane = f"column: {joiner.expression!r}"
    return lane + (f", for each record, because {why}" if why else ""), (stream[0], joiner.kind)


def _kinds(node: plan.Node, parents: list[Kinds], defaults: tuple[Serde | None, Serde | None]) -> Kinds:
    """The types of keys and values that a node emits."""

    def of(serde: Serde | None, default: Serde | None) -> Type:
        chosen = serde or default
        kind: Type = chosen.column_type if chosen is not None else None
        return kind

    match node:
        case (
            plan.StreamSource()
            | plan.TableSource()
            | plan.GlobalSource()
            | plan.Repartition()
            | plan.ToTable()
            | plan.TableRepartition()
            | plan.TableAggregate()
        ):
            return of(node.schema.key, defaults[0]), of(node.schema.value, defaults[1])
        case plan.Stateless():
            return _stateless(node, parents)
        case plan.Branch() | plan.Arm():
            return parents[0]
        case plan.Aggregate() if node.windows is None:
            return parents[0][0], of(node.schema.value, None)
        case plan.TableGroup() if isinstance(node.mapper, PairFunction):
            return node.mapper.kinds(*parents[0])
        case plan.TableMap():
            return _derived(node, parents[0], of(node.schema.value, defaults[1]))
    return None, None


def _derived(node: plan.TableMap, parent: Kinds, stored: Type) -> Kinds:
    """The types of a derived table. `stored`: that of its own store's values, if it has one."""
    if None in parent or node.operation == "transform_values":
        return parent[0], None
    if node.store is not None:
        return parent[0], stored
    if node.operation != "map_values":
        return parent
    function = node.function
    return parent[0], type_of(function.expression, *parent) if isinstance(function, ColumnFunction) else None


def _stateless(node: plan.Stateless, parents: list[Kinds]) -> Kinds:
    key, value = parents[0]
    function = node.function
    result: Type = None
    if isinstance(function, ColumnFunction):
        result = type_of(function.expression, key, value)
    elif isinstance(function, BatchFunction):
        result = function.kind
    match node.operation:
        case "filter" | "filter_not" | "peek" | "to_stream":
            return key, value
        case "map_values":
            return key, result
        case "select_key":
            return (result if isinstance(result, str) else None), value
        case "flat_map" if isinstance(function, BatchFunction):
            return function.pair
        case "flat_map_values":
            return key, None
        case "merge":
            return parents[0] if len(set(parents)) == 1 else (None, None)
    return None, None
