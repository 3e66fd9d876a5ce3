"""OffsetCommit (key 8): commit a group's offsets.

Versions: 6 the leader epoch; 7 static members; 8 flexible; 9 members of consumer groups, by epoch (KIP-848); 10 topic
ids (KIP-848). The retention time of versions 2 to 4 is accepted and stored as an expiry time.
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, Int64, String, Uuid


@wire
class OffsetCommitRequestPartition:
    partition_index: Int32 = on("0+", default=0)
    committed_offset: Int64 = on("0+", default=0)
    committed_leader_epoch: Int32 = on("6+", default=-1, ignorable=True)
    committed_metadata: String | None = on("0+", default="")


@wire
class OffsetCommitRequestTopic:
    name: String = on("0-9", default="", ignorable=True)
    topic_id: Uuid = on("10+", default=NO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = on("0+", factory=list)


@wire(versions="2-10", flexible="8+")
class OffsetCommitRequest:
    group_id: String = on("0+", default="")
    generation_id_or_member_epoch: Int32 = on("1+", default=-1, ignorable=True)
    member_id: String = on("1+", default="", ignorable=True)
    group_instance_id: String | None = on("7+", default=None)
    retention_time_ms: Int64 = on("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = on("0+", factory=list)


@wire
class OffsetCommitResponsePartition:
    partition_index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)


@wire
class OffsetCommitResponseTopic:
    name: String = on("0-9", default="", ignorable=True)
    topic_id: Uuid = on("10+", default=NO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = on("0+", factory=list)


@wire(versions="2-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: Int32 = on("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = on("0+", factory=list)
