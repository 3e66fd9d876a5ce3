"""The wall clock is set forward or back while a node runs: no deadline moves with it."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.wire.api import share_acknowledge, share_fetch
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.disk_scene import TOPIC, Scene

STEPS = [60_000, 86_400_000, -86_400_000]
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


class Clocked(Scene):
    """A node with groups."""

    def __init__(self, **settings: Any) -> None:
        alone: dict[str, Any] = {
            "offsets_topic_num_partitions": "1",
            "share_coordinator_state_topic_num_partitions": "1",
            "share_coordinator_state_topic_replication_factor": "1",
            "share_coordinator_state_topic_min_isr": "1",
        }
        super().__init__(**alone, **settings)
        self.create()
        self.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        self.machine.settle()
        #: A member of another group of the same coordinator, whose session ends first.
        self.earliest = Classic(self, "earliest")
        self.wait(1000)

    def wait(self, ms: int) -> None:
        end_ms = self.machine.clock.monotonic_ms() + ms
        self.machine.loop.call_later(ms / 1000, lambda: None)
        self.machine.run(lambda: self.machine.clock.monotonic_ms() >= end_ms)
        self.machine.settle()

    def jump(self, ms: int) -> None:
        self.machine.clock.jump(ms)
        # The coordinator plans its timer again when the earliest deadline moves, and then what is due has its turn.
        self.earliest.beat()
        self.wait(100)


class Classic:
    """A member of a classic group, and what it does to stay one."""

    def __init__(self, scene: Clocked, group_id: str = "g") -> None:
        self.scene = scene
        self.group_id = group_id
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=45_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        first = scene.ask(request, 5)
        request.member_id = first.member_id
        joined = scene.ask(request, 5)
        assert joined.error_code == 0
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assignment = SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"")
        synced = scene.ask(
            SyncGroupRequest(
                group_id=group_id, generation_id=self.generation, member_id=self.member_id, assignments=[assignment]
            ),
            3,
        )
        assert synced.error_code == 0

    def beat(self) -> int:
        request = HeartbeatRequest(group_id=self.group_id, generation_id=self.generation, member_id=self.member_id)
        code: int = self.scene.ask(request, 4).error_code
        return code


class Consumer:
    """A member of a consumer group."""

    def __init__(self, scene: Clocked) -> None:
        self.scene = scene
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=MEMBER,
            member_epoch=0,
            rebalance_timeout_ms=300_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        answer = scene.ask(request, 1)
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch

    def beat(self) -> int:
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=MEMBER, member_epoch=self.epoch)
        answer = self.scene.ask(request, 1)
        self.epoch = answer.member_epoch
        code: int = answer.error_code
        return code


class Sharer:
    """A member of a share group."""

    def __init__(self, scene: Clocked) -> None:
        self.scene = scene
        request = ShareGroupHeartbeatRequest(
            group_id="g", member_id=MEMBER, member_epoch=0, subscribed_topic_names=[TOPIC]
        )
        answer = scene.ask(request, 1)
        assert answer.error_code == 0, answer
        scene.machine.settle()
        self.epoch = answer.member_epoch

    def beat(self) -> int:
        request = ShareGroupHeartbeatRequest(group_id="g", member_id=MEMBER, member_epoch=self.epoch)
        answer = self.scene.ask(request, 1)
        self.epoch = answer.member_epoch
        code: int = answer.error_code
        return code


KINDS = [Classic, Consumer, Sharer]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step_ms", STEPS)
def test_a_live_member_stays_when_the_wall_clock_is_set(kind: Any, step_ms: int) -> None:
    scene = Clocked()
    member = kind(scene)
    scene.wait(1000)
    assert member.beat() == 0
    scene.jump(step_ms)
    assert member.beat() == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step_ms", STEPS)
def test_a_silent_member_goes_in_its_time_when_the_wall_clock_is_set(kind: Any, step_ms: int) -> None:
    scene = Clocked()
    member = kind(scene)
    scene.jump(step_ms)
    scene.wait(46_000)
    assert member.beat() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("step_ms", STEPS)
def test_a_new_member_has_its_partitions_when_the_wall_clock_is_set(step_ms: int) -> None:
    scene = Clocked(group_consumer_assignment_interval_ms="1000")
    Consumer(scene)
    scene.jump(step_ms)
    scene.wait(2000)
    other = "AAAAAAAAAAAAAAAAAAAAAg"
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=other,
        member_epoch=0,
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    assert scene.ask(request, 1).error_code == 0
    group = scene.node.groups.driver_of("g").machine.shard.groups["g"]
    assert other in group.targets


def fetch(scene: Clocked, topic_id: Uuid, epoch: int) -> Any:
    part = share_fetch.FetchPartition(partition_index=0)
    request = share_fetch.ShareFetchRequest(
        group_id="g",
        member_id=MEMBER,
        share_session_epoch=epoch,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        max_records=10,
        batch_size=10,
        topics=[share_fetch.FetchTopic(topic_id=topic_id, partitions=[part])] if epoch == 0 else [],
    )
    return scene.ask(request, 1)


@pytest.mark.parametrize("step_ms", STEPS)
@pytest.mark.parametrize("silent_ms", [1_000, 31_000])
def test_a_share_lock_lasts_its_time_when_the_wall_clock_is_set(step_ms: int, silent_ms: int) -> None:
    scene = Clocked()
    change = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = AlterConfigsResource(resource_type=32, resource_name="g", configs=[change])
    assert scene.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0
    Sharer(scene)
    scene.write(0, b"one")
    topic_id = scene.node.image.topics[TOPIC].topic_id
    acquired: list[Any] = []
    for epoch in range(10):
        response = fetch(scene, topic_id, epoch)
        assert response.error_code == 0
        scene.machine.settle()
        acquired = [each for topic in response.responses for part in topic.partitions for each in part.acquired_records]
        if acquired:
            break
        scene.write(0, b"more")
    assert acquired
    scene.wait(silent_ms // 2)
    scene.jump(step_ms)
    scene.wait(silent_ms // 2)
    said = share_acknowledge.AcknowledgementBatch(
        first_offset=acquired[0].first_offset, last_offset=acquired[0].last_offset, acknowledge_types=[1]
    )
    part = share_acknowledge.AcknowledgePartition(partition_index=0, acknowledgement_batches=[said])
    request = share_acknowledge.ShareAcknowledgeRequest(
        group_id="g",
        member_id=MEMBER,
        share_session_epoch=epoch + 1,
        topics=[share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=[part])],
    )
    answer = scene.ask(request, 1).responses[0].partitions[0]
    assert (answer.error_code == 0) == (silent_ms < 30_000)


@pytest.mark.parametrize("step_ms", STEPS)
def test_the_quorum_writes_its_no_ops_in_their_time_when_the_wall_clock_is_set(step_ms: int) -> None:
    scene = Scene(metadata_max_idle_interval_ms="500")
    end = scene.node.quorum.log.end_offset
    scene.machine.clock.jump(step_ms)
    later = scene.machine.clock.monotonic_ms() + 5_000
    scene.machine.run(lambda: scene.machine.clock.monotonic_ms() >= later)
    assert 8 <= scene.node.quorum.log.end_offset - end <= 11


@pytest.mark.parametrize("step_ms", STEPS)
def test_a_client_may_ask_for_its_telemetry_in_time_when_the_wall_clock_is_set(step_ms: int) -> None:
    scene = Scene()
    first = scene.ask(GetTelemetrySubscriptionsRequest(client_instance_id=Uuid(bytes(16))), 0)
    assert first.error_code == 0
    scene.machine.clock.jump(step_ms)
    request = GetTelemetrySubscriptionsRequest(client_instance_id=first.client_instance_id)
    assert scene.ask(request, 0).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
