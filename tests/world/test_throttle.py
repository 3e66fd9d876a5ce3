"""Throttled reassignments in the simulated world (KIP-73): they keep their rate and end, and delay no acks=all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client import AsyncAdmin, AsyncProducer, ConfigResource, NewTopic, ResourceType, TopicPartition
from ottla.sim.node import Clients, NodeHost
from ottla.sim.world import World
from tests.world.cluster import cluster, servers_of

_RATE = 40_000
_RECORD = 8_000
_RECORDS = 150
_SETTINGS = {"replica.fetch.max.bytes": "16384", "log.segment.bytes": "1048576", "replica.lag.time.max.ms": "5000"}
_BOTH = TopicPartition("both", 0)
_MOVED = [TopicPartition("moved", each) for each in range(2)]


class Scene:
    """Brokers 0 and 1; `moved` lies on 0 alone, `both` on 0 and 1; every list of throttled replicas is `*`."""

    def __init__(self, seed: int = 3) -> None:
        self.world = world = World(seed)
        self.controller, self.brokers = cluster(world, 2, _SETTINGS)
        self.client = world.host("client")

    def start(self) -> Scene:
        for node in (self.controller, *self.brokers):
            node.start()
        assert self.world.run_until(lambda: all(each.is_ready for each in self.brokers), limit_ms=10_000)
        self.client.boot()
        self.ask(self._fill)
        return self

    def ask(self, work: Any) -> Any:
        async def run() -> Any:
            async with AsyncAdmin(servers_of(self.brokers)) as admin:
                return await work(admin)

        return self.client.run(run(), limit_ms=300_000)

    async def _fill(self, admin: AsyncAdmin) -> None:
        await admin.create_topics(
            [NewTopic("moved", assignments={0: [0], 1: [0]}), NewTopic("both", assignments={0: [0, 1]})]
        )
        # A batch is copied whole, so they are small beside what the throttle's windows remember.
        async with AsyncProducer(servers_of(self.brokers)) as producer:
            for number in range(_RECORDS):
                for tp in _MOVED:
                    await (await producer.send("moved", b"%d " % number + bytes(_RECORD), partition=tp.partition))

    def set(self, topics: tuple[str, ...], **changes: str | None) -> None:
        """Topics' settings by names with underscores, and rates of both brokers."""

        async def work(admin: AsyncAdmin) -> None:
            for topic in topics:
                await admin.alter_config(ConfigResource(ResourceType.TOPIC, topic), named)
            for broker in ("0", "1") if not topics else ():
                await admin.alter_config(ConfigResource(ResourceType.BROKER, broker), named)

        named = {name.replace("_", "."): value for name, value in changes.items()}
        self.ask(work)

    def move(self) -> None:
        self.ask(lambda admin: admin.alter_partition_reassignments({each: [1] for each in _MOVED}))

    @property
    def copied(self) -> int:
        """Bytes that broker 1 has of what moves."""
        assert self.brokers[1].node is not None
        logs = [self.brokers[1].node.store.get(each) for each in _MOVED]
        return sum(log.size for log in logs if log is not None)

    def has_moved(self) -> bool:
        assert self.controller.running is not None
        topic = self.controller.running.quorum.image.topics["moved"]
        return all(each.replicas == (1,) for each in topic.partitions)

    def slowest_ack_ms(self, count: int) -> int:
        """Produce to the topic that is in sync, a record after the other, with acks=all."""

        async def work() -> int:
            slowest = 0
            async with AsyncProducer(servers_of(self.brokers), acks="all") as producer:
                for _ in range(count):
                    began_us = self.world.now_us
                    await (await producer.send("both", bytes(_RECORD), partition=0))
                    slowest = max(slowest, self.world.now_us - began_us)
            return slowest // 1000

        return int(self.client.run(work(), limit_ms=300_000))

    def is_in_sync(self) -> bool:
        assert self.controller.running is not None
        return len(self.controller.running.quorum.image.topics["both"].partitions[0].isr) == 2


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    with Clients(made.world):
        yield made.start()


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_reassignment_keeps_its_rate_delays_no_acks_and_ends(scene: Scene, side: str) -> None:
    scene.set(("moved", "both"), **{f"{side}_replication_throttled_replicas": "*"})
    scene.set((), **{f"{side}_replication_throttled_rate": str(_RATE)})
    scene.move()
    scene.world.run_for(3_000)
    before, began_us = scene.copied, scene.world.now_us
    scene.world.run_for(15_000)
    rate = (scene.copied - before) * 1_000_000 / (scene.world.now_us - began_us)
    assert 0.7 * _RATE < rate < 1.2 * _RATE
    assert not scene.has_moved()
    # More than the rate comes to the replica in sync: it counts, and does not wait.
    assert scene.slowest_ack_ms(20) < 500
    assert scene.is_in_sync()
    scene.set((), **{f"{side}_replication_throttled_rate": None})
    assert scene.world.run_until(scene.has_moved, limit_ms=10_000)


def test_a_throttle_is_for_the_replicas_that_are_named(scene: Scene) -> None:
    scene.set(("moved",), leader_replication_throttled_replicas="0:0,1:7")
    scene.set((), leader_replication_throttled_rate="1")
    scene.move()
    scene.world.run_for(8_000)
    assert scene.controller.running is not None
    assert [each.replicas for each in scene.controller.running.quorum.image.topics["moved"].partitions] == [
        (1, 0),
        (1,),
    ]
    scene.set(("moved",), leader_replication_throttled_replicas="")
    assert scene.world.run_until(scene.has_moved, limit_ms=10_000)


def test_a_throttle_holds_after_both_nodes_were_killed(scene: Scene) -> None:
    scene.set(("moved",), leader_replication_throttled_replicas="*", follower_replication_throttled_replicas="1:1")
    scene.set((), leader_replication_throttled_rate=str(_RATE), follower_replication_throttled_rate=str(_RATE // 2))
    scene.move()
    scene.world.run_for(2_000)
    nodes: list[NodeHost] = scene.brokers
    for node in nodes:
        node.kill()
    scene.world.run_for(500)
    for node in nodes:
        node.start()
    assert scene.world.run_until(lambda: all(each.is_ready for each in nodes), limit_ms=60_000)
    before, began_us = scene.copied, scene.world.now_us
    scene.world.run_for(12_000)
    rate = (scene.copied - before) * 1_000_000 / (scene.world.now_us - began_us)
    assert 0.1 * _RATE < rate < 1.3 * _RATE
    assert scene.world.run_until(scene.has_moved, limit_ms=200_000)
