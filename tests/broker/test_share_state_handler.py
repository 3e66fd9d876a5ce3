"""Requests of share groups' leaders for the state of many share partitions, each at its coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

from ottla.broker.handlers import share_state
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.share import answer
from ottla.wire.api import read_share_group_state as read
from tests.broker.table_node import called, done

_ID = Uuid(b"i" * 16)


def _request(count: int) -> read.ReadShareGroupStateRequest:
    partitions = [read.PartitionData(partition=index) for index in range(count)]
    return read.ReadShareGroupStateRequest(
        group_id="g", topics=[read.ReadStateData(topic_id=_ID, partitions=partitions)]
    )


class _Coordinators:
    """The coordinators of share partitions; that of partition 1 is elsewhere, and that of partition 2 answers last."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.last: list[Callable[[], None]] = []

    def driver_of(self, text: str) -> Any:
        if text.endswith(":1"):
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return Mock(ask=self._ask)

    def _ask(self, request: Any, version: int, answered: Callable[[Any], None]) -> None:
        ((key, part),) = answer.split(request)
        self.asked.append(key.partition)
        response = answer.failure(part, key, KafkaError(ErrorCode.NONE))
        if key.partition == 2:
            self.last.append(lambda: answered(response))
        else:
            answered(response)


def test_many_parts_are_asked_in_steps_and_answered_together_in_order() -> None:
    states = _Coordinators()
    call = called(0, share_states=states)
    later = share_state.share_state(call, _request(100))
    assert states.asked == [0, *range(2, 25)], "the first step"
    while call.turns:
        call.turns.pop(0)()
    assert len(states.asked) == 99 and not later.resolved
    states.last[0]()
    (result,) = later.value.results
    assert [each.partition for each in result.partitions] == list(range(100))
    errors = {each.partition: each.error_code for each in result.partitions if each.error_code}
    assert errors == {1: ErrorCode.NOT_COORDINATOR}


def test_a_request_without_a_group_or_partitions_asks_no_coordinator() -> None:
    states = _Coordinators()
    call = called(0, share_states=states)
    without_group = _request(3)
    without_group.group_id = ""
    for request in (without_group, _request(0), read.ReadShareGroupStateRequest(group_id="g")):
        assert done(share_state.share_state(call, request), call).results == []
    assert states.asked == []
