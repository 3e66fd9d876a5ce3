"""AllocateProducerIds (key 67): a block of producer ids for a broker (KIP-730)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, Int64


@wire(versions="0", flexible="0+")
class AllocateProducerIdsRequest:
    broker_id: Int32 = on("0+", default=0)
    broker_epoch: Int64 = on("0+", default=-1)


@wire(versions="0", flexible="0+")
class AllocateProducerIdsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    producer_id_start: Int64 = on("0+", default=0)
    producer_id_len: Int32 = on("0+", default=0)
