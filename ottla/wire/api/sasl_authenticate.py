"""SaslAuthenticate (key 36): one token of a SASL exchange (KIP-152).

Version 1: the session lifetime, after which the client must authenticate again (KIP-368).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Bytes, Int16, Int64, String


@wire(versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: Bytes = on("0+", default=b"")


@wire(versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")
    auth_bytes: Bytes = on("0+", default=b"")
    session_lifetime_ms: Int64 = on("1+", default=0, ignorable=True)
