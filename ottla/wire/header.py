"""The headers before every request and response, and which version of them stands there.

Rules:
- A flexible request has header 2, a flexible response header 1; the others 1 and 0.
- ApiVersions responses have header 0 always: a client reads one before it knows what the broker can do (KIP-511).
- The client id keeps its int16 length in header 2, so that a broker can read the header of any version.

Version 0 of the request header was ControlledShutdown's alone, and went with it in 4.0.
"""

from __future__ import annotations

from ottla.wire.api import API, ApiKey
from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, String

__all__ = ["RequestHeader", "ResponseHeader", "request_header_version", "response_header_version"]


@wire(versions="1-2", flexible="2+")
class RequestHeader:
    """The head of a request: the API, its version, the correlation id, and the client's id."""

    request_api_key: Int16 = on("0+", default=0)
    request_api_version: Int16 = on("0+", default=0)
    correlation_id: Int32 = on("0+", default=0)
    client_id: String | None = on("1+", default="", compact=False)


@wire(versions="0-1", flexible="1+")
class ResponseHeader:
    """By which number the request was known."""

    correlation_id: Int32 = on("0+", default=0)


def request_header_version(key: int, version: int) -> int:
    """The header version of a request. KeyError for a key that Kafka does not have."""
    flexible_from = API[key].flexible_from
    return 2 if flexible_from is not None and version >= flexible_from else 1


def response_header_version(key: int, version: int) -> int:
    """The header version of a response. KeyError for a key that Kafka does not have."""
    flexible_from = API[key].flexible_from
    return 1 if flexible_from is not None and version >= flexible_from and key != ApiKey.API_VERSIONS else 0
