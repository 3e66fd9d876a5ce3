"""A coordinator whose partition has too few in-sync replicas: it stays, answers what only reads, and writes nothing."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ottla.broker.coordinators import driver
from ottla.broker.coordinators.group_driver import GroupDriver
from ottla.client import AsyncAdmin
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.sim.node import Clients, NodeHost
from ottla.sim.world import World
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.world.cluster import cluster, servers_of

GROUP = "group"
SETTINGS = {
    "default.replication.factor": "2",
    "offsets.topic.replication.factor": "2",
    "offsets.topic.num.partitions": "1",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "1000",
}


class Scene:
    """Two brokers with `__consumer_offsets` on both, and the coordinator of its only partition."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.controller, self.brokers = cluster(self.world, 2, SETTINGS)
        for each in (self.controller, *self.brokers):
            each.start()
        assert self.world.run_until(lambda: all(each.is_ready for each in self.brokers), limit_ms=10_000)
        client = self.world.host("client")
        client.boot()
        servers = servers_of(self.brokers)

        async def begin() -> None:
            async with AsyncAdmin(servers) as admin:
                await admin.create_topic("topic", replication_factor=2)
                # Makes the coordinators' topic.
                await admin.alter_group_offsets(GROUP, {TopicPartition("topic", 0): 0})

        client.run(begin())
        self.host = next(each for each in self.brokers if self._driver(each) is not None)
        self.other = next(each for each in self.brokers if each is not self.host)
        #: How often a coordinator was made on the leader, and what it was asked to append.
        self.made = 0
        assert self.host.node is not None
        groups: Any = self.host.node.groups
        make = groups.make

        def count(partition: Any) -> GroupDriver:
            self.made += 1
            driver: GroupDriver = make(partition)
            return driver

        groups.make = count

    def _driver(self, host: NodeHost) -> GroupDriver | None:
        assert host.node is not None
        return host.node.groups.find(0)

    @property
    def driver(self) -> GroupDriver:
        found = self._driver(self.host)
        assert found is not None, "no coordinator answers"
        return found

    def ask(self, request: Any, version: int) -> Any:
        told: list[Any] = []
        assert self.host.host.loop is not None
        self.host.host.loop.call_soon(partial(self.driver.ask, request, version, told.append))
        assert self.world.run_until(lambda: bool(told), limit_ms=20_000)
        return told[0]

    def commit(self, offset: int) -> ErrorCode:
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        answer = self.ask(
            OffsetCommitRequest(group_id=GROUP, topics=[OffsetCommitRequestTopic(name="topic", partitions=[part])]), 8
        )
        return answer.code if isinstance(answer, KafkaError) else answer.topics[0].partitions[0].error_code

    def committed(self) -> int:
        answer = self.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)]), 8)
        offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
        return offset

    def join(self, member_id: str, epoch: int) -> Any:
        return self.ask(
            ConsumerGroupHeartbeatRequest(
                group_id="members",
                member_id=member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=["topic"] if epoch == 0 else None,
                topic_partitions=[] if epoch == 0 else None,
            ),
            1,
        )


def test_a_coordinator_below_min_insync_replicas_stays_and_writes_nothing() -> None:
    scene = Scene(1)
    with Clients(scene.world):
        assert scene.commit(5) == ErrorCode.NONE
        epoch = scene.join("AAAAAAAAAAAAAAAAAAAAAQ", 0).member_epoch
        assert epoch > 0
        driver = scene.driver
        assert "members" in _members(driver)
        scene.other.kill()
        scene.world.run_for(15_000)
        end_offset = driver.partition.log.end_offset
        for _ in range(30):
            assert scene.commit(6) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert scene.committed() == 5
            # Nothing changes: there is nothing to write. Nor is the session over after its 45 s.
            assert scene.join("AAAAAAAAAAAAAAAAAAAAAQ", epoch).error_code == ErrorCode.NONE
            # A member that leaves stays for the time being.
            left = scene.join("AAAAAAAAAAAAAAAAAAAAAQ", -1)
            assert isinstance(left, KafkaError) and left.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            scene.world.run_for(1_000)
        scene.world.run_for(60_000)
        assert scene.driver is driver
        assert scene.made == 0
        assert driver.partition.log.end_offset == end_offset
        scene.other.start()
        assert scene.world.run_until(lambda: scene.commit(7) == ErrorCode.NONE, limit_ms=30_000)
        assert scene.committed() == 7
        # The member that was silent meanwhile is gone now.
        assert scene.world.run_until(lambda: "members" not in _members(scene.driver), limit_ms=5_000)
        assert scene.driver is driver


def test_a_coordinator_that_fails_again_and_again_is_loaded_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "_REFUSED", ())
    scene = Scene(2)
    with Clients(scene.world):
        assert scene.commit(5) == ErrorCode.NONE
        member_id = "AAAAAAAAAAAAAAAAAAAAAQ"
        assert scene.join(member_id, 0).member_epoch > 0
        scene.other.kill()
        scene.world.run_for(15_000)
        for _ in range(120):
            # A member that leaves is a change.
            if scene.host.node is not None and scene.host.node.groups.find(0) is not None:
                answer = scene.join(member_id, -1)
                assert isinstance(answer, KafkaError) and answer.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            scene.world.run_for(1_000)
        # After 1, 2, 4, 8, 16, 30 and 30 seconds.
        assert 5 <= scene.made <= 8
        scene.other.start()

        def commits() -> bool:
            groups = scene.host.node.groups if scene.host.node is not None else None
            return groups is not None and groups.find(0) is not None and scene.commit(7) == ErrorCode.NONE

        assert scene.world.run_until(commits, limit_ms=60_000)
        assert scene.committed() == 7


def _members(driver: GroupDriver) -> list[str]:
    groups = driver.machine.shard.groups
    return [name for name, group in groups.items() if getattr(group, "members", None)]
