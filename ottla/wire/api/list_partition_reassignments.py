"""ListPartitionReassignments (key 46): the ongoing reassignments (KIP-455)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, String


@wire
class ListPartitionReassignmentsTopics:
    name: String = on("0+", default="")
    partition_indexes: list[Int32] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: Int32 = on("0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = on("0+", default=None)


@wire
class OngoingPartitionReassignment:
    partition_index: Int32 = on("0+", default=0)
    replicas: list[Int32] = on("0+", factory=list)
    adding_replicas: list[Int32] = on("0+", factory=list)
    removing_replicas: list[Int32] = on("0+", factory=list)


@wire
class OngoingTopicReassignment:
    name: String = on("0+", default="")
    partitions: list[OngoingPartitionReassignment] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")
    topics: list[OngoingTopicReassignment] = on("0+", factory=list)
