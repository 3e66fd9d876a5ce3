"""OffsetDelete (key 47): delete committed offsets of a group (KIP-496). Never flexible."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, String


@wire
class OffsetDeleteRequestPartition:
    partition_index: Int32 = on("0+", default=0)


@wire
class OffsetDeleteRequestTopic:
    name: String = on("0+", default="")
    partitions: list[OffsetDeleteRequestPartition] = on("0+", factory=list)


@wire(versions="0", flexible="none")
class OffsetDeleteRequest:
    group_id: String = on("0+", default="")
    topics: list[OffsetDeleteRequestTopic] = on("0+", factory=list)


@wire
class OffsetDeleteResponsePartition:
    partition_index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)


@wire
class OffsetDeleteResponseTopic:
    name: String = on("0+", default="")
    partitions: list[OffsetDeleteResponsePartition] = on("0+", factory=list)


@wire(versions="0", flexible="none")
class OffsetDeleteResponse:
    error_code: Int16 = on("0+", default=0)
    throttle_time_ms: Int32 = on("0+", default=0, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = on("0+", factory=list)
