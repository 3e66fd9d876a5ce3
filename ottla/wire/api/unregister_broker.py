"""UnregisterBroker (key 64): remove a broker's registration (KIP-631)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, String


@wire(versions="0", flexible="0+")
class UnregisterBrokerRequest:
    broker_id: Int32 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")
