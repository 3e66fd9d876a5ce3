"""DeleteRecords (key 21): raise the log start offset of partitions (KIP-107). Offset -1 is the high watermark."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, Int64, String


@wire
class DeleteRecordsPartition:
    partition_index: Int32 = on("0+", default=0)
    offset: Int64 = on("0+", default=0)


@wire
class DeleteRecordsTopic:
    name: String = on("0+", default="")
    partitions: list[DeleteRecordsPartition] = on("0+", factory=list)


@wire(versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = on("0+", factory=list)
    timeout_ms: Int32 = on("0+", default=0)


@wire
class DeleteRecordsPartitionResult:
    partition_index: Int32 = on("0+", default=0)
    low_watermark: Int64 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)


@wire
class DeleteRecordsTopicResult:
    name: String = on("0+", default="")
    partitions: list[DeleteRecordsPartitionResult] = on("0+", factory=list)


@wire(versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    topics: list[DeleteRecordsTopicResult] = on("0+", factory=list)
