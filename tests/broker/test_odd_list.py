"""Requests that name a partition twice, or none: what Kafka's servers keep in maps, so that clients see one answer."""

from __future__ import annotations

from itertools import count

import pytest

import ottla
from ottla.kernel.error import ErrorCode
from ottla.wire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.api.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.api.elect_leaders import ElectLeadersRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.api.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.batch import build
from tests.broker.wire_client import WireClient

_names = (f"odd-{number}" for number in count())


@pytest.fixture
def topic(node: ottla.Node) -> str:
    name = next(_names)
    node.create_topic(name)
    return name


def test_a_partition_that_is_named_twice_is_answered_once(client: WireClient, topic: str) -> None:
    latest = ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = [ListOffsetsTopic(name=topic, partitions=[latest]) for _ in range(2)]
    (listed,) = client.ask(ListOffsetsRequest(replica_id=-1, topics=asked), 7).topics
    assert [each.error_code for each in listed.partitions] == [ErrorCode.INVALID_REQUEST]
    gone = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (7, 0)]
    (deleted,) = client.ask(
        DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=gone)], timeout_ms=1000), 2
    ).topics
    assert [(each.error_code, each.low_watermark) for each in deleted.partitions] == [(0, 0)]


def test_a_topic_without_partitions_is_not_answered(client: WireClient, topic: str) -> None:
    assert client.ask(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic)]), 7).topics == []
    assert client.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic)], timeout_ms=1000), 2).topics == []
    election = ElectLeadersRequest(election_type=9, topic_partitions=[], timeout_ms=1000)
    assert client.ask(election, 2).error_code == ErrorCode.NONE


def test_what_is_not_there_is_told_beside_why_the_rest_is_not_committed(client: WireClient, topic: str) -> None:
    where = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in (0, 7)]
    topics = [
        OffsetCommitRequestTopic(name=topic, partitions=where),
        OffsetCommitRequestTopic(name="nowhere", partitions=where[:1]),
    ]
    group = next(_names)
    client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
    asked = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=1, member_id="m", topics=topics)
    busy = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    while (answer := client.ask(asked, 8)).topics[0].partitions[0].error_code in busy:
        pass
    codes = [[each.error_code for each in one.partitions] for one in answer.topics]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[ErrorCode.ILLEGAL_GENERATION, unknown], [unknown]]


def test_only_minus_one_says_that_a_client_knows_no_epoch(client: WireClient, topic: str) -> None:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-2)
    topics = [ListOffsetsTopic(name=topic, partitions=[asked])]
    (answer,) = client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 7).topics[0].partitions
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_markers_of_one_producer_have_one_answer(client: WireClient, topic: str) -> None:
    named = [WritableTxnMarkerTopic(name=topic, partition_indexes=[7])]
    marker = WritableTxnMarker(producer_id=900_000, producer_epoch=0, topics=named)
    (result,) = client.ask(WriteTxnMarkersRequest(markers=[marker, marker]), 1).markers
    (partition,) = result.topics[0].partitions
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_records_of_a_topic_that_nothing_cleans_may_be_deleted(node: ottla.Node, client: WireClient) -> None:
    for policy, code in (("", ErrorCode.NONE), ("compact", ErrorCode.POLICY_VIOLATION)):
        name = next(_names)
        node.create_topic(name, settings={"cleanup.policy": policy})
        gone = DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
        (answer,) = client.ask(DeleteRecordsRequest(topics=[gone], timeout_ms=1000), 2).topics[0].partitions
        assert answer.error_code == code, policy


def test_producers_of_a_name_that_no_topic_may_bear_are_asked_for(client: WireClient) -> None:
    asked = DescribeProducersRequest(topics=[TopicRequest(name="no/topic", partition_indexes=[0])])
    (answer,) = client.ask(asked, 0).topics[0].partitions
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_request_with_acks_zero_that_is_refused_as_a_whole_closes_its_connection(
    client: WireClient, topic: str
) -> None:
    """An answer would be taken for that to the next request."""
    records = build([(1, b"k", b"v", [])], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    client.send(ProduceRequest(transactional_id=None, acks=0, timeout_ms=1000, topic_data=[data]), 9)
    with pytest.raises(ConnectionError):
        client.receive_frame()


def _batch(*values: bytes, **fields: int | bool) -> bytes:
    return build([(1, None, value, ()) for value in values], **fields)  # type: ignore[arg-type]


def _records(index: int, records: bytes) -> PartitionProduceData:
    return PartitionProduceData(index=index, records=records)


_GOOD, _TWO, _CUT = _batch(b"a"), _batch(b"b", b"c"), _batch(b"a")[:20]


@pytest.mark.parametrize(
    ("parts", "answer", "end"),
    [
        pytest.param([[_GOOD, _TWO]], (0, 0), 2, id="in one topic"),
        pytest.param([[_TWO], [_GOOD]], (0, 0), 1, id="in a topic named twice"),
        pytest.param([[_GOOD] * 300 + [_TWO]], (0, 0), 2, id="in several steps"),
        pytest.param([[_GOOD, _CUT]], (ErrorCode.INVALID_RECORD, -1), 0, id="refused after a good one"),
        pytest.param([[_CUT, _GOOD]], (ErrorCode.INVALID_RECORD, -1), 0, id="refused before a good one"),
        pytest.param([[_CUT, b"", _GOOD]], (ErrorCode.INVALID_RECORD, -1), 0, id="refused twice"),
    ],
)
def test_a_partition_that_is_produced_to_twice_is_written_once(
    client: WireClient, topic: str, parts: list[list[bytes]], answer: tuple[int, int], end: int
) -> None:
    data = [TopicProduceData(name=topic, partition_data=[_records(0, each) for each in part]) for part in parts]
    (answered,) = client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), 9).responses
    assert [(each.error_code, each.base_offset) for each in answered.partition_responses] == [answer]
    latest = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    (listed,) = client.ask(ListOffsetsRequest(replica_id=-1, topics=[latest]), 7).topics
    assert listed.partitions[0].offset == end


def test_a_refused_request_answers_a_partition_once(client: WireClient, topic: str) -> None:
    """The batches are transactional and the request names no transactional id."""
    records = _records(0, _batch(b"a", transactional=True))
    data = [TopicProduceData(name=topic, partition_data=[records, records]) for _ in range(2)]
    (answered,) = client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), 9).responses
    codes = [each.error_code for each in answered.partition_responses]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("version", [9, 12])
def test_a_batch_without_a_producer_is_in_no_transaction(client: WireClient, topic: str, version: int) -> None:
    records = _records(0, _batch(b"a", transactional=True, producer_epoch=3, base_sequence=4))
    data = [TopicProduceData(name=topic, partition_data=[records])]
    request = ProduceRequest(transactional_id="odd", acks=-1, timeout_ms=1000, topic_data=data)
    (answered,) = client.ask(request, version).responses
    assert [(each.error_code, each.base_offset) for each in answered.partition_responses] == [(0, 0)]
    stable = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    (listed,) = client.ask(ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[stable]), 7).topics
    assert listed.partitions[0].offset == 1
