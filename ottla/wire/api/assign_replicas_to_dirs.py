"""AssignReplicasToDirs (key 73): a broker reports the log directory of each replica (KIP-858)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, Int64, Uuid


@wire
class RequestPartitionData:
    partition_index: Int32 = on("0+", default=0)


@wire
class RequestTopicData:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[RequestPartitionData] = on("0+", factory=list)


@wire
class RequestDirectoryData:
    id: Uuid = on("0+", default=NO_UUID)
    topics: list[RequestTopicData] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class AssignReplicasToDirsRequest:
    broker_id: Int32 = on("0+", default=0)
    broker_epoch: Int64 = on("0+", default=-1)
    directories: list[RequestDirectoryData] = on("0+", factory=list)


@wire
class ResponsePartitionData:
    partition_index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)


@wire
class ResponseTopicData:
    topic_id: Uuid = on("0+", default=NO_UUID)
    partitions: list[ResponsePartitionData] = on("0+", factory=list)


@wire
class ResponseDirectoryData:
    id: Uuid = on("0+", default=NO_UUID)
    topics: list[ResponseTopicData] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class AssignReplicasToDirsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    directories: list[ResponseDirectoryData] = on("0+", factory=list)
