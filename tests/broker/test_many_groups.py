"""Requests about several groups, each at the coordinator of its partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.handlers.group import delete_groups, describe, list_groups, offset_fetch
from ottla.group.description import STATES, TYPES
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.api.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
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


class _Lists:
    """Two coordinators, which note what they are asked."""

    def __init__(self) -> None:
        self.asked: list[ListGroupsRequest] = []

    def drivers(self) -> list[Any]:
        return [Mock(ask=self._ask), Mock(ask=self._ask)]

    def _ask(self, request: ListGroupsRequest, version: int, answer: Callable[[Any], None], **client: Any) -> int:
        self.asked.append(request)
        answer(ListGroupsResponse(groups=[ListedGroup(group_id=f"g{len(self.asked)}")]))
        return 1


@pytest.mark.parametrize(
    ("states", "types", "passed"),
    [
        ([], [], ([], [])),
        ([" STABLE", "stable", "not_ready", "NotReady"], ["Share"], (["stable", "not_ready", "notready"], ["share"])),
        (["none", "other"], [""], ([""], [""])),
        (["none", "Empty"], ["streams", "none", "x"], (["", "empty"], ["streams", ""])),
    ],
)
def test_coordinators_are_asked_for_the_names_of_a_filter_that_there_are(
    states: list[str], types: list[str], passed: tuple[list[str], list[str]]
) -> None:
    lists = _Lists()
    call = called(5, groups=lists, authorizer=None)
    reply = list_groups(call, ListGroupsRequest(states_filter=states, types_filter=types))
    assert [each.group_id for each in reply.value.groups] == ["g1", "g2"], "answered in one step"
    assert [(each.states_filter, each.types_filter) for each in lists.asked] == [passed, passed]


@pytest.mark.parametrize("field", ["states_filter", "types_filter"])
def test_a_long_filter_is_read_once_in_steps(field: str) -> None:
    lists = _Lists()
    call = called(5, groups=lists, authorizer=None)
    reply = list_groups(call, ListGroupsRequest(**{field: [f"n{number}" for number in range(6000)]}))
    assert lists.asked == [] and len(call.turns) == 1
    assert len(done(reply, call).groups) == 2
    assert [getattr(each, field) for each in lists.asked] == [[""], [""]]


def test_every_state_and_type_is_known() -> None:
    assert {"empty", "dead", "not_ready", "notready", "preparingrebalance", "preparing_rebalance"} < STATES
    assert {"completing_rebalance", "assigning", "reconciling", "stable"} < STATES
    assert {"classic", "consumer", "share", "streams"} == TYPES
