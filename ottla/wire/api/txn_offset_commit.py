"""TxnOffsetCommit (key 28): commit a group's offsets as part of a transaction (KIP-98).

Version 3: the member is checked (KIP-447); 5 the write adds the offsets partition to the transaction (KIP-890); 6 (4.4)
topic ids (KIP-1319).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, Int64, String, Uuid


@wire
class TxnOffsetCommitRequestPartition:
    partition_index: Int32 = on("0+", default=0)
    committed_offset: Int64 = on("0+", default=0)
    committed_leader_epoch: Int32 = on("2+", default=-1, ignorable=True)
    committed_metadata: String | None = on("0+", default="")


@wire
class TxnOffsetCommitRequestTopic:
    name: String = on("0-5", default="", ignorable=True)
    topic_id: Uuid = on("6+", default=NO_UUID, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = on("0+", factory=list)


@wire(versions="0-6", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: String = on("0+", default="")
    group_id: String = on("0+", default="")
    producer_id: Int64 = on("0+", default=0)
    producer_epoch: Int16 = on("0+", default=0)
    generation_id_or_member_epoch: Int32 = on("3+", default=-1)
    member_id: String = on("3+", default="")
    group_instance_id: String | None = on("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = on("0+", factory=list)


@wire
class TxnOffsetCommitResponsePartition:
    partition_index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)


@wire
class TxnOffsetCommitResponseTopic:
    name: String = on("0-5", default="", ignorable=True)
    topic_id: Uuid = on("6+", default=NO_UUID, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = on("0+", factory=list)


@wire(versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    topics: list[TxnOffsetCommitResponseTopic] = on("0+", factory=list)
