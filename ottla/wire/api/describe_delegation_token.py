"""DescribeDelegationToken (key 41): the delegation tokens of owners (KIP-48).

Version 3: the requester of each (KIP-373).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Bytes, Int16, Int32, Int64, String


@wire
class DescribeDelegationTokenOwner:
    principal_type: String = on("0+", default="")
    principal_name: String = on("0+", default="")


@wire(versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    owners: list[DescribeDelegationTokenOwner] | None = on("0+", factory=list)


@wire
class DescribedDelegationTokenRenewer:
    principal_type: String = on("0+", default="")
    principal_name: String = on("0+", default="")


@wire
class DescribedDelegationToken:
    principal_type: String = on("0+", default="")
    principal_name: String = on("0+", default="")
    token_requester_principal_type: String = on("3+", default="")
    token_requester_principal_name: String = on("3+", default="")
    issue_timestamp: Int64 = on("0+", default=0)
    expiry_timestamp: Int64 = on("0+", default=0)
    max_timestamp: Int64 = on("0+", default=0)
    token_id: String = on("0+", default="")
    hmac: Bytes = on("0+", default=b"")
    renewers: list[DescribedDelegationTokenRenewer] = on("0+", factory=list)


@wire(versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: Int16 = on("0+", default=0)
    tokens: list[DescribedDelegationToken] = on("0+", factory=list)
    throttle_time_ms: Int32 = on("0+", default=0)
