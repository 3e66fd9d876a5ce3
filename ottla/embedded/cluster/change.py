"""Changes of a cluster of processes while it serves: growth, and rolling restarts.

Rules:
- A node is stopped only when every partition has a leader and all replicas in sync, so that other nodes can serve its
  partitions; its leaderships move first (controlled shutdown).
- `grow` may be interrupted anywhere: calling it again continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ottla.client import Admin
from ottla.client.admin.result import QuorumDescription
from ottla.embedded.cluster.local import LocalCluster
from ottla.embedded.cluster.plan import HOST, REPLICAS_MAX, voters_of
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.operations.partition_view import every_partition, replicas_of_all
from ottla.operations.widen import plan_widening

_LOOK_SECONDS = 0.2
_WAIT_SECONDS = 300.0
#: Retried: a node that has just started has not caught up yet, or the quorum has no leader at the moment.
_AGAIN = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER)
Tell = Callable[[str], None]


def grow(cluster: LocalCluster, nodes: int, tell: Tell = lambda _: None) -> list[int]:
    """Grow a cluster to `nodes` nodes and spread the replicas; returns the ids of the new nodes.

    The first three nodes vote in the metadata quorum, and partitions get three replicas, as in a cluster created with
    that many nodes. Finally the old nodes are restarted one by one, so that their new settings take effect. OttlaError
    if the cluster does not run or has more nodes.
    """
    plan = cluster.plan
    if nodes < len(plan.nodes):
        raise OttlaError(f"the cluster has {len(plan.nodes)} nodes already; `ottla cluster drain` empties one")
    if not cluster.running():
        raise OttlaError("no node of this cluster is running; `ottla cluster up` starts them")
    voters = voters_of(nodes, None)
    new = []
    while len(plan.nodes) < nodes:
        votes = sum(each.is_controller for each in plan.nodes) < voters
        new.append(cluster.add(votes=votes).node_id)
    for node_id in new:
        # The settings of the first new node were written before the others were planned.
        cluster.refresh(node_id)
    started = cluster.start()
    if started:
        tell(f"started node{'s' * (len(started) > 1)} {', '.join(map(str, started))}")
    with _connected(cluster) as admin:
        for each in plan.nodes:
            if each.is_controller and _add_voter(admin, each.node_id, each.controller_port):
                tell(f"node {each.node_id} votes in the metadata quorum")
        racks = {each.node_id: each.rack or None for each in plan.nodes}
        _wait_until(lambda: set(racks) <= {each.id for each in admin.describe_cluster().nodes}, "all nodes to register")
        wide = plan_widening(replicas_of_all(admin), racks, min(REPLICAS_MAX, nodes))
        if wide:
            admin.alter_partition_reassignments(wide).check()
            tell(f"{len(wide):,} partitions get more replicas")
    changed = [each.node_id for each in plan.nodes if cluster.has_old_settings(each)]
    roll(cluster, tell, changed)
    return new


def roll(cluster: LocalCluster, tell: Tell = lambda _: None, nodes: list[int] | None = None) -> list[int]:
    """Restart these nodes (default: all) one after another, the active controller last; returns the order."""
    left = [each.node_id for each in cluster.plan.nodes] if nodes is None else list(nodes)
    down = set(left) - set(cluster.running())
    if down:
        raise OttlaError(f"node {min(down)} is not running; `ottla cluster up` starts it")
    done = []
    while left:
        with _connected(cluster) as admin:
            _wait_until(lambda: not behind(admin), "all replicas to be in sync")
            leader = admin.describe_quorum().leader_id
        node_id = min(left, key=lambda each: (each == leader, cluster.plan.node(each).is_controller, each))
        left.remove(node_id)
        cluster.stop([node_id])
        cluster.refresh(node_id)
        cluster.start([node_id])
        done.append(node_id)
        tell(f"node {node_id} was restarted")
    with _connected(cluster) as admin:
        _wait_until(lambda: not behind(admin), "all replicas to be in sync")
    return done


def behind(admin: Admin) -> list[TopicPartition]:
    """The partitions without a leader, with replicas out of sync, or under reassignment."""
    moving = set(admin.list_partition_reassignments())
    views = {TopicPartition(each.topic, each.partition): each for each in every_partition(admin)}
    return [partition for partition, view in views.items() if view.trouble is not None or partition in moving]


@contextmanager
def _connected(cluster: LocalCluster) -> Iterator[Admin]:
    running = ",".join(cluster.plan.node(each).address for each in cluster.running())
    with Admin(running) as admin:
        yield admin


def _add_voter(admin: Admin, node_id: int, port: int) -> bool:
    """Make a controller a voter; False if it is one already. OttlaError if that takes too long."""
    found: QuorumDescription

    def known() -> bool:
        nonlocal found
        found = admin.describe_quorum()
        return any(each.id == node_id for each in (*found.voters, *found.observers))

    _wait_until(known, f"node {node_id} to follow the metadata quorum")
    if any(each.id == node_id for each in found.voters):
        return False
    (directory_id,) = (each.directory_id for each in found.observers if each.id == node_id)

    def added() -> bool:
        admin.add_raft_voter(node_id, directory_id, {"CONTROLLER": (HOST, port)})
        return True

    _wait_until(added, f"node {node_id} to become a voter")
    return True


def _wait_until(done: Callable[[], bool], what: str) -> None:
    """Poll until `done`. OttlaError after `_WAIT_SECONDS`, with the cluster's last error."""
    until, said = time.monotonic() + _WAIT_SECONDS, ""
    while True:
        try:
            if done():
                return
        except KafkaError as error:
            if error.code == ErrorCode.DUPLICATE_VOTER:
                # An earlier attempt was committed after its timeout.
                return
            if error.code not in _AGAIN:
                raise
            said = f": {error}"
        if time.monotonic() > until:
            raise OttlaError(f"the cluster took longer than {_WAIT_SECONDS:.0f} s for {what}{said}")
        time.sleep(_LOOK_SECONDS)
