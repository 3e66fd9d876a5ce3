"""SaslHandshake (key 17): choose a SASL mechanism.

With version 0 the tokens follow as raw frames, with version 1 inside SaslAuthenticate (KIP-152). Never flexible.
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, String


@wire(versions="0-1", flexible="none")
class SaslHandshakeRequest:
    mechanism: String = on("0+", default="")


@wire(versions="0-1", flexible="none")
class SaslHandshakeResponse:
    error_code: Int16 = on("0+", default=0)
    mechanisms: list[String] = on("0+", factory=list)
