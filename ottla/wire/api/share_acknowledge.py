"""ShareAcknowledge (key 79): acknowledge records of a share group without fetching more (KIP-932).

Version 2: locks can be renewed (KIP-1222).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Boolean, Int8, Int16, Int32, Int64, String, Uuid


@wire
class AcknowledgementBatch:
    first_offset: Int64 = on("0+", default=0)
    last_offset: Int64 = on("0+", default=0)
    acknowledge_types: list[Int8] = on("0+", factory=list)


@wire
class AcknowledgePartition:
    partition_index: Int32 = on("0+", default=0)
    acknowledgement_batches: list[AcknowledgementBatch] = on("0+", factory=list)


@wire
class AcknowledgeTopic:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[AcknowledgePartition] = on("0+", factory=list)


@wire(versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    group_id: String | None = on("0+", default=None)
    member_id: String | None = on("0+", default="")
    share_session_epoch: Int32 = on("0+", default=0)
    is_renew_ack: Boolean = on("2+", default=False)
    topics: list[AcknowledgeTopic] = on("0+", factory=list)


@wire
class LeaderIdAndEpoch:
    leader_id: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("0+", default=0)


@wire
class PartitionData:
    partition_index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)
    current_leader: LeaderIdAndEpoch = on("0+", factory=LeaderIdAndEpoch)


@wire
class ShareAcknowledgeTopicResponse:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[PartitionData] = on("0+", factory=list)


@wire
class NodeEndpoint:
    node_id: Int32 = on("0+", default=0)
    host: String = on("0+", default="")
    port: Int32 = on("0+", default=0)
    rack: String | None = on("0+", default=None)


@wire(versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)
    acquisition_lock_timeout_ms: Int32 = on("2+", default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = on("0+", factory=list)
    node_endpoints: list[NodeEndpoint] = on("0+", factory=list)
