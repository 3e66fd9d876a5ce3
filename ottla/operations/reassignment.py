"""Moves of partitions to other nodes (KIP-455) and of replicas to other log directories (KIP-113)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, OttlaError
from ottla.operations.partition_view import replicas_of
from ottla.operations.throttle import throttle, unthrottle

if TYPE_CHECKING:
    from ottla.client import Admin, KafkaError, TopicPartition
    from ottla.client.admin.replica import Replica

#: Between two tries to begin the move of a replica that is not there yet.
_PAUSE_S = 0.1
Replicas = dict["TopicPartition", list[int]]


class TooFewBrokers(OttlaError):
    """Too few brokers (`there`) for the replicas (`wanted`)."""

    def __init__(self, wanted: int, there: int) -> None:
        super().__init__(f"{wanted} replicas need {wanted} nodes, but there are {there}")
        self.wanted, self.there = wanted, there


class RacksUnknown(OttlaError):
    """Some brokers have a rack and others do not."""


def spread(now: Mapping[TopicPartition, Sequence[int]], racks: Mapping[int, str | None], start: int) -> Replicas:
    """Assign as many replicas as now, round robin over the racks and then their brokers, from the `start`-th broker.

    `racks`: broker -> rack of the brokers that may be used; all None: racks do not count.
    Raises RacksUnknown, TooFewBrokers.
    """
    by_rack: dict[str | None, list[int]] = {}
    for broker, rack in racks.items():
        by_rack.setdefault(rack, []).append(broker)
    if None in by_rack and len(by_rack) > 1:
        raise RacksUnknown("not all nodes have a rack")
    longest = max(map(len, by_rack.values()), default=0)
    order = [brokers[index] for index in range(longest) for brokers in by_rack.values() if index < len(brokers)]
    wanted = max(map(len, now.values()), default=0)
    if wanted > len(order):
        raise TooFewBrokers(wanted, len(order))
    return {
        partition: [order[(start + turn + index) % len(order)] for index in range(len(replicas))]
        for turn, (partition, replicas) in enumerate(sorted(now.items()))
    }


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that moves between nodes; with `directory`, a replica that moves to this directory of its node."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    directory: str | None = None
    #: Records that the replica in `directory` still lacks.
    lag: int | None = None


def under_way(ask: Admin) -> list[Move]:
    """Return all moves under way: between nodes, then between directories."""
    moves = [
        Move(tp.topic, tp.partition, list(move.replicas), list(move.adding), list(move.removing))
        for tp, move in sorted(ask.list_partition_reassignments().items())
    ]
    return moves + [
        Move(replica.partition.topic, replica.partition.partition, [node], [], [], directory.path, replica.offset_lag)
        for node, described in sorted(ask.describe_log_dirs().succeeded.items())
        for directory in described
        for replica in directory.replicas
        if replica.future
    ]


def begin_move(
    ask: Admin, topic: str, brokers: Sequence[int], only: Collection[int] = (), *, bytes_per_s: int | None = None
) -> list[TopicPartition]:
    """Move the partitions of a topic, or `only` those with these numbers, to these nodes, preferred leader first.

    Returns the partitions: `admin.list_partition_reassignments(partitions)` is empty when they have moved. Then remove
    a throttle (`bytes_per_s` from and to each node) with `throttle.unthrottle`. OttlaError: no such node or partition.
    """
    wanted = replicas_of(ask, topic, only)
    live = {node.id for node in ask.describe_cluster().nodes}
    if unknown := [broker for broker in brokers if broker not in live]:
        raise OttlaError(f"there is no node {unknown[0]} now; the nodes are {_ids(live)}")
    plan = {tp: list(brokers) for tp in wanted}
    if bytes_per_s is not None:
        throttle(ask, wanted, plan, bytes_per_s)
    results = ask.alter_partition_reassignments(plan)
    is_refused = bool(results.errors) and not results.succeeded
    if bytes_per_s is not None and is_refused and not ask.list_partition_reassignments():
        unthrottle(ask, [topic])  # nothing moves: the throttle would stay and slow down replication
    results.check()
    return list(wanted)


def cancel(ask: Admin, topic: str, only: Collection[int] = ()) -> list[TopicPartition]:
    """Cancel the moves of a topic between nodes. Returns the partitions that were moving."""
    moving = sorted(ask.list_partition_reassignments(list(replicas_of(ask, topic, only))))
    if moving:
        ask.alter_partition_reassignments(dict.fromkeys(moving)).check()
    return moving


def begin_directory_move(
    ask: Admin, topic: str, directory: str, node: int, only: Collection[int] = ()
) -> list[Replica]:
    """Move a node's replicas of a topic to another of its log directories; `not_in` counts those still to arrive.

    OttlaError: no such node, partition or directory, or the node holds no replica of the topic.
    """
    from ottla.client.admin.replica import Replica

    wanted = replicas_of(ask, topic, only)
    dirs = ask.describe_log_dirs().check()
    if node not in dirs:
        raise OttlaError(f"there is no node {node} now; the nodes are {_ids(dirs)}")
    known = [log_dir.path for log_dir in dirs[node]]
    if directory not in known:
        raise OttlaError(f"node {node} has no log directory {directory} (expected {', '.join(known)})")
    replicas = [Replica(topic, tp.partition, node) for tp, brokers in wanted.items() if node in brokers]
    if not replicas:
        raise OttlaError(f"node {node} holds no replica of {topic}")
    ask.alter_replica_log_dirs(dict.fromkeys(replicas, directory)).check()
    return replicas


def not_in(ask: Admin, replicas: Sequence[Replica], directory: str) -> int:
    """Count the replicas of one node that are not in that directory of it yet."""
    there = {
        (replica.partition.topic, replica.partition.partition)
        for log_dir in ask.describe_log_dirs().check()[replicas[0].broker]
        if log_dir.path == directory
        for replica in log_dir.replicas
        if not replica.future
    }
    return sum((replica.topic, replica.partition) not in there for replica in replicas)


def _ids(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(nodes)))


def directories(
    ask: Admin, replicas: Mapping[TopicPartition, Iterable[int]]
) -> dict[tuple[TopicPartition, int], tuple[str | None, str | None]]:
    """Return (partition, broker) -> (directory of the replica, directory it moves to), for live brokers only."""
    live = {node.id for node in ask.describe_cluster().nodes}
    brokers = sorted({broker for nodes in replicas.values() for broker in nodes} & live)
    placed: dict[tuple[TopicPartition, int], tuple[str | None, str | None]] = {}
    for broker, described in ask.describe_log_dirs(brokers, replicas).check().items():
        for directory in described:
            for replica in directory.replicas:
                now, future = placed.get((replica.partition, broker), (None, None))
                pair = (now, directory.path) if replica.future else (directory.path, future)
                placed[replica.partition, broker] = pair
    return placed


def begin_directory_moves(
    ask: Admin, wanted: Mapping[Replica, str], timeout_ms: int, begun: Callable[[Replica, str], None]
) -> tuple[list[Replica], dict[Replica, KafkaError]]:
    """Begin moves, waiting for replicas that do not exist yet. Calls `begun` for each move.

    Returns (replicas that did not exist in time, errors); returns at once on an error.
    """
    left = dict(wanted)
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        results = ask.alter_replica_log_dirs(left)
        errors = results.errors.items()
        if failed := {key: error for key, error in errors if error.code is not ErrorCode.REPLICA_NOT_AVAILABLE}:
            return list(left), failed
        for replica in sorted(results.succeeded, key=lambda key: f"{key.topic}-{key.partition}-{key.broker}"):
            begun(replica, left.pop(replica))
        if not left or time.monotonic() >= deadline:
            return list(left), {}
        time.sleep(_PAUSE_S)
