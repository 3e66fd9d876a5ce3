"""A channel to an active controller on another node: the order of requests, retries, and how each request ends."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.controllers.channel import ControllerChannel, Question
from ottla.controller.decision import unlimited
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.net.peer import Disconnected, NotOffered, Peer
from ottla.wire.api.add_raft_voter import AddRaftVoterResponse
from ottla.wire.api.alter_partition import AlterPartitionResponse

_NODE = 1
_SELF, _OTHER, _THIRD = Peer(_NODE, "", 0), Peer(2, "other", 9093), Peer(3, "third", 9093)
_TIMEOUT_MS = 60_000


class _Connection:
    """A connection to a controller: what it was asked and has not answered, in order."""

    def __init__(self, peer: Peer, soon: list[Any]) -> None:
        self.peer = peer
        self._soon = soon
        self.waiting: list[tuple[Any, Any]] = []
        self.timeouts_ms: list[int] = []
        self.closed = False

    def ask(self, request: Any, done: Any, *, timeout_ms: int) -> None:
        self.waiting.append((request, done))
        self.timeouts_ms.append(timeout_ms)

    def close(self) -> None:
        self.closed = True
        waiting, self.waiting = self.waiting, []
        for _, done in waiting:
            self._soon.append(partial(done, Disconnected("the connection was closed", was_sent=True)))

    @property
    def asked(self) -> list[Any]:
        return [request for request, _ in self.waiting]

    def answer(self, response: Any) -> None:
        _, done = self.waiting.pop(0)
        done(response)


class _Scene:
    """A node whose active controller is another; the loop's timers and the connections are the test's."""

    def __init__(self) -> None:
        self.leader: Peer | None = _OTHER
        self.timers: list[tuple[float, Any]] = []
        self.connections: list[_Connection] = []
        #: What the end of a connection leaves for the next turn of the loop.
        self.soon: list[Any] = []
        #: What this node's controller was asked, and how each is answered.
        self.here: list[tuple[Any, Any]] = []
        #: (request, response) in the order of the answers.
        self.told: list[tuple[Any, Any]] = []
        loop: Any = SimpleNamespace(call_later=self._call_later)
        self.channel = ControllerChannel(loop, _NODE, lambda: self, self._dial, 1000)  # type: ignore[arg-type]

    def _call_later(self, seconds: float, callback: Any, *arguments: Any) -> Any:
        timer = seconds, lambda: callback(*arguments)
        self.timers.append(timer)

        def cancel() -> None:
            self.timers = [each for each in self.timers if each is not timer]

        return SimpleNamespace(cancel=cancel)

    def _dial(self, peer: Peer) -> _Connection:
        self.connections.append(_Connection(peer, self.soon))
        return self.connections[-1]

    def ask(self, request: Any, done: Any, version: int, charge: Any) -> None:
        self.here.append((request, done))

    def put(self, request: str, timeout_ms: int | None = _TIMEOUT_MS, **fields: Any) -> None:
        question = Question(request, lambda answer: self.told.append((request, answer)), 0, unlimited, **fields)
        self.channel.ask(question, timeout_ms)

    def change_leader(self, leader: Peer) -> None:
        self.leader = leader
        self.channel.leader_changed()
        self.turn()

    def turn(self) -> None:
        while self.soon:
            self.soon.pop(0)()

    def pass_time(self, seconds: float) -> None:
        """Timers of this length end."""
        over = [timer for timer in self.timers if timer[0] == seconds]
        self.timers = [timer for timer in self.timers if timer[0] != seconds]
        for _, callback in over:
            callback()

    @property
    def asked_here(self) -> list[Any]:
        return [request for request, _ in self.here]

    @property
    def errors(self) -> list[tuple[str, str]]:
        return [(request, answer.code.name) for request, answer in self.told]


def test_one_request_is_in_flight_and_the_others_follow_in_order() -> None:
    scene = _Scene()
    for request in ("a", "b", "c"):
        scene.put(request)
    [connection] = scene.connections
    assert connection.peer == _OTHER
    for request in ("a", "b", "c"):
        assert connection.asked == [request]
        connection.answer(AlterPartitionResponse(throttle_time_ms=ord(request)))
    assert [(request, answer.throttle_time_ms) for request, answer in scene.told] == [("a", 97), ("b", 98), ("c", 99)]
    assert connection.timeouts_ms == [1000] * 3
    assert not scene.timers
    assert scene.channel.outbound is connection  # type: ignore[comparison-overlap]


def test_a_request_is_wrapped_for_another_node_and_its_answer_unwrapped() -> None:
    scene = _Scene()
    scene.put("a", wrap=lambda: "wrapped a", unwrap=lambda answer: f"unwrapped {answer.throttle_time_ms}")
    [connection] = scene.connections
    assert connection.asked == ["wrapped a"]
    connection.answer(AlterPartitionResponse(throttle_time_ms=5))
    assert scene.told == [("a", "unwrapped 5")]


def test_a_request_that_cannot_be_wrapped_ends_and_holds_up_no_other() -> None:
    def wrap() -> Any:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "no principal")

    scene = _Scene()
    scene.put("a", wrap=wrap)
    scene.put("b")
    assert scene.errors == [("a", "UNKNOWN_SERVER_ERROR")]
    assert scene.connections[0].asked == ["b"]


@pytest.mark.parametrize(
    ("code", "message", "told"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you", (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")),
        (ErrorCode.STALE_BROKER_EPOCH, None, (ErrorCode.STALE_BROKER_EPOCH, "")),
        (9999, None, (ErrorCode.UNKNOWN_SERVER_ERROR, "9999")),
    ],
)
def test_the_error_of_a_whole_request_is_an_error_also_when_this_client_does_not_know_it(
    code: int, message: str | None, told: tuple[ErrorCode, str]
) -> None:
    scene = _Scene()
    scene.put("a")
    scene.connections[0].answer(AddRaftVoterResponse(error_code=code, error_message=message))
    [(_, error)] = scene.told
    assert (error.code, told[1] in str(error)) == (told[0], True)


def test_a_request_that_the_controller_does_not_know_ends() -> None:
    scene = _Scene()
    scene.put("a")
    scene.put("b")
    scene.connections[0].answer(NotOffered("version 9 is needed", was_sent=False))
    assert scene.errors == [("a", "UNSUPPORTED_VERSION")]
    assert "version 9 is needed" in str(scene.told[0][1])
    assert scene.connections[0].asked == ["b"]


def test_a_request_without_an_answer_is_sent_again_before_all_others() -> None:
    scene = _Scene()
    scene.put("a")
    scene.put("b")
    scene.connections[0].answer(Disconnected("broke", was_sent=True))
    assert (scene.connections[0].asked, scene.told) == (["a"], [])


def test_a_controller_that_is_not_the_active_one_is_asked_again_after_a_moment() -> None:
    scene = _Scene()
    scene.put("a")
    scene.put("b")
    [connection] = scene.connections
    connection.answer(AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER))
    assert (connection.asked, scene.told) == ([], [])
    scene.put("c")
    assert connection.asked == []
    scene.pass_time(0.1)
    assert connection.asked == ["a"]


def test_a_request_whose_time_is_over_in_flight_is_not_sent_again() -> None:
    scene = _Scene()
    scene.put("a")
    scene.put("b")
    scene.pass_time(_TIMEOUT_MS / 1000)
    assert scene.errors == [("b", "REQUEST_TIMED_OUT")]
    scene.connections[0].answer(Disconnected("broke", was_sent=True))
    assert scene.errors == [("b", "REQUEST_TIMED_OUT"), ("a", "REQUEST_TIMED_OUT")]
    assert scene.connections[0].asked == []


def test_a_new_active_controller_gets_what_the_old_one_has_not_answered() -> None:
    scene = _Scene()
    scene.put("a", None)
    scene.put("b", None)
    scene.change_leader(_THIRD)
    old, new = scene.connections
    assert (old.closed, old.asked) == (True, [])
    assert (new.peer, new.closed, new.asked, scene.told) == (_THIRD, False, ["a"], [])
    scene.change_leader(_THIRD)
    assert (len(scene.connections), new.closed, new.asked) == (2, False, ["a"])


def test_a_new_leader_is_asked_at_once_and_not_after_the_moment() -> None:
    scene = _Scene()
    scene.leader = None
    scene.put("a", None)
    assert [seconds for seconds, _ in scene.timers] == [0.1]
    scene.change_leader(_OTHER)
    assert (scene.timers, scene.connections[0].asked) == ([], ["a"])


def test_a_node_that_becomes_the_active_controller_decides_what_waited() -> None:
    scene = _Scene()
    scene.put("a")
    scene.put("b")
    scene.change_leader(_SELF)
    assert scene.asked_here == ["a", "b"]
    assert scene.channel.outbound is None


def test_the_end_of_a_channel_answers_all_requests_once_and_in_order() -> None:
    scene = _Scene()
    scene.put("a")
    scene.put("b", None)
    scene.channel.close()
    assert scene.connections[0].closed
    assert scene.errors == [("a", "REQUEST_TIMED_OUT"), ("b", "REQUEST_TIMED_OUT")]
    assert not scene.timers
    scene.turn()
    scene.put("c")
    scene.channel.close()
    assert scene.errors[2:] == [("c", "REQUEST_TIMED_OUT")]
    assert len(scene.connections) == 1


def test_a_channel_that_looks_for_a_controller_stops_at_its_end() -> None:
    scene = _Scene()
    scene.leader = None
    scene.put("a", None)
    scene.channel.close()
    assert (scene.timers, scene.errors) == ([], [("a", "REQUEST_TIMED_OUT")])


def test_this_nodes_own_controller_is_asked_at_once_and_again_when_it_was_not_the_active_one() -> None:
    scene = _Scene()
    scene.leader = _SELF
    scene.put("a")
    assert (scene.asked_here, scene.timers) == (["a"], [])
    _, done = scene.here.pop()
    done(KafkaError(ErrorCode.NOT_CONTROLLER, "no more"))
    assert sorted(seconds for seconds, _ in scene.timers) == [0.1, _TIMEOUT_MS / 1000]
    # What comes later waits behind it.
    scene.put("b")
    assert scene.asked_here == []
    scene.pass_time(0.1)
    assert scene.asked_here == ["a", "b"]
    scene.here[0][1]("decided")
    assert scene.told == [("a", "decided")]
    scene.channel.close()
    scene.here[1][1](KafkaError(ErrorCode.NOT_CONTROLLER, "no more"))
    [(request, error)] = scene.told[1:]
    assert (request, error.code, scene.timers) == ("b", ErrorCode.NOT_CONTROLLER, [])
