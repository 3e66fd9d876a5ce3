"""Requests about several groups, each at the coordinator of its partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.handlers.group import delete_groups, describe, offset_fetch
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from tests.broker.table_node import called, done

_NAMES = ["elsewhere", "here", "ends"]


def _answer(request: Any) -> Any:
    """What the coordinator of group "here" answers."""
    if isinstance(request, DeleteGroupsRequest):
        return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=name) for name in request.groups_names])
    if isinstance(request, DescribeGroupsRequest):
        return DescribeGroupsResponse(groups=[DescribedGroup(group_id=name) for name in request.groups])
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=each.group_id) for each in request.groups])


def _driver_of(name: str) -> Any:
    if name == "elsewhere":
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def ask(request: Any, version: int, answer: Callable[[Any], None], **client: Any) -> int:
        answer(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) if name == "ends" else _answer(request))
        return 1

    return Mock(ask=ask)


@pytest.mark.parametrize(
    ("handler", "request_of", "version"),
    [
        (describe, lambda: DescribeGroupsRequest(groups=_NAMES), 5),
        (delete_groups, lambda: DeleteGroupsRequest(groups_names=_NAMES), 2),
        (
            offset_fetch,
            lambda: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name) for name in _NAMES]),
            9,
        ),
    ],
)
def test_a_group_whose_coordinator_is_not_here_or_ends_fails_alone(
    handler: Callable[[Any, Any], Any], request_of: Callable[[], Any], version: int
) -> None:
    call = called(version, groups=Mock(driver_of=_driver_of), authorizer=None)
    response = done(handler(call, request_of()), call)
    parts = response.results if isinstance(response, DeleteGroupsResponse) else response.groups
    assert [(each.group_id, each.error_code) for each in parts] == [
        ("elsewhere", ErrorCode.NOT_COORDINATOR),
        ("here", ErrorCode.NONE),
        ("ends", ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ]
