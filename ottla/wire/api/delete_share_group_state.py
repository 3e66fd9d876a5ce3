"""DeleteShareGroupState (key 86): the group coordinator deletes the stored state of share partitions (KIP-932)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, String, Uuid


@wire
class PartitionData:
    partition: Int32 = on("0+", default=0)


@wire
class DeleteStateData:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[PartitionData] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class DeleteShareGroupStateRequest:
    group_id: String = on("0+", default="")
    topics: list[DeleteStateData] = on("0+", factory=list)


@wire
class PartitionResult:
    partition: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)


@wire
class DeleteStateResult:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[PartitionResult] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    results: list[DeleteStateResult] = on("0+", factory=list)
