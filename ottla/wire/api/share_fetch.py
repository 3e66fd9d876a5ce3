"""ShareFetch (key 78): acquire and fetch records of a share group, and acknowledge earlier ones (KIP-932).

Version 2: strict or batch-aligned acquisition (KIP-1206), and locks can be renewed (KIP-1222).
Acknowledgements: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Boolean, Int8, Int16, Int32, Int64, Records, String, Uuid


@wire
class AcknowledgementBatch:
    first_offset: Int64 = on("0+", default=0)
    last_offset: Int64 = on("0+", default=0)
    acknowledge_types: list[Int8] = on("0+", factory=list)


@wire
class FetchPartition:
    partition_index: Int32 = on("0+", default=0)
    partition_max_bytes: Int32 = on("0", default=0)
    acknowledgement_batches: list[AcknowledgementBatch] = on("0+", factory=list)


@wire
class FetchTopic:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[FetchPartition] = on("0+", factory=list)


@wire
class ForgottenTopic:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[Int32] = on("0+", factory=list)


@wire(versions="1-2", flexible="0+")
class ShareFetchRequest:
    group_id: String | None = on("0+", default=None)
    member_id: String | None = on("0+", default="")
    share_session_epoch: Int32 = on("0+", default=0)
    max_wait_ms: Int32 = on("0+", default=0)
    min_bytes: Int32 = on("0+", default=0)
    max_bytes: Int32 = on("0+", default=0x7FFFFFFF)
    max_records: Int32 = on("1+", default=0)
    batch_size: Int32 = on("1+", default=0)
    share_acquire_mode: Int8 = on("2+", default=0, ignorable=True)
    is_renew_ack: Boolean = on("2+", default=False)
    topics: list[FetchTopic] = on("0+", factory=list)
    forgotten_topics_data: list[ForgottenTopic] = on("0+", factory=list)


@wire
class LeaderIdAndEpoch:
    leader_id: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("0+", default=0)


@wire
class AcquiredRecords:
    first_offset: Int64 = on("0+", default=0)
    last_offset: Int64 = on("0+", default=0)
    delivery_count: Int16 = on("0+", default=0)


@wire
class PartitionData:
    partition_index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)
    acknowledge_error_code: Int16 = on("0+", default=0)
    acknowledge_error_message: String | None = on("0+", default=None)
    current_leader: LeaderIdAndEpoch = on("0+", factory=LeaderIdAndEpoch)
    records: Records = on("0+", default=None)
    acquired_records: list[AcquiredRecords] = on("0+", factory=list)


@wire
class ShareFetchableTopicResponse:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[PartitionData] = on("0+", factory=list)


@wire
class NodeEndpoint:
    node_id: Int32 = on("0+", default=0)
    host: String = on("0+", default="")
    port: Int32 = on("0+", default=0)
    rack: String | None = on("0+", default=None)


@wire(versions="1-2", flexible="0+")
class ShareFetchResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)
    acquisition_lock_timeout_ms: Int32 = on("1+", default=0)
    responses: list[ShareFetchableTopicResponse] = on("0+", factory=list)
    node_endpoints: list[NodeEndpoint] = on("0+", factory=list)
