"""Produce (key 0): append record batches to partitions.

Versions: 3 transactional id; 7 zstd; 8 the invalid records and the reasons; 9 flexible; 10 the new leader and its
endpoint in the response (KIP-951); 11 TRANSACTION_ABORTABLE (KIP-890); 12 a write adds its partition to the transaction
(KIP-890); 13 topic ids instead of names (KIP-516).
A broker advertises 0 as the lowest version although it serves 3 and up: librdkafka does not compress for a broker whose
range starts higher (KAFKA-18659). The range here is the served one.
With acks=0 there is no response.
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, Int64, Records, String, Uuid


@wire
class PartitionProduceData:
    index: Int32 = on("0+", default=0)
    records: Records | None = on("0+", default=None)


@wire
class TopicProduceData:
    name: String = on("0-12", default="", ignorable=True)
    topic_id: Uuid = on("13+", default=NO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData] = on("0+", factory=list)


@wire(versions="3-13", flexible="9+")
class ProduceRequest:
    transactional_id: String | None = on("3+", default=None)
    acks: Int16 = on("0+", default=0)
    timeout_ms: Int32 = on("0+", default=0)
    topic_data: list[TopicProduceData] = on("0+", factory=list)


@wire
class BatchIndexAndErrorMessage:
    batch_index: Int32 = on("8+", default=0)
    batch_index_error_message: String | None = on("8+", default=None)


@wire
class LeaderIdAndEpoch:
    leader_id: Int32 = on("10+", default=-1)
    leader_epoch: Int32 = on("10+", default=-1)


@wire
class PartitionProduceResponse:
    index: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    base_offset: Int64 = on("0+", default=0)
    log_append_time_ms: Int64 = on("2+", default=-1, ignorable=True)
    log_start_offset: Int64 = on("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = on("8+", factory=list, ignorable=True)
    error_message: String | None = on("8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = on("10+", factory=LeaderIdAndEpoch, tag=0)


@wire
class TopicProduceResponse:
    name: String = on("0-12", default="", ignorable=True)
    topic_id: Uuid = on("13+", default=NO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = on("0+", factory=list)


@wire
class NodeEndpoint:
    node_id: Int32 = on("10+", default=0)
    host: String = on("10+", default="")
    port: Int32 = on("10+", default=0)
    rack: String | None = on("10+", default=None)


@wire(versions="3-13", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = on("0+", factory=list)
    throttle_time_ms: Int32 = on("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = on("10+", factory=list, tag=0)
