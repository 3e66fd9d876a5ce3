"""Moves of partitions to other nodes (KIP-455) and of replicas to other log directories (KIP-113)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, OttlaError

if TYPE_CHECKING:
    from ottla.client import Admin, KafkaError, TopicPartition
    from ottla.client.admin.replica import Replica

#: Between two tries to begin the move of a replica that is not there yet.
_PAUSE_S = 0.1
Replicas = dict["TopicPartition", list[int]]


class TooFewBrokers(OttlaError):
    """Fewer brokers than replicas: `wanted`, `there`."""

    def __init__(self, wanted: int, there: int) -> None:
        super().__init__(f"{wanted} replicas need as many nodes: there are {there}")
        self.wanted, self.there = wanted, there


class RacksUnknown(OttlaError):
    """Some brokers say their rack and others do not."""


def spread(now: Mapping[TopicPartition, Sequence[int]], racks: Mapping[int, str | None], start: int) -> Replicas:
    """As many replicas as now, in turn over the brokers, and first over their racks, from the `start`-th one on.

    `racks`: broker -> rack of the brokers that may be used; all None: racks do not count.
    Raises RacksUnknown, TooFewBrokers.
    """
    by_rack: dict[str | None, list[int]] = {}
    for broker, rack in racks.items():
        by_rack.setdefault(rack, []).append(broker)
    if None in by_rack and len(by_rack) > 1:
        raise RacksUnknown("not all nodes have a rack")
    longest = max(map(len, by_rack.values()), default=0)
    order = [some[index] for index in range(longest) for some in by_rack.values() if index < len(some)]
    wanted = max(map(len, now.values()), default=0)
    if wanted > len(order):
        raise TooFewBrokers(wanted, len(order))
    return {
        partition: [order[(start + turn + index) % len(order)] for index in range(len(replicas))]
        for turn, (partition, replicas) in enumerate(sorted(now.items()))
    }


def directories(
    ask: Admin, replicas: Mapping[TopicPartition, Iterable[int]]
) -> dict[tuple[TopicPartition, int], tuple[str | None, str | None]]:
    """By (partition, broker) the directory of the replica and the one that it moves to; only of brokers that live."""
    live = {node.id for node in ask.describe_cluster().nodes}
    brokers = sorted({broker for some in replicas.values() for broker in some} & live)
    found: dict[tuple[TopicPartition, int], tuple[str | None, str | None]] = {}
    for broker, described in ask.describe_log_dirs(brokers, replicas).check().items():
        for directory in described:
            for replica in directory.replicas:
                now, future = found.get((replica.partition, broker), (None, None))
                pair = (now, directory.path) if replica.future else (directory.path, future)
                found[replica.partition, broker] = pair
    return found


def begin_directory_moves(
    ask: Admin, wanted: Mapping[Replica, str], timeout_ms: int, begun: Callable[[Replica, str], None]
) -> tuple[list[Replica], dict[Replica, KafkaError]]:
    """Begin moves; a replica that is not there yet is waited for. `begun` is called for each.

    (those that were not there in time, what failed): with a failure it ends at once.
    """
    left = dict(wanted)
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        results = ask.alter_replica_log_dirs(left)
        errors = results.errors.items()
        if failed := {key: one for key, one in errors if one.code is not ErrorCode.REPLICA_NOT_AVAILABLE}:
            return list(left), failed
        for replica in sorted(results.succeeded, key=lambda each: f"{each.topic}-{each.partition}-{each.broker}"):
            begun(replica, left.pop(replica))
        if not left or time.monotonic() >= deadline:
            return list(left), {}
        time.sleep(_PAUSE_S)
