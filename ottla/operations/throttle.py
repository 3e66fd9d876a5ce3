"""Throttles around a reassignment: which settings slow it down, and which are taken away after it (KIP-73). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ottla.kernel.ids import TopicPartition

#: Settings of brokers: bytes a second that leaders send and followers fetch.
BROKER_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
#: The setting of brokers for moves between their directories.
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
#: Settings of topics: the replicas that send, and those that fetch.
TOPIC_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def throttled_replicas(
    now: Mapping[TopicPartition, Collection[int]], plan: Mapping[TopicPartition, Collection[int]]
) -> dict[str, dict[str, str]]:
    """Topic -> its settings while it moves: every replica that it has `now` may send, and those of `plan` that are new
    fetch.
    """
    found: dict[str, dict[str, str]] = {}
    for topic in sorted({each.topic for each in plan}):
        own = [each for each in plan if each.topic == topic]
        sends = _entries((each.partition, broker) for each in own for broker in now[each])
        fetches = _entries((each.partition, broker) for each in own for broker in plan[each] if broker not in now[each])
        found[topic] = dict(zip(TOPIC_REPLICAS, (sends, fetches), strict=True))
    return found


def _entries(replicas: Iterable[tuple[int, int]]) -> str:
    return ",".join(sorted(f"{partition}:{broker}" for partition, broker in replicas))
