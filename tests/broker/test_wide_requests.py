"""Requests that name thousands of topics, directories or transactions are handled in steps, and answered in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.handlers import list_offsets, log_dir, metadata, quorum, transaction
from ottla.controller.reassignment import list_reassignments
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.wire.api import ApiKey
from ottla.wire.api import add_partitions_to_txn as add
from ottla.wire.api import alter_replica_log_dirs as moves
from ottla.wire.api import delete_topics as deletion
from ottla.wire.api import describe_log_dirs as dirs
from ottla.wire.api import describe_quorum as described
from ottla.wire.api import describe_topic_partitions as paged
from ottla.wire.api import list_offsets as offsets
from ottla.wire.api import offset_for_leader_epoch as epochs
from ottla.wire.compile import FEW, Deferred
from tests.broker.guard_scene import Scene
from tests.broker.table_node import called, done

MANY = 6000
NAMES = [f"n{number:04}" for number in range(MANY)]
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
DENIED = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def stepped(reply: Any, call: Any) -> tuple[int, Any]:
    """How many turns the reply took after the first step, and the response."""
    turns = 0
    while call.turns:
        turns += 1
        call.turns.pop(0)()
    return turns, done(reply, call)


def is_written_in_steps(*arrays: Any) -> bool:
    return all(isinstance(each, Deferred) for each in arrays)


def test_directories_without_topics_are_looked_at_in_steps() -> None:
    call = called(log_dirs=Mock())
    asked = [moves.AlterReplicaLogDir(path=name) for name in NAMES]
    reply = log_dir.alter_replica_log_dirs(call, moves.AlterReplicaLogDirsRequest(dirs=asked))
    turns, response = stepped(reply, call)
    assert (turns, response.results) == (3, [])


def test_logs_of_many_topics_are_described_in_steps() -> None:
    log = SimpleNamespace(size=7)
    store = Mock(directories=["/a"], failed_directories={})
    store.logs = lambda: {TopicPartition(NAMES[-1], 0): log, TopicPartition("other", 0): log}
    store.directory_of = lambda tp: "/a"
    store.future = lambda tp: None
    call = called(store=store, disk=Mock(free_bytes=lambda path: (10, 4)), image=Mock(metadata_version=1))
    asked = [dirs.DescribableLogDirTopic(topic=name, partitions=[0]) for name in NAMES]
    reply = log_dir.describe_log_dirs(call, dirs.DescribeLogDirsRequest(topics=asked))
    turns, response = stepped(reply, call)
    assert turns == 3
    assert [[topic.name for topic in each.topics] for each in response.results] == [NAMES[-1:]]


def test_a_page_of_many_topics_is_made_in_steps() -> None:
    call = called(image=SimpleNamespace(topics={}), settings=Mock(max_request_partition_size_limit=2000))
    request = paged.DescribeTopicPartitionsRequest(topics=[paged.TopicRequest(name=name) for name in NAMES[::-1]])
    turns, response = stepped(metadata.describe_topic_partitions(call, request), call)
    assert turns == MANY // 500
    assert [(each.name, each.error_code) for each in response.topics] == [(name, UNKNOWN) for name in NAMES]


def test_a_transaction_of_many_unknown_partitions_is_refused_in_steps() -> None:
    call = called(4, image=SimpleNamespace(has=lambda tp: False))
    topics = [add.AddPartitionsToTxnTopic(name=name, partitions=[1, 0]) for name in NAMES]
    request = add.AddPartitionsToTxnRequest(
        transactions=[add.AddPartitionsToTxnTransaction(transactional_id="x", topics=topics)]
    )
    turns, response = stepped(transaction.add_partitions(call, request), call)
    assert turns == 3 * 2 * MANY // 1000, "to tell them apart, to look for them, and to answer"
    (result,) = response.results_by_transaction
    assert [each.name for each in result.topic_results] == NAMES
    each = next(iter(result.topic_results))
    assert [(one.partition_index, one.partition_error_code) for one in each.results_by_partition] == [
        (1, UNKNOWN),
        (0, UNKNOWN),
    ]


def test_many_transactions_are_answered_while_the_answer_is_written() -> None:
    call = called(4, image=SimpleNamespace(has=lambda tp: False))
    topics = [add.AddPartitionsToTxnTopic(name="t", partitions=[0])]
    request = add.AddPartitionsToTxnRequest(
        transactions=[add.AddPartitionsToTxnTransaction(transactional_id=name, topics=topics) for name in NAMES]
    )
    _, response = stepped(transaction.add_partitions(call, request), call)
    assert is_written_in_steps(response.results_by_transaction)
    assert [each.transactional_id for each in response.results_by_transaction] == NAMES
    assert all(each.topic_results[0].name == "t" for each in response.results_by_transaction)


def test_many_topics_of_a_quorum_are_described_while_the_answer_is_written() -> None:
    call = called(2, quorum=Mock(raft=Mock(quorum=Mock(leads=True)), voters=[]))
    partitions = [described.RequestPartitionData(partition_index=index) for index in range(FEW + 1)]
    topics = [described.RequestTopicData(topic_name=name, partitions=partitions) for name in NAMES]
    response: Any = quorum.describe_here(call, described.DescribeQuorumRequest(topics=topics))
    assert is_written_in_steps(response.topics, *(each.partitions for each in response.topics))
    assert [each.topic_name for each in response.topics] == NAMES
    one = next(iter(response.topics)).partitions
    assert [(each.partition_index, each.error_code) for each in one] == [(index, UNKNOWN) for index in range(FEW + 1)]
    assert response.nodes == []


def test_the_nodes_of_a_quorum_are_told_only_with_its_own_partition_alone() -> None:
    known = SimpleNamespace(voter=SimpleNamespace(node_id=1), endpoints=[])
    machine = Mock(leads=True, epoch=6, leader_high_watermark=29, describe=lambda now_ms: ([], []))
    call = called(2, node_id=1, quorum=Mock(raft=Mock(quorum=machine), voters=[known]))
    own = [described.RequestPartitionData(partition_index=0)]
    for count, told in ((0, 0), (1, 1), (2, 0)):
        topics = [described.RequestTopicData(topic_name="__cluster_metadata", partitions=own) for _ in range(count)]
        response: Any = quorum.describe_here(call, described.DescribeQuorumRequest(topics=topics))
        assert len(response.nodes) == told, count


def test_reassignments_of_topics_that_are_not_there_are_not_looked_for() -> None:
    missing = SimpleNamespace(name="missing", partition_indexes=Mock(__iter__=Mock(side_effect=AssertionError)))
    request: Any = SimpleNamespace(topics=[missing])
    image: Any = SimpleNamespace(topics={})
    assert list_reassignments(image, request).response.topics == []


ERRORS: dict[ApiKey, tuple[Any, Any]] = {
    ApiKey.LIST_OFFSETS: (
        list_offsets._error_response,
        lambda names: offsets.ListOffsetsRequest(
            topics=[
                offsets.ListOffsetsTopic(name=name, partitions=[offsets.ListOffsetsPartition(partition_index=3)])
                for name in names
            ]
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        list_offsets._ends_error_response,
        lambda names: epochs.OffsetForLeaderEpochRequest(
            topics=[
                epochs.OffsetForLeaderTopic(topic=name, partitions=[epochs.OffsetForLeaderPartition(partition=3)])
                for name in names
            ]
        ),
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        metadata._page_error_response,
        lambda names: paged.DescribeTopicPartitionsRequest(topics=[paged.TopicRequest(name=name) for name in names]),
    ),
}


@pytest.mark.parametrize("key", ERRORS, ids=lambda key: key.name)
def test_an_error_for_many_topics_is_made_while_it_is_written(key: ApiKey) -> None:
    build, request = ERRORS[key]
    many, few = build(request(NAMES), 0, DENIED).topics, build(request(NAMES[:3]), 0, DENIED).topics
    assert is_written_in_steps(many)
    assert not is_written_in_steps(few)
    assert [*many][:3] == few
    assert len([*many]) == MANY


def test_an_error_for_many_partitions_is_made_while_it_is_written() -> None:
    partitions = [offsets.ListOffsetsPartition(partition_index=index) for index in range(MANY)]
    request = offsets.ListOffsetsRequest(topics=[offsets.ListOffsetsTopic(name="t", partitions=partitions)])
    (topic,) = list_offsets._error_response(request, 0, DENIED).topics
    assert is_written_in_steps(topic.partitions)
    assert [each.partition_index for each in topic.partitions] == [*range(MANY)]


@pytest.mark.parametrize("count", [3, FEW + 1])
def test_topics_by_id_that_may_be_described_are_refused_with_their_names(count: int) -> None:
    """However many they are: denials of many are made again each time that they are looked at."""
    ids = [Uuid(number.to_bytes(16, "big")) for number in range(1, count + 1)]
    scene = Scene(ApiKey.DELETE_TOPICS, 6, "DELETE CLUSTER", *(f"DELETE TOPIC {name}" for name in NAMES[:count]))
    scene.call.node.topic_name = dict(zip(ids, NAMES, strict=False)).get
    scene.call.node.image.topics = dict.fromkeys(NAMES)
    scene.request.topics = [deletion.DeleteTopicState(name=None, topic_id=each) for each in ids]
    told = scene.ask()
    assert [(each.name, each.error_code) for each in told.responses] == [
        (name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in NAMES[:count]
    ]


def test_operations_on_many_topics_are_found_while_the_answer_is_written() -> None:
    names = NAMES[:FEW]
    shown = [paged.DescribeTopicPartitionsResponseTopic(name=name) for name in names]
    response = paged.DescribeTopicPartitionsResponse(topics=shown)
    scene = Scene(ApiKey.DESCRIBE_TOPIC_PARTITIONS, None, "DESCRIBE TOPIC x", response=response)
    scene.request.topics = [paged.TopicRequest(name=name) for name in (*names, "x")]
    topics = scene.ask().topics
    assert is_written_in_steps(topics)
    assert [(each.name, each.topic_authorized_operations) for each in topics][:-1] == [(name, 1005) for name in names]
    assert [(each.name, each.error_code) for each in topics][-1] == ("x", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
