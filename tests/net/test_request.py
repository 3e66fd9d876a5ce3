"""The frames of requests and the headers of responses, as connections that dial write and read them."""

from __future__ import annotations

import pytest

from ottla.kernel.error import KafkaError, OttlaError
from ottla.net.request import PeerVersions, api_of, decoded, encoded, first_request, retry_version
from ottla.wire.api import API, ApiKey
from ottla.wire.api.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
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


def test_an_api_is_found_by_its_request_and_nothing_else_is_one() -> None:
    assert api_of(ListGroupsRequest()) is API[ApiKey.LIST_GROUPS]
    assert api_of(first_request()) is API[ApiKey.API_VERSIONS]
    for other in (ListGroupsResponse(), "ListGroupsRequest", None):
        with pytest.raises(TypeError, match="is no request"):
            api_of(other)


def test_a_request_that_cannot_be_written_is_named() -> None:
    with pytest.raises(OttlaError, match="the request ListGroups cannot be written"):
        encoded(ListGroupsRequest(states_filter=[1]), _API, _FLEXIBLE, 1, "me")  # type: ignore[list-item]


def _versions(*ranges: tuple[int, int, int], code: int = 0) -> ApiVersionsResponse:
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in ranges]
    features = [FinalizedFeatureKey(name="group.version", max_version_level=1, min_version_level=0)]
    return ApiVersionsResponse(error_code=code, api_keys=keys, finalized_features=features)


_LIST, _FETCH = int(ApiKey.LIST_GROUPS), int(ApiKey.FETCH)


def test_a_peer_is_known_by_its_versions_and_features() -> None:
    peer = PeerVersions(_versions((_LIST, 1, 3)))
    assert peer.features == {"group.version": 1}
    assert (peer.highest(ApiKey.LIST_GROUPS), peer.highest(ApiKey.FETCH)) == (3, -1)
    nothing = PeerVersions()
    assert nothing.highest(ApiKey.LIST_GROUPS) == -1 and not nothing.features


@pytest.mark.parametrize(
    ("low", "high", "at_most", "best"),
    [(0, 3, None, 3), (0, 99, None, _FLEXIBLE), (0, 99, 2, 2), (0, 1, 2, 1), (2, 3, 2, 2), (3, 3, None, 3)],
)
def test_the_best_version_is_the_highest_of_all_three(low: int, high: int, at_most: int | None, best: int) -> None:
    assert PeerVersions(_versions((_LIST, low, high))).best(ApiKey.LIST_GROUPS, at_most) == best


def test_why_there_is_no_version_is_said() -> None:
    peer = PeerVersions(_versions((_LIST, 90, 99), (_FETCH, 0, 1)))
    newest = API[ApiKey.FETCH].stable_versions[-1]
    assert peer.best(ApiKey.LIST_GROUPS) == f"takes LIST_GROUPS v90 to v99, this client speaks v0 to v{_FLEXIBLE}"
    assert peer.best(ApiKey.FETCH) == f"takes FETCH v0 to v1, this client speaks v4 to v{newest}"
    assert peer.best(ApiKey.PRODUCE) == "takes PRODUCE not at all"
    assert isinstance(PeerVersions(_versions((_LIST, 3, 4))).best(ApiKey.LIST_GROUPS, 2), str)


_KEY = int(ApiKey.API_VERSIONS)


@pytest.mark.parametrize(
    ("ranges", "asked", "again"),
    [([(_KEY, 0, 2)], 4, 2), ([(_KEY, 0, 9)], 4, 3), ([], 4, 0), ([(_LIST, 0, 3)], 4, 0), ([(_KEY, 0, -1)], 1, 0)],
)
def test_apiversions_is_sent_again_in_a_lower_version_that_the_peer_names(
    ranges: list[tuple[int, int, int]], asked: int, again: int
) -> None:
    assert retry_version(_versions(*ranges, code=35), asked) == again


def test_an_error_of_apiversions_is_raised_and_so_is_the_last_refusal() -> None:
    assert retry_version(_versions((_KEY, 0, 4)), 4) is None
    for code, asked in ((29, 4), (35, 0)):
        with pytest.raises(KafkaError) as error:
            retry_version(_versions(code=code), asked)
        assert error.value.code == code
