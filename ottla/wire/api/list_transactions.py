"""ListTransactions (key 66): the transactions of this coordinator (KIP-664).

Version 1: filter by duration (KIP-994); 2 filter by a pattern for the id (KIP-1152).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, Int64, String


@wire(versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: list[String] = on("0+", factory=list)
    producer_id_filters: list[Int64] = on("0+", factory=list)
    duration_filter: Int64 = on("1+", default=-1)
    transactional_id_pattern: String | None = on("2+", default=None)


@wire
class TransactionState:
    transactional_id: String = on("0+", default="")
    producer_id: Int64 = on("0+", default=0)
    transaction_state: String = on("0+", default="")


@wire(versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    unknown_state_filters: list[String] = on("0+", factory=list)
    transaction_states: list[TransactionState] = on("0+", factory=list)
