"""CreateDelegationToken (key 38): create a delegation token (KIP-48). Version 3: for another principal (KIP-373)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Bytes, Int16, Int32, Int64, String


@wire
class CreatableRenewers:
    principal_type: String = on("0+", default="")
    principal_name: String = on("0+", default="")


@wire(versions="1-3", flexible="2+")
class CreateDelegationTokenRequest:
    owner_principal_type: String | None = on("3+", default="")
    owner_principal_name: String | None = on("3+", default="")
    renewers: list[CreatableRenewers] = on("0+", factory=list)
    max_lifetime_ms: Int64 = on("0+", default=0)


@wire(versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: Int16 = on("0+", default=0)
    principal_type: String = on("0+", default="")
    principal_name: String = on("0+", default="")
    token_requester_principal_type: String = on("3+", default="")
    token_requester_principal_name: String = on("3+", default="")
    issue_timestamp_ms: Int64 = on("0+", default=0)
    expiry_timestamp_ms: Int64 = on("0+", default=0)
    max_timestamp_ms: Int64 = on("0+", default=0)
    token_id: String = on("0+", default="")
    hmac: Bytes = on("0+", default=b"")
    throttle_time_ms: Int32 = on("0+", default=0)
