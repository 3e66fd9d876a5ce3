"""The way to the active controller in the simulated world: it moves, dies, is cut off, and is this node itself."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.controllers.controllers import Controllers
from ottla.broker.controllers.envelope import seal, unwrap
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.net.inbound import Connection, Slot
from ottla.net.listener import ListeningSocket
from ottla.net.outbound import Outbound
from ottla.net.peer import Peer
from ottla.settings.server.settings import ServerSettings
from ottla.sim.world import World
from ottla.wire.api import API, ApiKey
from ottla.wire.api.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.wire.api.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.api.envelope import EnvelopeRequest
from ottla.wire.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.wire.compile import decode, decoder, encode
from ottla.wire.header import RequestHeader, ResponseHeader, request_header_version, response_header_version

PORT = 9093
FRAME_BYTES_MAX = 1 << 20
VERSIONS = ApiVersionsResponse(
    api_keys=[
        ApiVersion(api_key=key, min_version=0, max_version=0) for key in (ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.ENVELOPE)
    ]
)


class Scene:
    """A broker that asks for blocks of ids, and three controllers of which one gives them out."""

    def __init__(self, seed: int = 1, **settings: str) -> None:
        self.world = world = World(seed)
        self.controllers = [_Controller(self, number) for number in (1, 2, 3)]
        #: The node id of the one that decides; 0 is the broker's own.
        self.active: int | None = 1
        #: Which broker epochs were asked for, by the controller that decided it.
        self.decided: list[tuple[int, int]] = []
        self.host = world.host("broker")
        self.host.boot()
        given = {
            "process.roles": "broker",
            "node.id": "0",
            "listeners": "PLAINTEXT://:9092",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "log.dirs": "/data",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        #: What the broker believes.
        self.leader: Peer | None = None
        self.way = Controllers(
            cast(asyncio.AbstractEventLoop, self.host.loop),
            ServerSettings.parse(given),
            world.rng,
            lambda: self,
            partial(Outbound, new_socket=self.host.socket),
        )
        self.told: dict[int, Any] = {}

    def ask(self, request: Any, done: Any, *_: Any) -> None:
        """The broker's own controller."""
        done(self.decide(0, request))

    def decide(self, number: int, request: Any) -> Any:
        if isinstance(request, EnvelopeRequest):
            api, origin, position = unwrap(request)
            inner, _ = decoder(api.request, origin.version)(memoryview(request.request_data), position)
            return seal(api, origin, RenewDelegationTokenResponse(expiry_timestamp_ms=len(inner.hmac)))
        if number != self.active:
            error = ErrorCode.NOT_CONTROLLER
            return KafkaError(error) if number == 0 else AllocateProducerIdsResponse(error_code=error)
        self.decided.append((number, request.broker_epoch))
        return AllocateProducerIdsResponse(producer_id_start=request.broker_epoch, producer_id_len=1)

    def hear(self, number: int | None) -> None:
        """The broker hears who leads the quorum."""

        def heard() -> None:
            known = {0: Peer(0, "", 0)} | {each.number: each.peer for each in self.controllers}
            self.leader = known.get(number) if number is not None else None
            self.way.leader_changed()

        assert self.host.loop is not None
        self.host.loop.call_soon(heard)

    def request(self, number: int, timeout_ms: int = 60_000) -> int:
        def done(value: Any) -> None:
            assert number not in self.told, "told twice"
            self.told[number] = value

        assert self.host.loop is not None
        request = AllocateProducerIdsRequest(broker_epoch=number)
        self.host.loop.call_soon(lambda: self.way.ask(request, done, timeout_ms=timeout_ms))
        return number

    def forward(self, number: int, hmac: bytes) -> None:
        """A client's request, which the controller answers with the length of `hmac`."""
        connection = SimpleNamespace(close=lambda why: None)
        call: Any = SimpleNamespace(
            principal="User:ann",
            client_address="10.0.0.7",
            client_id="c",
            version=2,
            correlation_id=number,
            connection=connection,
        )
        assert self.host.loop is not None
        request = RenewDelegationTokenRequest(hmac=hmac)
        self.host.loop.call_soon(
            lambda: self.way.forward(call, request, lambda value: self.told.update({number: value}))
        )

    def answer(self, number: int, limit_ms: int = 120_000) -> Any:
        assert self.world.run_until(lambda: number in self.told, limit_ms=limit_ms), "not told"
        return self.told[number]


class _Controller:
    def __init__(self, scene: Scene, number: int) -> None:
        self.scene = scene
        self.number = number
        self.host = scene.world.host(f"controller-{number}")
        self.peer = Peer(number, self.host.address, PORT)
        self.start()

    def start(self) -> None:
        loop = self.host.boot()
        listening = ListeningSocket(
            "CONTROLLER",
            cast(asyncio.AbstractEventLoop, loop),
            self._on_frame,
            lambda *_: None,
            frame_bytes_max=FRAME_BYTES_MAX,
            idle_ms_max=-1,
            new_socket=self.host.socket,
            now=loop.time,
        )
        listening.bind(self.host.address, PORT)
        listening.serve()

    def _on_frame(self, connection: Connection, frame: memoryview, slot: Slot) -> None:
        data = bytes(frame)
        key, version = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")
        header, position = decode(RequestHeader, request_header_version(key, version), data)
        request, _ = decode(API[key].request, version, data, position)
        response = VERSIONS if key == ApiKey.API_VERSIONS else self.scene.decide(self.number, request)
        said = ResponseHeader(correlation_id=header.correlation_id)
        body = encode(said, response_header_version(key, version)) + encode(response, version)
        slot.fill([len(body).to_bytes(4, "big") + body])


def _start(value: Any) -> int:
    assert isinstance(value, AllocateProducerIdsResponse), value
    return value.producer_id_start


def test_what_is_asked_before_there_is_a_controller_waits_for_it() -> None:
    scene = Scene()
    scene.request(7)
    scene.world.run_for(3_000)
    assert not scene.told
    scene.hear(1)
    assert _start(scene.answer(7, 100)) == 7


def test_the_own_controller_is_asked_by_a_call() -> None:
    scene = Scene()
    scene.active = 0
    scene.hear(0)
    assert _start(scene.answer(scene.request(1), 10)) == 1
    # It loses: the request waits, and ends elsewhere.
    scene.active = 2
    scene.request(2)
    scene.world.run_for(1_000)
    assert 2 not in scene.told
    scene.hear(2)
    assert _start(scene.answer(2, 1_000)) == 2
    scene.hear(0)
    scene.active = 0
    assert _start(scene.answer(scene.request(3), 1_000)) == 3
    assert scene.decided == [(0, 1), (2, 2), (0, 3)]


def test_one_that_says_that_it_is_not_the_controller_is_asked_no_more_once_another_is_known() -> None:
    scene = Scene()
    scene.active = 3
    scene.hear(1)
    scene.request(1)
    scene.world.run_for(2_000)
    assert not scene.told
    scene.hear(3)
    assert _start(scene.answer(1, 1_000)) == 1
    assert scene.decided == [(3, 1)]


def test_a_controller_that_dies_is_asked_again_when_it_is_back() -> None:
    scene = Scene()
    scene.hear(1)
    scene.answer(scene.request(1))
    scene.controllers[0].host.kill()
    scene.request(2)
    scene.request(3)
    scene.world.run_for(5_000)
    assert 2 not in scene.told
    scene.controllers[0].start()
    assert _start(scene.answer(2, 5_000)) == 2
    assert _start(scene.answer(3, 1_000)) == 3


def test_no_controller_in_time_is_a_timeout() -> None:
    scene = Scene()
    scene.request(1, 1_500)
    answer = scene.answer(1, 1_600)
    assert isinstance(answer, KafkaError) and answer.code == ErrorCode.REQUEST_TIMED_OUT
    scene.hear(1)
    scene.world.network.isolate(scene.host)
    scene.request(2, 1_500)
    # Its one attempt may take controller.socket.timeout.ms.
    answer = scene.answer(2, 70_000)
    assert isinstance(answer, KafkaError) and answer.code == ErrorCode.REQUEST_TIMED_OUT


def test_what_the_controller_says_of_the_whole_request_is_an_error() -> None:
    scene = Scene()
    scene.hear(1)
    scene.decide = lambda *_: AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)  # type: ignore[method-assign]
    answer = scene.answer(scene.request(1))
    assert isinstance(answer, KafkaError) and answer.code == ErrorCode.STALE_BROKER_EPOCH
    scene.decide = lambda *_: AllocateProducerIdsResponse(error_code=30_000)  # type: ignore[method-assign]
    answer = scene.answer(scene.request(2))
    assert isinstance(answer, KafkaError) and answer.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_close_tells_everyone() -> None:
    scene = Scene()
    for number in range(3):
        scene.request(number)
    scene.world.run_for(100)
    assert scene.host.loop is not None
    scene.host.loop.call_soon(scene.way.close)
    scene.request(3)
    answers = [scene.answer(number, 100) for number in range(4)]
    assert all(isinstance(each, KafkaError) and each.code == ErrorCode.REQUEST_TIMED_OUT for each in answers)


@pytest.mark.parametrize("seed", range(1, 9))
def test_whatever_the_controllers_do_everyone_is_told_once(seed: int) -> None:
    scene = Scene(seed)
    world, rng, network = scene.world, scene.world.rng, scene.world.network
    asked = 0
    for _ in range(120):
        match rng.randrange(12):
            case 0:
                scene.active = rng.choice((None, 0, 1, 2, 3))
            case 1 | 2:
                scene.hear(scene.active)
            case 3:
                scene.hear(rng.choice((None, 0, 1, 2, 3)))
            case 4:
                other = rng.choice(scene.controllers).host
                network.cut(*rng.sample((scene.host, other), 2))
            case 5 | 6:
                network.heal_all()
            case 7:
                each = rng.choice(scene.controllers)
                each.start() if each.host.loop is None else each.host.kill()
            case _:
                scene.request(asked, rng.randrange(200, 20_000))
                asked += 1
        world.run_for(rng.randrange(500))
    network.heal_all()
    for each in scene.controllers:
        if each.host.loop is None:
            each.start()
    scene.active = 2
    scene.hear(2)
    scene.request(asked)
    assert _start(scene.answer(asked, 40_000)) == asked
    world.run_for(60_000)
    assert set(scene.told) == set(range(asked + 1))
    for number, value in scene.told.items():
        if isinstance(value, KafkaError):
            assert value.code == ErrorCode.REQUEST_TIMED_OUT
        else:
            assert _start(value) == number
            assert number in {epoch for _, epoch in scene.decided}
    assert not scene.host.unretrieved


@pytest.mark.parametrize(("session_ms", "said_after_ms"), [(9_000, 4_500), (3_000, 1_500)])
def test_a_heartbeat_waits_half_a_session(session_ms: int, said_after_ms: int) -> None:
    scene = Scene(broker_session_timeout_ms=str(session_ms))
    loop = scene.host.loop
    assert loop is not None
    loop.call_soon(
        lambda: scene.way.ask_for_lifecycle(AllocateProducerIdsRequest(), lambda value: scene.told.update({1: value}))
    )
    scene.world.run_for(said_after_ms - 100)
    assert not scene.told
    answer = scene.answer(1, 200)
    assert isinstance(answer, KafkaError) and answer.code == ErrorCode.REQUEST_TIMED_OUT


def test_a_clients_request_that_no_controller_would_read_holds_up_no_other() -> None:
    """With its envelope it is longer than what controllers take: they would close the connection again and again."""
    scene = Scene(socket_request_max_bytes=str(FRAME_BYTES_MAX))
    scene.hear(1)
    scene.forward(1, b"x" * (FRAME_BYTES_MAX - 40))
    scene.forward(2, b"short")
    scene.forward(3, b"x" * (FRAME_BYTES_MAX - 1000))
    refused = scene.answer(1, 100)
    assert isinstance(refused, KafkaError) and refused.code is ErrorCode.INVALID_REQUEST
    assert "socket.request.max.bytes=1048576" in refused.message
    assert scene.answer(2, 1_000).expiry_timestamp_ms == 5
    assert scene.answer(3, 10_000).expiry_timestamp_ms == FRAME_BYTES_MAX - 1000
