"""The records of `__remote_log_metadata` (KIP-405). Framed like metadata records, without the frame version."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Boolean, Bytes, Int8, Int32, Int64, String, Uuid


@wire
class TopicIdPartitionEntry:
    name: String = on("0+", default="")
    id: Uuid = on("0+", default=NO_UUID)
    partition: Int32 = on("0+", default=0)


@wire
class RemoteLogSegmentIdEntry:
    topic_id_partition: TopicIdPartitionEntry = on("0+", factory=TopicIdPartitionEntry)
    id: Uuid = on("0+", default=NO_UUID)


@wire
class SegmentLeaderEpochEntry:
    leader_epoch: Int32 = on("0+", default=0)
    offset: Int64 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class RemoteLogSegmentMetadataRecord:
    remote_log_segment_id: RemoteLogSegmentIdEntry = on("0+", factory=RemoteLogSegmentIdEntry)
    start_offset: Int64 = on("0+", default=0)
    end_offset: Int64 = on("0+", default=0)
    broker_id: Int32 = on("0+", default=0)
    max_timestamp_ms: Int64 = on("0+", default=0)
    event_timestamp_ms: Int64 = on("0+", default=0)
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = on("0+", factory=list)
    segment_size_in_bytes: Int32 = on("0+", default=0)
    custom_metadata: Bytes | None = on("0+", default=None)
    remote_log_segment_state: Int8 = on("0+", default=0)
    txn_index_empty: Boolean = on("0+", default=False, tag=0)


@wire(versions="0", flexible="0+")
class RemoteLogSegmentMetadataUpdateRecord:
    remote_log_segment_id: RemoteLogSegmentIdEntry = on("0+", factory=RemoteLogSegmentIdEntry)
    broker_id: Int32 = on("0+", default=0)
    event_timestamp_ms: Int64 = on("0+", default=0)
    custom_metadata: Bytes | None = on("0+", default=None)
    remote_log_segment_state: Int8 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class RemotePartitionDeleteMetadataRecord:
    topic_id_partition: TopicIdPartitionEntry = on("0+", factory=TopicIdPartitionEntry)
    broker_id: Int32 = on("0+", default=0)
    event_timestamp_ms: Int64 = on("0+", default=0)
    remote_partition_delete_state: Int8 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class RemoteLogSegmentMetadataSnapshotRecord:
    segment_id: Uuid = on("0+", default=NO_UUID)
    start_offset: Int64 = on("0+", default=0)
    end_offset: Int64 = on("0+", default=0)
    broker_id: Int32 = on("0+", default=0)
    max_timestamp_ms: Int64 = on("0+", default=0)
    event_timestamp_ms: Int64 = on("0+", default=0)
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = on("0+", factory=list)
    segment_size_in_bytes: Int32 = on("0+", default=0)
    custom_metadata: Bytes | None = on("0+", default=None)
    remote_log_segment_state: Int8 = on("0+", default=0)
    txn_index_empty: Boolean = on("0+", default=False, tag=0)
