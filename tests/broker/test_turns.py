"""A request that is handled in steps: the client's next one waits for it, and it ends in every way that a step can."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.call.reply import Later, in_turns
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.net.inbound import PeerError


class Connection:
    """It counts, and its turns come when the test says so."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.closed = False
        self.due: deque[Callable[[], None]] = deque()
        self.turns = SimpleNamespace(wait=self.due.append)

    def pause(self) -> None:
        self.log.append("pause")

    def resume(self) -> None:
        self.log.append("resume")

    def close(self, why: str) -> None:
        self.log.append(why)
        self.closed = True

    def turn(self) -> None:
        self.due.popleft()()


def begun(work: Generator[Any, None, Any]) -> tuple[Any, Any, list[Any]]:
    connection: Any = Connection()
    later = in_turns(connection, work)
    answers: list[Any] = []
    if isinstance(later, Later):
        later.then(answers.append)
    return connection, later, answers


def test_a_request_of_one_step_is_answered_at_once() -> None:
    def work() -> Generator[None, None, str]:
        yield from ()
        return "done"

    connection, later, _ = begun(work())
    assert later == "done" and connection.log == []


def test_a_request_of_several_steps_holds_back_the_next_until_its_end() -> None:
    steps: list[int] = []

    def work() -> Generator[Any, None, str]:
        steps.append(1)
        yield None
        steps.append(2)
        yield waiting.append
        steps.append(3)
        return "done"

    waiting: list[Callable[[], None]] = []
    connection, _, answers = begun(work())
    assert steps == [1] and connection.log == ["pause"]
    connection.turn()
    assert steps == [1, 2] and not connection.due and answers == []
    waiting[0]()
    assert steps == [1, 2, 3] and answers == ["done"] and connection.log == ["pause", "resume"]


def test_the_first_step_may_choose_when_the_second_comes() -> None:
    waiting: list[Callable[[], None]] = []

    def work() -> Generator[Any, None, str]:
        yield waiting.append
        return "done"

    connection, _, answers = begun(work())
    assert not connection.due
    waiting[0]()
    assert answers == ["done"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.NOT_CONTROLLER), ErrorCode.NOT_CONTROLLER),
        (ValueError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_error_of_a_later_step_is_the_answer(error: Exception, code: ErrorCode) -> None:
    def work() -> Generator[None, None, str]:
        yield
        raise error

    connection, _, answers = begun(work())
    connection.turn()
    assert [each.code for each in answers] == [code] and connection.log == ["pause", "resume"]


def test_a_peer_that_breaks_the_protocol_is_let_go() -> None:
    def work() -> Generator[None, None, str]:
        yield
        raise PeerError("nonsense")

    connection, _, answers = begun(work())
    connection.turn()
    assert answers == [] and connection.log == ["pause", "nonsense"]


def test_nothing_more_is_done_for_a_client_that_has_gone() -> None:
    ended: list[str] = []

    def work() -> Generator[None, None, str]:
        try:
            yield
            ended.append("went on")
        finally:
            ended.append("closed")
        return "done"

    connection, _, answers = begun(work())
    connection.closed = True
    connection.turn()
    assert ended == ["closed"] and answers == []


def test_the_last_step_may_leave_the_answer_for_later() -> None:
    superseded: list[int] = []
    last = Later(superseded.append)

    def work() -> Generator[None, None, Any]:
        yield
        return last

    connection, later, answers = begun(work())
    later.superseded(1)
    assert superseded == []
    connection.turn()
    assert answers == [] and connection.log == ["pause", "resume"]
    later.superseded(2)
    assert superseded == [2]
    last.resolve("done")
    assert answers == ["done"]
