"""RenewDelegationToken (key 39): extend the expiry of a delegation token (KIP-48)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Bytes, Int16, Int32, Int64


@wire(versions="1-2", flexible="2+")
class RenewDelegationTokenRequest:
    hmac: Bytes = on("0+", default=b"")
    renew_period_ms: Int64 = on("0+", default=0)


@wire(versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    error_code: Int16 = on("0+", default=0)
    expiry_timestamp_ms: Int64 = on("0+", default=0)
    throttle_time_ms: Int32 = on("0+", default=0)
