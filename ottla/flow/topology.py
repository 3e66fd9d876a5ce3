"""Topology: sources, processors with their stores, and sinks, connected into sub-topologies (Kafka Streams: Topology).

    topology = Topology()
    topology.add_source("in", ["words"], key_serde="string", value_serde="string")
    topology.add_processor("count", Count, "in")
    topology.add_state_store(StoreSpec("counts", "key_value", STRING, LONG), "count")
    topology.add_sink("out", "counts", "count")

Rules:
- Nodes that are connected, or that share a store, form one sub-topology; it runs as one task for each partition of its
  topics.
- A repartition topic connects two sub-topologies: one writes it, the other reads it.
- A node calls its children in the order in which they were added.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.flow.check import check_name, check_supplier, checked
from ottla.flow.error import TopologyError
from ottla.flow.processor import Supplier
from ottla.flow.serde import Serde, serde
from ottla.flow.store.spec import StoreSpec
from ottla.flow.where import Where, here
from ottla.kernel.argument import shown
from ottla.kernel.validators import duration_ms

#: Where to start without a committed offset; or BY_DURATION and an ISO 8601 duration (KIP-1106).
RESETS, BY_DURATION = ("earliest", "latest", "none"), "by_duration:"
#: (record, the partition's newest timestamp so far) -> timestamp in ms; a negative one drops the record.
Extractor = Callable[..., int]
#: (topic, key, value, number of partitions) -> a partition, several, or None for the default.
Partitioner = Callable[[str, Any, Any, int], Any]


@dataclass(frozen=True, slots=True)
class Source:
    """Input topics, or a pattern for them."""

    name: str
    topics: tuple[str, ...]
    pattern: str | None
    key: Serde | None
    value: Serde | None
    extractor: Extractor | None
    reset: str | None
    where: Where
    #: The topics are internal: their names begin with the application's id.
    internal: bool = False


@dataclass(frozen=True, slots=True)
class ProcessorNode:
    """A processor with its parents and stores."""

    name: str
    supplier: Supplier
    parents: tuple[str, ...]
    stores: list[str]
    where: Where


@dataclass(frozen=True, slots=True)
class Sink:
    """An output topic, or a function that names one for each record."""

    name: str
    topic: str | Callable[..., str]
    key: Serde | None
    value: Serde | None
    partitioner: Partitioner | None
    parents: tuple[str, ...]
    where: Where
    internal: bool = False


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A repartition topic. `partitions` None: as many as the topics it must be co-partitioned with."""

    name: str
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class Subtopology:
    """Nodes that run in one task, in order. Task ids are `number`, underscore, partition."""

    number: int
    nodes: tuple[str, ...]
    is_global: bool


@checked
@dataclass(slots=True)
class Topology:
    """Sources, processors, stores and sinks (Kafka Streams: Topology). The `add_` methods return the topology.

    All errors are TopologyError and name `where`, the line of the user's program (default: the caller's line). The
    engine only reads a topology.
    """

    sources: dict[str, Source] = field(default_factory=dict)
    processors: dict[str, ProcessorNode] = field(default_factory=dict)
    sinks: dict[str, Sink] = field(default_factory=dict)
    stores: dict[str, StoreSpec] = field(default_factory=dict)
    internal_topics: dict[str, InternalTopic] = field(default_factory=dict)
    #: All nodes in the order in which they were added.
    order: list[str] = field(default_factory=list)
    #: Source to its global store.
    global_sources: dict[str, str] = field(default_factory=dict)
    global_stores: set[str] = field(default_factory=set)
    #: Sources whose topics must have the same number of partitions, and the line that requires it.
    copartitioned: list[tuple[frozenset[str], Where]] = field(default_factory=list)
    #: Store to the source topic that serves as its changelog.
    source_changelogs: dict[str, str] = field(default_factory=dict)

    def add_source(
        self,
        name: str,
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: Extractor | None = None,
        offset_reset: str | None = None,
        where: Where | None = None,
        internal: bool = False,
    ) -> Topology:
        """Add a source that reads topics, or all topics that match a compiled pattern."""
        where = where or here()
        self._claim(name, where)
        pattern = topics.pattern if isinstance(topics, re.Pattern) else None
        names = (topics,) if isinstance(topics, str) else () if isinstance(topics, re.Pattern) else tuple(topics)
        if not names and pattern is None:
            raise TopologyError(f"source {name} reads no topic: name at least one", where)
        if offset_reset is not None:
            _check_reset(offset_reset, where)
        for topic in names:
            check_name(topic, "topic", where)
            taken = next((source.name for source in self.sources.values() if topic in source.topics), None)
            if taken is not None:
                raise TopologyError(
                    f"topic {topic} has already been registered by source {taken}: use the stream or table you have",
                    where,
                )
        key, value = serde(key_serde, where), serde(value_serde, where)
        self.sources[name] = Source(
            name, names, pattern, key, value, timestamp_extractor, offset_reset, where, internal
        )
        return self

    def add_processor(self, name: str, supplier: Supplier, *parents: str, where: Where | None = None) -> Topology:
        """Add a processor downstream of its parents. Stores that the supplier declares are added and connected.

        TopologyError if the supplier returns the same object twice.
        """
        if where is None:  # the DSL has checked its own
            where = here()
            check_supplier(supplier, where)
        self._claim(name, where)
        self._known(name, parents, where)
        self.processors[name] = ProcessorNode(name, supplier, parents, [], where)
        declared = getattr(supplier, "stores", None)
        for spec in (declared() if callable(declared) else declared) or ():
            self.add_state_store(spec, name, where=where)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | Callable[..., str],
        *parents: str,
        key_serde: Any = None,
        value_serde: Any = None,
        partitioner: Partitioner | None = None,
        where: Where | None = None,
        internal: bool = False,
    ) -> Topology:
        """Add a sink that writes to a topic, or to the one that `topic(key, value, context)` returns."""
        where = where or here()
        self._claim(name, where)
        self._known(name, parents, where)
        if isinstance(topic, str):
            check_name(topic, "topic", where)
        key, value = serde(key_serde, where), serde(value_serde, where)
        self.sinks[name] = Sink(name, topic, key, value, partitioner, parents, where, internal)
        return self

    def add_state_store(self, spec: Any, *processors: str, where: Where | None = None) -> Topology:
        """Add a store and connect processors to it. Adding an equal store again has no effect."""
        where = where or here()
        spec = spec.build() if hasattr(spec, "build") else spec
        check_name(spec.name, "store name", where)
        known = self.stores.get(spec.name)
        if known is not None and known != spec:
            raise TopologyError(f"a different state store named {spec.name} has already been added", where)
        self.stores[spec.name] = spec
        for processor in processors:
            self.connect_processor_and_state_stores(processor, spec.name, where=where)
        return self

    def connect_processor_and_state_stores(self, processor: str, *names: str, where: Where | None = None) -> Topology:
        """Give a processor access to stores."""
        where = where or here()
        if processor not in self.processors:
            raise TopologyError(f"processor {processor} has not been added", where)
        for name in names:
            if name not in self.stores:
                raise TopologyError(f"state store {name} has not been added", where)
            if name in self.global_stores:
                continue
            stores = self.processors[processor].stores
            if name not in stores:
                stores.append(name)
        return self

    def add_global_store(
        self,
        spec: Any,
        source: str,
        topic: str,
        processor: str,
        supplier: Supplier,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: Extractor | None = None,
        where: Where | None = None,
    ) -> Topology:
        """Add a global store: every task holds all partitions of `topic`, and one processor writes the store."""
        if where is None:
            where = here()
            check_supplier(supplier, where)
        spec = spec.build() if hasattr(spec, "build") else spec
        self.add_source(
            source,
            topic,
            key_serde=key_serde,
            value_serde=value_serde,
            timestamp_extractor=timestamp_extractor,
            where=where,
        )
        self.add_processor(processor, supplier, source, where=where)
        if spec.name in self.stores:
            raise TopologyError(f"a state store named {spec.name} has already been added", where)
        self.stores[spec.name] = spec.without_logging()
        self.processors[processor].stores.append(spec.name)
        self.global_sources[source] = spec.name
        self.global_stores.add(spec.name)
        return self

    def add_read_only_state_store(
        self,
        spec: Any,
        source: str,
        topic: str,
        processor: str,
        supplier: Supplier,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: Extractor | None = None,
    ) -> Topology:
        """Add a store that is filled from a topic, which also serves as its changelog (KIP-813)."""
        where = here()
        check_supplier(supplier, where)
        spec = (spec.build() if hasattr(spec, "build") else spec).without_logging()
        self.add_source(
            source,
            topic,
            key_serde=key_serde,
            value_serde=value_serde,
            timestamp_extractor=timestamp_extractor,
            where=where,
        )
        self.add_processor(processor, supplier, source, where=where)
        self.add_state_store(spec, processor, where=where)
        self.source_changelogs[spec.name] = topic
        return self

    def add_internal_topic(self, topic: InternalTopic) -> None:
        """Add a repartition topic."""
        self.internal_topics[topic.name] = topic

    def copartition(self, sources: Iterable[str], where: Where) -> None:
        """Require the topics of these sources to have the same number of partitions."""
        self.copartitioned.append((frozenset(sources), where))

    def parents(self, name: str) -> tuple[str, ...]:
        node = self.processors.get(name) or self.sinks.get(name)
        return node.parents if node else ()

    def children(self, name: str) -> list[str]:
        """The children of a node in the order in which they were added."""
        return [child for child in self.order if name in self.parents(child)]

    def subtopologies(self) -> list[Subtopology]:
        """The sub-topologies, numbered as in Kafka Streams: by the first node of each."""
        roots: dict[str, str] = {name: name for name in self.order}

        def root(name: str) -> str:
            while roots[name] != name:
                name = roots[name]
            return name

        users: dict[str, str] = {}
        for name in self.order:
            for parent in self.parents(name):
                roots[root(name)] = root(parent)
            if name in self.processors:
                for store in self.processors[name].stores:
                    roots[root(name)] = root(users.setdefault(store, name))
        groups: dict[str, list[str]] = {}
        for name in self.order:
            groups.setdefault(root(name), []).append(name)
        return [
            Subtopology(number, tuple(nodes), any(name in self.global_sources for name in nodes))
            for number, nodes in enumerate(groups.values())
        ]

    def topic(self, name: str, application_id: str) -> str:
        """A topic's real name: internal names begin with the application's id."""
        return f"{application_id}-{name}" if name in self.internal_topics else name

    @property
    def writes_any_topic(self) -> bool:
        """Whether a function of the program names the topic of each record."""
        return any(not isinstance(sink.topic, str) for sink in self.sinks.values())

    def describe(self) -> str:
        """The text of Kafka Streams' `Topology.describe()`."""
        from ottla.flow.describe import describe

        return describe(self)

    def check_partitions(
        self, partitions: Mapping[str, int], topics: Callable[[Source], Iterable[str]] = lambda source: source.topics
    ) -> None:
        """TopologyError if topics that must be co-partitioned are not. `partitions`: the number by topic name.

        `topics` returns the topics of a source, also of one with a pattern.
        """
        for names, where in self.copartitioned:
            sizes = {
                topic: partitions[topic]
                for name in sorted(names)
                if name in self.sources
                for topic in topics(self.sources[name])
                if topic in partitions
            }
            if len(set(sizes.values())) > 1:
                listed = ", ".join(f"{topic}: {count}" for topic, count in sorted(sizes.items()))
                raise TopologyError(
                    f"topics that are joined or cogrouped must have the same number of partitions, but have {listed}; "
                    "call repartition() on one of the streams, or create the topics with the same number",
                    where,
                )

    def _claim(self, name: str, where: Where) -> None:
        if name in self.sources or name in self.processors or name in self.sinks:
            raise TopologyError(f"a node named {name} has already been added: names must be unique", where)
        self.order.append(name)

    def _known(self, name: str, parents: tuple[str, ...], where: Where) -> None:
        if not parents:
            raise TopologyError(f"node {name} has no parent: name at least one", where)
        for parent in parents:
            if parent == name or parent not in self.order:
                raise TopologyError(f"parent {parent} of node {name} has not been added yet", where)
            if parent in self.sinks:
                raise TopologyError(f"sink {parent} cannot be the parent of node {name}", where)


def _check_reset(reset: str, where: Where) -> None:
    try:
        if reset in RESETS or (reset.startswith(BY_DURATION) and duration_ms(reset.removeprefix(BY_DURATION)) >= 0):
            return
    except ValueError:
        pass
    takes = f"{', '.join(RESETS)}, or {BY_DURATION} and a duration, such as {BY_DURATION}PT1H"
    raise TopologyError(f"invalid offset_reset: {shown(reset)} (expected {takes})", where)
