"""The headers, and the exceptions to them."""

import pytest

from ottla.wire.api import API, BOTH, BROKER, CONTROLLER, ApiKey
from ottla.wire.compile import decode, encode
from ottla.wire.header import RequestHeader, ResponseHeader, request_header_version, response_header_version


def test_a_request_header_keeps_the_old_string_in_its_flexible_version() -> None:
    header = RequestHeader(request_api_key=18, request_api_version=3, correlation_id=7, client_id="me")
    assert encode(header, 1) == b"\0\x12\0\3\0\0\0\7\0\2me"
    assert encode(header, 2) == b"\0\x12\0\3\0\0\0\7\0\2me\0"
    header.client_id = None
    assert encode(header, 2) == b"\0\x12\0\3\0\0\0\7\xff\xff\0"
    assert decode(RequestHeader, 2, encode(header, 2))[0] == header


def test_a_response_header_is_a_number_and_later_tags() -> None:
    assert encode(ResponseHeader(correlation_id=7), 0) == b"\0\0\0\7"
    assert encode(ResponseHeader(correlation_id=7), 1) == b"\0\0\0\7\0"


@pytest.mark.parametrize(
    ("key", "version", "request_version", "response_version"),
    [
        (ApiKey.PRODUCE, 8, 1, 0),
        (ApiKey.PRODUCE, 9, 2, 1),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 4, 2, 0),
        (ApiKey.VOTE, 0, 2, 1),
        (ApiKey.UNREGISTER_CONTROLLER, 0, 2, 1),
    ],
)
def test_headers_follow_the_version_but_for_api_versions(
    key: ApiKey, version: int, request_version: int, response_version: int
) -> None:
    assert request_header_version(key, version) == request_version
    assert response_header_version(key, version) == response_version


def test_there_are_89_apis_and_two_to_come() -> None:
    assert len([api for api in API.values() if api.versions]) == 89
    assert {api.key for api in API.values() if not api.versions} == {93, 94}
    assert {api.listeners for api in API.values()} == {BROKER, CONTROLLER, BOTH}
    assert list(API) == sorted(ApiKey)


def test_an_unstable_version_is_not_among_those_advertised() -> None:
    api = API[ApiKey.INIT_PRODUCER_ID]
    assert (api.versions, api.stable_versions) == (range(7), range(6))
    assert API[ApiKey.FETCH].stable_versions == range(4, 19)


def test_what_a_later_release_adds_is_in_the_preview_alone() -> None:
    assert (API[ApiKey.API_VERSIONS].versions, API[ApiKey.API_VERSIONS].preview) == (range(5), range(6))
    assert (API[ApiKey.PRODUCE].versions, API[ApiKey.PRODUCE].preview) == (range(3, 14), range(3, 14))
