"""ReadShareGroupState (key 84): the leader of share partitions reads their stored state (KIP-932)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int8, Int16, Int32, Int64, String, Uuid


@wire
class PartitionData:
    partition: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("0+", default=0)


@wire
class ReadStateData:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[PartitionData] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class ReadShareGroupStateRequest:
    group_id: String = on("0+", default="")
    topics: list[ReadStateData] = on("0+", factory=list)


@wire
class StateBatch:
    first_offset: Int64 = on("0+", default=0)
    last_offset: Int64 = on("0+", default=0)
    delivery_state: Int8 = on("0+", default=0)
    delivery_count: Int16 = on("0+", default=0)


@wire
class PartitionResult:
    partition: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)
    state_epoch: Int32 = on("0+", default=0)
    start_offset: Int64 = on("0+", default=0)
    state_batches: list[StateBatch] = on("0+", factory=list)


@wire
class ReadStateResult:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[PartitionResult] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    results: list[ReadStateResult] = on("0+", factory=list)
