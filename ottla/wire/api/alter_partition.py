"""AlterPartition (key 56): a partition's leader requests a new ISR from the controller (KIP-497).

Version 2: topic ids; 3 the ISR with broker epochs, so that a restarted replica is rejected (KIP-903).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int8, Int16, Int32, Int64, Uuid


@wire
class BrokerState:
    broker_id: Int32 = on("3+", default=0)
    broker_epoch: Int64 = on("3+", default=-1)


@wire
class RequestPartitionData:
    partition_index: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("0+", default=0)
    new_isr: list[Int32] = on("0-2", factory=list)
    new_isr_with_epochs: list[BrokerState] = on("3+", factory=list)
    leader_recovery_state: Int8 = on("1+", default=0)
    partition_epoch: Int32 = on("0+", default=0)


@wire
class RequestTopicData:
    topic_id: Uuid = on("2+", default=NO_UUID, ignorable=True)
    partitions: list[RequestPartitionData] = on("0+", factory=list)


@wire(versions="2-3", flexible="0+")
class AlterPartitionRequest:
    broker_id: Int32 = on("0+", default=0)
    broker_epoch: Int64 = on("0+", default=-1)
    topics: list[RequestTopicData] = on("0+", factory=list)


@wire
class ResponsePartitionData:
    partition_index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    leader_id: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("0+", default=0)
    isr: list[Int32] = on("0+", factory=list)
    leader_recovery_state: Int8 = on("1+", default=0, ignorable=True)
    partition_epoch: Int32 = on("0+", default=0)


@wire
class ResponseTopicData:
    topic_id: Uuid = on("2+", default=NO_UUID, ignorable=True)
    partitions: list[ResponsePartitionData] = on("0+", factory=list)


@wire(versions="2-3", flexible="0+")
class AlterPartitionResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    topics: list[ResponseTopicData] = on("0+", factory=list)
