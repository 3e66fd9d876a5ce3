"""A channel to the active controller: what becomes of a request whose time is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.controllers.channel import ControllerChannel, Question
from ottla.controller.decision import unlimited
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.net.peer import Peer
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatResponse

_NODE = 1


class _Scene:
    """A node's channel; the quorum's leader and the loop's timers are the test's."""

    def __init__(self) -> None:
        self.leader: Peer | None = None
        #: (seconds, callback) of each timer that was not cancelled.
        self.timers: list[tuple[float, Any]] = []
        #: Requests that this node's controller was asked and has not answered.
        self.asked: list[Any] = []
        self.told: list[Any] = []
        loop: Any = SimpleNamespace(call_later=self._call_later)
        self.channel = ControllerChannel(loop, _NODE, lambda: self, self._dial, 1000)

    def _call_later(self, seconds: float, callback: Any, *arguments: Any) -> Any:
        timer = seconds, lambda: callback(*arguments)
        self.timers.append(timer)

        def cancel() -> None:
            if timer in self.timers:
                self.timers.remove(timer)

        return SimpleNamespace(cancel=cancel)

    def _dial(self, peer: Peer) -> Any:
        raise AssertionError(f"{peer} is asked")

    def ask(self, request: Any, done: Any, version: int, charge: Any) -> None:
        self.asked.append(done)

    def pass_time(self, seconds: float) -> None:
        """Timers of this length are over."""
        over = [timer for timer in self.timers if timer[0] == seconds]
        for timer in over:
            self.timers.remove(timer)
            timer[1]()


def test_a_request_whose_time_ended_at_a_controller_that_lost_its_office_is_not_asked_again() -> None:
    scene = _Scene()
    scene.channel.ask(Question("a request", scene.told.append, 0, unlimited), 60_000)
    scene.leader = Peer(_NODE, "", 0)
    scene.channel.leader_changed()
    [done] = scene.asked
    scene.pass_time(60)
    assert not scene.told
    done(KafkaError(ErrorCode.NOT_CONTROLLER, "this node is no longer the active controller"))
    [answer] = scene.told
    assert isinstance(answer, KafkaError)
    assert answer.code == ErrorCode.REQUEST_TIMED_OUT


def test_a_request_in_time_is_asked_again() -> None:
    scene = _Scene()
    scene.channel.ask(Question("a request", scene.told.append, 0, unlimited), 60_000)
    scene.leader = Peer(_NODE, "", 0)
    scene.channel.leader_changed()
    [done] = scene.asked
    done(KafkaError(ErrorCode.NOT_CONTROLLER, "this node is no longer the active controller"))
    scene.pass_time(0.1)
    assert (len(scene.asked), scene.told) == (2, [])


class _Elsewhere(_Scene):
    """The active controller is another node, whose answers are the test's."""

    def __init__(self) -> None:
        super().__init__()
        self.leader = Peer(2, "other", 9093)
        #: The requests that are not answered yet, with their callbacks.
        self.sent: list[tuple[Any, Any]] = []

    def _dial(self, peer: Peer) -> Any:
        return SimpleNamespace(ask=lambda request, done, timeout_ms: self.sent.append((request, done)))


def test_a_request_that_no_envelope_can_hold_is_answered_and_keeps_no_other_waiting() -> None:
    scene = _Elsewhere()

    def wrap() -> Any:
        raise OttlaError("the request cannot be written")

    scene.channel.ask(Question("", scene.told.append, 0, unlimited, wrap), 60_000)
    [answer] = scene.told
    assert answer.code == ErrorCode.UNKNOWN_SERVER_ERROR and "cannot be written" in answer.message
    scene.channel.ask(Question("the next", scene.told.append, 0, unlimited), 60_000)
    assert [request for request, _ in scene.sent] == ["the next"]
    assert [seconds for seconds, _ in scene.timers] == [60]


def test_an_error_in_what_an_answer_calls_keeps_no_other_request_waiting() -> None:
    scene = _Elsewhere()

    def failing(answer: Any) -> None:
        raise ValueError("a mistake")

    for request, done in (("first", failing), ("next", scene.told.append)):
        scene.channel.ask(Question(request, done, 0, unlimited), 60_000)
    [(_, done)] = scene.sent
    with pytest.raises(ValueError, match="a mistake"):
        done(BrokerHeartbeatResponse())
    assert [request for request, _ in scene.sent] == ["first", "next"]
