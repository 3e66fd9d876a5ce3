"""What a coordinator's log does with its records: it writes a copy of them, or refuses them as too large."""

from __future__ import annotations

from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import OFFSETS_TOPIC
from ottla.wire.api import offset_commit, offset_fetch
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
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


def test_a_member_that_joins_below_min_insync_replicas_is_refused_alone() -> None:
    pair = Pair(OFFSETS_TOPIC, offsets_topic_num_partitions="1", min_insync_replicas="2")
    pair.scene.machine.create_topic(TOPIC, 1)
    pair.change(isr=[1])
    driver = pair.scene.node.groups.find(0)
    joining = ConsumerGroupHeartbeatRequest(
        group_id=NAME,
        member_id="AAAAAAAAAAAAAAAAAAAAAQ",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    [answer] = pair.send(joining, 1)
    assert ErrorCode(answer.error_code) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert pair.scene.node.groups.find(0) is driver
    assert pair.partition.log.end_offset == 0
