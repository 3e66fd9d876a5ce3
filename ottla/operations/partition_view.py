"""The partitions of a cluster or a topic: the leader, the replicas and the in-sync replicas of each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.kernel.error import OttlaError
from ottla.kernel.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.client import Admin


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition as the metadata describes it, with node ids."""

    topic: str
    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]

    @property
    def trouble(self) -> str | None:
        """`no leader`, or `behind` when a replica is out of sync; None when all is well."""
        if self.leader is None:
            return "no leader"
        return "behind" if len(self.isr) < len(self.replicas) else None


def every_partition(ask: Admin, *, internal: bool = True) -> list[PartitionView]:
    """Return the partitions of all topics that can be described, sorted by topic and number."""
    described = ask.describe_topics([topic.name for topic in ask.list_topics(internal=internal)]).succeeded
    return [
        PartitionView(
            name,
            partition.partition,
            None if partition.leader is None else partition.leader.id,
            [node.id for node in partition.replicas],
            [node.id for node in partition.isr],
        )
        for name, topic in sorted(described.items())
        for partition in topic.partitions
    ]


def replicas_of_all(ask: Admin) -> dict[TopicPartition, list[int]]:
    """Return partition -> the nodes that hold it, for the whole cluster."""
    return {
        TopicPartition(partition.topic, partition.partition): partition.replicas for partition in every_partition(ask)
    }


def replicas_of(ask: Admin, topic: str, only: Collection[int] = ()) -> dict[TopicPartition, list[int]]:
    """Return partition -> the nodes that hold it, for a topic, or `only` for partitions with these numbers.

    OttlaError: the topic has no partition with that number.
    """
    there = {
        partition.partition: [node.id for node in partition.replicas]
        for partition in ask.describe_topic(topic).partitions
    }
    if missing := [number for number in only if number not in there]:
        raise OttlaError(f"{topic} has no partition {missing[0]} (expected 0 to {len(there) - 1})")
    return {TopicPartition(topic, number): there[number] for number in only or sorted(there)}
