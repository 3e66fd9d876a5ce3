"""AddPartitionsToTxn (key 24): partitions join a transaction (KIP-98).

Up to version 3, producers send it for one transaction. From version 4 on, brokers send it for many, and may only verify
that a partition is part of one (KIP-890).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Int16, Int32, Int64, String


@wire
class AddPartitionsToTxnTopic:
    name: String = on("0+", default="")
    partitions: list[Int32] = on("0+", factory=list)


@wire
class AddPartitionsToTxnTransaction:
    transactional_id: String = on("4+", default="")
    producer_id: Int64 = on("4+", default=0)
    producer_epoch: Int16 = on("4+", default=0)
    verify_only: Boolean = on("4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = on("4+", factory=list)


@wire(versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = on("4+", factory=list)
    v3_and_below_transactional_id: String = on("0-3", default="")
    v3_and_below_producer_id: Int64 = on("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = on("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = on("0-3", factory=list)


@wire
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32 = on("0+", default=0)
    partition_error_code: Int16 = on("0+", default=0)


@wire
class AddPartitionsToTxnTopicResult:
    name: String = on("0+", default="")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = on("0+", factory=list)


@wire
class AddPartitionsToTxnResult:
    transactional_id: String = on("4+", default="")
    topic_results: list[AddPartitionsToTxnTopicResult] = on("4+", factory=list)


@wire(versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = on("4+", factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = on("0-3", factory=list)
