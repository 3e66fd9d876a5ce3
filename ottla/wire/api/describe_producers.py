"""DescribeProducers (key 61): the active producers of partitions, from their leaders (KIP-664)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, Int64, String


@wire
class TopicRequest:
    name: String = on("0+", default="")
    partition_indexes: list[Int32] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: list[TopicRequest] = on("0+", factory=list)


@wire
class ProducerState:
    producer_id: Int64 = on("0+", default=0)
    producer_epoch: Int32 = on("0+", default=0)
    last_sequence: Int32 = on("0+", default=-1)
    last_timestamp: Int64 = on("0+", default=-1)
    coordinator_epoch: Int32 = on("0+", default=0)
    current_txn_start_offset: Int64 = on("0+", default=-1)


@wire
class PartitionResponse:
    partition_index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)
    active_producers: list[ProducerState] = on("0+", factory=list)


@wire
class TopicResponse:
    name: String = on("0+", default="")
    partitions: list[PartitionResponse] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    topics: list[TopicResponse] = on("0+", factory=list)
