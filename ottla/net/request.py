"""Encoding requests, decoding responses and choosing versions: shared by every connection that dials.

Rules:
- ApiVersions comes first on each connection (KIP-35), in our version; a peer that does not know that version answers
  in version 0 and names its own, in which ApiVersions is sent again.
- A request goes in the highest version that both ends know, unless its sender bounds it.
- Answers come in the order of the requests (Kafka's protocol guide): a correlation id other than the oldest request's
  is `Malformed`.
"""

from __future__ import annotations

import struct
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import ErrorCode, OttlaError
from ottla.kernel.lazy import LazyModule
from ottla.wire.api import API, Api, ApiKey
from ottla.wire.compile import decode, encode, encoder
from ottla.wire.header import RequestHeader, ResponseHeader, request_header_version, response_header_version
from ottla.wire.type import Malformed

if TYPE_CHECKING:
    from ottla.kernel import client_error
    from ottla.wire.api import api_versions
else:
    client_error = LazyModule("ottla.kernel.client_error")
    api_versions = LazyModule("ottla.wire.api.api_versions")

#: v5 (KIP-1242) carries the node that we expect to reach, which we do not check; v4 is enough for all features.
FIRST_VERSION = min(4, API[ApiKey.API_VERSIONS].versions[-1])
#: The place and size of the correlation id in every version of the request's header.
_ID_POSITION, _ID_BYTES = 4, 4
#: A correlation id and, some day, tagged fields.
_HEADER_BYTES_MAX = 4096
_by_request: dict[type, Api] = {}


def api_of(request: object) -> Api:
    """The API of a request. TypeError if it is not a request."""
    api = _by_request.get(type(request))
    if api is None:
        name = type(request).__name__
        for key in ApiKey:
            if f"{API[key].name}Request" == name:
                api = _by_request[type(request)] = API[key]
                return api
        raise TypeError(f"{name} is no request")
    return api


def first_request() -> api_versions.ApiVersionsRequest:
    """The first request on each connection."""
    # The package itself is above this layer (it offers the embedded node), so its version is not imported.
    version: str = getattr(sys.modules["ottla"], "__version__", "unknown")
    return api_versions.ApiVersionsRequest(client_software_name="ottla", client_software_version=version)


class PeerVersions:
    """The versions and features that the peer supports, from its answer to `first_request`."""

    __slots__ = ("features", "ranges")

    def __init__(self, response: api_versions.ApiVersionsResponse | None = None) -> None:
        #: API key -> (lowest, highest) version.
        self.ranges: dict[int, tuple[int, int]] = {}
        #: Feature -> its finalized level (`group.version`, `transaction.version`, ...).
        self.features: dict[str, int] = {}
        if response is not None:
            self.ranges = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
            self.features = {each.name: each.max_version_level for each in response.finalized_features}

    def highest(self, key: ApiKey) -> int:
        """The highest version that the peer supports; -1 if it does not support the API."""
        return self.ranges.get(int(key), (0, -1))[1]

    def best(self, key: ApiKey, at_most: int | None = None) -> int | str:
        """The highest version that both ends know, or why there is none ("takes FETCH v4 to v5, ...")."""
        ours = API[key].stable_versions
        low, high = self.ranges.get(int(key), (0, -1))
        best = min(high, ours[-1] if at_most is None else min(ours[-1], at_most))
        if best >= low and best >= ours[0]:
            return best
        if high < 0:
            return f"takes {key.name} not at all"
        return f"takes {key.name} v{low} to v{high}, this client speaks v{ours[0]} to v{ours[-1]}"


def retry_version(response: api_versions.ApiVersionsResponse, asked: int) -> int | None:
    """The version in which to send ApiVersions again; None if `response` is usable. KafkaError if it is an error."""
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION and asked > 0:
        known = {each.api_key: each.max_version for each in response.api_keys}
        return max(0, min(asked - 1, known.get(int(ApiKey.API_VERSIONS), 0)))
    client_error.check(response.error_code)
    return None


def encoded(request: object, api: Api, version: int, correlation_id: int, client_id: str) -> list[bytes | memoryview]:
    """The request's frame in pieces. OttlaError if a field's value is invalid, or not expressible in this version."""
    start, end = _head(int(api.key), version, client_id)
    try:
        parts = encoder(type(request), version)(request)
    except (AttributeError, TypeError, ValueError, OverflowError, struct.error) as error:
        raise OttlaError(f"the request {api.name} cannot be written: {error}") from error
    size = len(start) + _ID_BYTES + len(end) + sum(map(len, parts))
    number = correlation_id.to_bytes(_ID_BYTES, "big", signed=True)
    return [b"".join((size.to_bytes(4, "big"), start, number, end)), *parts]


@lru_cache(maxsize=256)
def _head(key: int, version: int, client_id: str | None) -> tuple[bytes, bytes]:
    """The header's bytes before and after the correlation id, which differs from request to request."""
    header = RequestHeader(request_api_key=key, request_api_version=version, client_id=client_id)
    head = encode(header, request_header_version(key, version))
    return head[:_ID_POSITION], head[_ID_POSITION + _ID_BYTES :]


def decoded(api: Api, version: int, correlation_id: int, frame: memoryview) -> Any:
    """The response in a frame; its records are views into it. `Malformed` if it does not answer this request."""
    key = int(api.key)
    # Almost no header has tagged fields. A message without records is copied before it is decoded: do not copy a whole
    # fetch response for its header.
    is_flexible = response_header_version(key, version)
    if len(frame) > _ID_BYTES and not (is_flexible and frame[_ID_BYTES]):
        answered, position = int.from_bytes(frame[:_ID_BYTES], "big", signed=True), _ID_BYTES + is_flexible
    else:
        header, position = decode(ResponseHeader, is_flexible, frame[:_HEADER_BYTES_MAX])
        answered = header.correlation_id
    if answered != correlation_id:
        raise Malformed(f"the answer to request {correlation_id} bears the id {answered}")
    if key == ApiKey.API_VERSIONS:
        # A broker that does not know our version answers in v0, error code first.
        code = int.from_bytes(frame[position : position + 2], "big")
        if code == ErrorCode.UNSUPPORTED_VERSION:
            return decode(api_versions.ApiVersionsResponse, 0, frame, position)[0]
    return decode(api.response, version, frame, position)[0]
