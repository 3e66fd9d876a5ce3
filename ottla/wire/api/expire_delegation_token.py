"""ExpireDelegationToken (key 40): change the expiry of a delegation token, or expire it now (KIP-48)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Bytes, Int16, Int32, Int64


@wire(versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: Bytes = on("0+", default=b"")
    expiry_time_period_ms: Int64 = on("0+", default=0)


@wire(versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: Int16 = on("0+", default=0)
    expiry_timestamp_ms: Int64 = on("0+", default=0)
    throttle_time_ms: Int32 = on("0+", default=0)
