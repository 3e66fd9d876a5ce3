"""The headers of requests and responses, and the header version for each API version.

Rules:
- A flexible request has header version 2, a flexible response version 1; others have 1 and 0.
- ApiVersions responses always have header version 0: a client reads one before it knows the broker's versions
  (KIP-511).
- The client id keeps its int16 length in header version 2, so that a broker can read the header of any version.

Version 0 of the request header was only used by ControlledShutdown; both were removed in 4.0.
"""

from __future__ import annotations

from ottla.wire.api import API, ApiKey
from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, String

__all__ = ["RequestHeader", "ResponseHeader", "request_header_version", "response_header_version"]


@wire(versions="1-2", flexible="2+")
class RequestHeader:
    """The header of a request: the API, its version, the correlation id, and the client id."""

    request_api_key: Int16 = on("0+", default=0)
    request_api_version: Int16 = on("0+", default=0)
    correlation_id: Int32 = on("0+", default=0)
    client_id: String | None = on("1+", default="", compact=False)


@wire(versions="0-1", flexible="1+")
class ResponseHeader:
    """The header of a response: the correlation id of its request."""

    correlation_id: Int32 = on("0+", default=0)


def request_header_version(key: int, version: int) -> int:
    """Return the header version of a request. KeyError for an unknown API key."""
    flexible_from = API[key].flexible_from
    return 2 if flexible_from is not None and version >= flexible_from else 1


def response_header_version(key: int, version: int) -> int:
    """Return the header version of a response. KeyError for an unknown API key."""
    flexible_from = API[key].flexible_from
    return 1 if flexible_from is not None and version >= flexible_from and key != ApiKey.API_VERSIONS else 0
