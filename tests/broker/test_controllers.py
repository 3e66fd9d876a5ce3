"""A broker's four ways to the active controller: how long each waits, and what another node is sent."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.controllers.controllers import Controllers
from ottla.broker.controllers.envelope import Requester, wrap
from ottla.controller.decision import unlimited
from ottla.kernel.error import ErrorCode
from ottla.net.peer import Peer, Unanswered
from ottla.settings.server.settings import ServerSettings
from ottla.wire.api import API, ApiKey
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.api.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.compile import encode

_SETTINGS = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.quorum.voters": "9@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092",
    "log.dirs": "/nowhere",
    "broker.session.timeout.ms": "7001",
    "controller.socket.timeout.ms": "20000",
    "socket.request.max.bytes": "4000",
    "socket.connection.setup.timeout.ms": "1500",
    "socket.connection.setup.timeout.max.ms": "2500",
}
_BEAT = BrokerHeartbeatRequest(broker_id=1)


class _Outbound:
    def __init__(self, scene: _Scene, peer: tuple[str, int], **options: Any) -> None:
        self.scene, self.peer, self.options, self.closed = scene, peer, options, False
        #: (request, what to call with the answer, timeout) of each request.
        self.asked: list[tuple[Any, Callable[[Any], None], int]] = []

    def ask(self, request: Any, answered: Callable[[Any], None], *, timeout_ms: int) -> None:
        self.asked.append((request, answered, timeout_ms))

    def close(self) -> None:
        self.closed = True


class _Scene:
    """A broker whose controller is node 9, another one, or this node."""

    def __init__(self) -> None:
        self.leader: Peer | None = Peer(9, "controller.example", 9093)
        self.dialled: list[_Outbound] = []
        self.timers: list[float] = []
        self.here: list[tuple[Any, int, Any]] = []
        self.told: list[Any] = []
        loop: Any = SimpleNamespace(call_later=self._call_later)

        def outbound(loop: Any, host: str, port: int, **options: Any) -> Any:
            self.dialled.append(_Outbound(self, (host, port), **options))
            return self.dialled[-1]

        quorum: Any = self
        self.controllers = Controllers(
            loop, ServerSettings.parse(_SETTINGS), _RNG, lambda: quorum, outbound
        )  # fmt: skip

    def _call_later(self, seconds: float, *_: Any) -> Any:
        self.timers.append(seconds)
        return SimpleNamespace(cancel=lambda: self.timers.remove(seconds))

    def ask(self, request: Any, done: Any, version: int, charge: Any) -> None:
        self.here.append((request, version, charge))
        done("here")

    def answer(self, value: Any, connection: int = -1) -> None:
        _, answered, _ = self.dialled[connection].asked.pop(0)
        answered(value)


_RNG: Any = object()
_PURPOSES: dict[str, tuple[Callable[[_Scene], None], float | None, int]] = {
    "own": (lambda scene: scene.controllers.ask(_BEAT, scene.told.append), 60, 20_000),
    "soon": (lambda scene: scene.controllers.ask(_BEAT, scene.told.append, timeout_ms=1234), 1.234, 20_000),
    "partitions": (lambda scene: scene.controllers.ask_forever(_BEAT, scene.told.append), None, 20_000),
    "lifecycle": (lambda scene: scene.controllers.ask_for_lifecycle(_BEAT, scene.told.append), 3.5, 3500),
}


@pytest.mark.parametrize("purpose", _PURPOSES)
def test_each_purpose_waits_as_long_as_it_can(purpose: str) -> None:
    ask, seconds, request_ms = _PURPOSES[purpose]
    scene = _Scene()
    ask(scene)
    [outbound] = scene.dialled
    assert outbound.peer == ("controller.example", 9093)
    [(request, _, timeout_ms)] = outbound.asked
    assert (request, timeout_ms) == (_BEAT, request_ms)
    assert scene.timers == ([] if seconds is None else [seconds])
    scene.answer(BrokerHeartbeatResponse())
    assert scene.told == [BrokerHeartbeatResponse()] and scene.timers == []


def test_a_connection_to_a_controller_is_made_as_apache_makes_it() -> None:
    scene = _Scene()
    scene.controllers.ask(_BEAT, scene.told.append)
    options = scene.dialled[0].options
    assert (options["client_id"], options["rng"]) == ("1", _RNG)
    made = options["options"]
    assert (made.backoff_ms, made.backoff_max_ms, made.in_flight_max) == (50, 50, 1)
    assert (made.setup_timeout_ms, made.setup_timeout_max_ms) == (1500, 2500)


def test_no_purpose_waits_for_another() -> None:
    scene = _Scene()
    for ask, _, _ in _PURPOSES.values():
        ask(scene)
    assert [len(each.asked) for each in scene.dialled] == [1, 1, 1], "both of a purpose's go over one connection"
    scene.controllers.close()
    assert all(each.closed for each in scene.dialled)
    assert [error.code for error in scene.told] == [ErrorCode.REQUEST_TIMED_OUT] * 4


def test_a_new_leader_is_asked_by_every_purpose() -> None:
    scene = _Scene()
    for name in ("own", "partitions", "lifecycle"):
        _PURPOSES[name][0](scene)
    old, scene.leader = scene.dialled, Peer(8, "other.example", 9)
    scene.dialled = []
    scene.controllers.leader_changed()
    assert all(each.closed for each in old)
    for each in old:
        each.asked[0][1](Unanswered("gone", was_sent=True))
    assert [each.peer for each in scene.dialled] == [("other.example", 9)] * 3


def test_this_nodes_own_controller_is_called() -> None:
    scene = _Scene()
    scene.leader = Peer(1, "", 0)
    quota: Any = object()
    scene.controllers.ask(_BEAT, scene.told.append, 7, quota)
    scene.controllers.ask_for_lifecycle(_BEAT, scene.told.append)
    assert scene.here[0] == (_BEAT, 7, quota)
    assert scene.here[1][2] is unlimited
    assert scene.told == ["here", "here"] and scene.dialled == [] and scene.timers == []


# ---- clients' requests

_CREATE = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=3, replication_factor=1)])


class _Call:
    principal, client_address, client_id, version, correlation_id = "User:ann", "192.0.2.7", "admin-1", 7, 41

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.connection = SimpleNamespace(close=self.complaints.append)


def _response(code: ErrorCode = ErrorCode.NONE, data: bytes | None = None) -> EnvelopeResponse:
    return EnvelopeResponse(error_code=code, response_data=data)


def _forwarded(answer: EnvelopeResponse) -> tuple[_Scene, Any]:
    scene, call = _Scene(), _Call()
    client: Any = call
    scene.controllers.forward(client, _CREATE, scene.told.append)
    [(request, _, _)] = scene.dialled[0].asked
    origin = Requester("User:ann", "192.0.2.7", "admin-1", 7, 41)
    assert isinstance(request, EnvelopeRequest)
    assert request == wrap(API[ApiKey.CREATE_TOPICS], _CREATE, origin)
    assert scene.timers == [60]
    scene.answer(answer)
    return scene, call


def test_a_clients_request_travels_with_its_client_and_comes_back_as_its_answer() -> None:
    data = (41).to_bytes(4, "big") + b"\0" + encode(CreateTopicsResponse(throttle_time_ms=5), 7)
    scene, call = _forwarded(_response(data=data))
    assert scene.told == [CreateTopicsResponse(throttle_time_ms=5)] and call.complaints == []


@pytest.mark.parametrize(
    ("answer", "code", "closes"),
    [
        (_response(ErrorCode.UNSUPPORTED_VERSION), ErrorCode.UNSUPPORTED_VERSION, True),
        (_response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ErrorCode.UNKNOWN_SERVER_ERROR, False),
        (_response(), ErrorCode.UNKNOWN_SERVER_ERROR, False),
        (_response(data=b"\0\0\0"), ErrorCode.UNKNOWN_SERVER_ERROR, False),
    ],
)
def test_an_envelope_without_an_answer_is_an_error_of_the_request(
    answer: EnvelopeResponse, code: ErrorCode, closes: bool
) -> None:
    """A client that has the versions of a newer controller asks for them again, on a new connection."""
    scene, call = _forwarded(answer)
    assert [error.code for error in scene.told] == [code]
    assert len(call.complaints) == closes


def test_a_request_that_is_too_long_with_its_envelope_is_not_sent() -> None:
    scene, call = _Scene(), _Call()
    long = CreateTopicsRequest(topics=[CreatableTopic(name="t" * 4000)])
    client: Any = call
    scene.controllers.forward(client, long, scene.told.append)
    assert [error.code for error in scene.told] == [ErrorCode.INVALID_REQUEST]
    assert "socket.request.max.bytes=4000" in str(scene.told[0])
    assert not any(each.asked for each in scene.dialled)


@pytest.mark.parametrize("here", [None, "what the controller of this node is told"])
def test_the_controller_of_this_node_is_told_who_asks_where_it_must_know(here: Any) -> None:
    scene = _Scene()
    scene.leader = Peer(1, "", 0)
    client: Any = _Call()
    quota: Any = object()
    scene.controllers.forward(client, _CREATE, scene.told.append, quota, here)
    assert scene.here == [(_CREATE if here is None else here, 7, quota)]
