"""The topology that the members of a streams application bring: subtopologies, and the topics they read and write.

The classes are values, so that topologies can be compared: a group has one topology, and a joining member must bring
the same or an older one.
"""

from collections.abc import Iterable
from typing import Any

from ottla.kernel.frozen import frozen
from ottla.wire.record import streams_group as record


@frozen
class InternalTopic:
    """A topic that the server creates for the application."""

    name: str
    #: 0 means that the topics that feed it decide.
    partitions: int
    #: 0 means the server's default.
    replication_factor: int
    configs: tuple[tuple[str, str], ...]


@frozen
class CopartitionGroup:
    """Topics that must have equal partition counts, as indexes into the subtopology's lists."""

    source_topics: tuple[int, ...]
    source_topic_regex: tuple[int, ...]
    repartition_source_topics: tuple[int, ...]


@frozen
class Subtopology:
    """A part of the application with tasks of its own, one per partition of its input."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    source_topic_regex: tuple[str, ...]
    changelogs: tuple[InternalTopic, ...]
    repartition_sinks: tuple[str, ...]
    repartition_sources: tuple[InternalTopic, ...]
    copartition_groups: tuple[CopartitionGroup, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """All topics that it reads."""
        return (*self.source_topics, *(topic.name for topic in self.repartition_sources))


@frozen
class Topology:
    """The topology of an application."""

    epoch: int
    #: In the order of the first member's request.
    subtopologies: tuple[Subtopology, ...]

    @property
    def sources(self) -> dict[str, str]:
        """Topic name -> the subtopology that reads it."""
        return {topic: subtopology.subtopology_id for subtopology in self.subtopologies for topic in subtopology.inputs}

    @property
    def required_topics(self) -> list[str]:
        """All topics that must exist before the application can run."""
        return [
            topic
            for subtopology in self.subtopologies
            for topic in (*subtopology.inputs, *(changelog.name for changelog in subtopology.changelogs))
        ]

    def is_same_as(self, other: "Topology") -> bool:
        """Are the topologies equal, apart from the order of their parts?"""
        parts = [
            {subtopology.subtopology_id: subtopology for subtopology in topology.subtopologies}
            for topology in (self, other)
        ]
        return self.epoch == other.epoch and parts[0] == parts[1]


def read_topology(source: Any) -> Topology:
    """The topology of a heartbeat or of a record; both have the same form."""
    return Topology(source.epoch, tuple(_subtopology(subtopology) for subtopology in source.subtopologies))


def _subtopology(source: Any) -> Subtopology:
    return Subtopology(
        source.subtopology_id,
        tuple(source.source_topics),
        tuple(source.source_topic_regex),
        _internal_topics(source.state_changelog_topics),
        tuple(source.repartition_sink_topics),
        _internal_topics(source.repartition_source_topics),
        tuple(
            CopartitionGroup(
                tuple(group.source_topics), tuple(group.source_topic_regex), tuple(group.repartition_source_topics)
            )
            for group in source.copartition_groups
        ),
    )


def _internal_topics(topics: Iterable[Any]) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            tuple((config.key, config.value) for config in topic.topic_configs or ()),
        )
        for topic in topics
    )


def topology_value(topology: Topology) -> record.StreamsGroupTopologyValue:
    """The record value of a topology."""
    return record.StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            record.Subtopology(
                subtopology_id=subtopology.subtopology_id,
                source_topics=list(subtopology.source_topics),
                source_topic_regex=list(subtopology.source_topic_regex),
                state_changelog_topics=_infos(subtopology.changelogs),
                repartition_sink_topics=list(subtopology.repartition_sinks),
                repartition_source_topics=_infos(subtopology.repartition_sources),
                copartition_groups=[
                    record.CopartitionGroup(
                        source_topics=list(group.source_topics),
                        source_topic_regex=list(group.source_topic_regex),
                        repartition_source_topics=list(group.repartition_source_topics),
                    )
                    for group in subtopology.copartition_groups
                ],
            )
            for subtopology in topology.subtopologies
        ],
    )


def _infos(topics: Iterable[InternalTopic]) -> list[record.TopicInfo]:
    return [
        record.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[record.TopicConfig(key=key, value=value) for key, value in topic.configs],
        )
        for topic in topics
    ]
