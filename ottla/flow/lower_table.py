"""Lowering of table nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.flow import plan
from ottla.flow.operator.aggregate import CogroupTable, StreamAggregate
from ottla.flow.operator.foreign_key import (
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionResponseSerde,
    SubscriptionSend,
    SubscriptionSerde,
)
from ottla.flow.operator.session_aggregate import SessionAggregate
from ottla.flow.operator.sliding_aggregate import SlidingAggregate
from ottla.flow.operator.suppress import SuppressedTable
from ottla.flow.operator.table import FilteredTable, GlobalTable, MappedTable, SourceTable, TransformedTable
from ottla.flow.operator.table_aggregate import ChangeSerde, TableAggregate, TableGroupBy
from ottla.flow.operator.table_join import JoinedTable, JoinSide
from ottla.flow.operator.view import View
from ottla.flow.operator.window_aggregate import WindowAggregate
from ottla.flow.topology import InternalTopic
from ottla.flow.window import SessionWindows, SlidingWindows

if TYPE_CHECKING:
    from ottla.flow.lower import Lowering


def make_view(lowering: Lowering, node: plan.Node) -> None:
    """The first pass: make the node's view, and tell its parents' views what it needs from them."""
    views = lowering.views
    match node:
        case plan.TableSource() | plan.ToTable():
            views[node] = SourceTable(node.store.name, node.materialized)
        case plan.Aggregate():
            views[node] = _aggregate_view(node)
        case plan.CogroupMerge():
            parents = [views[parent] for parent in node.parents]
            views[node] = CogroupTable(parents, parents[0].getter())
        case plan.TableMap():
            views[node] = _map_view(views[node.parents[0]], node)
        case plan.TableGroup():
            views[node.parents[0]].enable_old(True)
        case plan.TableAggregate():
            views[node] = TableAggregate(node.store.name, node.initializer, node.adder, node.subtractor)
        case plan.TableJoin():
            _join_view(lowering, node)
        case plan.ForeignKeyJoin():
            left, right = (views[parent] for parent in node.parents)
            right.enable_old(True)
            left.enable_old(True)
            views[node] = SourceTable(node.store.name, node.materialized)
            lowering.parts[node] = (right.getter(), left.getter())
        case plan.Suppress():
            views[node] = SuppressedTable(views[node.parents[0]], node.rule, node.store.name)
        case plan.StreamTableJoin() if node.global_store is None:
            lowering.parts[node] = views[node.parents[1]].getter()


def _aggregate_view(node: plan.Aggregate) -> View:
    store, windows = node.store.name, node.windows
    if windows is None:
        return StreamAggregate(store, node.initializer, node.aggregator)
    if isinstance(windows, SessionWindows):
        assert node.merger is not None
        return SessionAggregate(store, windows, node.initializer, node.aggregator, node.on_close, merger=node.merger)
    if isinstance(windows, SlidingWindows):
        return SlidingAggregate(store, windows, node.initializer, node.aggregator, node.on_close)
    return WindowAggregate(store, windows, node.initializer, node.aggregator, node.on_close)


def _map_view(parent: View, node: plan.TableMap) -> View:
    store = node.store.name if node.store else None
    if node.operation == "map_values":
        return MappedTable(parent, node.function, store)
    if node.operation == "transform_values":
        return TransformedTable(parent, node.function, store)
    versioned = node.parents[0].is_versioned
    return FilteredTable(parent, node.function, node.operation == "filter_not", store, versioned)


def _join_view(lowering: Lowering, node: plan.TableJoin) -> None:
    left_node, right_node = node.parents
    left, right = lowering.views[left_node], lowering.views[right_node]
    if node.kind != "inner":
        left.enable_old(True)
    if node.kind == "outer":
        right.enable_old(True)
    joiner = node.joiner
    sides: Any = {"inner": ("inner", "inner"), "left": ("left", "right"), "outer": ("outer", "outer")}[node.kind]
    this = JoinSide(sides[0], left, right, joiner, left_node.is_versioned)
    other = JoinSide(sides[1], right, left, lambda key, b, a: joiner(key, a, b), right_node.is_versioned)
    lowering.views[node] = JoinedTable(this, other, node.store.name if node.store else None)
    lowering.parts[node] = (this, other)


def _table_source(lowering: Lowering, node: plan.TableSource) -> None:
    topology, view = lowering.topology, lowering.view(node)
    topology.add_source(
        node.source,
        node.topic,
        key_serde=node.schema.key,
        value_serde=node.schema.value,
        timestamp_extractor=node.extractor,
        offset_reset=node.reset,
        where=node.where,
    )
    topology.add_processor(node.name, view, node.source, where=node.where)
    if isinstance(view, SourceTable) and view.materialized:
        reuse = "reuse.ktable.source.topics" in lowering.optimizations
        topology.add_state_store(node.store.without_logging() if reuse else node.store, node.name, where=node.where)
        if reuse:
            topology.source_changelogs[node.store.name] = node.topic


def _global_source(lowering: Lowering, node: plan.GlobalSource) -> None:
    lowering.topology.add_global_store(
        node.store,
        node.source,
        node.topic,
        node.name,
        node.supplier or partial(GlobalTable, node.store.name),
        key_serde=node.schema.key,
        value_serde=node.schema.value,
        timestamp_extractor=node.extractor,
        where=node.where,
    )


def _table(lowering: Lowering, node: Any) -> None:
    """Add a table whose processor is its view, with its store if it keeps one."""
    topology, view = lowering.topology, lowering.view(node)
    topology.add_processor(node.name, view, *lowering.parents(node), where=node.where)
    if isinstance(node, plan.TableMap) and node.stores:
        topology.connect_processor_and_state_stores(node.name, *node.stores, where=node.where)
    if isinstance(node, plan.TableMap) and node.operation == "transform_values":
        declared = getattr(node.function, "stores", None)
        for spec in (declared() if callable(declared) else declared) or ():
            topology.add_state_store(spec, node.name, where=node.where)
    keeps = not isinstance(view, SourceTable) or view.materialized
    if node.store is not None and keeps:
        topology.add_state_store(node.store, node.name, where=node.where)


def _merge(lowering: Lowering, node: plan.CogroupMerge) -> None:
    lowering.topology.add_processor(node.name, lowering.view(node), *lowering.parents(node), where=node.where)


def _group(lowering: Lowering, node: plan.TableGroup) -> None:
    supplier = partial(TableGroupBy, node.mapper, node.parents[0].is_versioned)
    lowering.topology.add_processor(node.name, supplier, *lowering.parents(node), where=node.where)


def _table_repartition(lowering: Lowering, node: plan.TableRepartition) -> None:
    topology = lowering.topology
    if lowering.is_shared(node):
        return
    topology.add_internal_topic(InternalTopic(node.topic))
    serdes: Any = {"key_serde": node.schema.key, "value_serde": ChangeSerde(node.schema.value)}
    topology.add_sink(node.sink, node.topic, *lowering.parents(node), **serdes, where=node.where, internal=True)
    topology.add_source(node.name, node.topic, **serdes, where=node.where, internal=True)


def _table_join(lowering: Lowering, node: plan.TableJoin) -> None:
    topology, where = lowering.topology, node.where
    this, other = lowering.parts[node]
    left, right = (lowering.name(parent) for parent in node.parents)
    topology.add_processor(node.this, this, left, where=where)
    topology.add_processor(node.other, other, right, where=where)
    topology.add_processor(node.name, lowering.view(node), node.this, node.other, where=where)
    topology.connect_processor_and_state_stores(node.this, *this.other_getter.stores, where=where)
    topology.connect_processor_and_state_stores(node.other, *other.other_getter.stores, where=where)
    if node.store is not None:
        topology.add_state_store(node.store, node.name, where=where)


def _foreign_key_join(lowering: Lowering, node: plan.ForeignKeyJoin) -> None:
    topology, where, names = lowering.topology, node.where, node.names
    left, right = node.parents
    right_values, left_values = lowering.parts[node]
    foreign, primary, left_value = right.schema.key, left.schema.key, left.schema.value
    for internal in (names.registration_topic, names.response_topic):
        topology.add_internal_topic(InternalTopic(internal))
    topic = names.registration_topic
    subscribed = partial(SubscriptionSend, node.extractor, topic, foreign, left_value)
    send = partial(subscribed, left=node.left, versioned=left.is_versioned)
    topology.add_processor(names.send, send, lowering.name(left), where=where)
    asked: Any = {"key_serde": foreign, "value_serde": SubscriptionSerde(primary)}
    by_key = node.other_partitioner and _without_value(node.other_partitioner)
    sink, source = names.registration_sink, names.registration_source
    topology.add_sink(sink, topic, names.send, **asked, partitioner=by_key, where=where, internal=True)
    topology.add_source(source, topic, **asked, where=where, internal=True)
    store = node.subscriptions.name
    topology.add_state_store(node.subscriptions, where=where)
    topology.add_processor(
        names.receive, partial(SubscriptionReceive, store, topic, foreign, primary), source, where=where
    )
    topology.connect_processor_and_state_stores(names.receive, store, where=where)
    topology.add_processor(names.answer, partial(SubscriptionJoin, right_values), names.receive, where=where)
    topology.connect_processor_and_state_stores(names.answer, *right_values.stores, where=where)
    every = partial(ForeignTableJoin, store, topic, foreign, primary, right.is_versioned)
    topology.add_processor(names.answer_all, every, lowering.name(right), where=where)
    topology.connect_processor_and_state_stores(names.answer_all, store, where=where)
    answered: Any = {"key_serde": primary, "value_serde": SubscriptionResponseSerde(right.schema.value)}
    back = _without_value(node.partitioner) if node.partitioner else lambda topic, key, value, count: value.partition
    parents = (names.answer, names.answer_all)
    topology.add_sink(
        names.response_sink, names.response_topic, *parents, **answered, partitioner=back, where=where, internal=True
    )
    topology.add_source(names.response_source, names.response_topic, **answered, where=where, internal=True)
    resolve = partial(ResponseJoin, left_values, topic, left_value, node.joiner, left=node.left)
    topology.add_processor(names.resolve, resolve, names.response_source, where=where)
    topology.connect_processor_and_state_stores(names.resolve, *left_values.stores, where=where)
    view = lowering.view(node)
    topology.add_processor(node.name, view, names.resolve, where=where)
    if isinstance(view, SourceTable) and view.materialized:
        topology.add_state_store(node.store, node.name, where=where)


def _without_value(partitioner: Any) -> Callable[[str, Any, Any, int], Any]:
    """The user's partitioner, called without the value, which is an internal wrapper."""
    return lambda topic, key, value, count: partitioner(topic, key, None, count)


TABLE_NODES: dict[type, Callable[[Lowering, Any], None]] = {
    plan.TableSource: _table_source,
    plan.GlobalSource: _global_source,
    plan.Aggregate: _table,
    plan.ToTable: _table,
    plan.TableMap: _table,
    plan.TableAggregate: _table,
    plan.Suppress: _table,
    plan.CogroupMerge: _merge,
    plan.TableGroup: _group,
    plan.TableRepartition: _table_repartition,
    plan.TableJoin: _table_join,
    plan.ForeignKeyJoin: _foreign_key_join,
}
