"""In which version ApiVersions is asked again (KIP-511)."""

from __future__ import annotations

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.net.request import retry_version
from ottla.wire.api import ApiKey
from ottla.wire.api.api_versions import ApiVersion, ApiVersionsResponse


@pytest.mark.parametrize(
    ("asked", "theirs", "again"),
    [
        # The peer says which versions it takes, or nothing; it is never asked again in the version that it refused.
        (4, 3, 3),
        (4, 0, 0),
        (4, None, 0),
        (4, 4, 3),
        (4, 9, 3),
        (1, 1, 0),
    ],
)
def test_a_refused_version_is_not_asked_for_again(asked: int, theirs: int | None, again: int) -> None:
    keys = [ApiVersion(api_key=ApiKey.PRODUCE, min_version=0, max_version=13)]
    if theirs is not None:
        keys.append(ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=theirs))
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys)
    assert retry_version(response, asked) == again


def test_a_good_answer_is_the_last_and_an_error_is_raised() -> None:
    assert retry_version(ApiVersionsResponse(), 4) is None
    for asked, code in ((4, ErrorCode.INVALID_REQUEST), (0, ErrorCode.UNSUPPORTED_VERSION)):
        with pytest.raises(KafkaError) as caught:
            retry_version(ApiVersionsResponse(error_code=code), asked)
        assert caught.value.code is code
