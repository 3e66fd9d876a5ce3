"""Lowering of stream nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.flow import plan
from ottla.flow.operator import stateless
from ottla.flow.operator.stream_join import JoinWindow, SelfJoin, StreamJoin
from ottla.flow.operator.stream_table_join import StreamTableJoin
from ottla.flow.operator.view import Getter, StoreValues
from ottla.flow.topology import InternalTopic

if TYPE_CHECKING:
    from ottla.flow.lower import Lowering

_OPERATIONS: dict[str, Callable[[Any], Callable[[], Any]]] = {
    "filter": lambda function: partial(stateless.Filter, function),
    "filter_not": lambda function: partial(stateless.Filter, function, True),
    "map": lambda function: partial(stateless.Map, function),
    "flat_map": lambda function: partial(stateless.FlatMap, function),
    "map_values": lambda function: partial(stateless.MapValues, function),
    "flat_map_values": lambda function: partial(stateless.FlatMapValues, function),
    "select_key": lambda function: partial(stateless.SelectKey, function),
    "foreach": lambda function: partial(stateless.Peek, function),
    "print": lambda function: partial(stateless.Peek, function),
    "peek": lambda function: partial(stateless.Peek, function),
    "merge": lambda function: stateless.PassThrough,
    "to_stream": lambda function: stateless.ToStream,
}


def _source(lowering: Lowering, node: plan.StreamSource) -> None:
    lowering.topology.add_source(
        node.name,
        node.pattern or node.topics,
        key_serde=node.schema.key,
        value_serde=node.schema.value,
        timestamp_extractor=node.extractor,
        offset_reset=node.reset,
        where=node.where,
    )


def _store(lowering: Lowering, node: plan.AddStore) -> None:
    lowering.topology.add_state_store(node.store, where=node.where)


def _stateless(lowering: Lowering, node: plan.Stateless) -> None:
    supplier = _OPERATIONS[node.operation](node.function)
    lowering.topology.add_processor(node.name, supplier, *lowering.parents(node), where=node.where)


def _branch(lowering: Lowering, node: plan.Branch) -> None:
    arms = [(child.name, child.predicate) for child in lowering.plan.children(node) if isinstance(child, plan.Arm)]
    supplier = partial(stateless.Branch, arms)
    lowering.topology.add_processor(node.name, supplier, *lowering.parents(node), where=node.where)


def _arm(lowering: Lowering, node: plan.Arm) -> None:
    lowering.topology.add_processor(node.name, stateless.PassThrough, *lowering.parents(node), where=node.where)


def _process(lowering: Lowering, node: plan.Process) -> None:
    topology, supplier = lowering.topology, node.supplier
    wrapped = (lambda: stateless.FixedKey(supplier())) if node.fixed_key else supplier
    topology.add_processor(node.name, wrapped, *lowering.parents(node), where=node.where)
    if node.fixed_key:
        declared = getattr(supplier, "stores", None)
        for spec in (declared() if callable(declared) else declared) or ():
            topology.add_state_store(spec, node.name, where=node.where)
    if node.stores:
        topology.connect_processor_and_state_stores(node.name, *node.stores, where=node.where)


def _sink(lowering: Lowering, node: plan.SinkNode) -> None:
    lowering.topology.add_sink(
        node.name,
        node.topic,
        *lowering.parents(node),
        key_serde=node.schema.key,
        value_serde=node.schema.value,
        partitioner=node.partitioner,
        where=node.where,
    )


def _repartition(lowering: Lowering, node: plan.Repartition) -> None:
    topology = lowering.topology
    if lowering.is_shared(node):
        return
    topology.add_internal_topic(InternalTopic(node.topic, node.partitions))
    keeps = node in lowering.keeps_null_keys
    supplier = stateless.PassThrough if keeps else stateless.DropNullKeys
    topology.add_processor(node.filter, supplier, *lowering.parents(node), where=node.where)
    topology.add_sink(
        node.sink,
        node.topic,
        node.filter,
        key_serde=node.schema.key,
        value_serde=node.schema.value,
        partitioner=node.partitioner,
        where=node.where,
        internal=True,
    )
    topology.add_source(
        node.name,
        node.topic,
        key_serde=node.schema.key,
        value_serde=node.schema.value,
        where=node.where,
        internal=True,
    )


def _stream_join(lowering: Lowering, node: plan.StreamJoin) -> None:
    topology, where = lowering.topology, node.where
    left, right = (lowering.name(parent) for parent in node.parents)
    topology.add_processor(node.this_windowed, partial(JoinWindow, node.this_store.name), left, where=where)
    if left == right and "single.store.self.join" in lowering.optimizations and node.kind == "inner":
        joined = partial(SelfJoin, node.this_store.name, node.windows, node.joiner)
        topology.add_processor(node.name, joined, node.this_windowed, where=where)
        topology.add_state_store(node.this_store, node.this_windowed, node.name, where=where)
        return
    topology.add_processor(node.other_windowed, partial(JoinWindow, node.other_store.name), right, where=where)
    candidates = node.candidates.name if node.candidates else None
    side = partial(StreamJoin, node.name, windows=node.windows, joiner=node.joiner, candidates=candidates)
    this = partial(side, other_store=node.other_store.name, left=True, outer=node.kind != "inner")
    other = partial(side, other_store=node.this_store.name, left=False, outer=node.kind == "outer")
    topology.add_processor(node.this, this, node.this_windowed, where=where)
    topology.add_processor(node.other, other, node.other_windowed, where=where)
    topology.add_processor(node.name, stateless.PassThrough, node.this, node.other, where=where)
    topology.add_state_store(node.this_store, node.this_windowed, node.other, where=where)
    topology.add_state_store(node.other_store, node.other_windowed, node.this, where=where)
    if node.candidates is not None:
        topology.add_state_store(node.candidates, node.this, node.other, where=where)


def _stream_table_join(lowering: Lowering, node: plan.StreamTableJoin) -> None:
    topology = lowering.topology
    if node.global_store is not None:
        name = node.global_store
        getter = Getter((), lambda context: StoreValues(context, name))
    else:
        getter = lowering.parts[node]
    buffer = node.buffer.name if node.buffer else None
    if node.buffer is not None:
        topology.add_state_store(node.buffer, where=node.where)
    supplier = partial(StreamTableJoin, getter, node.selector, node.joiner, left=node.left, buffer=buffer)
    topology.add_processor(node.name, supplier, lowering.name(node.parents[0]), where=node.where)
    topology.connect_processor_and_state_stores(
        node.name, *([buffer] if buffer else []), *getter.stores, where=node.where
    )


STREAM_NODES: dict[type, Callable[[Lowering, Any], None]] = {
    plan.StreamSource: _source,
    plan.AddStore: _store,
    plan.Stateless: _stateless,
    plan.Branch: _branch,
    plan.Arm: _arm,
    plan.Process: _process,
    plan.SinkNode: _sink,
    plan.Repartition: _repartition,
    plan.StreamJoin: _stream_join,
    plan.StreamTableJoin: _stream_table_join,
}
