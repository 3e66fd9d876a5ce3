"""`Topology.describe()`, equal to Kafka Streams' text.

Kafka Streams lists a sub-topology's nodes by the size of what follows them, then by name, and prints sets of names in
the order of Java's HashSet. Both orders are reproduced here.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.flow.java_order import TreeSet, java_set
from ottla.flow.topology import Subtopology, Topology


def describe(topology: Topology) -> str:
    """The text, as Java prints it."""
    parts = ["Topologies:\n "]
    groups = topology.subtopologies()
    parts += [_global(topology, group) if group.is_global else _subtopology(topology, group) for group in groups]
    return "".join(parts)


def _global(topology: Topology, group: Subtopology) -> str:
    source = next(name for name in group.nodes if name in topology.sources)
    processor = next(name for name in group.nodes if name in topology.processors)
    topic = topology.sources[source].topics[0]
    return (
        f"  Sub-topology: {group.number} for global store (will not generate tasks)\n"
        f"    Source: {source} (topics: [{topic}])\n      --> {processor}\n"
        f"    Processor: {processor} (stores: [{topology.global_sources[source]}])\n      --> none\n      <-- "
        f"{source}\n"
    )


class _Linked:
    """The nodes of a sub-topology, linked as in Kafka Streams: neighbours are sorted on insertion, by the size of what
    was known to follow them then.
    """

    def __init__(self, topology: Topology, names: Iterable[str]) -> None:
        self.names = java_set(java_set(names))
        self.size = dict.fromkeys(self.names, 1)
        self.before = {name: TreeSet(self.rank) for name in self.names}
        self.after = {name: TreeSet(self.rank) for name in self.names}
        for name in self.names:
            for parent in topology.parents(name):
                self.before[name].add(parent)
                self.after[parent].add(name)
                self._grow(parent, self.size[name])

    def rank(self, name: str) -> tuple[int, str]:
        return -self.size[name], name

    def _grow(self, name: str, by: int) -> None:
        self.size[name] += by
        for parent in self.before[name]:
            self._grow(parent, by)


def _subtopology(topology: Topology, group: Subtopology) -> str:
    linked = _Linked(topology, group.nodes)
    lines = [f"  Sub-topology: {group.number}\n"]
    for name in sorted(linked.names, key=linked.rank):
        after = ", ".join(linked.after[name]) or "none"
        before = ", ".join(linked.before[name]) or "none"
        if name in topology.sources:
            source = topology.sources[name]
            topics = source.pattern if source.pattern is not None else _set(source.topics)
            lines.append(f"    Source: {name} (topics: {topics})\n      --> {after}\n")
        elif name in topology.processors:
            stores = _set(topology.processors[name].stores)
            lines.append(f"    Processor: {name} (stores: {stores})\n      --> {after}\n      <-- {before}\n")
        else:
            topic = topology.sinks[name].topic
            target = f"topic: {topic}" if isinstance(topic, str) else f"extractor class: {topic!r}"
            lines.append(f"    Sink: {name} ({target})\n      <-- {before}\n")
    return "".join(lines) + "\n"


def _set(names: Iterable[str]) -> str:
    """The names as Java's HashSet.toString() prints them."""
    return f"[{', '.join(java_set(names))}]"
