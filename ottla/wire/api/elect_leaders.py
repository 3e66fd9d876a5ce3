"""ElectLeaders (key 43): elect the preferred leader of partitions, or an unclean one (KIP-183, KIP-460)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int8, Int16, Int32, String


@wire
class TopicPartitions:
    topic: String = on("0+", default="")
    partitions: list[Int32] = on("0+", factory=list)


@wire(versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: Int8 = on("1+", default=0)
    topic_partitions: list[TopicPartitions] | None = on("0+", factory=list)
    timeout_ms: Int32 = on("0+", default=60000)


@wire
class PartitionResult:
    partition_id: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")


@wire
class ReplicaElectionResult:
    topic: String = on("0+", default="")
    partition_result: list[PartitionResult] = on("0+", factory=list)


@wire(versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = on("0+", factory=list)
