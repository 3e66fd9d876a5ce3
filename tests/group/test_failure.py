"""A request that fails as a whole: each of them has an answer that its client understands, in every version."""

from typing import Any

import pytest

from ottla.group.coordinator import REQUESTS
from ottla.group.failure import failure, fit
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.wire.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.api.leave_group import LeaveGroupRequest
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.api.offset_delete import OffsetDeleteRequest
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.api.share_group_describe import ShareGroupDescribeRequest
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.wire.api.streams_group_describe import StreamsGroupDescribeRequest
from ottla.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.wire.api.sync_group import SyncGroupRequest
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.compile import FEW, Deferred, encode

CODE = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
ID = Uuid(b"\x07" * 16)


def failed(request: Any, version: int, words: str = "") -> Any:
    answer = failure(request, version, KafkaError(CODE, words))
    encode(answer, version)
    return answer


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (SyncGroupRequest(group_id="g"), 5),
        (HeartbeatRequest(group_id="g"), 4),
        (LeaveGroupRequest(group_id="g"), 5),
        (OffsetDeleteRequest(group_id="g"), 0),
        (ListGroupsRequest(), 5),
    ],
)
def test_a_request_for_one_thing_fails_with_one_error(request_: Any, version: int) -> None:
    assert failed(request_, version).error_code == CODE


@pytest.mark.parametrize("words", ["it loads", ""])
@pytest.mark.parametrize(
    ("kind", "version"),
    [(ConsumerGroupHeartbeatRequest, 1), (ShareGroupHeartbeatRequest, 1), (StreamsGroupHeartbeatRequest, 0)],
)
def test_a_heartbeat_that_fails_says_why_or_nothing(kind: Any, version: int, words: str) -> None:
    answer = failed(kind(group_id="g"), version, words)
    assert (answer.error_code, answer.error_message) == (CODE, words or None)


@pytest.mark.parametrize("kind", [AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest])
def test_an_administrators_request_that_fails_always_has_words(kind: Any) -> None:
    answer = failed(kind(group_id="g"), 0, "it loads")
    assert (answer.error_code, answer.error_message) == (CODE, "it loads")
    assert failed(kind(group_id="g"), 0).error_message


@pytest.mark.parametrize(
    ("code", "told"),
    [(CODE, "m"), (ErrorCode.FENCED_INSTANCE_ID, "m"), (ErrorCode.GROUP_MAX_SIZE_REACHED, "")],
)
def test_only_a_member_that_a_full_group_refuses_loses_its_id(code: ErrorCode, told: str) -> None:
    answer = failure(JoinGroupRequest(group_id="g", member_id="m"), 9, KafkaError(code))
    assert (answer.error_code, answer.member_id) == (code, told)


@pytest.mark.parametrize(("version", "protocol"), [(0, ""), (6, ""), (7, None), (9, None)])
def test_no_protocol_is_an_empty_text_before_version_7_and_null_from_then_on(
    version: int, protocol: str | None
) -> None:
    for nothing in (None, ""):
        answer = fit(JoinGroupResponse(protocol_name=nothing), version)
        encode(answer, version)
        assert answer.protocol_name == protocol
    assert fit(JoinGroupResponse(protocol_name="range"), version).protocol_name == "range"


@pytest.mark.parametrize(
    ("kind", "field", "version"),
    [
        (DeleteGroupsRequest, "groups_names", 2),
        (DescribeGroupsRequest, "groups", 6),
        (ConsumerGroupDescribeRequest, "group_ids", 1),
        (ShareGroupDescribeRequest, "group_ids", 1),
        (StreamsGroupDescribeRequest, "group_ids", 0),
    ],
)
def test_the_failures_of_many_groups_are_made_while_they_are_written(kind: Any, field: str, version: int) -> None:
    names = [f"g{number}" for number in range(FEW + 1)]
    answer = failed(kind(**{field: names}), version)
    groups = answer.results if kind is DeleteGroupsRequest else answer.groups
    assert isinstance(groups, Deferred)
    assert [(each.group_id, each.error_code) for each in groups] == [(name, CODE) for name in names]


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (DeleteGroupsRequest(groups_names=["a", "b"]), 2),
        (DescribeGroupsRequest(groups=["a", "b"]), 6),
        (ConsumerGroupDescribeRequest(group_ids=["a", "b"]), 1),
        (ShareGroupDescribeRequest(group_ids=["a", "b"]), 1),
        (StreamsGroupDescribeRequest(group_ids=["a", "b"]), 0),
    ],
)
def test_a_request_for_several_groups_fails_for_each_of_them(request_: Any, version: int) -> None:
    answer = failed(request_, version)
    parts = answer.results if isinstance(request_, DeleteGroupsRequest) else answer.groups
    assert [(part.group_id, part.error_code) for part in parts] == [("a", CODE), ("b", CODE)]


def _topics(topic: Any, partition: Any) -> list[Any]:
    parts = [partition(partition_index=index, committed_offset=1) for index in (0, 3)]
    return [topic(name="orders", topic_id=ID, partitions=parts), topic(name="empty", topic_id=ID)]


@pytest.mark.parametrize("version", [2, 9, 10])
def test_a_commit_fails_for_each_of_its_partitions(version: int) -> None:
    topics = _topics(OffsetCommitRequestTopic, OffsetCommitRequestPartition)
    _check_commit(failed(OffsetCommitRequest(group_id="g", topics=topics), version))


@pytest.mark.parametrize("version", [0, 5, 6])
def test_a_transactional_commit_fails_for_each_of_its_partitions(version: int) -> None:
    topics = _topics(TxnOffsetCommitRequestTopic, TxnOffsetCommitRequestPartition)
    _check_commit(failed(TxnOffsetCommitRequest(group_id="g", topics=topics), version))


def _check_commit(answer: Any) -> None:
    assert [
        (topic.name, topic.topic_id, [(one.partition_index, one.error_code) for one in topic.partitions])
        for topic in answer.topics
    ] == [("orders", ID, [(0, CODE), (3, CODE)]), ("empty", ID, [])]


def test_a_fetch_of_offsets_fails_by_partition_then_by_request_and_then_by_group() -> None:
    old = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 3])])
    answer = failed(old, 1)
    assert answer.error_code == ErrorCode.NONE
    (topic,) = answer.topics
    assert topic.name == "orders"
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [(0, CODE), (3, CODE)]
    assert [(one.committed_offset, one.metadata) for one in topic.partitions] == [(-1, "")] * 2
    for version in (2, 7):
        answer = failed(old, version)
        assert (answer.error_code, answer.topics) == (CODE, [])
        everything = failed(OffsetFetchRequest(group_id="g", topics=None), version)
        assert (everything.error_code, everything.topics) == (CODE, [])
    asked = [OffsetFetchRequestTopics(name="orders", topic_id=ID, partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id="a", topics=asked), OffsetFetchRequestGroup(group_id="b", topics=None)]
    for version in (8, 10):
        answer = failed(OffsetFetchRequest(groups=groups), version)
        assert [(group.group_id, group.error_code, group.topics) for group in answer.groups] == [
            ("a", CODE, []),
            ("b", CODE, []),
        ]


def test_every_request_that_the_coordinator_takes_can_fail() -> None:
    for kind in REQUESTS:
        assert failure(kind(), 2, KafkaError(CODE)) is not None
    with pytest.raises(AssertionError, match="str is not a request to a coordinator"):
        failure("nothing", 0, KafkaError(CODE))
