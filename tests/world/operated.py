"""A cluster at work on which operators are at work, too: elections, reassignments, topics that come and go; by seeds.

Rules:
- Nodes and clients are those of `tests/world/eos.py`: three nodes that are broker and voter, and one that is only a
  broker, so that replicas can move. What the clients are promised does not change.
- One operator moves partitions of every topic, the coordinators' too, elects preferred leaders and calls moves off.
- The other one makes a topic, writes, reads and deletes it, under the same name each time: the records of one life
  never appear in the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from ottla.kernel.ids import INTERNAL_TOPICS, TopicPartition
from ottla.log.log import Log
from ottla.metadata.image import PartitionImage
from ottla.sim.node import NodeHost
from ottla.sim.operators import REPLICAS, cycle_topic, reassign
from tests.world.cluster import _SETTLE_MS, servers_of
from tests.world.eos import EosHistory
from tests.world.replicas import check_compacted, compacted, raw


class OperatedHistory(EosHistory):
    """Three nodes that are both, a broker, and operators."""

    def __init__(self, seed: int, *, power: bool) -> None:
        super().__init__(seed, power=power, voters=3)
        fourth = {
            "process.roles": "broker",
            "node.id": "4",
            "controller.quorum.bootstrap.servers": ",".join(each.controller_address for each in self.nodes),
        }
        self.nodes = self.brokers = [*self.nodes, NodeHost(self.world, "node4", self.settings | fourth)]
        #: How many records each life of the short-lived topic acknowledged, and what the operator had done.
        self.lives: list[int] = []
        self.done: Counter[str] = Counter()

    def _begin(self) -> None:
        super()._begin()
        servers, nodes = servers_of(self.brokers), [each.settings.node_id for each in self.brokers]
        movers = self.tasks
        self.tasks = []
        for name in ("operator", "maker"):
            host = self.world.host(name)
            host.boot()
            self.clients[0].insert(0, host)
            if name == "operator":
                self._start(host, reassign(servers, nodes, self._rng(host), lambda: self.going, self.done))
            else:
                self._start(host, cycle_topic(servers, self._rng(host), lambda: self.going, self.lives))
        self.first += self.tasks
        self.tasks = movers

    @property
    def kinds(self) -> list[Callable[[NodeHost], None]]:
        return [*super().kinds, self._kill_all, self._fill]

    def _guard(self, node: NodeHost) -> None:
        super()._guard(node)

        def ended() -> None:
            self._note("node without room")
            node.failure = None
            if node.host.loop is not None:
                self._down(node)

        def failed(why: str) -> None:
            assert "full" in why, why
            self.world.after(0, ended, "ended")

        node.on_failure = failed

    def _fill(self, node: NodeHost) -> None:
        """The disk takes no more for a while."""
        self._note("full disk")
        node.disk.fill(0)
        self._later(partial(node.disk.fill, None))

    def _kill_all(self, node: NodeHost) -> None:
        """The whole cluster falls at once."""
        self._note("kill all")
        for each in self.nodes:
            if each.host.loop is not None:
                self._down(each)

    def _is_level(self) -> bool:
        """Is nothing moving, and every replica in sync and as long as the others?"""
        for topic, index, partition in self._partitions():
            logs = self._logs(topic, index, partition)
            ends = {(log.high_watermark, log.end_offset) for log in logs if log is not None}
            if partition.is_reassigning or len(partition.isr) != REPLICAS or len(ends) != 1 or None in logs:
                return False
        return True

    def _partitions(self) -> Iterator[tuple[str, int, PartitionImage]]:
        for name, topic in self._image.topics.items():
            if name not in INTERNAL_TOPICS:
                yield from ((name, index, partition) for index, partition in enumerate(topic.partitions))

    def _logs(self, topic: str, index: int, partition: PartitionImage) -> list[Log | None]:
        holders = [each.node for each in self.brokers if each.settings.node_id in partition.replicas]
        return [None if each is None else each.store.get(TopicPartition(topic, index)) for each in holders]

    def described(self) -> list[object]:
        found: list[object] = []
        for topic, index, known in self._partitions():
            marks = [(log.high_watermark, log.end_offset) for log in self._logs(topic, index, known) if log is not None]
            found.append((topic, index, known.leader, known.leader_epoch, known.replicas, known.isr, marks))
        return found

    def _end(self) -> None:
        super()._end()
        for topic, index, partition in self._partitions():
            if self.hands.compacts and any(topic == each.topic for each in self.moves):
                logs = [log for log in self._logs(topic, index, partition) if log is not None]
                check_compacted(f"{topic}-{index}", [compacted(log) for log in logs])
                continue
            replicas = {b"".join(raw(log)) for log in self._logs(topic, index, partition) if log is not None}
            assert len(replicas) == 1, f"the replicas of {topic}-{index} differ byte by byte"
        self.world.run_for(_SETTLE_MS)
        self._check_metadata()


def run_operated(seed: int, faults_ms: int | None = None) -> OperatedHistory:
    """A history by a seed; AssertionError when a promise is broken. Odd seeds lose power, too."""
    history = OperatedHistory(seed, power=seed % 2 == 1)
    history.faults_ms = faults_ms or history.faults_ms
    history.run()
    return history
