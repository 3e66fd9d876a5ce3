"""Records of consumer groups in `__consumer_offsets` (KIP-848). `offset` has their framing.

ConsumerGroupPartitionMetadata is no longer written: the metadata hash replaced it. It is still replayed.
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Bytes, Int8, Int32, Int64, String, Uuid


@wire(versions="0", flexible="none")
class ConsumerGroupMetadataKey:
    group_id: String = on("0", default="")


@wire(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    epoch: Int32 = on("0+", default=0)
    metadata_hash: Int64 = on("0+", default=0, tag=0)


@wire(versions="0", flexible="none")
class ConsumerGroupPartitionMetadataKey:
    group_id: String = on("0", default="")


@wire
class PartitionMetadata:
    partition: Int32 = on("0+", default=0)
    racks: list[String] = on("0+", factory=list)


@wire
class TopicMetadata:
    topic_id: Uuid = on("0+", default=NO_UUID)
    topic_name: String = on("0+", default="")
    num_partitions: Int32 = on("0+", default=0)
    partition_metadata: list[PartitionMetadata] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    topics: list[TopicMetadata] = on("0+", factory=list)


@wire(versions="0", flexible="none")
class ConsumerGroupMemberMetadataKey:
    group_id: String = on("0", default="")
    member_id: String = on("0", default="")


@wire
class ClassicProtocol:
    name: String = on("0+", default="")
    metadata: Bytes = on("0+", default=b"")


@wire
class ClassicMemberMetadata:
    session_timeout_ms: Int32 = on("0+", default=0)
    supported_protocols: list[ClassicProtocol] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    instance_id: String | None = on("0+", default="")
    rack_id: String | None = on("0+", default="")
    client_id: String = on("0+", default="")
    client_host: String = on("0+", default="")
    subscribed_topic_names: list[String] = on("0+", factory=list)
    subscribed_topic_regex: String | None = on("0+", default="")
    rebalance_timeout_ms: Int32 = on("0+", default=-1)
    server_assignor: String | None = on("0+", default="")
    classic_member_metadata: ClassicMemberMetadata | None = on("0+", factory=ClassicMemberMetadata, tag=0)


@wire(versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: String = on("0", default="")


@wire(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32 = on("0+", default=0)
    assignment_timestamp: Int64 = on("0+", default=0, tag=0, ignorable=True)


@wire(versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: String = on("0", default="")
    member_id: String = on("0", default="")


@wire
class TopicPartition:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[Int32] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartition] = on("0+", factory=list)


@wire(versions="0", flexible="none")
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: String = on("0", default="")
    member_id: String = on("0", default="")


@wire
class TopicPartitions:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[Int32] = on("0+", factory=list)
    assignment_epochs: list[Int32] | None = on("0+", factory=list, tag=0)


@wire(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: Int32 = on("0+", default=0)
    previous_member_epoch: Int32 = on("0+", default=0)
    state: Int8 = on("0+", default=0)
    assigned_partitions: list[TopicPartitions] = on("0+", factory=list)
    partitions_pending_revocation: list[TopicPartitions] = on("0+", factory=list)


@wire(versions="0", flexible="none")
class ConsumerGroupRegularExpressionKey:
    group_id: String = on("0", default="")
    regular_expression: String = on("0", default="")


@wire(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    topics: list[String] = on("0+", factory=list)
    version: Int64 = on("0+", default=0)
    timestamp: Int64 = on("0+", default=0)
