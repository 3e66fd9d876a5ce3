"""A principal inside an Envelope (KIP-590), preceded by an int16 version."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, String


@wire(versions="0", flexible="0+")
class DefaultPrincipalData:
    type: String = on("0+", default="")
    name: String = on("0+", default="")
    token_authenticated: Boolean = on("0+", default=False)
