"""ReadShareGroupStateSummary (key 87): start offset and epochs of share partitions, without their batches (KIP-932).

Version 1: the number of completed deliveries (KIP-1226).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, Int64, String, Uuid


@wire
class PartitionData:
    partition: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("0+", default=0)


@wire
class ReadStateSummaryData:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[PartitionData] = on("0+", factory=list)


@wire(versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    group_id: String = on("0+", default="")
    topics: list[ReadStateSummaryData] = on("0+", factory=list)


@wire
class PartitionResult:
    partition: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)
    state_epoch: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("0+", default=0)
    start_offset: Int64 = on("0+", default=0)
    delivery_complete_count: Int32 = on("1+", default=-1, ignorable=True)


@wire
class ReadStateSummaryResult:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[PartitionResult] = on("0+", factory=list)


@wire(versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    results: list[ReadStateSummaryResult] = on("0+", factory=list)
