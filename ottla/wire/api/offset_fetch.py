"""OffsetFetch (key 9): a group's committed offsets.

Versions: 2 all partitions with a null list; 5 leader epochs; 7 stable offsets only (KIP-447); 8 many groups in one
request (KIP-709); 9 member id and epoch (KIP-848); 10 topic ids.
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Boolean, Int16, Int32, Int64, String, Uuid


@wire
class OffsetFetchRequestTopic:
    name: String = on("0-7", default="")
    partition_indexes: list[Int32] = on("0-7", factory=list)


@wire
class OffsetFetchRequestTopics:
    name: String = on("8-9", default="", ignorable=True)
    topic_id: Uuid = on("10+", default=NO_UUID, ignorable=True)
    partition_indexes: list[Int32] = on("8+", factory=list)


@wire
class OffsetFetchRequestGroup:
    group_id: String = on("8+", default="")
    member_id: String | None = on("9+", default=None, ignorable=True)
    member_epoch: Int32 = on("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = on("8+", factory=list)


@wire(versions="1-10", flexible="6+")
class OffsetFetchRequest:
    group_id: String = on("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = on("0-7", factory=list, nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = on("8+", factory=list)
    require_stable: Boolean = on("7+", default=False)


@wire
class OffsetFetchResponsePartition:
    partition_index: Int32 = on("0-7", default=0)
    committed_offset: Int64 = on("0-7", default=0)
    committed_leader_epoch: Int32 = on("5-7", default=-1, ignorable=True)
    metadata: String | None = on("0-7", default="")
    error_code: Int16 = on("0-7", default=0)


@wire
class OffsetFetchResponseTopic:
    name: String = on("0-7", default="")
    partitions: list[OffsetFetchResponsePartition] = on("0-7", factory=list)


@wire
class OffsetFetchResponsePartitions:
    partition_index: Int32 = on("8+", default=0)
    committed_offset: Int64 = on("8+", default=0)
    committed_leader_epoch: Int32 = on("8+", default=-1, ignorable=True)
    metadata: String | None = on("8+", default="")
    error_code: Int16 = on("8+", default=0)


@wire
class OffsetFetchResponseTopics:
    name: String = on("8-9", default="", ignorable=True)
    topic_id: Uuid = on("10+", default=NO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = on("8+", factory=list)


@wire
class OffsetFetchResponseGroup:
    group_id: String = on("8+", default="")
    topics: list[OffsetFetchResponseTopics] = on("8+", factory=list)
    error_code: Int16 = on("8+", default=0)


@wire(versions="1-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: Int32 = on("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = on("0-7", factory=list)
    error_code: Int16 = on("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = on("8+", factory=list)
