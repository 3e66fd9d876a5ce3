"""InitProducerId (key 22): a producer id and epoch, for idempotence or for a transactional id (KIP-98).

Version 3: a producer may bump its epoch (KIP-360); 4 PRODUCER_FENCED (KIP-588); 5 TRANSACTION_ABORTABLE (KIP-890); 6
two-phase commit (KIP-939), not yet stable.
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Int16, Int32, Int64, String


@wire(versions="0-6", flexible="2+")
class InitProducerIdRequest:
    transactional_id: String | None = on("0+", default="")
    transaction_timeout_ms: Int32 = on("0+", default=0)
    producer_id: Int64 = on("3+", default=-1)
    producer_epoch: Int16 = on("3+", default=-1)
    enable2_pc: Boolean = on("6+", default=False)
    keep_prepared_txn: Boolean = on("6+", default=False)


@wire(versions="0-6", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: Int32 = on("0+", default=0, ignorable=True)
    error_code: Int16 = on("0+", default=0)
    producer_id: Int64 = on("0+", default=-1)
    producer_epoch: Int16 = on("0+", default=0)
    ongoing_txn_producer_id: Int64 = on("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = on("6+", default=-1)
