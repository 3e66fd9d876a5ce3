"""A group's offsets whose coordinator dies right after it has confirmed a commit: histories by seeds.

Rules:
- Brokers, replicas and the other clients are those of `tests/world/replicated.py`. One client more is the only one of
  its group: it commits ever greater offsets, and looks whether what was confirmed is there before it commits again.
- The links between brokers take longer than those to the client: an answer that does not wait for the replicas is out
  long before they have the commit. The only fault is the death of the coordinator.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from random import Random

from ottla.kernel.ids import coordinator_partition
from ottla.sim.checker import WorkloadLedger, check_commits
from ottla.sim.workload import commit_in_turn, read_commits
from tests.world.cluster import servers_of
from tests.world.history import _CALM_MS, _TOPIC
from tests.world.replicated import ReplicatedHistory

_GROUP = "alone"
_OFFSETS = "__consumer_offsets"
_LINK_US = 40_000
#: Of the commits that are confirmed.
_DIES = 0.25
_FAULTS_MS = 60_000


class CommitsHistory(ReplicatedHistory):
    """Everything of a replicated history but its faults, and one client more."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, power=False)
        self.commits = WorkloadLedger(_TOPIC)
        self.faults_ms = _FAULTS_MS

    def _begin(self) -> None:
        super()._begin()
        for one, other in pairwise([*self.brokers, self.brokers[0]]):
            for source, target in ((one, other), (other, one)):
                self.world.network.slow(source.host, target.host, _LINK_US)
        host = self.world.host("committer")
        host.boot()
        rng = Random(f"{self.world.seed} committer")
        servers = servers_of(self.brokers)
        self._start(
            host, commit_in_turn(_GROUP, servers, self.commits, rng, lambda: self.going, partial(self._confirmed, rng))
        )

    def _fail_for(self, ms: int) -> None:
        self.world.run_for(ms)

    def _confirmed(self, rng: Random) -> None:
        running = self.controller.running
        topic = None if running is None else running.quorum.image.topics.get(_OFFSETS)
        if topic is None or rng.random() > _DIES or any(each.host.loop is None for each in self.brokers):
            return
        leader = topic.partitions[coordinator_partition(_GROUP, len(topic.partitions))].leader
        for node in self.brokers:
            if node.node is not None and node.node.node_id == leader:
                self.world.after(0, partial(self._kill, node), "kill")

    def _end(self) -> None:
        super()._end()
        admin, servers = self.clients[0][3], servers_of(self.brokers)
        check_commits(self.commits, admin.run(read_commits(servers, _GROUP, _TOPIC), limit_ms=_CALM_MS))


def run_commits(seed: int) -> CommitsHistory:
    """A history by a seed; AssertionError when a promise is broken."""
    history = CommitsHistory(seed)
    history.run()
    return history
