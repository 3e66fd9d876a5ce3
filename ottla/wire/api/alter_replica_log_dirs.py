"""AlterReplicaLogDirs (key 34): move replicas between the log directories of a broker (KIP-113)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, String


@wire
class AlterReplicaLogDirTopic:
    name: String = on("0+", default="")
    partitions: list[Int32] = on("0+", factory=list)


@wire
class AlterReplicaLogDir:
    path: String = on("0+", default="")
    topics: list[AlterReplicaLogDirTopic] = on("0+", factory=list)


@wire(versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = on("0+", factory=list)


@wire
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)


@wire
class AlterReplicaLogDirTopicResult:
    topic_name: String = on("0+", default="")
    partitions: list[AlterReplicaLogDirPartitionResult] = on("0+", factory=list)


@wire(versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    results: list[AlterReplicaLogDirTopicResult] = on("0+", factory=list)
