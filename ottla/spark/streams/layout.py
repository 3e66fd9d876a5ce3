"""The tasks of a program, the partitions that each reads, and the topics that the program needs.

Numbers follow Kafka Streams: a sub-topology has as many tasks as its largest source topic has partitions. A repartition
topic has the number of partitions set in the plan, otherwise that of the topics it is co-partitioned with, otherwise
that of its largest writer's tasks. A changelog has as many partitions as its sub-topology has tasks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.client.admin.client import Admin
from ottla.client.admin.result import NewTopic, OffsetSpec
from ottla.client.producer.sync import Producer
from ottla.flow.engine import Settings
from ottla.flow.error import TopologyError
from ottla.flow.setting import guarantee, replication_factor
from ottla.flow.topology import Source, Subtopology, Topology
from ottla.flow.where import Where
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import NO_UUID, TopicPartition, Uuid, uuid_text
from ottla.spark.streams.setting import topic_configs

#: Internal topics keep their records' timestamps whatever the brokers' default is, as in Kafka Streams.
COMPACTED = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
#: Repartition topics keep their records until the program deletes them (`purge`). Disk space is freed by segment, so
#: segments are small.
KEPT = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "segment.bytes": "52428800",
    "message.timestamp.type": "CreateTime",
}


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """A task and its source partitions, each with the offset reset for when no offset is committed."""

    subtopology: int
    partition: int
    sources: Mapping[TopicPartition, str]
    #: Its stores that have a changelog.
    stores: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"{self.subtopology}_{self.partition}"


@dataclass(frozen=True, slots=True)
class Program:
    """Everything that a worker needs. It is sent to workers by cloudpickle."""

    topology: Topology
    settings: Settings
    bootstrap_servers: str
    #: Settings of all clients, by Kafka's names: security, timeouts.
    client: Mapping[str, Any]
    tasks: tuple[TaskPlan, ...]
    #: The partitions that fill the global stores.
    globals_: tuple[TopicPartition, ...]
    #: The unique name of this start (last_run.py).
    run: str

    @property
    def application_id(self) -> str:
        return self.settings.application_id

    @property
    def creates_topics(self) -> bool:
        """Whether outputs may go to topics that are not known at the start, which the brokers may create."""
        return self.settings.write_any_topic(self.topology)

    @property
    def guarantee(self) -> str:
        """`processing.guarantee`: exactly_once_v2 or at_least_once."""
        return guarantee(self.settings.configs)

    def connection(self, **more: Any) -> dict[str, Any]:
        """The settings of a client, by Kafka's names."""
        named = {name.replace("_", "."): value for name, value in more.items()}
        return {"bootstrap.servers": self.bootstrap_servers, **self.client, **named}

    def changelog(self, store: str) -> str:
        """The topic that a store is restored from."""
        return f"{self.application_id}-{store}-changelog"


def lay_out(admin: Admin, topology: Topology, settings: Settings) -> Layout:
    """Lay out the tasks on the cluster's topics. TopologyError if a source topic is missing or topics are not
    co-partitioned.
    """
    ids = {listing.name: listing.id for listing in admin.list_topics()}
    sizes = {name: len(description.partitions) for name, description in admin.describe_topics(sorted(ids)).items()}
    layout = Layout(topology, settings.application_id, sizes, settings.configs, known(ids))
    layout.check()
    return layout


def check_internal(admin: Admin, layout: Layout, *, ran: bool) -> None:
    """OttlaError if an internal topic has another number of partitions, or has records although the application never
    `ran`.
    """
    existing = [topic for topic in layout.internal_topics() if topic.name in layout.sizes]
    for topic in existing:
        if layout.sizes[topic.name] != topic.partitions:
            raise OttlaError(
                f"internal topic {topic.name} has {layout.sizes[topic.name]} partitions, but the program needs "
                f"{topic.partitions}, because its source topics or its plan changed; use another application_id, or "
                "reset the application and delete its internal topics"
            )
    if ran:
        return
    partitions = [TopicPartition(topic.name, number) for topic in existing for number in range(topic.partitions)]
    ends = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST)).check() if partitions else {}
    if foreign := sorted({partition.topic for partition, end in ends.items() if end.offset}):
        raise OttlaError(
            f"internal topic {foreign[0]} has records, but application {layout.application_id} has never run on this "
            "cluster: the records are from another program, such as one of Java's Kafka Streams; use another "
            "application_id, or delete the topic if it is not needed"
        )


def known(ids: Mapping[str, Uuid]) -> dict[str, str]:
    """The ids of topics as text, without those that old brokers do not have."""
    return {name: uuid_text(topic_id) for name, topic_id in ids.items() if topic_id != NO_UUID}


def create_topics(admin: Admin, layout: Layout) -> None:
    """Create the internal topics that are missing, and note their ids."""
    missing = [topic for topic in layout.internal_topics() if topic.name not in layout.sizes]
    if missing:
        created = admin.create_topics(missing)
        for name, error in created.errors.items():
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                error.add_note(f"internal topic {name} could not be created")
                raise error
        layout.ids |= known({name: topic.id for name, topic in created.succeeded.items()})


def check_outputs(layout: Layout, settings: Settings, connection: Mapping[str, Any]) -> None:
    """TopologyError if an output topic is missing and the brokers do not create it."""
    missing: dict[str, Where | None] = {
        sink.topic: sink.where
        for sink in layout.topology.sinks.values()
        if isinstance(sink.topic, str) and not sink.internal and sink.topic not in layout.sizes
    }
    dead = settings.handlers.dead_letter_topic
    if dead is not None and dead not in layout.sizes:
        missing[dead] = None
    if not missing:
        return
    with Producer({**connection, "max.block.ms": 2_000}) as producer:
        for name, where in missing.items():
            try:
                producer.partitions_for(name)
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                raise TopologyError(
                    f"output topic {name} does not exist, and the brokers do not create topics: create it first", where
                ) from error


@dataclass(slots=True)
class Layout:
    """The tasks and internal topics of a topology on a cluster. `sizes`: the number of partitions of each topic."""

    topology: Topology
    application_id: str
    sizes: Mapping[str, int]
    configs: Mapping[str, Any] = field(default_factory=dict)
    #: The ids of the topics that have one, as text.
    ids: dict[str, str] = field(default_factory=dict)
    _counted: dict[str, int] = field(default_factory=dict)

    @property
    def stages(self) -> list[Subtopology]:
        return [subtopology for subtopology in self.topology.subtopologies() if not subtopology.is_global]

    def check(self) -> None:
        """TopologyError if a source topic is missing or topics are not co-partitioned."""
        for source in self.topology.sources.values():
            topics = self.topics(source)
            if not topics:
                raise TopologyError(f"no topic matches the pattern {source.pattern}: create one first", source.where)
            for topic in source.topics:
                if topic not in self.topology.internal_topics and topic not in self.sizes:
                    raise TopologyError(f"source topic {topic} does not exist: create it first", source.where)
        read = [topic for source in self.topology.sources.values() for topic in self.topics(source)]
        self.topology.check_partitions({topic: self.count(topic) for topic in read}, self.topics)

    def topics(self, source: Source) -> list[str]:
        """The topics of a source, by their names in the plan; for a pattern, those that exist now."""
        if source.pattern is None:
            return list(source.topics)
        pattern = re.compile(source.pattern)
        return sorted(name for name in self.sizes if pattern.fullmatch(name))

    def count(self, topic: str) -> int:
        """The number of partitions of a topic, by its name in the plan."""
        internal = self.topology.internal_topics.get(topic)
        if internal is None:
            return self.sizes.get(topic, 1)
        if internal.partitions is not None:
            return internal.partitions
        if topic not in self._counted:
            self._counted[topic] = 1  # stops the recursion if the topic's reader also writes it
            self._counted[topic] = self._like(topic) or self._written(topic)
        return self._counted[topic]

    def tasks_of(self, stage: Subtopology) -> int:
        return max((self.count(topic) for source in self._sources(stage) for topic in self.topics(source)), default=1)

    def tasks(self) -> tuple[TaskPlan, ...]:
        return tuple(
            TaskPlan(stage.number, partition, self._reads(stage, partition), tuple(self._logged(stage)))
            for stage in self.stages
            for partition in range(self.tasks_of(stage))
        )

    def globals_(self) -> tuple[TopicPartition, ...]:
        sources = [self.topology.sources[name] for name in self.topology.global_sources]
        return tuple(
            TopicPartition(topic, number)
            for source in sources
            for topic in self.topics(source)
            for number in range(self.count(topic))
        )

    def internal_topics(self) -> list[NewTopic]:
        """The repartition and changelog topics."""
        common, replicas = topic_configs(self.configs), replication_factor(self.configs)
        repartition = [
            NewTopic(self.topology.topic(name, self.application_id), self.count(name), replicas, KEPT | common)
            for name in self.topology.internal_topics
        ]
        changelogs = [
            NewTopic(
                f"{self.application_id}-{store}-changelog",
                self.tasks_of(stage),
                replicas,
                COMPACTED | common | dict(self.topology.stores[store].log_settings),
            )
            for stage in self.stages
            for store in self._logged(stage)
        ]
        return repartition + changelogs

    def _sources(self, stage: Subtopology) -> list[Source]:
        return [self.topology.sources[node] for node in stage.nodes if node in self.topology.sources]

    def _logged(self, stage: Subtopology) -> list[str]:
        used = [
            name for node in stage.nodes if node in self.topology.processors
            for name in self.topology.processors[node].stores
        ]  # fmt: skip
        topology = self.topology
        return [
            name
            for name in dict.fromkeys(used)
            if name not in topology.global_stores
            and (topology.stores[name].logging or name in topology.source_changelogs)
        ]

    def _reads(self, stage: Subtopology, partition: int) -> dict[TopicPartition, str]:
        return {
            TopicPartition(self.topology.topic(topic, self.application_id), partition): source.reset or "earliest"
            for source in self._sources(stage)
            for topic in self.topics(source)
            if partition < self.count(topic)
        }

    def _like(self, topic: str) -> int:
        """The number of partitions of the topics that this one must be co-partitioned with; 0 if there are none."""
        mine = {name for name, source in self.topology.sources.items() if topic in source.topics}
        partitions = 0
        for names, _ in self.topology.copartitioned:
            if mine & names:
                for name in names - mine:
                    for other in self.topics(self.topology.sources[name]) if name in self.topology.sources else ():
                        internal = self.topology.internal_topics.get(other)
                        partitions = max(
                            partitions, self.count(other) if internal is None else internal.partitions or 0
                        )
                        if internal is not None and internal.partitions is None:
                            partitions = max(partitions, self._written(other))
        return max(partitions, self._written(topic)) if partitions and self._all_internal(mine) else partitions

    def _all_internal(self, mine: set[str]) -> bool:
        """Whether all topics to co-partition are internal and without a set number; then the largest counts."""
        groups = [names for names, _ in self.topology.copartitioned if mine & names]
        topics = [topic for names in groups for name in names if name in self.topology.sources
                  for topic in self.topics(self.topology.sources[name])]  # fmt: skip
        internal = self.topology.internal_topics
        return all(topic in internal and internal[topic].partitions is None for topic in topics)

    def _written(self, topic: str) -> int:
        sinks = {name for name, sink in self.topology.sinks.items() if sink.topic == topic}
        return max((self.tasks_of(stage) for stage in self.stages if sinks & set(stage.nodes)), default=1)
