"""AlterPartitionReassignments (key 45): start and cancel reassignments of partitions (KIP-455).

Version 1: whether the replication factor may change (KIP-860).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Int16, Int32, String


@wire
class ReassignablePartition:
    partition_index: Int32 = on("0+", default=0)
    replicas: list[Int32] | None = on("0+", default=None)


@wire
class ReassignableTopic:
    name: String = on("0+", default="")
    partitions: list[ReassignablePartition] = on("0+", factory=list)


@wire(versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: Int32 = on("0+", default=60000)
    allow_replication_factor_change: Boolean = on("1+", default=True)
    topics: list[ReassignableTopic] = on("0+", factory=list)


@wire
class ReassignablePartitionResponse:
    partition_index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")


@wire
class ReassignableTopicResponse:
    name: String = on("0+", default="")
    partitions: list[ReassignablePartitionResponse] = on("0+", factory=list)


@wire(versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    allow_replication_factor_change: Boolean = on("1+", default=True, ignorable=True)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")
    responses: list[ReassignableTopicResponse] = on("0+", factory=list)
