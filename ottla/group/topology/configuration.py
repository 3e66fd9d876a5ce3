"""Check a topology against the existing topics: the partition counts of its internal topics, and what is missing.

Pure functions.

Rules:
- A repartition topic has as many partitions as the largest topic that feeds it, unless the application sets the count.
  A changelog has as many partitions as the subtopology has tasks, which is the partition count of its largest input.
- Copartitioned topics must have equal counts. Repartition topics of such a group take the count of its source topics;
  without source topics, the count that the application fixed, or the largest one.
- A problem with the topics is a status in the heartbeat's response, since an operator can create or fix them. A problem
  with the topology itself is STREAMS_INVALID_TOPOLOGY.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import IntEnum

from ottla.group.topic import TopicView
from ottla.group.topology.topology import InternalTopic, Subtopology, Topology
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.frozen import frozen


class Status(IntEnum):
    """A status in the heartbeat's response. The numbers are the protocol's."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


@frozen
class Problem:
    """The reason why nothing can be assigned."""

    status: Status
    detail: str


@frozen
class ConfiguredSubtopology:
    """A subtopology with the partition counts of its internal topics."""

    subtopology_id: str
    tasks: int
    subtopology: Subtopology
    #: The internal topics, with the counts that they should have.
    repartition_sources: tuple[InternalTopic, ...]
    changelogs: tuple[InternalTopic, ...]

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelogs)


@frozen
class ConfiguredTopology:
    """The result of the check."""

    epoch: int
    #: By id, ascending; empty if they cannot be configured.
    subtopologies: Mapping[str, ConfiguredSubtopology] = field(default_factory=dict)
    #: The internal topics that do not exist yet.
    missing: tuple[InternalTopic, ...] = ()
    problem: Problem | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


class _TopicsDoNotFit(Exception):
    """The topics do not fit the topology."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.problem = Problem(status, detail)


def configure(topology: Topology, topics: TopicView) -> ConfiguredTopology:
    """Check the topology against the topics. Raises STREAMS_INVALID_TOPOLOGY."""
    check_topology(topology)
    try:
        _check_sources(topology, topics)
        counts = _Counts(topology, topics)
        counts.decide()
        subtopologies = {
            subtopology.subtopology_id: _configured(subtopology, counts)
            for subtopology in sorted(topology.subtopologies, key=lambda subtopology: subtopology.subtopology_id)
        }
        missing = _missing(subtopologies.values(), topics)
    except _TopicsDoNotFit as unfit:
        return ConfiguredTopology(topology.epoch, problem=unfit.problem)
    problem = None
    if missing:
        names = _summary([topic.name for topic in missing])
        problem = Problem(Status.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return ConfiguredTopology(topology.epoch, subtopologies, missing, problem)


def invalid(text: str) -> KafkaError:
    """The error for an invalid topology."""
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)


def check_topology(topology: Topology) -> None:
    """Raise STREAMS_INVALID_TOPOLOGY for problems that no set of topics could fix."""
    if topology.epoch < 0:
        raise invalid("Topology epoch must be non-negative.")
    ids = [subtopology.subtopology_id for subtopology in topology.subtopologies]
    if len(ids) != len(set(ids)):
        raise invalid("Two subtopologies have the same id.")
    for subtopology in topology.subtopologies:
        if not subtopology.inputs:
            raise invalid(f"No source topics found for subtopology {subtopology.subtopology_id}")
        if any(topic.partitions < 0 for topic in subtopology.repartition_sources):
            raise invalid("Number of partitions must be at least 1.")
        for group in subtopology.copartition_groups:
            for places, of in (
                (group.source_topics, subtopology.source_topics),
                (group.repartition_source_topics, subtopology.repartition_sources),
            ):
                if any(not 0 <= place < len(of) for place in places):
                    raise invalid(
                        f"A copartition group of subtopology {subtopology.subtopology_id} names no topic of it."
                    )


def _check_sources(topology: Topology, topics: TopicView) -> None:
    missing = {
        name
        for subtopology in topology.subtopologies
        for name in subtopology.source_topics
        if not topics.partition_count(name)
    }
    if missing:
        text = f"Source topics {_summary(sorted(missing))} are missing."
        raise _TopicsDoNotFit(Status.MISSING_SOURCE_TOPICS, text)


class _Counts:
    """The partition count of each internal topic, decided step by step."""

    def __init__(self, topology: Topology, topics: TopicView) -> None:
        self._subtopologies = topology.subtopologies
        self._topics = topics
        self._repartition = {topic.name: topic for each in self._subtopologies for topic in each.repartition_sources}
        self._fixed = {name: topic.partitions for name, topic in self._repartition.items() if topic.partitions}
        self.decided: dict[str, int] = {}

    def of(self, name: str) -> int:
        """The count of an existing topic, otherwise the decided one; `_missing` reports a difference."""
        return self._topics.partition_count(name) or self.decided[name]

    def tasks(self, subtopology: Subtopology) -> int:
        return max(map(self.of, subtopology.inputs))

    def decide(self) -> None:
        self._decide_repartition_topics()
        for subtopology in sorted(self._subtopologies, key=lambda subtopology: subtopology.subtopology_id):
            for group in subtopology.copartition_groups:
                names = {
                    *(subtopology.source_topics[place] for place in group.source_topics),
                    *(subtopology.repartition_sources[place].name for place in group.repartition_source_topics),
                }
                if names:
                    self._copartition(names)
        for subtopology in self._subtopologies:
            self.decided.update(
                dict.fromkeys((topic.name for topic in subtopology.changelogs), self.tasks(subtopology))
            )

    def _decide_repartition_topics(self) -> None:
        counts = dict(self._fixed)
        open_sinks = {
            sink for subtopology in self._subtopologies for sink in subtopology.repartition_sinks if sink not in counts
        }
        while open_sinks:
            decided = {}
            for subtopology in self._subtopologies:
                upstream = [counts[topic.name] for topic in subtopology.repartition_sources if topic.name in counts]
                upstream += [self._topics.partition_count(name) for name in subtopology.source_topics]
                for sink in subtopology.repartition_sinks:
                    if sink in open_sinks and sink not in decided and upstream:
                        decided[sink] = counts[sink] = max(upstream)
            if not decided:
                raise invalid(
                    "Failed to compute number of partitions for all repartition topics. "
                    "There may be loops in the topology that cannot be resolved."
                )
            open_sinks -= decided.keys()
        if not self._repartition.keys() <= counts.keys():
            raise invalid(
                "Failed to compute number of partitions for all repartition topics, because a repartition source "
                "topic is never used as a sink topic."
            )
        self.decided.update(counts)

    def _copartition(self, names: set[str]) -> None:
        repartition = {name: self.of(name) for name in sorted(names) if name in self._repartition}
        others = {name: self.of(name) for name in sorted(names) if name not in self._repartition}
        if others:
            count = _common_count(others)
        elif self._fixed:
            # As in Apache Kafka, this compares all fixed repartition topics of the application, not only this group's.
            count = _common_count({name: self.of(name) for name in self._fixed})
        else:
            count = max(repartition.values())
        for name, present in repartition.items():
            if name in self._fixed and present != count:
                raise _TopicsDoNotFit(
                    Status.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{present}] of repartition topic [{name}] doesn't match number of "
                    f"partitions [{count}] of the source topic.",
                )
            self.decided[name] = count


def _common_count(counts: Mapping[str, int]) -> int:
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{name}={count}" for name, count in sorted(counts.items()))
        raise _TopicsDoNotFit(
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{text}}}]",
        )
    return next(iter(counts.values()))


def _configured(subtopology: Subtopology, counts: _Counts) -> ConfiguredSubtopology:
    def counted(topics: Iterable[InternalTopic]) -> tuple[InternalTopic, ...]:
        return tuple(
            InternalTopic(
                topic.name, topic.partitions or counts.decided[topic.name], topic.replication_factor, topic.configs
            )
            for topic in topics
        )

    return ConfiguredSubtopology(
        subtopology.subtopology_id,
        counts.tasks(subtopology),
        subtopology,
        counted(subtopology.repartition_sources),
        counted(subtopology.changelogs),
    )


def _missing(subtopologies: Iterable[ConfiguredSubtopology], topics: TopicView) -> tuple[InternalTopic, ...]:
    missing: dict[str, InternalTopic] = {}
    for subtopology in subtopologies:
        for topic in (*subtopology.repartition_sources, *subtopology.changelogs):
            present = topics.partition_count(topic.name)
            if not present:
                missing[topic.name] = topic
            elif present != topic.partitions:
                raise _TopicsDoNotFit(
                    Status.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {topic.name} has different number of partitions: "
                    f"expected {topic.partitions}, found {present}",
                )
    return tuple(missing.values())


def _summary(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} additional topics" if len(names) > most else ""
    return ", ".join(names[:most]) + more
