"""Three brokers, every topic with three replicas, and unmodified clients: histories by seeds.

Rules:
- One controller is a host of its own, or each broker is a voter of the metadata quorum, too.
- As in `tests/world/cluster.py`; the power of a broker goes only with `log.flush.interval.messages=1` (odd seeds).
- Each seed deals other settings to nodes, topics and clients (`tests/world/dealt.py`).
- Beside what clients were promised, the replicas are looked at: no two values below a high watermark at one offset
  while it goes, and at the end all of them in sync and equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ottla.client import AsyncAdmin
from ottla.kernel.ids import TopicPartition
from ottla.log.log import Log
from ottla.metadata.image import Image
from ottla.sim.checker import CommittedRecords, WorkloadLedger
from ottla.sim.host import Host
from ottla.sim.node import NodeHost
from ottla.sim.workload import PARTITIONS, until_it_works
from ottla.sim.world import World
from tests.world.cluster import ClusterHistory, cluster, combined
from tests.world.dealt import hands, producer, reader
from tests.world.history import _CALM_MS, _SETTINGS, _TOPIC
from tests.world.replicas import held, raw

_REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "1000",
    "replica.fetch.backoff.ms": "200",
}


class ReplicatedHistory(ClusterHistory):
    """Everything of a cluster history, three times."""

    def __init__(self, seed: int, *, power: bool, settings: dict[str, str] | None = None, voters: int = 1) -> None:
        super().__init__(seed, power=power)
        self.world = world = World(seed)
        self.settings = _SETTINGS | (settings or _REPLICATED)
        if power:
            self.settings |= {"log.flush.interval.messages": "1"}
        if voters > 1:
            self.nodes = self.brokers = combined(world, voters, self.settings)
        else:
            controller, self.brokers = cluster(world, 3, self.settings)
            self.nodes = [controller, *self.brokers]
        self.ledgers = [WorkloadLedger(_TOPIC)]
        self.committed = CommittedRecords()
        self._looked: dict[tuple[str, int], tuple[Log, int]] = {}

    async def _create(self, servers: str) -> None:
        async def ask() -> None:
            async with AsyncAdmin(servers) as admin:
                await admin.create_topic(_TOPIC, partitions=PARTITIONS, replication_factor=3)

        await until_it_works(ask)

    def _log(self, node: NodeHost, partition: int) -> Log | None:
        return None if node.node is None else node.node.store.get(TopicPartition(_TOPIC, partition))

    def look(self) -> None:
        """What is below high watermarks is the same everywhere."""
        for node in self.brokers:
            for index in range(PARTITIONS):
                log = self._log(node, index)
                if log is None or node.host.loop is None:
                    continue
                known, position = self._looked.get((node.host.name, index), (None, 0))
                position = position if known is log else 0
                end = log.high_watermark
                self.committed.add_committed(node.host.name, index, held(log, position, end))
                self._looked[node.host.name, index] = log, max(position, end)

    def _note(self, kind: str) -> None:
        super()._note(kind)
        self.look()

    @property
    def _image(self) -> Image:
        """The newest that a node knows."""
        images = [each.running.quorum.image for each in self.nodes if each.running is not None]
        return max(images, key=lambda image: image.offset)

    def _is_level(self) -> bool:
        known = self._image.topics.get(_TOPIC)
        if known is None:
            return False
        for index, partition in enumerate(known.partitions):
            logs = [self._log(node, index) for node in self.brokers]
            if len(partition.isr) != 3 or len({(log.high_watermark, log.end_offset) for log in logs if log}) != 1:
                return False
            if None in logs:
                return False
        return True

    def described(self) -> list[object]:
        found: list[object] = []
        for index, known in enumerate(self._image.topics[_TOPIC].partitions):
            logs = [self._log(node, index) for node in self.brokers]
            marks = [(log.high_watermark, log.end_offset) for log in logs if log is not None]
            found.append((known.leader, known.leader_epoch, known.isr, marks))
        return found

    def _end(self) -> None:
        super()._end()
        level = self.world.run_until(self._is_level, limit_ms=_CALM_MS)
        self.look()
        assert level, f"the replicas are not level after the faults: {self.described()}"
        for index in range(PARTITIONS):
            logs = [log for node in self.brokers if (log := self._log(node, index)) is not None]
            assert len({b"".join(raw(log)) for log in logs}) == 1, f"the replicas of {index} differ byte by byte"


class DealtHistory(ReplicatedHistory):
    """A replicated history with settings of its own (`tests/world/dealt.py`)."""

    def __init__(self, seed: int, *, power: bool, settings: dict[str, str] | None = None, voters: int = 1) -> None:
        self.hands = hands(seed, power=power)
        super().__init__(seed, power=power, settings=(settings or _REPLICATED) | self.hands.nodes, voters=voters)

    async def _create(self, servers: str) -> None:
        await self._create_topics(servers, {_TOPIC: self.hands.topics})

    async def _create_topics(self, servers: str, topics: Mapping[str, Mapping[str, str]]) -> None:
        async def ask() -> None:
            async with AsyncAdmin(servers) as admin:
                there = {each.name for each in await admin.list_topics()}
                for name, configs in topics.items():
                    if name not in there:
                        await admin.create_topic(name, partitions=PARTITIONS, replication_factor=3, configs=configs)
                if self.hands.quotas:
                    (await admin.alter_client_quotas([({"client-id": None}, self.hands.quotas)])).check()

        await until_it_works(ask)

    def _given_to_producer(self, host: Host) -> dict[str, str]:
        return producer(self.world.seed, host.name)

    def _given_to_consumer(self, host: Host) -> dict[str, str]:
        return reader(self.world.seed, host.name)


def run_replicated(seed: int, operations: Path | None = None) -> ReplicatedHistory:
    """A history by a seed; AssertionError when a promise is broken. Odd seeds lose power, too.

    `operations`: a file for all operations of the clients.
    """
    history = DealtHistory(seed, power=seed % 2 == 1)
    history.run_recorded(operations)
    return history
