"""AlterShareGroupOffsets (key 91): set the start offsets of an empty share group (KIP-932)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, Int64, String, Uuid


@wire
class AlterShareGroupOffsetsRequestPartition:
    partition_index: Int32 = on("0+", default=0)
    start_offset: Int64 = on("0+", default=0)


@wire
class AlterShareGroupOffsetsRequestTopic:
    topic_name: String = on("0+", default="")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    group_id: String = on("0+", default="")
    topics: list[AlterShareGroupOffsetsRequestTopic] = on("0+", factory=list)


@wire
class AlterShareGroupOffsetsResponsePartition:
    partition_index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)


@wire
class AlterShareGroupOffsetsResponseTopic:
    topic_name: String = on("0+", default="")
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = on("0+", factory=list)
