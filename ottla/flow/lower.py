"""Lowering: from a plan to a topology of processors, stores, sources and sinks, named as in Kafka Streams.

It takes two passes in the order of the plan. The first makes the tables' views: there one table may require another to
keep a store or to send old values. The second adds everything to the topology.
"""

from __future__ import annotations

from typing import Any

from ottla.flow.error import TopologyError
from ottla.flow.lower_stream import STREAM_NODES
from ottla.flow.lower_table import TABLE_NODES, make_view
from ottla.flow.operator.view import View
from ottla.flow.plan import (
    AddStore,
    ForeignKeyJoin,
    Node,
    Plan,
    Repartition,
    StreamJoin,
    StreamSource,
    StreamTableJoin,
    TableRepartition,
    stores_of,
)
from ottla.flow.topology import Topology


class Lowering:
    """The state of a lowering."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.topology = Topology()
        #: The view of each table.
        self.views: dict[Node, View] = {}
        #: What the first pass prepared for the second.
        self.parts: dict[Node, Any] = {}
        #: For a second stream of the same topics, the name of the first one's source.
        self.aliases: dict[Node, str] = {}
        self._repartitions: dict[str, Repartition | TableRepartition] = {}
        self.keeps_null_keys = _relaxed(plan)
        self.optimizations = plan.optimizations

    def view(self, node: Node) -> View:
        return self.views[node]

    def name(self, node: Node) -> str:
        """The processor or source that emits the node's records."""
        return self.aliases.get(node, node.name)

    def is_shared(self, node: Repartition | TableRepartition) -> bool:
        """Whether an earlier node writes the same records to this repartition topic, as aggregates of a named group do.

        TopologyError if it writes others.
        """
        first = self._repartitions.setdefault(node.name, node)
        if first is not node and _written(first) != _written(node):
            raise TopologyError(
                f"repartition topic {node.topic} already takes other records ({first.where}): give each stream, and "
                "each sum, min, max and avg of a group, a name of its own",
                node.where,
            )
        return first is not node

    def parents(self, node: Node) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.name(parent) for parent in node.parents))


def lower(plan: Plan) -> Topology:
    """The topology of a plan. TopologyError names the line of an invalid step."""
    _check_stores(plan)
    lowering = Lowering(plan)
    _merge_sources(lowering)
    for node in plan:
        make_view(lowering, node)
    for node in plan:
        if node not in lowering.aliases:
            (STREAM_NODES.get(type(node)) or TABLE_NODES[type(node)])(lowering, node)
    aliases = {node.name: first for node, first in lowering.aliases.items()}
    for sources, where in plan.copartitioned:
        lowering.topology.copartition({aliases.get(source, source) for source in sources}, where)
    return lowering.topology


def _written(node: Repartition | TableRepartition) -> tuple[Any, ...]:
    """What makes the records of a repartition topic, and their partitions."""
    chosen = (node.partitions, node.partitioner) if isinstance(node, Repartition) else ()
    return node.topic, node.parents, node.schema, *chosen


def _check_stores(plan: Plan) -> None:
    """TopologyError if two steps use one store, which would mix their rows."""
    owners: dict[str, Node] = {}
    for node in plan:
        for spec in stores_of(node):
            other = owners.setdefault(spec.name, node)
            if other is not node and not (isinstance(node, AddStore) and isinstance(other, AddStore)):
                raise TopologyError(
                    f"a state store named {spec.name} has already been added ({other.where}): give each its own name",
                    node.where,
                )


def _merge_sources(lowering: Lowering) -> None:
    """Give streams of the same topics one source."""
    seen: dict[Any, StreamSource] = {}
    for node in lowering.plan:
        if not isinstance(node, StreamSource):
            continue
        for key in node.topics or (node.pattern.pattern,):
            first = seen.setdefault(key, node)
            if first is node:
                continue
            if set(first.topics) != set(node.topics):
                raise TopologyError(
                    f"two streams read topic {key} but not the same topics: {', '.join(first.topics)} "
                    f"({first.where}) and {', '.join(node.topics)}; read each topic in one stream and merge them",
                    node.where,
                )
            lowering.aliases[node] = lowering.name(first)


def _relaxed(plan: Plan) -> set[Node]:
    """The nodes upstream of a left or outer join of a stream. They must pass null keys on (KIP-962)."""
    relaxed: set[Node] = set()
    for node in reversed(plan.nodes):
        keeps = (isinstance(node, StreamJoin) and node.kind != "inner") or (
            isinstance(node, StreamTableJoin) and node.left
        )
        if keeps or node in relaxed:
            relaxed.update(node.parents)
    return relaxed


__all__ = ["ForeignKeyJoin", "Lowering", "Repartition", "lower"]
