"""AlterUserScramCredentials (key 51): set and remove the SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Bytes, Int8, Int16, Int32, String


@wire
class ScramCredentialDeletion:
    name: String = on("0+", default="")
    mechanism: Int8 = on("0+", default=0)


@wire
class ScramCredentialUpsertion:
    name: String = on("0+", default="")
    mechanism: Int8 = on("0+", default=0)
    iterations: Int32 = on("0+", default=0)
    salt: Bytes = on("0+", default=b"")
    salted_password: Bytes = on("0+", default=b"")


@wire(versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = on("0+", factory=list)
    upsertions: list[ScramCredentialUpsertion] = on("0+", factory=list)


@wire
class AlterUserScramCredentialsResult:
    user: String = on("0+", default="")
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")


@wire(versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    results: list[AlterUserScramCredentialsResult] = on("0+", factory=list)
