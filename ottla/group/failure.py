"""Build the response to a request that fails as a whole, and adapt responses to old versions."""

from collections.abc import Iterator, Sequence
from typing import Any

from ottla.group.offsets.fetch import fetch_response, group_error, groups_asked
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.error_message import words
from ottla.wire.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.wire.api.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.wire.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.api.delete_share_group_offsets import DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse
from ottla.wire.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.wire.api.offset_fetch import OffsetFetchRequest
from ottla.wire.api.share_group_describe import DescribedGroup as DescribedShareGroup
from ottla.wire.api.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.wire.api.streams_group_describe import DescribedGroup as DescribedStreamsGroup
from ottla.wire.api.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from ottla.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.compile import deferred

#: From this version on JoinGroup has null for no protocol, before that an empty string.
_NULL_PROTOCOL_FROM = 7


def fit(response: Any, version: int) -> Any:
    """Adapt the response to its version."""
    if isinstance(response, JoinGroupResponse):
        response.protocol_name = response.protocol_name or (None if version >= _NULL_PROTOCOL_FROM else "")
    return response


def failure(request: Any, version: int, error: KafkaError) -> Any:
    """The response to a request that fails as a whole."""
    code = error.code
    match request:
        case JoinGroupRequest():
            # A member that was refused must not return under the same id.
            full = code is ErrorCode.GROUP_MAX_SIZE_REACHED
            return JoinGroupResponse(error_code=code, member_id="" if full else request.member_id)
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=code)
        case HeartbeatRequest():
            return HeartbeatResponse(error_code=code)
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=code)
        case ConsumerGroupHeartbeatRequest():
            return ConsumerGroupHeartbeatResponse(error_code=code, error_message=error.message or None)
        case ShareGroupHeartbeatRequest():
            return ShareGroupHeartbeatResponse(error_code=code, error_message=error.message or None)
        case StreamsGroupHeartbeatRequest():
            return StreamsGroupHeartbeatResponse(error_code=code, error_message=error.message or None)
        case AlterShareGroupOffsetsRequest():
            return AlterShareGroupOffsetsResponse(error_code=code, error_message=words(error))
        case DeleteShareGroupOffsetsRequest():
            return DeleteShareGroupOffsetsResponse(error_code=code, error_message=words(error))
        case OffsetFetchRequest():
            groups = [group_error(group, code, version) for group in groups_asked(request, version)]
            return fetch_response(groups, version)
        case OffsetDeleteRequest():
            return OffsetDeleteResponse(error_code=code)
        case ListGroupsRequest():
            return ListGroupsResponse(error_code=code)
        case _:
            return _failure_by_part(request, code)


def _failure_by_part(request: Any, code: ErrorCode) -> Any:
    """Build a response that has errors only in its parts."""
    match request:
        case OffsetCommitRequest():
            return OffsetCommitResponse(
                topics=_failed_topics(request, code, OffsetCommitResponseTopic, OffsetCommitResponsePartition)
            )
        case TxnOffsetCommitRequest():
            return TxnOffsetCommitResponse(
                topics=_failed_topics(request, code, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition)
            )
        case DeleteGroupsRequest():
            return DeleteGroupsResponse(results=_failed_groups(request.groups_names, code, DeletableGroupResult))
        case DescribeGroupsRequest():
            return DescribeGroupsResponse(groups=_failed_groups(request.groups, code, DescribedGroup))
        case ConsumerGroupDescribeRequest():
            return ConsumerGroupDescribeResponse(groups=_failed_groups(request.group_ids, code, DescribedConsumerGroup))
        case ShareGroupDescribeRequest():
            return ShareGroupDescribeResponse(groups=_failed_groups(request.group_ids, code, DescribedShareGroup))
        case StreamsGroupDescribeRequest():
            return StreamsGroupDescribeResponse(groups=_failed_groups(request.group_ids, code, DescribedStreamsGroup))
        case _:
            raise AssertionError(f"{type(request).__name__} is not a request to a coordinator")


def _failed_groups(names: Sequence[str], code: ErrorCode, of_group: type[Any]) -> list[Any]:
    return deferred(len(names), lambda: (of_group(group_id=name, error_code=code) for name in names))


def _failed_topics(request: Any, code: ErrorCode, of_topic: type[Any], of_partition: type[Any]) -> list[Any]:
    """The topics of a commit that failed as a whole."""

    def failed(topic: Any) -> Any:
        def partitions() -> Iterator[Any]:
            return (of_partition(partition_index=each.partition_index, error_code=code) for each in topic.partitions)

        return of_topic(
            name=topic.name, topic_id=topic.topic_id, partitions=deferred(len(topic.partitions), partitions)
        )

    return deferred(len(request.topics), lambda: map(failed, request.topics))
