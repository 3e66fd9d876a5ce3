"""Envelope (key 58): a request that a broker forwards to the controller, with the requesting principal (KIP-590)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Bytes, Int16


@wire(versions="0", flexible="0+")
class EnvelopeRequest:
    request_data: Bytes = on("0+", default=b"")
    request_principal: Bytes | None = on("0+", default=b"")
    client_host_address: Bytes = on("0+", default=b"")


@wire(versions="0", flexible="0+")
class EnvelopeResponse:
    response_data: Bytes | None = on("0+", default=None)
    error_code: Int16 = on("0+", default=0)
