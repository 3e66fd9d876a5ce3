"""A group's offsets whose coordinator dies right after it has confirmed a commit: histories by seeds.

One client more than in `tests/world/slow_links.py` is the only one of its group: it commits ever greater offsets, and
looks whether what was confirmed is there before it commits again.
"""

from __future__ import annotations

from random import Random

from ottla.kernel.ids import coordinator_partition
from ottla.sim.checker import WorkloadLedger, check_commits
from ottla.sim.workload import commit_in_turn, read_commits
from tests.world.cluster import servers_of
from tests.world.history import _CALM_MS, _SETTINGS, _TOPIC
from tests.world.slow_links import SlowLinksHistory

_GROUP = "alone"
_OFFSETS = "__consumer_offsets"
#: Of the commits that are confirmed.
_DIES = 0.25


class CommitsHistory(SlowLinksHistory):
    """The coordinator of the group dies."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.commits = WorkloadLedger(_TOPIC)

    def _begin(self) -> None:
        super()._begin()
        host = self.world.host("committer")
        host.boot()
        rng = Random(f"{self.world.seed} committer")
        partition = coordinator_partition(_GROUP, int(_SETTINGS["offsets.topic.num.partitions"]))

        def confirmed() -> None:
            self._kill_leader(_OFFSETS, partition, rng, _DIES)

        servers = servers_of(self.brokers)
        self._start(host, commit_in_turn(_GROUP, servers, self.commits, rng, lambda: self.going, confirmed))

    def _end(self) -> None:
        super()._end()
        admin, servers = self.clients[0][3], servers_of(self.brokers)
        check_commits(self.commits, admin.run(read_commits(servers, _GROUP, _TOPIC), limit_ms=_CALM_MS))


def run_commits(seed: int) -> CommitsHistory:
    """A history by a seed; AssertionError when a promise is broken."""
    history = CommitsHistory(seed)
    history.run()
    return history
