"""DescribeUserScramCredentials (key 50): SCRAM mechanisms and iterations of users, never their secrets (KIP-554)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int8, Int16, Int32, String


@wire
class UserName:
    name: String = on("0+", default="")


@wire(versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = on("0+", factory=list)


@wire
class CredentialInfo:
    mechanism: Int8 = on("0+", default=0)
    iterations: Int32 = on("0+", default=0)


@wire
class DescribeUserScramCredentialsResult:
    user: String = on("0+", default="")
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")
    credential_infos: list[CredentialInfo] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")
    results: list[DescribeUserScramCredentialsResult] = on("0+", factory=list)
