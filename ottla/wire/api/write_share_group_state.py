"""WriteShareGroupState (key 85): the leader of share partitions stores their state (KIP-932).

Version 1: the number of completed deliveries, from which a group's lag is computed (KIP-1226).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int8, Int16, Int32, Int64, String, Uuid


@wire
class StateBatch:
    first_offset: Int64 = on("0+", default=0)
    last_offset: Int64 = on("0+", default=0)
    delivery_state: Int8 = on("0+", default=0)
    delivery_count: Int16 = on("0+", default=0)


@wire
class PartitionData:
    partition: Int32 = on("0+", default=0)
    state_epoch: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("0+", default=0)
    start_offset: Int64 = on("0+", default=0)
    delivery_complete_count: Int32 = on("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = on("0+", factory=list)


@wire
class WriteStateData:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[PartitionData] = on("0+", factory=list)


@wire(versions="0-1", flexible="0+")
class WriteShareGroupStateRequest:
    group_id: String = on("0+", default="")
    topics: list[WriteStateData] = on("0+", factory=list)


@wire
class PartitionResult:
    partition: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)


@wire
class WriteStateResult:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[PartitionResult] = on("0+", factory=list)


@wire(versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    results: list[WriteStateResult] = on("0+", factory=list)
