"""The requests of groups that can be switched off, and which of them each switch refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.wire.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.wire.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.api.share_acknowledge import ShareAcknowledgeRequest
from ottla.wire.api.share_fetch import ShareFetchRequest
from ottla.wire.api.share_group_describe import ShareGroupDescribeRequest
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.wire.api.streams_group_describe import StreamsGroupDescribeRequest
from ottla.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest

_WORDS = "The version of API is not supported."

#: Name -> (request, version, what Apache Kafka says of it when the protocol is off).
REQUESTS: dict[str, tuple[Any, int, str | None]] = {
    "Heartbeat": (HeartbeatRequest(group_id="c", member_id="m"), 4, None),
    "ListGroups": (ListGroupsRequest(), 5, None),
    "OffsetFetch": (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="c")]), 9, None),
    "ConsumerGroupHeartbeat": (ConsumerGroupHeartbeatRequest(group_id="c", member_id="m", member_epoch=9), 1, None),
    "ConsumerGroupDescribe": (ConsumerGroupDescribeRequest(group_ids=["c", "d"]), 1, None),
    "ShareGroupHeartbeat": (ShareGroupHeartbeatRequest(group_id="s", member_id="m", member_epoch=9), 1, None),
    "ShareGroupDescribe": (ShareGroupDescribeRequest(group_ids=["s", "t"]), 1, None),
    "ShareFetch": (ShareFetchRequest(group_id="s", member_id="m", share_session_epoch=9), 1, None),
    "ShareAcknowledge": (ShareAcknowledgeRequest(group_id="s", member_id="m", share_session_epoch=9), 1, None),
    "DescribeShareGroupOffsets": (
        DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=each, topics=None) for each in "st"]
        ),
        0,
        None,
    ),
    "AlterShareGroupOffsets": (AlterShareGroupOffsetsRequest(group_id="s"), 0, _WORDS),
    "DeleteShareGroupOffsets": (DeleteShareGroupOffsetsRequest(group_id="s"), 0, _WORDS),
    "StreamsGroupHeartbeat": (StreamsGroupHeartbeatRequest(group_id="k", member_id="m", member_epoch=9), 0, None),
    "StreamsGroupDescribe": (StreamsGroupDescribeRequest(group_ids=["k", "l"]), 0, None),
}

#: Feature -> the requests that its level 0 refuses.
SWITCHES = {
    "group.version": {"ConsumerGroupHeartbeat", "ConsumerGroupDescribe"},
    "share.version": {each for each in REQUESTS if "Share" in each},
    "streams.version": {"StreamsGroupHeartbeat", "StreamsGroupDescribe"},
}


def errors(answer: Any) -> Iterator[tuple[int, str | None]]:
    """(code, message) of an answer and of the groups in it."""
    for each in (answer, *getattr(answer, "groups", ())):
        if hasattr(each, "error_code"):
            yield each.error_code, getattr(each, "error_message", None)
