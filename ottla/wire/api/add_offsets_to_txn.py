"""AddOffsetsToTxn (key 25): the offsets partition of a group joins a transaction (KIP-98).

Version 3 flexible; 4 TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, Int64, String


@wire(versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: String = on("0+", default="")
    producer_id: Int64 = on("0+", default=0)
    producer_epoch: Int16 = on("0+", default=0)
    group_id: String = on("0+", default="")


@wire(versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
