"""acks=all, coordinators' answers and deletions on a partition with a second replica, which the test plays."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import OFFSETS_TOPIC, TopicPartition
from ottla.log.log import Origin
from ottla.replica.leader import MetadataFollowed, PartitionState, Progress
from ottla.replica.partition import Partition
from ottla.wire.api import (
    API,
    delete_records,
    describe_producers,
    fetch,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)
from ottla.wire.batch import build
from ottla.wire.compile import decode, encode
from ottla.wire.header import RequestHeader, ResponseHeader, request_header_version, response_header_version
from ottla.wire.record.metadata import PartitionChangeRecord
from tests.broker.disk_scene import TOPIC, Scene

_FOLLOWER = 2
_KEYS = {api.name: api.key for api in API.values()}


class Pair:
    """A node that leads, and a follower whose fetches the test makes up."""

    def __init__(self, topic: str = TOPIC, *, partitions: int = 1, **settings: Any) -> None:
        own = {"log_dirs": "/data", "log_flush_interval_messages": "9223372036854775807"} | settings
        self.scene = Scene(1, **own)
        self.topic = topic
        if topic == TOPIC:
            self.scene.create(partitions)
        else:
            self.scene.machine.create_topic(topic, partitions)
        for index in range(partitions):
            self.change(index, replicas=[1, _FOLLOWER], isr=[1, _FOLLOWER])

    @property
    def partition(self) -> Partition:
        found: Partition = self.scene.node.partitions[TopicPartition(self.topic, 0)]
        return found

    def change(self, index: int = 0, **fields: Any) -> None:
        topic_id = self.scene.node.image.topics[self.topic].topic_id
        self.scene.node.quorum.append([PartitionChangeRecord(topic_id=topic_id, partition_id=index, **fields)])
        self.scene.machine.settle()

    def follower_has(self, offset: int, log_start_offset: int = 0) -> None:
        self.partition.fetched(_FOLLOWER, -1, offset, log_start_offset)
        self.scene.machine.settle()

    def send(self, request: Any, version: int) -> list[Any]:
        """The answer, once there is one."""
        key = _KEYS[type(request).__name__.removesuffix("Request")]
        header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="c")
        answers: list[Any] = []

        def replied(data: bytes) -> None:
            _, position = decode(ResponseHeader, response_header_version(key, version), data)
            answers.append(decode(API[key].response, version, data, position)[0])

        connection = self.scene.machine.connect(replied, lambda: None)
        connection.send(encode(header, request_header_version(key, version)) + encode(request, version))
        self.scene.machine.settle()
        return answers

    def produce(
        self, value: bytes = b"v", acks: int = -1, timeout_ms: int = 1000, index: int = 0, **producer: Any
    ) -> list[Any]:
        data = bytearray(build([(self.scene.machine.clock.now_ms(), None, value, ())], **producer))
        part = produce.PartitionProduceData(index=index, records=data)
        topics = [produce.TopicProduceData(name=TOPIC, partition_data=[part])]
        return self.send(produce.ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics), 9)


def code(answers: list[Any]) -> str:
    return ErrorCode(answers[0].responses[0].partition_responses[0].error_code).name


def offsets(answers: list[Any]) -> tuple[int, int]:
    """(the batch's base offset, the log's start offset)"""
    part = answers[0].responses[0].partition_responses[0]
    return part.base_offset, part.log_start_offset


def test_acks_all_waits_for_the_other_replica_and_acks_1_does_not() -> None:
    pair = Pair()
    assert code(pair.produce(acks=1)) == "NONE"
    waits, behind = pair.produce(), pair.produce()
    assert not waits and pair.partition.high_watermark == 0
    pair.follower_has(2)
    assert code(waits) == "NONE" and not behind
    assert pair.scene.read(0) == [b"v", b"v"]
    pair.follower_has(3)
    assert code(behind) == "NONE"
    assert len(pair.scene.read(0)) == 3


def test_a_batch_that_was_here_already_waits_too() -> None:
    pair = Pair()
    identity: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    first, again = pair.produce(**identity), pair.produce(**identity)
    assert not first and not again and pair.partition.log.end_offset == 1
    pair.follower_has(1)
    assert code(first) == code(again) == "NONE"
    assert again[0].responses[0].partition_responses[0].base_offset == 0


def test_the_time_of_a_request_ends_its_wait_and_the_batch_is_committed_all_the_same() -> None:
    pair = Pair()
    assert not pair.produce()
    waits = pair.produce(timeout_ms=400)
    pair.scene.machine.run(lambda: bool(waits))
    assert code(waits) == "REQUEST_TIMED_OUT"
    # Apache Kafka's response, too, says where the batch is: a later read can tell whether it was committed.
    assert offsets(waits) == (1, 0)
    pair.follower_has(2)
    assert pair.scene.read(0) == [b"v", b"v"]


def test_too_few_in_sync_replicas_refuse_before_and_after_the_append() -> None:
    pair = Pair(min_insync_replicas="2")
    waits = pair.produce()
    # The high watermark moves and the ISR shrinks in one turn of the loop.
    pair.partition.fetched(_FOLLOWER, -1, 1, 0)
    pair.partition.step(MetadataFollowed(PartitionState(pair.partition.leader_epoch, 99, (1, _FOLLOWER), (1,)), 2))
    pair.scene.machine.settle()
    assert code(waits) == "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    assert offsets(waits) == (0, 0)
    refused = pair.produce()
    assert code(refused) == "NOT_ENOUGH_REPLICAS"
    assert offsets(refused) == (-1, 0)
    assert pair.partition.log.end_offset == 1
    assert code(pair.produce(acks=1)) == "NONE"
    # Nothing is committed while too few are in sync (KIP-966).
    assert pair.partition.high_watermark == 1


def test_whoever_waits_when_another_leads_is_told_so() -> None:
    pair = Pair()
    waits = pair.produce()
    pair.change(leader=_FOLLOWER)
    assert code(waits) == "NOT_LEADER_OR_FOLLOWER"
    assert TopicPartition(TOPIC, 0) in pair.scene.node.hosted
    assert TopicPartition(TOPIC, 0) not in pair.scene.node.partitions
    assert code(pair.produce()) == "NOT_LEADER_OR_FOLLOWER"
    pair.change(leader=1)
    # What this replica had before is not committed by the epoch's change alone.
    assert pair.partition.high_watermark == 0 and pair.partition.log.end_offset == 1
    pair.follower_has(1)
    assert pair.partition.high_watermark == 1


def test_a_new_epoch_of_its_leader_does_not_end_a_producers_wait() -> None:
    """The end of a reassignment begins an epoch; a producer without sequences would write its batches twice."""
    pair = Pair()
    first, second = pair.produce(), pair.produce()
    late = pair.produce(timeout_ms=400)
    epoch = pair.partition.leader_epoch
    pair.change(leader=1)
    assert pair.partition.leader_epoch > epoch and not first + second + late
    pair.scene.machine.run(lambda: bool(late))
    assert code(late) == "REQUEST_TIMED_OUT"
    pair.follower_has(1)
    assert code(first) == "NONE" and not second
    pair.change(leader=_FOLLOWER)
    assert code(second) == "NOT_LEADER_OR_FOLLOWER"


def test_who_does_not_stay_is_told_of_a_new_epoch_of_its_leader() -> None:
    pair = Pair()
    pair.produce(acks=1)
    told: list[Any] = []
    pair.partition.when_committed(1, told.append)
    pair.partition.when_committed(1, told.append, stays=True)
    pair.change(leader=1)
    assert [each.code for each in told] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    pair.follower_has(1)
    assert told[1:] == [None]


def test_a_producer_waits_for_no_replica_that_has_left() -> None:
    pair = Pair()
    waits = pair.produce()
    pair.change(replicas=[1], isr=[1], leader=1)
    assert code(waits) == "NONE"


def test_a_flush_of_an_earlier_epoch_commits_nothing_in_a_later_one() -> None:
    pair = Pair()
    pair.change(isr=[1])
    before = pair.partition
    pair.change(isr=[1, _FOLLOWER], leader=1)
    pair.produce(acks=1)
    # A flush that was asked for before ends now.
    before.synced()
    assert pair.partition.high_watermark == 0


def test_a_batch_counts_when_it_is_synced_here_and_held_there() -> None:
    pair = Pair(log_flush_interval_messages="1")
    waits = pair.produce()
    assert not waits and pair.partition.log.recovery_point == 1
    pair.follower_has(1)
    assert code(waits) == "NONE"


@pytest.mark.parametrize("slow", [0, 1])
def test_the_low_watermark_is_that_of_the_slowest_live_replica(slow: int) -> None:
    pair = Pair()
    machine = pair.partition.machine
    assert machine is not None
    starts = [7, 7]
    starts[slow] = 3
    pair.partition.log.start_offset = 9
    machine.followers = {
        broker_id: Progress(log_start_offset=start) for broker_id, start in zip((7, 8), starts, strict=True)
    }
    machine.brokers = {7: 1, 8: 1}
    assert pair.partition.low_watermark == 3
    # A broker that is gone is not waited for.
    machine.brokers = {8 - slow: 1}
    assert pair.partition.low_watermark == 7


def test_deleted_records_are_gone_when_every_live_replica_begins_behind_them() -> None:
    pair = Pair()
    for _ in range(3):
        pair.produce(acks=1)
    pair.follower_has(3)
    # A broker that is not there is not waited for.
    parts = [delete_records.DeleteRecordsPartition(partition_index=0, offset=2)]
    request = delete_records.DeleteRecordsRequest(
        topics=[delete_records.DeleteRecordsTopic(name=TOPIC, partitions=parts)], timeout_ms=1000
    )
    assert pair.send(request, 2)[0].topics[0].partitions[0].low_watermark == 2
    pair.scene.node.replication.brokers[_FOLLOWER] = 77
    parts[0].offset = 3
    waits = pair.send(request, 2)
    assert not waits
    pair.follower_has(3, log_start_offset=3)
    assert waits[0].topics[0].partitions[0].low_watermark == 3
    pair.produce(acks=1)
    pair.follower_has(4, log_start_offset=3)
    parts[0].offset = 4
    waits = pair.send(request, 2)
    pair.scene.machine.run(lambda: bool(waits))
    assert waits[0].topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def _commit(pair: Pair, offset: int) -> list[Any]:
    parts = [offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
    topics = [offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=parts)]
    return pair.send(offset_commit.OffsetCommitRequest(group_id="g", topics=topics), 8)


def _committed(pair: Pair) -> list[Any]:
    topics = [offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=topics)
    return pair.send(offset_fetch.OffsetFetchRequest(groups=[group]), 8)


def test_a_commit_and_whoever_reads_it_wait_for_the_replicas() -> None:
    pair = Pair(OFFSETS_TOPIC, offsets_topic_num_partitions="1")
    pair.scene.machine.create_topic(TOPIC, 1)
    pair.scene.machine.settle()
    commit = _commit(pair, 5)
    read = _committed(pair)
    assert not commit and not read, "an answer that failover may take back"
    pair.follower_has(pair.partition.log.end_offset)
    assert commit[0].topics[0].partitions[0].error_code == 0
    assert read[0].groups[0].topics[0].partitions[0].committed_offset == 5


@pytest.mark.parametrize("ends", ["time", "leader"])
def test_a_commit_that_is_not_replicated_is_not_confirmed(ends: str) -> None:
    pair = Pair(OFFSETS_TOPIC, offsets_topic_num_partitions="1")
    pair.scene.machine.create_topic(TOPIC, 1)
    pair.scene.machine.settle()
    commit = _commit(pair, 5)
    if ends == "leader":
        pair.change(leader=_FOLLOWER)
    pair.scene.machine.run(lambda: bool(commit))
    told = ErrorCode(commit[0].topics[0].partitions[0].error_code).name
    assert told == ("NOT_COORDINATOR" if ends == "leader" else "COORDINATOR_NOT_AVAILABLE")


def test_a_commit_below_the_high_watermark_is_confirmed_though_the_isr_has_shrunk_since() -> None:
    pair = Pair(OFFSETS_TOPIC, offsets_topic_num_partitions="1", offsets_topic_replication_factor="1")
    pair.scene.machine.create_topic(TOPIC, 1)
    pair.scene.machine.settle()
    commit = _commit(pair, 5)
    epoch, end = pair.partition.leader_epoch, pair.partition.log.end_offset
    # As in Apache Kafka's coordinators: what two in-sync replicas have is committed. Both in one turn of the loop.
    pair.partition.fetched(_FOLLOWER, -1, end, 0)
    pair.partition.step(MetadataFollowed(PartitionState(epoch, 99, (1, _FOLLOWER), (1,)), 2))
    pair.scene.machine.settle()
    assert commit[0].topics[0].partitions[0].error_code == 0
    # Another commit is refused before it is appended.
    refused = _commit(pair, 6)
    assert ErrorCode(refused[0].topics[0].partitions[0].error_code).name == "COORDINATOR_NOT_AVAILABLE"
    assert pair.partition.log.end_offset == end


def test_a_start_takes_what_the_checkpoint_says_as_committed_and_no_more() -> None:
    pair = Pair()
    for _ in range(3):
        pair.produce(acks=1)
    pair.follower_has(2)
    pair.scene.machine.stop()
    pair.scene.machine.start()
    pair.scene.machine.settle()
    assert (pair.partition.high_watermark, pair.partition.log.end_offset) == (2, 3)
    assert len(pair.scene.read(0)) == 2
    pair.follower_has(3)
    assert pair.partition.high_watermark == 3


def test_a_topic_that_another_broker_has_just_made_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    refusal = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)
    monkeypatch.setattr(pair.scene.node, "create_topics", lambda topics, done: done({topics[0].name: refusal}))
    asked = [metadata.MetadataRequestTopic(name="new")]
    answers = pair.send(metadata.MetadataRequest(topics=asked, allow_auto_topic_creation=True), 9)
    # The controllers have it and this broker has not followed them yet. No client knows the other code here.
    assert ErrorCode(answers[0].topics[0].error_code).name == "UNKNOWN_TOPIC_OR_PARTITION"


def test_each_epoch_has_an_object_of_its_own() -> None:
    pair = Pair()
    pair.produce(acks=1)
    before = pair.partition
    pair.follower_has(1)
    pair.change(leader=1)
    assert pair.partition is not before and pair.partition.leader_epoch == before.leader_epoch + 1
    assert pair.partition.machine is not None
    assert pair.partition.machine.followers[_FOLLOWER].end_offset == -1
    assert pair.partition.high_watermark == 1


def test_the_high_watermark_of_a_follower_never_goes_back_nor_beyond_its_log() -> None:
    pair = Pair()
    for _ in range(3):
        pair.produce(acks=1)
    pair.change(leader=_FOLLOWER)
    followed = pair.scene.node.hosted[TopicPartition(TOPIC, 0)]
    assert followed.high_watermark == 0
    followed.follow_leader(2, 0)
    # A new leader that has not heard of its ISR knows a lower one. Consumers here were shown more.
    followed.follow_leader(1, 0)
    assert followed.high_watermark == 2
    followed.follow_leader(9, 0)
    assert followed.high_watermark == followed.log.end_offset == 3


def listed(pair: Pair, timestamp: int, version: int = 7, replica_id: int = -1, epoch: int = -1) -> tuple[str, int]:
    wanted = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
    topics = [list_offsets.ListOffsetsTopic(name=TOPIC, partitions=[wanted])]
    [answer] = pair.send(list_offsets.ListOffsetsRequest(replica_id=replica_id, topics=topics), version)
    part = answer.topics[0].partitions[0]
    return ErrorCode(part.error_code).name, part.offset


def test_a_new_leaders_offsets_are_not_available_until_it_knows_what_was_committed() -> None:
    """KIP-207: the end of the log must not go back for a consumer when the leader changes."""
    pair = Pair()
    pair.produce(acks=1)
    assert listed(pair, -1) == ("NONE", 0)
    pair.change(leader=_FOLLOWER)
    # The leader in between committed the record; this replica was not told before it led again.
    pair.change(leader=1)
    assert listed(pair, -1) == ("OFFSET_NOT_AVAILABLE", -1)
    assert listed(pair, -1, version=4) == ("LEADER_NOT_AVAILABLE", -1)
    assert listed(pair, 0) == listed(pair, -3) == ("OFFSET_NOT_AVAILABLE", -1)
    assert listed(pair, 1 << 60) == ("NONE", -1), "there is no such record, whatever is committed"
    assert listed(pair, -2) == ("NONE", 0)
    assert listed(pair, -1, replica_id=_FOLLOWER) == ("NONE", 1)
    pair.follower_has(1)
    assert listed(pair, -1) == ("NONE", 1)
    assert listed(pair, 0) == ("NONE", 0)


def test_a_tool_that_debugs_is_told_the_offsets_of_a_follower() -> None:
    pair = Pair()
    pair.produce(acks=1)
    pair.change(leader=_FOLLOWER)
    assert listed(pair, -1, replica_id=-2) == ("NONE", 1)
    assert listed(pair, -2, replica_id=-2) == listed(pair, 0, replica_id=-2) == ("NONE", 0)
    for other in (-1, _FOLLOWER, -3):
        assert listed(pair, -1, replica_id=other) == ("NOT_LEADER_OR_FOLLOWER", -1)


def test_a_follower_tells_the_producers_of_its_log() -> None:
    pair = Pair()
    pair.produce(acks=1)
    pair.change(leader=_FOLLOWER)
    topics = [describe_producers.TopicRequest(name=TOPIC, partition_indexes=[0, 7])]
    [answer] = pair.send(describe_producers.DescribeProducersRequest(topics=topics), 0)
    codes = [each.error_code for each in answer.topics[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_follower_looks_at_the_leader_epoch_before_it_says_that_it_does_not_lead() -> None:
    pair = Pair()
    pair.produce(acks=1)
    pair.change(leader=_FOLLOWER)
    now = pair.scene.node.hosted[TopicPartition(TOPIC, 0)].leader_epoch
    assert [listed(pair, -1, epoch=each)[0] for each in (-1, now - 1, now, now + 1)] == [
        "NOT_LEADER_OR_FOLLOWER",
        "FENCED_LEADER_EPOCH",
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_LEADER_EPOCH",
    ]


def test_nothing_waits_at_an_epoch_that_is_over() -> None:
    pair = Pair()
    pair.produce(acks=1)
    before = pair.partition
    pair.change(leader=_FOLLOWER)
    told: list[Any] = []
    assert before.when_committed(1, told.append) is None
    assert before.when_deleted(1, told.append) is None
    # What is committed in a later epoch need not be what this one wrote.
    before.log.high_watermark = 1
    assert before.when_committed(1, told.append) is None
    assert [each.code for each in told] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3


def test_a_consumer_that_waits_while_its_leader_gets_a_new_epoch_is_told_to_look_again() -> None:
    pair = Pair()
    part = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [fetch.FetchTopic(topic=TOPIC, partitions=[part])]
    waits = pair.send(fetch.FetchRequest(max_wait_ms=5000, min_bytes=1, max_bytes=1 << 20, topics=topics), 12)
    assert not waits
    pair.change(leader=1)
    assert ErrorCode(waits[0].responses[0].partitions[0].error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_replica_that_was_alone_counts_nothing_more_as_committed_once_it_follows() -> None:
    pair = Pair()
    pair.produce(acks=1)
    pair.change(replicas=[1], isr=[1])
    # Fenced, it leads nothing; then the partition gets another replica, which is elected.
    pair.change(leader=-1)
    assert pair.scene.node.hosted[TOPIC, 0].log.high_watermark == 1
    pair.change(replicas=[1, _FOLLOWER], isr=[_FOLLOWER], leader=_FOLLOWER)
    log = pair.scene.node.hosted[TOPIC, 0].log
    data = bytearray(build([(1, None, b"of the leader", ())]))
    data[:8] = (1).to_bytes(8, "big")
    log.append(data, leader_epoch=9, now_ms=1, origin=Origin.REPLICA)
    assert (log.end_offset, log.high_watermark) == (2, 1)


def test_a_follower_knows_no_epoch_of_which_it_has_nothing() -> None:
    """A consumer that was sent here from the leader would otherwise take the end of this log for lost records."""
    pair = Pair()
    pair.produce(acks=1)
    pair.change(leader=_FOLLOWER)
    replica = pair.scene.node.hosted[TOPIC, 0]
    assert replica.end_offset_for_epoch(0) == (0, 1)
    assert replica.end_offset_for_epoch(replica.leader_epoch) == (-1, -1)
