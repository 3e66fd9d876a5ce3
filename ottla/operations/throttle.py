"""Throttles for a reassignment: set before it and removed after it (KIP-73)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.kernel.error import OttlaError
from ottla.kernel.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.client import Admin

#: Settings of brokers: bytes a second that leaders send and followers fetch.
BROKER_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
#: The setting of brokers for moves between their directories.
_DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
#: Settings of topics: the replicas that send, and those that fetch.
TOPIC_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def throttle(
    ask: Admin,
    now: Mapping[TopicPartition, Collection[int]],
    plan: Mapping[TopicPartition, Collection[int]],
    bytes_per_s: int,
) -> None:
    """Throttle the moves of a plan before they begin."""
    _set_on_topics(ask, throttled_replicas(now, plan))
    brokers = {broker for tp in plan for broker in (*now[tp], *plan[tp])}
    _set_on_brokers(ask, brokers, dict.fromkeys(BROKER_RATES, str(bytes_per_s)))


def throttle_directories(ask: Admin, brokers: Iterable[int], bytes_per_s: int) -> None:
    """Throttle the moves between the directories of these brokers."""
    _set_on_brokers(ask, brokers, {_DIRECTORY_RATE: str(bytes_per_s)})


def unthrottle_brokers(ask: Admin, brokers: Iterable[int], *, directories: bool = False) -> None:
    """Remove the throttles of these brokers; with `directories`, also those of moves between directories."""
    rates = (*BROKER_RATES, _DIRECTORY_RATE) if directories else BROKER_RATES
    _set_on_brokers(ask, brokers, dict.fromkeys(rates))


def unthrottle_topics(ask: Admin, topics: Iterable[str]) -> None:
    """Remove the throttles of these topics."""
    _set_on_topics(ask, {topic: dict.fromkeys(TOPIC_REPLICAS) for topic in topics})


def unthrottle_all(ask: Admin) -> list[str]:
    """Remove all throttles. Returns the topics that had one. OttlaError while a partition moves between nodes."""
    from ottla.client import ConfigResource, ResourceType

    if moving := sorted(ask.list_partition_reassignments()):
        raise OttlaError(
            f"{moving[0]} is still moving{f' (and {len(moving) - 1} more)' * (len(moving) > 1)}: wait for the end "
            "(ottla partitions moves), or cancel the move (ottla partitions cancel)"
        )
    names = [topic.name for topic in ask.list_topics(internal=True)]
    described = ask.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names]).check()
    topics = [
        resource.name
        for resource, entries in described.items()
        if any(entries[setting].value for setting in TOPIC_REPLICAS)
    ]
    unthrottle(ask, topics)
    return topics


def unthrottle(ask: Admin, topics: Iterable[str]) -> None:
    """Remove the throttles of these topics and of all nodes."""
    unthrottle_brokers(ask, [node.id for node in ask.describe_cluster().nodes])
    unthrottle_topics(ask, topics)


def _set_on_brokers(ask: Admin, brokers: Iterable[int], changes: Mapping[str, str | None]) -> None:
    from ottla.client import ConfigResource, ResourceType

    for broker in sorted(set(brokers)):
        ask.alter_config(ConfigResource(ResourceType.BROKER, str(broker)), changes)


def _set_on_topics(ask: Admin, changes: Mapping[str, Mapping[str, str | None]]) -> None:
    from ottla.client import ConfigResource, ResourceType

    for topic, settings in changes.items():
        ask.alter_config(ConfigResource(ResourceType.TOPIC, topic), settings)


def throttled_replicas(
    now: Mapping[TopicPartition, Collection[int]], plan: Mapping[TopicPartition, Collection[int]]
) -> dict[str, dict[str, str]]:
    """Return topic -> its settings during the move: all replicas of `now` send, and those new in `plan` fetch."""
    settings: dict[str, dict[str, str]] = {}
    for topic in sorted({tp.topic for tp in plan}):
        own = [tp for tp in plan if tp.topic == topic]
        sends = _entries((tp.partition, broker) for tp in own for broker in now[tp])
        fetches = _entries((tp.partition, broker) for tp in own for broker in plan[tp] if broker not in now[tp])
        settings[topic] = dict(zip(TOPIC_REPLICAS, (sends, fetches), strict=True))
    return settings


def _entries(replicas: Iterable[tuple[int, int]]) -> str:
    return ",".join(sorted(f"{partition}:{broker}" for partition, broker in replicas))
