"""Answers of one turn of the loop leave together when requests come thick and fast, or when they are due."""

from __future__ import annotations

import socket

import pytest

from ottla.net import turns
from ottla.net.inbound import Slot
from ottla.net.turns import Turns
from tests.net.test_inbound import Served, framed
from tests.net.test_turns import turn


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def has_an_answer(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


def test_answers_of_one_turn_leave_together_after_its_last_request(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "BUSY_SECONDS", 1e9)
    monkeypatch.setattr(turns, "TOGETHER_SECONDS", 1e9)
    socks = {bytes([number]): served.client() for number in range(5)}
    answered: list[int] = []

    def answer(frame: bytes, slot: Slot) -> None:
        answered.append(sum(map(has_an_answer, socks.values())))
        slot.fill([frame])

    served.answer = answer
    served.until(lambda: len(served.listener.connections) == len(socks))
    for body, sock in socks.items():
        sock.send(framed(body))
    served.until(lambda: len(answered) == len(socks))
    turn(served)
    # The first came after a pause, so its client need not wait.
    assert answered == [0, 1, 1, 1, 1]
    for body, sock in socks.items():
        assert served.receive(sock, 1) == body
        sock.close()


def test_a_request_after_a_pause_is_answered_at_once(served: Served, clock: Clock) -> None:
    queue, sent = Turns(served.loop, clock), list[str]()
    for name in "abc":
        queue.answer(lambda name=name: sent.append(name), clock())  # type: ignore[misc]
        assert sent[-1] == name
        clock.seconds += 2 * turns.BUSY_SECONDS


def test_the_work_of_a_request_is_no_pause(served: Served, clock: Clock) -> None:
    queue, sent = Turns(served.loop, clock), list[str]()

    def work() -> None:
        sent.append("first")
        clock.seconds += 10 * turns.BUSY_SECONDS

    queue.answer(work, clock())
    queue.answer(lambda: sent.append("second"), clock())
    assert sent == ["first"]
    turn(served)
    assert sent == ["first", "second"]


def test_what_waits_is_due_after_a_bound(served: Served, clock: Clock) -> None:
    queue, sent = Turns(served.loop, clock), list[str]()
    assert queue.due == float("inf")
    queue.answer(lambda: sent.append("first"), clock())
    assert queue.due == float("inf"), "nothing waits"
    began = clock.seconds
    for name in ("second", "third"):
        queue.answer(lambda name=name: sent.append(name), clock())  # type: ignore[misc]
        clock.seconds += turns.BUSY_SECONDS / 2
    assert queue.due == began + turns.TOGETHER_SECONDS and sent == ["first"]
    queue.send()
    assert queue.due == float("inf") and sent == ["first", "second", "third"]
    # The end of the turn that was planned serves what waits by then.
    queue.answer(lambda: sent.append("fourth"), clock())
    assert len(sent) == 3
    turn(served)
    assert sent[-1] == "fourth"


@pytest.mark.parametrize("answers", [True, False])
def test_no_read_begins_before_an_answer_that_is_due(
    served: Served, monkeypatch: pytest.MonkeyPatch, *, answers: bool
) -> None:
    """Also if the other reads of the turn are answered later, or never."""
    monkeypatch.setattr(turns, "BUSY_SECONDS", 1e9)
    monkeypatch.setattr(turns, "TOGETHER_SECONDS", -1.0)
    socks = [served.client() for _ in range(6)]
    waiting: list[int] = []

    def answer(frame: bytes, slot: Slot) -> None:
        waiting.append(len(served.listener._turns._sending))
        if answers or len(served.frames) < 3:
            slot.fill([frame])

    served.answer = answer
    served.until(lambda: len(served.listener.connections) == len(socks))
    for sock in socks:
        sock.send(framed(b"x"))
    served.until(lambda: len(waiting) == len(socks))
    assert waiting == [0] * len(socks)
    for sock in socks:
        sock.close()


def test_an_answer_that_fails_holds_up_no_other_and_no_read(served: Served, clock: Clock) -> None:
    failures: list[object] = []
    served.loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    queue, sent = Turns(served.loop, clock), list[str]()

    def fail() -> None:
        raise RuntimeError("broken")

    queue.answer(lambda: sent.append("first"), clock())
    queue.answer(fail, clock())
    queue.answer(lambda: sent.append("last"), clock())
    queue.send()
    assert sent == ["first", "last"] and [str(each) for each in failures] == ["broken"]


def test_a_stop_sends_the_answers_that_wait(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that is stopped looks at its sockets once more, and not at what this planned."""
    monkeypatch.setattr(turns, "BUSY_SECONDS", 1e9)
    monkeypatch.setattr(turns, "TOGETHER_SECONDS", 1e9)
    socks = [served.client() for _ in range(20)]
    served.until(lambda: len(served.listener.connections) == len(socks))

    def send_all() -> None:
        for sock in socks:
            sock.send(framed(b"x"))

    served.loop.call_soon(served.loop.stop)
    served.loop.call_soon(lambda: served.loop.call_soon(send_all))
    served.loop.run_forever()
    handled = len(served.frames)
    assert handled
    served.listener.close()
    assert sum(map(has_an_answer, socks)) == handled
    for sock in socks:
        sock.close()


def test_a_client_that_was_closed_meanwhile_gets_nothing_and_harms_no_other(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "BUSY_SECONDS", 1e9)
    monkeypatch.setattr(turns, "TOGETHER_SECONDS", 1e9)
    socks = [served.client() for _ in range(3)]

    def answer(frame: bytes, slot: Slot) -> None:
        slot.fill([frame])
        if len(served.frames) == 3:
            second = next(each for each in served.listener.connections if each.peer[1] == int(served.frames[1]))
            second.close("for a reason of the node's")

    served.answer = answer
    served.until(lambda: len(served.listener.connections) == len(socks))
    for sock in socks:
        sock.send(framed(str(sock.getsockname()[1]).encode()))
    served.until(lambda: len(served.frames) == 3)
    by_port = {str(sock.getsockname()[1]).encode(): sock for sock in socks}
    for number in (0, 2):
        assert served.receive(by_port[served.frames[number]], len(served.frames[number])) == served.frames[number]
    served.until(lambda: by_port[served.frames[1]].recv(1) == b"")
    for sock in socks:
        sock.close()
