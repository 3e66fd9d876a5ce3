"""Histories in which a leader dies right after a client was told something, while replicas are far: by seeds.

Rules:
- Brokers, replicas and clients are those of `tests/world/replicated.py`. The links between brokers take longer than
  those to clients: what does not wait for the replicas is told long before they have it.
- The only fault is the death of a leader, and only while all brokers run.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from random import Random

from tests.world.replicated import ReplicatedHistory

_LINK_US = 40_000
_FAULTS_MS = 60_000


class SlowLinksHistory(ReplicatedHistory):
    """A replicated history on such links. A subclass says by `_kill_leader` when which leader may die."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, power=False)
        self.faults_ms = _FAULTS_MS

    def _begin(self) -> None:
        super()._begin()
        for one, other in pairwise([*self.brokers, self.brokers[0]]):
            for source, target in ((one, other), (other, one)):
                self.world.network.slow(source.host, target.host, _LINK_US)

    def _fail_for(self, ms: int) -> None:
        self.world.run_for(ms)

    def _kill_leader(self, name: str, partition: int, rng: Random, chance: float) -> None:
        topic = self._image.topics.get(name)
        if topic is None or rng.random() > chance or any(each.host.loop is None for each in self.brokers):
            return
        leader = topic.partitions[partition].leader
        for node in self.brokers:
            if node.node is not None and node.node.node_id == leader:
                self.world.after(0, partial(self._kill, node), "kill")
