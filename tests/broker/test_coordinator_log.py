"""What a coordinator's log does with its records: it writes a copy of them, or refuses them as too large."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import OFFSETS_TOPIC, SHARE_TOPIC
from ottla.replica.partition import Partition
from ottla.wire.api import initialize_share_group_state as share_state
from ottla.wire.api import offset_commit, offset_fetch
from ottla.wire.api import streams_group_heartbeat as streams
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.record.metadata import RemoveTopicRecord
from tests.broker.disk_scene import TOPIC, Scene
from tests.broker.test_replicated_produce import Pair

NAME = "g"


def coordinated(partitions: int = 1, **settings: str) -> Scene:
    own = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"} | settings
    scene = Scene(1, log_dirs="/data", **own)
    for key_type in (0, 1):
        scene.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[NAME]), 4)
    scene.create(partitions)
    return scene


def commit(scene: Scene, offset: int, group_id: str = NAME, partitions: int = 1, metadata: str = "") -> set[str]:
    parts = [
        offset_commit.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )
        for index in range(partitions)
    ]
    topics = [offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=parts)]
    answer = scene.ask(offset_commit.OffsetCommitRequest(group_id=group_id, topics=topics), 8)
    return {ErrorCode(each.error_code).name for each in answer.topics[0].partitions}


def committed(scene: Scene, group_id: str = NAME) -> Any:
    topics = [offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
    group = offset_fetch.OffsetFetchRequestGroup(group_id=group_id, topics=topics)
    answer = scene.ask(offset_fetch.OffsetFetchRequest(groups=[group]), 8)
    return answer.groups[0].topics[0].partitions[0].committed_offset


def test_a_transactions_offsets_count_where_the_log_stamps_its_own_time() -> None:
    """With LogAppendTime the log writes a copy of the batch, and only the copy gets its offset."""
    scene = coordinated(log_message_timestamp_type="LogAppendTime")
    assert commit(scene, 5) == {"NONE"}
    begun = scene.ask(InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000), 4)
    producer = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topics = [TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[part])]
    request = TxnOffsetCommitRequest(transactional_id=NAME, group_id=NAME, topics=topics, **producer)
    assert scene.ask(request, 5).topics[0].partitions[0].error_code == 0
    assert scene.ask(EndTxnRequest(transactional_id=NAME, committed=True, **producer), 5).error_code == 0
    scene.machine.settle()
    assert committed(scene) == 7
    scene.machine.stop()
    scene.machine.start()
    scene.machine.settle()
    assert committed(scene) == 7


def test_records_that_are_too_large_are_their_requests_own_trouble() -> None:
    scene = coordinated(300)
    assert commit(scene, 1, "other") == {"NONE"}
    driver = scene.node.groups.driver_of(NAME)
    assert commit(scene, 5, partitions=300, metadata="x" * 4096) == {"UNKNOWN_SERVER_ERROR"}
    assert scene.node.groups.driver_of(NAME) is driver
    assert committed(scene, "other") == 1
    assert commit(scene, 6) == {"NONE"}
    assert committed(scene) == 6


MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


def consumer_heartbeat(epoch: int) -> ConsumerGroupHeartbeatRequest:
    joins = epoch == 0
    return ConsumerGroupHeartbeatRequest(
        group_id=NAME,
        member_id=MEMBER,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC] if joins else None,
        topic_partitions=[] if joins else None,
    )


def share_heartbeat(epoch: int, topics: list[str] | None = None) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=NAME, member_id=MEMBER, member_epoch=epoch, subscribed_topic_names=topics
    )


def streams_heartbeat(epoch: int) -> StreamsGroupHeartbeatRequest:
    topology = streams.Topology(subtopologies=[streams.Subtopology(subtopology_id="0", source_topics=[TOPIC])])
    tasks: Any = [] if epoch == 0 else None
    return StreamsGroupHeartbeatRequest(
        group_id=NAME,
        member_id=MEMBER,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000,
        topology=topology if epoch == 0 else None,
        active_tasks=tasks,
        standby_tasks=tasks,
        warmup_tasks=tasks,
        process_id="p",
    )


HEARTBEATS: list[tuple[Callable[[int], Any], int]] = [
    (consumer_heartbeat, 1),
    (lambda epoch: share_heartbeat(epoch, [TOPIC] if epoch == 0 else None), 1),
    (streams_heartbeat, 0),
]


@pytest.mark.parametrize(("heartbeat", "version"), HEARTBEATS)
def test_members_that_join_and_leave_below_min_insync_replicas_are_refused_alone(
    heartbeat: Callable[[int], Any], version: int
) -> None:
    pair = Pair(OFFSETS_TOPIC, offsets_topic_num_partitions="1", min_insync_replicas="2")
    pair.scene.machine.create_topic(TOPIC, 1)
    driver = pair.scene.node.groups.find(0)

    def send(epoch: int) -> str:
        answers = pair.send(heartbeat(epoch), version)
        for _ in range(3):
            # What the coordinator appends is committed, and the heartbeat of a share group waits for state.
            pair.follower_has(pair.partition.log.end_offset)
            pair.scene.machine.settle()
        [answer] = answers
        return ErrorCode(answer.error_code).name

    pair.change(isr=[1])
    end_offset = pair.partition.log.end_offset
    assert send(0) == "COORDINATOR_NOT_AVAILABLE"
    assert driver.machine.shard.groups == {} and pair.partition.log.end_offset == end_offset
    pair.change(isr=[1, 2])
    assert send(0) == "NONE"
    pair.change(isr=[1])
    group, end_offset = driver.machine.shard.groups[NAME], pair.partition.log.end_offset
    deadline_ms = driver.machine.deadline_ms()
    assert send(-1) == "COORDINATOR_NOT_AVAILABLE"
    assert [*group.members] == [MEMBER] and pair.partition.log.end_offset == end_offset
    assert driver.machine.deadline_ms() == deadline_ms
    driver.machine.validate()
    pair.change(isr=[1, 2])
    assert send(-1) == "NONE"
    assert not group.members
    assert pair.scene.node.groups.find(0) is driver


def test_a_share_group_whose_records_are_too_large_is_refused_alone() -> None:
    scene = coordinated(1)
    driver = scene.node.groups.driver_of(NAME)
    assert commit(scene, 1, "other") == {"NONE"}
    names = [f"{number:0200}" for number in range(6_000)]
    answer = scene.ask(share_heartbeat(0, names), 1)
    assert ErrorCode(answer.error_code) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert scene.node.groups.driver_of(NAME) is driver
    assert not driver.machine.open and not driver.machine.shard.held and NAME not in driver.machine.shard.groups


def join(scene: Scene, member_id: str = "", metadata: bytes = b"m") -> Any:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    request = JoinGroupRequest(
        group_id=NAME,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id="i",
        protocol_type="consumer",
        protocols=protocols,
    )
    return scene.ask(request, 7)


def test_a_static_member_that_returns_with_too_much_is_refused_alone() -> None:
    scene = coordinated(1, group_initial_rebalance_delay_ms="0")
    first = join(scene)
    member = {"member_id": first.member_id, "generation_id": first.generation_id, "group_instance_id": "i"}
    assignments = [SyncGroupRequestAssignment(member_id=first.member_id, assignment=b"a")]
    synced = SyncGroupRequest(
        group_id=NAME, protocol_type="consumer", protocol_name="range", assignments=assignments, **member
    )
    assert scene.ask(synced, 5).error_code == 0
    driver = scene.node.groups.driver_of(NAME)
    again = join(scene, metadata=b"m" * 2_000_000)
    assert ErrorCode(again.error_code) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert scene.node.groups.driver_of(NAME) is driver
    driver.machine.validate()
    # Nothing has become of it: the member goes on under its id.
    assert scene.ask(HeartbeatRequest(group_id=NAME, **member), 4).error_code == 0
    assert driver.machine.shard.groups[NAME].leader == first.member_id
    taken = join(scene)
    assert taken.error_code == 0 and taken.member_id != first.member_id


def test_an_assignment_that_is_too_large_is_refused_alone_and_its_group_rebalances() -> None:
    scene = coordinated(1, group_initial_rebalance_delay_ms="0")
    first = join(scene)
    driver = scene.node.groups.driver_of(NAME)
    member = {"member_id": first.member_id, "generation_id": first.generation_id, "group_instance_id": "i"}

    def sync(assignment: bytes) -> ErrorCode:
        assignments = [SyncGroupRequestAssignment(member_id=first.member_id, assignment=assignment)]
        request = SyncGroupRequest(
            group_id=NAME, protocol_type="consumer", protocol_name="range", assignments=assignments, **member
        )
        return ErrorCode(scene.ask(request, 5).error_code)

    assert sync(b"a" * 2_000_000) is ErrorCode.UNKNOWN_SERVER_ERROR
    heartbeat = scene.ask(HeartbeatRequest(group_id=NAME, **member), 4)
    assert ErrorCode(heartbeat.error_code) is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.node.groups.driver_of(NAME) is driver
    member["generation_id"] = join(scene, first.member_id).generation_id
    assert sync(b"a") is ErrorCode.NONE
    assert driver.machine.shard.groups[NAME].state == "Stable"


def test_a_deadline_whose_records_are_refused_is_due_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = coordinated(1)
    driver, clock = scene.node.groups.driver_of(NAME), scene.machine.clock
    assert scene.ask(consumer_heartbeat(0), 1).error_code == 0
    refused: list[int] = []

    def refuse(partition: Partition, *args: Any, **more: Any) -> Any:
        refused.append(clock.monotonic_ms())
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)

    with monkeypatch.context() as patched:
        patched.setattr(Partition, "append", refuse)
        scene.machine.run(lambda: len(refused) == 3)
    assert [later - earlier for earlier, later in pairwise(refused)] == [500, 500]
    scene.machine.run(lambda: not driver.machine.shard.groups[NAME].members)
    assert scene.node.groups.driver_of(NAME) is driver


def test_a_member_that_turns_a_classic_group_into_another_below_min_insync_replicas_is_refused_alone() -> None:
    pair = Pair(OFFSETS_TOPIC, offsets_topic_num_partitions="1", min_insync_replicas="2")
    pair.scene.machine.create_topic(TOPIC, 1)
    driver = pair.scene.node.groups.find(0)
    pair.send(
        JoinGroupRequest(
            group_id=NAME,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
        ),
        7,
    )
    pair.follower_has(pair.partition.log.end_offset)
    pair.change(isr=[1])
    [answer] = pair.send(consumer_heartbeat(0), 1)
    assert ErrorCode(answer.error_code) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert pair.scene.node.groups.find(0) is driver


def offsets_below_min_insync_replicas() -> Pair:
    """A group has an offset of a topic that was deleted while its coordinator could not append."""
    pair = Pair(OFFSETS_TOPIC, offsets_topic_num_partitions="1", min_insync_replicas="2")
    pair.scene.machine.create_topic(TOPIC, 1)
    commit_by_name(pair, 5)
    driver = pair.scene.node.groups.find(0)
    pair.change(isr=[1])
    remove_topic(pair)
    assert pair.scene.node.groups.find(0) is driver
    assert driver.machine.shard.offsets.of_group(NAME)
    return pair


def commit_by_name(pair: Pair, offset: int) -> None:
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
    answers = pair.send(offset_commit.OffsetCommitRequest(group_id=NAME, topics=topics), 8)
    pair.follower_has(pair.partition.log.end_offset)
    assert answers[0].topics[0].partitions[0].error_code == 0


def test_the_offsets_of_a_topic_deleted_below_min_insync_replicas_go_when_that_can_be_written() -> None:
    pair = offsets_below_min_insync_replicas()
    offsets = pair.scene.node.groups.find(0).machine.shard.offsets
    pair.change(isr=[1, 2])
    pair.scene.machine.run(lambda: not offsets.of_group(NAME))


def test_an_offset_of_a_topic_that_was_created_again_does_not_go_with_those_of_the_deleted_one() -> None:
    """A commit by name has no id, and may come as soon as the log takes records again."""
    pair = offsets_below_min_insync_replicas()
    pair.scene.machine.create_topic(TOPIC, 1)
    pair.change(isr=[1, 2])
    commit_by_name(pair, 7)
    passed: list[bool] = []
    pair.scene.machine.loop.call_later(10, passed.append, True)
    pair.scene.machine.run(lambda: bool(passed))
    ((partitions),) = pair.scene.node.groups.find(0).machine.shard.offsets.of_group(NAME).values()
    assert [committed.offset for committed in partitions.values()] == [7]


def remove_topic(pair: Pair) -> None:
    topic_id = pair.scene.node.image.topics[TOPIC].topic_id
    pair.scene.node.quorum.append([RemoveTopicRecord(topic_id=topic_id)])
    pair.scene.machine.settle()
    assert TOPIC not in pair.scene.node.image.topics


def test_share_state_of_a_topic_deleted_below_min_insync_replicas_goes_when_that_can_be_written() -> None:
    pair = Pair(SHARE_TOPIC, share_coordinator_state_topic_num_partitions="1", min_insync_replicas="2")
    pair.scene.machine.create_topic(TOPIC, 1)
    topic_id = pair.scene.node.image.topics[TOPIC].topic_id
    driver = pair.scene.node.share_states.find(0)
    asked = share_state.InitializeStateData(topic_id=topic_id, partitions=[share_state.PartitionData()])
    answers = pair.send(share_state.InitializeShareGroupStateRequest(group_id=NAME, topics=[asked]), 0)
    pair.follower_has(1)
    assert answers[0].results[0].partitions[0].error_code == 0
    pair.change(isr=[1])
    remove_topic(pair)
    assert pair.scene.node.share_states.find(0) is driver and driver.machine.states
    pair.change(isr=[1, 2])
    pair.scene.machine.run(lambda: not driver.machine.states)
    assert not driver.machine.states
