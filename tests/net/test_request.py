"""The frames of requests and the headers of responses, as connections that dial write and read them."""

from __future__ import annotations

import pytest

from ottla.net.request import decoded, encoded
from ottla.wire.api import API, ApiKey
from ottla.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.compile import encode
from ottla.wire.header import RequestHeader, ResponseHeader, request_header_version
from ottla.wire.type import Malformed

_API = API[ApiKey.LIST_GROUPS]
_FLEXIBLE = _API.versions[-1]
_INFLEXIBLE = 2


@pytest.mark.parametrize("version", _API.versions)
@pytest.mark.parametrize("client_id", ["", "a client", "ü" * 100])
@pytest.mark.parametrize("number", [0, 1, 2**31 - 1, -1, -(2**31)])
def test_a_frame_has_its_size_its_header_and_its_request(version: int, client_id: str, number: int) -> None:
    header = RequestHeader(
        request_api_key=int(_API.key), request_api_version=version, correlation_id=number, client_id=client_id
    )
    wanted = encode(header, request_header_version(int(_API.key), version)) + encode(ListGroupsRequest(), version)
    frame = b"".join(encoded(ListGroupsRequest(), _API, version, number, client_id))
    assert frame == len(wanted).to_bytes(4, "big") + wanted


@pytest.mark.parametrize(("version", "tags"), [(_INFLEXIBLE, b""), (_FLEXIBLE, b"\0"), (_FLEXIBLE, b"\1\5\2ab")])
@pytest.mark.parametrize("number", [7, -7])
def test_a_header_with_or_without_tagged_fields_is_skipped(version: int, tags: bytes, number: int) -> None:
    response = ListGroupsResponse(throttle_time_ms=3)
    frame = encode(ResponseHeader(correlation_id=number), 0) + tags + encode(response, version)
    assert decoded(_API, version, number, memoryview(frame)) == response
    with pytest.raises(Malformed, match=f"bears the id {number}"):
        decoded(_API, version, 8, memoryview(frame))


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\7", b"\0\0\0\7\1", b"\0\0\0\7\1\5\x7f"])
def test_a_frame_that_ends_in_its_header_is_malformed(frame: bytes) -> None:
    with pytest.raises(Malformed):
        decoded(_API, _FLEXIBLE, 7, memoryview(frame))
