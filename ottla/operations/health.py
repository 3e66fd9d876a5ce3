"""The verdict of `ottla cluster health`: what is wrong with a cluster, how badly, and what to do. `judge` is pure.

Rules:
- FAILING (exit code 2): some records cannot be read or written, or are in danger. DEGRADED (1): everything is served,
  with less safety than configured. HEALTHY: 0.
- A reason names what is affected (the first few of many) and the command that shows or repairs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.operations.partition_view import every_partition

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.client.admin.result import QuorumDescription

HEALTHY, DEGRADED, FAILING = 0, 1, 2
WORDS = ("healthy", "degraded", "failing")
#: So large a part of a log directory's disk should be free.
_FREE_MIN, _FREE_LEAST = 0.10, 0.02
_NAMED_MAX = 3
#: A voter fetches at least twice a second.
_VOTER_SILENT_MS = 10_000


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as the metadata describes it."""

    name: str
    leader: int | None
    replicas: int
    in_sync: int
    #: min.insync.replicas of its topic; None where it was not requested.
    in_sync_min: int | None = None


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """A log directory. Bytes are -1 where the broker does not report them."""

    node: int
    path: str
    error: str | None
    free: int
    total: int


@dataclass(frozen=True, slots=True)
class Reason:
    """A problem, its level, and what to do about it."""

    level: int
    what: str
    do: str


def judge(
    partitions: Sequence[PartitionState],
    directories: Sequence[DirectoryState],
    *,
    quorum_leader: int | None,
    voters_silent: Mapping[int, int | None],
    nodes_silent: Mapping[int, str],
) -> list[Reason]:
    """Return all problems, worst first.

    `quorum_leader` -1: the quorum has no leader; None: unknown. `voters_silent`: voter -> seconds since its last fetch
    from the leader; None: it has not fetched since the leader was elected.
    """
    reasons = []
    if quorum_leader == -1:
        reasons.append(Reason(FAILING, "the quorum of controllers has no leader", "ottla quorum show"))
    leaderless = [partition.name for partition in partitions if partition.leader is None]
    if leaderless:
        what = f"{_many(leaderless, 'partition')} without a leader: {_named(leaderless)}"
        reasons.append(Reason(FAILING, what, "start the nodes that hold them (ottla partitions list)"))
    led = [partition for partition in partitions if partition.leader is not None]
    short = [state.name for state in led if state.in_sync_min is not None and state.in_sync < state.in_sync_min]
    if short:
        what = f"{_many(short, 'partition')} with fewer replicas in sync than min.insync.replicas: {_named(short)}"
        reasons.append(Reason(FAILING, f"{what}; they refuse writes with acks=all", "ottla partitions list"))
    behind = [state.name for state in led if state.in_sync < state.replicas and state.name not in set(short)]
    if behind:
        what = f"{_many(behind, 'partition')} with replicas that are behind: {_named(behind)}"
        reasons.append(Reason(DEGRADED, what, "ottla partitions list"))
    for voter, seconds in voters_silent.items():
        since = "since the leader was elected" if seconds is None else f"for {seconds:,} s"
        what = f"voter {voter} of the quorum has not fetched {since}"
        reasons.append(Reason(DEGRADED, what, "start it, or replace it (ottla quorum show)"))
    for node, why in nodes_silent.items():
        reasons.append(Reason(DEGRADED, f"node {node} does not report its log directories: {why}", "ottla disks"))
    reasons += [reason for directory in directories if (reason := _disk(directory)) is not None]
    return sorted(reasons, key=lambda item: -item.level)


def _disk(directory: DirectoryState) -> Reason | None:
    where = f"{directory.path} of node {directory.node}"
    if directory.error is not None:
        return Reason(
            FAILING, f"the log directory {where} is offline ({directory.error})", "fix the disk, restart the node"
        )
    if directory.total <= 0 or directory.free < 0 or directory.free >= _FREE_MIN * directory.total:
        return None
    level = FAILING if directory.free < _FREE_LEAST * directory.total else DEGRADED
    share = 100 * directory.free / directory.total
    return Reason(level, f"{where} has {share:.1f} % free", "ottla disks --topics; shorten retention, or add space")


def _many(names: Sequence[str], what: str) -> str:
    return f"{len(names):,} {what}{'' if len(names) == 1 else 's'}"


def _named(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {rest:,} more" if rest > 0 else "")


def examine(ask: Admin) -> tuple[list[Reason], dict[str, Any]]:
    """Describe a cluster and judge it; returns the problems, and how many nodes, partitions and directories it has."""
    nodes = ask.describe_cluster().nodes
    try:
        quorum = ask.describe_quorum()
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        quorum = None
    partitions = _partitions(ask)
    dirs = ask.describe_log_dirs()
    directories = [
        DirectoryState(
            node,
            directory.path,
            None if directory.error is None else directory.error.code.name,
            directory.usable_bytes,
            directory.total_bytes,
        )
        for node, node_directories in sorted(dirs.succeeded.items())
        for directory in node_directories
    ]
    silent = {node: error.code.name for node, error in sorted(dirs.errors.items())}
    reasons = judge(
        partitions,
        directories,
        quorum_leader=None if quorum is None else quorum.leader_id,
        voters_silent={} if quorum is None else _voters_silent(quorum),
        nodes_silent=silent,
    )
    return reasons, {"nodes": len(nodes), "partitions": len(partitions), "directories": len(directories)}


def _voters_silent(quorum: QuorumDescription) -> dict[int, int | None]:
    """The voters that do not fetch, by the leader's clock: it has fetched from itself just now."""
    fetched = {voter.id: voter.last_fetch_timestamp for voter in quorum.voters}
    now = fetched.pop(quorum.leader_id, -1)
    return {
        voter: None if then < 0 else (now - then) // 1000
        for voter, then in sorted(fetched.items())
        if now >= 0 and (then < 0 or now - then > _VOTER_SILENT_MS)
    }


def _partitions(ask: Admin) -> list[PartitionState]:
    from ottla.client import ConfigResource, ResourceType

    views = every_partition(ask)
    behind = dict.fromkeys(view.topic for view in views if len(view.isr) < len(view.replicas))
    configs = ask.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in behind]).succeeded
    least = {
        resource.name: int(entries["min.insync.replicas"].value or 1)
        for resource, entries in configs.items()
        if "min.insync.replicas" in entries
    }
    return [
        PartitionState(
            f"{view.topic}-{view.partition}", view.leader, len(view.replicas), len(view.isr), least.get(view.topic)
        )
        for view in views
    ]
