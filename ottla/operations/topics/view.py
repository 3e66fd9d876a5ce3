"""A topic as `ottla topics` shows it: partitions, offsets, sizes, its own settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.kernel.ids import TopicPartition, uuid_text
from ottla.operations.configs import own_of_topic
from ottla.operations.offsets import bounds_of_led

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.client.admin.result import TopicDescription


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic in one line."""

    topic: str
    partitions: int
    #: The most replicas of any partition.
    replicas: int
    #: None: a partition has no leader, so the number is unknown.
    records: int | None
    #: On disk, all replicas together; -1: unknown.
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionPlace:
    """A partition, with node ids; offsets are None without a leader."""

    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]
    start_offset: int | None
    end_offset: int | None


@dataclass(frozen=True, slots=True)
class TopicDetails:
    """A topic in full."""

    topic: str
    id: str
    partitions: list[PartitionPlace]
    configs: dict[str, str]


def summaries(ask: Admin, names: Iterable[str]) -> list[TopicSummary]:
    """Return a summary of each topic, by name, without those that cannot be described."""
    described = ask.describe_topics(names).succeeded
    sizes = _sizes(ask)
    return [_summary(ask, described[name], sizes.get(name, -1)) for name in sorted(described)]


def _summary(ask: Admin, topic: TopicDescription, size: int) -> TopicSummary:
    offsets = _offsets(ask, topic)
    records = sum(end - start for start, end in offsets.values())
    replicas = max((len(partition.replicas) for partition in topic.partitions), default=0)
    known = len(offsets) == len(topic.partitions)
    return TopicSummary(topic.name, len(topic.partitions), replicas, records if known else None, size)


def _offsets(ask: Admin, topic: TopicDescription) -> dict[int, tuple[int, int]]:
    led = [
        TopicPartition(topic.name, partition.partition)
        for partition in topic.partitions
        if partition.leader is not None
    ]
    return {tp.partition: bounds for tp, bounds in bounds_of_led(ask, led).items()}


def _sizes(ask: Admin) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for directories in ask.describe_log_dirs().succeeded.values():
        for directory in directories:
            for replica in directory.replicas:
                sizes[replica.partition.topic] += replica.size
    return sizes


def view(ask: Admin, name: str) -> TopicDetails:
    """Describe a topic in full. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
    topic = ask.describe_topic(name)
    offsets = _offsets(ask, topic)
    partitions = [
        PartitionPlace(
            partition.partition,
            None if partition.leader is None else partition.leader.id,
            [node.id for node in partition.replicas],
            [node.id for node in partition.isr],
            *offsets.get(partition.partition, (None, None)),
        )
        for partition in topic.partitions
    ]
    return TopicDetails(name, uuid_text(topic.id), partitions, own_of_topic(ask, name))
