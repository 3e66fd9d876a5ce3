"""The records of `__consumer_offsets`: committed offsets, and groups of every kind.

A key is an int16, the type of the record, then the message; a value is an int16, the version, then the message. A null
value is a tombstone. Types 0 and 1 have the same key: old versions wrote type 0, with another value. Records of newer
kinds of groups are in `consumer_group`, `share_group` and `streams_group`; all can be imported from here.
"""

from __future__ import annotations

from ottla.wire.record.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.wire.record.keyed import Keyed
from ottla.wire.record.share_group import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from ottla.wire.record.streams_group import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Bytes, Int32, Int64, String, Uuid

__all__ = [
    "LegacyOffsetCommitKey",
    "LegacyOffsetCommitValue",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ShareGroupMemberMetadataKey",
    "ShareGroupMemberMetadataValue",
    "ShareGroupMetadataKey",
    "ShareGroupMetadataValue",
    "ShareGroupTargetAssignmentMetadataKey",
    "ShareGroupTargetAssignmentMetadataValue",
    "ShareGroupTargetAssignmentMemberKey",
    "ShareGroupTargetAssignmentMemberValue",
    "ShareGroupCurrentMemberAssignmentKey",
    "ShareGroupCurrentMemberAssignmentValue",
    "ShareGroupStatePartitionMetadataKey",
    "ShareGroupStatePartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "StreamsGroupMetadataKey",
    "StreamsGroupMetadataValue",
    "StreamsGroupMemberMetadataKey",
    "StreamsGroupMemberMetadataValue",
    "StreamsGroupTargetAssignmentMetadataKey",
    "StreamsGroupTargetAssignmentMetadataValue",
    "StreamsGroupTargetAssignmentMemberKey",
    "StreamsGroupTargetAssignmentMemberValue",
    "StreamsGroupCurrentMemberAssignmentKey",
    "StreamsGroupCurrentMemberAssignmentValue",
    "StreamsGroupTopologyKey",
    "StreamsGroupTopologyValue",
    "MemberMetadata",
    "RECORDS",
    "key_bytes",
    "parse",
    "value_bytes",
]


@wire(versions="0", flexible="none")
class LegacyOffsetCommitKey:
    group: String = on("0", default="")
    topic: String = on("0", default="")
    partition: Int32 = on("0", default=0)


@wire(versions="0", flexible="none")
class LegacyOffsetCommitValue:
    offset: Int64 = on("0", default=0)
    metadata: String = on("0", default="")
    commit_timestamp: Int64 = on("0", default=0)


@wire(versions="0", flexible="none")
class OffsetCommitKey:
    group: String = on("0", default="")
    topic: String = on("0", default="")
    partition: Int32 = on("0", default=0)


@wire(versions="0-4", flexible="4+")
class OffsetCommitValue:
    """A committed offset. Version 4 has the topic id; version 1 is written if the client set an expiry time."""

    offset: Int64 = on("0+", default=0)
    leader_epoch: Int32 = on("3+", default=-1, ignorable=True)
    metadata: String = on("0+", default="")
    commit_timestamp: Int64 = on("0+", default=0)
    expire_timestamp: Int64 = on("1", default=-1, ignorable=True)
    topic_id: Uuid = on("4+", default=NO_UUID, tag=0, ignorable=True)


@wire(versions="0", flexible="none")
class GroupMetadataKey:
    group: String = on("0", default="")


@wire
class MemberMetadata:
    member_id: String = on("0+", default="")
    group_instance_id: String | None = on("3+", default=None, ignorable=True)
    client_id: String = on("0+", default="")
    client_host: String = on("0+", default="")
    rebalance_timeout: Int32 = on("1+", default=-1, ignorable=True)
    session_timeout: Int32 = on("0+", default=0)
    subscription: Bytes = on("0+", default=b"")
    assignment: Bytes = on("0+", default=b"")


@wire(versions="0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: String = on("0+", default="")
    generation: Int32 = on("0+", default=0)
    protocol: String | None = on("0+", default="")
    leader: String | None = on("0+", default="")
    current_state_timestamp: Int64 = on("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = on("0+", factory=list)


RECORDS = Keyed(
    {
        0: (LegacyOffsetCommitKey, LegacyOffsetCommitValue),
        1: (OffsetCommitKey, OffsetCommitValue),
        2: (GroupMetadataKey, GroupMetadataValue),
        3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
        7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
        10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
        12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
        13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
        15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
        16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
        17: (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
        19: (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
        20: (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
        21: (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
        22: (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
        23: (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
    }
)

key_bytes = RECORDS.key_bytes
value_bytes = RECORDS.value_bytes
parse = RECORDS.parse
