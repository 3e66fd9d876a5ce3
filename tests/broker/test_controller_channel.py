"""A channel to the active controller: what becomes of a request whose time is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.broker.controllers.channel import ControllerChannel, Question
from ottla.controller.decision import unlimited
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.net.peer import Peer

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
