"""Records of share groups in `__consumer_offsets` (KIP-932). `offset` has their framing.

The state of share partitions is in `share`.
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int8, Int32, Int64, String, Uuid


@wire(versions="0", flexible="none")
class ShareGroupMemberMetadataKey:
    group_id: String = on("0", default="")
    member_id: String = on("0", default="")


@wire(versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    rack_id: String | None = on("0+", default="")
    client_id: String = on("0+", default="")
    client_host: String = on("0+", default="")
    subscribed_topic_names: list[String] = on("0+", factory=list)


@wire(versions="0", flexible="none")
class ShareGroupMetadataKey:
    group_id: String = on("0", default="")


@wire(versions="0", flexible="0+")
class ShareGroupMetadataValue:
    epoch: Int32 = on("0+", default=0)
    metadata_hash: Int64 = on("0+", default=0)


@wire(versions="0", flexible="none")
class ShareGroupTargetAssignmentMetadataKey:
    group_id: String = on("0", default="")


@wire(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32 = on("0+", default=0)
    assignment_timestamp: Int64 = on("0+", default=0, tag=0, ignorable=True)


@wire(versions="0", flexible="none")
class ShareGroupTargetAssignmentMemberKey:
    group_id: String = on("0", default="")
    member_id: String = on("0", default="")


@wire
class TopicPartition:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[Int32] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartition] = on("0+", factory=list)


@wire(versions="0", flexible="none")
class ShareGroupCurrentMemberAssignmentKey:
    group_id: String = on("0", default="")
    member_id: String = on("0", default="")


@wire
class TopicPartitions:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[Int32] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: Int32 = on("0+", default=0)
    previous_member_epoch: Int32 = on("0+", default=0)
    state: Int8 = on("0+", default=0)
    assigned_partitions: list[TopicPartitions] = on("0+", factory=list)


@wire(versions="0", flexible="none")
class ShareGroupStatePartitionMetadataKey:
    group_id: String = on("0", default="")


@wire
class TopicPartitionsInfo:
    topic_id: Uuid = on("0+", default=NO_UUID)
    topic_name: String = on("0+", default="")
    partitions: list[Int32] = on("0+", factory=list)


@wire
class TopicInfo:
    topic_id: Uuid = on("0+", default=NO_UUID)
    topic_name: String = on("0+", default="")


@wire(versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    initializing_topics: list[TopicPartitionsInfo] = on("0+", factory=list)
    initialized_topics: list[TopicPartitionsInfo] = on("0+", factory=list)
    deleting_topics: list[TopicInfo] = on("0+", factory=list)
