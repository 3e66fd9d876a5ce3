"""Random histories of a quorum: `python -m tests.raft.random_history --seeds 1-1000`.

Three to five machines, messages that are lost, late, reordered and doubled, crashes that lose what was not synced,
restarts, cut links, snapshots, other voters. One seed is one history: a list of operations that is replayed as it is,
and shortened by leaving operations out while it still fails. After each operation `Cluster` holds against what it
promised; at the end all faults stop, and the quorum must commit again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from ottla.raft.event import RequestReceived, ResignRequested, Submitted, VersionRaised
from ottla.raft.quorum import QuorumSettings
from ottla.raft.role import Leader
from ottla.raft.voters import find_node, find_voter
from ottla.wire.api.add_raft_voter import AddRaftVoterRequest, Listener
from ottla.wire.api.remove_raft_voter import RemoveRaftVoterRequest
from tests.raft.cluster import Broken, Cluster, Node
from tests.raft.node_disk import LISTENER, endpoint_of

SETTINGS = QuorumSettings(
    snapshot_bytes=150,
    election_timeout_ms=100,
    election_backoff_max_ms=100,
    fetch_timeout_ms=200,
    answer_timeout_ms=100,
    retry_backoff_ms=5,
    fetch_snapshot_max_bytes=200,
    fetch_wait_ms=50,
)
_TIMES = (1, 1, 2, 5, 5, 20, 50, 150)
#: What happens, and how often.
WEIGHTS = {
    "deliver": 600,
    "pass": 150,
    "sync": 160,
    "submit": 50,
    "drop": 20,
    "double": 15,
    "fail": 10,
    "crash": 5,
    "crash-between": 5,
    "start": 16,
    "cut": 6,
    "heal": 8,
    "add": 5,
    "remove": 5,
    "resign": 2,
    "wipe": 1,
    "raise": 1,
}
_MESSAGES_MAX = 150
_ENOUGH_MS = 20_000


class Operation(NamedTuple):
    """One thing that happens. The numbers choose among what there is when it does."""

    kind: str
    one: int
    other: int


class Shape(NamedTuple):
    """The nodes at the beginning."""

    voters: list[int]
    #: Nodes that may become voters, and brokers, which may not.
    spares: list[int]
    brokers: list[int]
    kraft_version: int
    auto_join: bool


def shape_of(seed: int) -> Shape:
    rng = random.Random(f"shape {seed}")
    count = rng.choice((1, 2, 3, 3, 3, 3, 4, 5))
    spares = rng.choice((0, 1, 1)) if count < 5 else 0
    return Shape(
        list(range(1, count + 1)),
        list(range(count + 1, count + 1 + spares)),
        [10] if rng.random() < 0.4 else [],
        0 if rng.random() < 0.2 else 1,
        rng.random() < 0.2,
    )


def operations_of(seed: int, count: int) -> list[Operation]:
    rng = random.Random(seed)
    kinds = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)
    return [Operation(kind, rng.randrange(1 << 16), rng.randrange(1 << 16)) for kind in kinds]


class History:
    """A cluster to which operations happen."""

    def __init__(self, shape: Shape) -> None:
        settings = SETTINGS if not shape.auto_join else _with_auto_join()
        others = [*shape.spares, *shape.brokers]
        self.cluster = Cluster(shape.voters, others, kraft_version=shape.kraft_version, settings=settings)
        self.cuts: set[tuple[int, int]] = set()
        self.counts: Counter[str] = Counter()
        self._submitted = 0
        for node in self.cluster.nodes.values():
            node.start()

    def run(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            self.happen(operation)
            self.cluster.check()
        self.settle()

    def happen(self, operation: Operation) -> None:
        cluster, (kind, one, other) = self.cluster, operation
        nodes = list(cluster.nodes.values())
        node = nodes[one % len(nodes)]
        messages = cluster.messages
        del messages[: max(0, len(messages) - _MESSAGES_MAX)]
        match kind:
            case "deliver" if messages:
                # The next one, mostly: with chance alone every history is all timeouts.
                at = 0 if other % 4 else one % len(messages)
                self._deliver(messages.pop(at))
            case "double" if messages:
                self._deliver(messages[one % len(messages)])
            case "drop" if messages:
                messages.pop(one % len(messages))
            case "fail" if messages:
                # A refusal may be a lie: it must cost no more than an election.
                cluster.fail(messages.pop(one % len(messages)), is_refused=other % 2 == 1)
            case "pass":
                cluster.pass_time(_TIMES[one % len(_TIMES)])
            case "sync":
                self._sync(one, other)
            case "submit":
                self._submit(node)
            case "crash" if node.quorum is not None:
                self.counts["crashes"] += 1
                node.crash(node.disk.synced + other % 4)
            case "crash-between" if node.quorum is not None:
                node.effects_left = other % 6
            case "start" if node.quorum is None:
                node.start()
            case "cut":
                self.cuts.add((node.node_id, nodes[other % len(nodes)].node_id))
            case "heal":
                self.cuts.clear()
            case "add" | "remove":
                self._change(kind, node, other)
            case "resign" if node.quorum is not None and node.quorum.leads:
                node.step(ResignRequested(node.quorum.epoch))
            case "wipe" if self._may_wipe(node):
                node.wipe()
                self.counts["wipes"] += 1
            case "raise" if node.quorum is not None and node.quorum.leads:
                if node.quorum.membership.kraft_version == 0 and node.quorum.version_refusal(1) is None:
                    node.step(VersionRaised(1))
                    self.counts["raises"] += 1

    def _deliver(self, message: Any) -> None:
        way = (message.source, message.target) if message.response is None else (message.target, message.source)
        if way not in self.cuts:
            self.cluster.deliver(message)

    def _sync(self, one: int, other: int) -> None:
        """Begin the sync of a node, or end it, or both at once."""
        wanting = [each for each in self.cluster.up() if each.wants_sync or each.syncing is not None]
        node = wanting[one % len(wanting)] if wanting else None
        if node is not None and node.syncing is not None:
            node.end_sync()
        elif node is not None and other % 2:
            node.begin_sync()
        elif node is not None:
            node.sync()

    def _submit(self, node: Node) -> None:
        if node.quorum is None or not node.quorum.leads:
            node = self.cluster.leader() or node
        if node.quorum is not None and node.quorum.leads:
            self._submitted += 1
            node.step(Submitted([f"v{self._submitted}"]))

    def _change(self, kind: str, node: Node, other: int) -> None:
        leader = self.cluster.leader()
        if leader is None or leader.quorum is None or node.node_id >= 10:
            return
        request: Any
        if kind == "add":
            where = endpoint_of(node.node_id)
            request = AddRaftVoterRequest(
                cluster_id="c",
                voter_id=node.node_id,
                voter_directory_id=node.disk.directory,
                listeners=[Listener(name=where.name, host=where.host, port=where.port)],
                ack_when_committed=other % 2 == 0,
            )
        else:
            found = find_node(leader.quorum.membership, node.node_id)
            if found is None:
                return
            request = RemoveRaftVoterRequest(
                cluster_id="c", voter_id=node.node_id, voter_directory_id=found.voter.directory_id
            )
        leader.step(RequestReceived(kind, LISTENER, request, 1))

    def _may_wipe(self, node: Node) -> bool:
        """Does nobody count on what this node has? Then its disk may be replaced."""
        others = [each for each in self.cluster.nodes.values() if each is not node]
        if not others or node.quorum is not None or node.node_id >= 10 or any(each.quorum is None for each in others):
            return False
        for each in others:
            assert each.quorum is not None
            for membership in (each.quorum.membership, each.quorum.membership_at(each.committed)):
                if not membership.kraft_version or find_voter(membership, node.key) is not None:
                    return False
        return True

    def settle(self) -> None:
        """All faults stop: the quorum must commit, and everyone must learn of it."""
        cluster = self.cluster
        self.cuts.clear()
        for node in cluster.nodes.values():
            node.effects_left = -1
            if node.quorum is None:
                node.start()
        until = cluster.now_ms + _ENOUGH_MS
        goal = ""
        while cluster.now_ms < until:
            self._quiet_turn()
            leader = cluster.leader()
            role = None if leader is None or leader.quorum is None else leader.quorum.role
            if isinstance(role, Leader) and not goal and role.high_watermark > role.epoch_start_offset:
                assert leader is not None
                goal = "the goal"
                leader.step(Submitted([goal]))
            if goal and all(goal in node.values for node in cluster.nodes.values()):
                break
            if goal and not any(goal in node.values for node in cluster.nodes.values()) and leader is not None:
                goal = goal if any(entry.value == goal for entry in leader.log.entries.values()) else ""
        else:
            behind = [node.node_id for node in cluster.nodes.values() if goal not in node.values]
            raise Broken(f"{_ENOUGH_MS} ms after all faults nodes {behind} have not committed {goal or 'anything'}")
        cluster.check()
        self.counts["epochs"] += max(node.quorum.epoch for node in cluster.up() if node.quorum is not None)
        self.counts["committed"] += len(cluster.history)
        self.counts["snapshots"] += sum(len(node.disk.contents) for node in cluster.nodes.values())

    def _quiet_turn(self) -> None:
        cluster = self.cluster
        for _ in range(20):
            for node in list(cluster.up()):
                if node.wants_sync or node.syncing is not None:
                    node.sync()
            messages, cluster.messages = cluster.messages, []
            for message in messages:
                cluster.deliver(message)
            if not cluster.messages:
                break
        cluster.check()
        cluster.pass_time(5)


def _with_auto_join() -> QuorumSettings:
    from dataclasses import replace

    return replace(SETTINGS, auto_join=True)


def failure(shape: Shape, operations: list[Operation]) -> str:
    """What breaks in this history, or nothing."""
    try:
        History(shape).run(operations)
    except (AssertionError, KeyError, IndexError, AttributeError, TypeError, ValueError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def shortened(shape: Shape, operations: list[Operation]) -> list[Operation]:
    """The same failure with fewer operations."""
    size = len(operations) // 2
    while size:
        at = 0
        while at < len(operations):
            fewer = operations[:at] + operations[at + size :]
            if failure(shape, fewer):
                operations = fewer
            else:
                at += size
        size //= 2
    return operations


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", default="1-100", metavar="FIRST-LAST")
    parser.add_argument("--steps", type=int, default=1500, help="operations of each history")
    parser.add_argument("--no-shorten", action="store_true", help="show a failing history as long as it is")
    given = parser.parse_args(arguments)
    first, _, last = given.seeds.partition("-")
    counts: Counter[str] = Counter()
    began = time.monotonic()
    for seed in range(int(first), int(last or first) + 1):
        shape, operations = shape_of(seed), operations_of(seed, given.steps)
        history = History(shape)
        try:
            history.run(operations)
        except Exception as error:
            print(f"seed {seed} {shape}: {type(error).__name__}: {error}")
            if not given.no_shorten:
                operations = shortened(shape, operations)
                print(f"{len(operations)} operations: {failure(shape, operations)}")
                for operation in operations:
                    print(f"  {operation}")
            return 1
        counts += history.counts
    told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    print(f"seeds {given.seeds}, {given.steps} steps each: {told}; {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
