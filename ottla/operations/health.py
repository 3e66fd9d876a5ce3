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

HEALTHY, DEGRADED, FAILING = 0, 1, 2
WORDS = ("healthy", "degraded", "failing")
#: So large a part of a log directory's disk should be free.
_FREE_MIN, _FREE_LEAST = 0.10, 0.02
_NAMED_MAX = 3


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
    nodes_silent: Mapping[int, str],
) -> list[Reason]:
    """Return all problems, worst first. `quorum_leader` -1: the quorum has no leader; None: unknown."""
    found = []
    if quorum_leader == -1:
        found.append(Reason(FAILING, "the quorum of controllers has no leader", "ottla quorum show"))
    leaderless = [each.name for each in partitions if each.leader is None]
    if leaderless:
        what = f"{_many(leaderless, 'partition')} without a leader: {_named(leaderless)}"
        found.append(Reason(FAILING, what, "start the nodes that hold them (ottla partitions list)"))
    led = [each for each in partitions if each.leader is not None]
    short = [each.name for each in led if each.in_sync_min is not None and each.in_sync < each.in_sync_min]
    if short:
        what = f"{_many(short, 'partition')} with fewer replicas in sync than min.insync.replicas: {_named(short)}"
        found.append(Reason(FAILING, f"{what}; they refuse writes with acks=all", "ottla partitions list"))
    behind = [each.name for each in led if each.in_sync < each.replicas and each.name not in set(short)]
    if behind:
        what = f"{_many(behind, 'partition')} with replicas that are behind: {_named(behind)}"
        found.append(Reason(DEGRADED, what, "ottla partitions list"))
    for node, why in nodes_silent.items():
        found.append(Reason(DEGRADED, f"node {node} does not report its log directories: {why}", "ottla disks"))
    found += [reason for each in directories if (reason := _disk(each)) is not None]
    return sorted(found, key=lambda each: -each.level)


def _disk(each: DirectoryState) -> Reason | None:
    where = f"{each.path} of node {each.node}"
    if each.error is not None:
        return Reason(FAILING, f"the log directory {where} is offline ({each.error})", "fix the disk, restart the node")
    if each.total <= 0 or each.free < 0 or each.free >= _FREE_MIN * each.total:
        return None
    level = FAILING if each.free < _FREE_LEAST * each.total else DEGRADED
    share = 100 * each.free / each.total
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
        leader: int | None = ask.describe_quorum().leader_id
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        leader = None
    partitions = _partitions(ask)
    dirs = ask.describe_log_dirs()
    directories = [
        DirectoryState(
            node, each.path, None if each.error is None else each.error.code.name, each.usable_bytes, each.total_bytes
        )
        for node, found in sorted(dirs.succeeded.items())
        for each in found
    ]
    silent = {node: error.code.name for node, error in sorted(dirs.errors.items())}
    reasons = judge(partitions, directories, quorum_leader=leader, nodes_silent=silent)
    return reasons, {"nodes": len(nodes), "partitions": len(partitions), "directories": len(directories)}


def _partitions(ask: Admin) -> list[PartitionState]:
    from ottla.client import ConfigResource, ResourceType

    views = every_partition(ask)
    behind = dict.fromkeys(each.topic for each in views if len(each.isr) < len(each.replicas))
    configs = ask.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in behind]).succeeded
    least = {
        resource.name: int(entries["min.insync.replicas"].value or 1)
        for resource, entries in configs.items()
        if "min.insync.replicas" in entries
    }
    return [
        PartitionState(
            f"{each.topic}-{each.partition}", each.leader, len(each.replicas), len(each.isr), least.get(each.topic)
        )
        for each in views
    ]
