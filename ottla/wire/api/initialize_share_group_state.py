"""InitializeShareGroupState (key 83): the group coordinator creates the stored state of share partitions (KIP-932)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, Int64, String, Uuid


@wire
class PartitionData:
    partition: Int32 = on("0+", default=0)
    state_epoch: Int32 = on("0+", default=0)
    start_offset: Int64 = on("0+", default=0)


@wire
class InitializeStateData:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[PartitionData] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    group_id: String = on("0+", default="")
    topics: list[InitializeStateData] = on("0+", factory=list)


@wire
class PartitionResult:
    partition: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)


@wire
class InitializeStateResult:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[PartitionResult] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    results: list[InitializeStateResult] = on("0+", factory=list)
