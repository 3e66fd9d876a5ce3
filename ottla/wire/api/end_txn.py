"""EndTxn (key 26): commit or abort a transaction (KIP-98).

Version 5 returns the next producer id and epoch: each transaction has its own epoch (KIP-890).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Int16, Int32, Int64, String


@wire(versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: String = on("0+", default="")
    producer_id: Int64 = on("0+", default=0)
    producer_epoch: Int16 = on("0+", default=0)
    committed: Boolean = on("0+", default=False)


@wire(versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    producer_id: Int64 = on("5+", default=-1, ignorable=True)
    producer_epoch: Int16 = on("5+", default=-1, ignorable=True)
