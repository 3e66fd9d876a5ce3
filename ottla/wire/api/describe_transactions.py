"""DescribeTransactions (key 65): state, producer and partitions of transactions (KIP-664)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, Int64, String


@wire(versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: list[String] = on("0+", factory=list)


@wire
class TopicData:
    topic: String = on("0+", default="")
    partitions: list[Int32] = on("0+", factory=list)


@wire
class TransactionState:
    error_code: Int16 = on("0+", default=0)
    transactional_id: String = on("0+", default="")
    transaction_state: String = on("0+", default="")
    transaction_timeout_ms: Int32 = on("0+", default=0)
    transaction_start_time_ms: Int64 = on("0+", default=0)
    producer_id: Int64 = on("0+", default=0)
    producer_epoch: Int16 = on("0+", default=0)
    topics: list[TopicData] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    transaction_states: list[TransactionState] = on("0+", factory=list)
