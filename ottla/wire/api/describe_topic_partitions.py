"""DescribeTopicPartitions (key 75): topics and partitions page by page, with the eligible leader replicas (KIP-966)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Boolean, Int16, Int32, String, Uuid


@wire
class TopicRequest:
    name: String = on("0+", default="")


@wire
class Cursor:
    topic_name: String = on("0+", default="")
    partition_index: Int32 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = on("0+", factory=list)
    response_partition_limit: Int32 = on("0+", default=2000)
    cursor: Cursor | None = on("0+", default=None)


@wire
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16 = on("0+", default=0)
    partition_index: Int32 = on("0+", default=0)
    leader_id: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("0+", default=-1, ignorable=True)
    replica_nodes: list[Int32] = on("0+", factory=list)
    isr_nodes: list[Int32] = on("0+", factory=list)
    eligible_leader_replicas: list[Int32] | None = on("0+", default=None)
    last_known_elr: list[Int32] | None = on("0+", default=None)
    offline_replicas: list[Int32] = on("0+", factory=list, ignorable=True)


@wire
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16 = on("0+", default=0)
    name: String | None = on("0+", default="")
    topic_id: Uuid = on("0+", default=NO_UUID, ignorable=True)
    is_internal: Boolean = on("0+", default=False, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = on("0+", factory=list)
    topic_authorized_operations: Int32 = on("0+", default=-2147483648)


@wire(versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: Int32 = on("0+", default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = on("0+", factory=list)
    next_cursor: Cursor | None = on("0+", default=None)
