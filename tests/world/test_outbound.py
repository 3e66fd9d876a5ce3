"""A node's connection to another node in the simulated world: cut, slow, reset, half-open, killed, paused."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

import pytest

from ottla.net.inbound import Connection, Slot
from ottla.net.listener import ListeningSocket
from ottla.net.outbound import Outbound
from ottla.net.peer import Disconnected, Expired, OutboundOptions, PeerRefused, Unanswered
from ottla.sim.world import World
from ottla.wire.api import API, ApiKey
from ottla.wire.api.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.api.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.wire.compile import decode, encode
from ottla.wire.header import RequestHeader, ResponseHeader, request_header_version, response_header_version

#: A told request is this late at most: callbacks take their time, and clocks drift.
_SLACK_US = 20_000
PORT = 9093
VERSIONS = ApiVersionsResponse(api_keys=[ApiVersion(api_key=ApiKey.LIST_GROUPS, min_version=0, max_version=5)])


class Server:
    """A process that answers ListGroups with the states it was asked for."""

    def __init__(self, world: World) -> None:
        self.host = world.host("server")
        self.handled: list[str] = []

    def start(self) -> None:
        loop = self.host.boot()
        listening = ListeningSocket(
            "CONTROLLER",
            cast(asyncio.AbstractEventLoop, loop),
            self._on_frame,
            lambda *_: None,
            frame_bytes_max=1 << 20,
            idle_ms_max=-1,
            new_socket=self.host.socket,
            now=loop.time,
        )
        listening.bind(self.host.address, PORT)
        listening.serve()

    def _on_frame(self, connection: Connection, frame: memoryview, slot: Slot) -> None:
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        header, position = decode(RequestHeader, request_header_version(key, version), bytes(frame))
        response: Any = VERSIONS
        if key == ApiKey.LIST_GROUPS:
            request, _ = decode(API[key].request, version, bytes(frame), position)
            self.handled += request.states_filter
            response = ListGroupsResponse(groups=[ListedGroup(group_id=each) for each in request.states_filter])
        said = encode(ResponseHeader(correlation_id=header.correlation_id), response_header_version(key, version))
        body = said + encode(response, version)
        slot.fill([len(body).to_bytes(4, "big") + body])


class Asker:
    """A process that asks, and what it was told by number."""

    def __init__(self, world: World, server: Server, **options: int) -> None:
        self.world = world
        self.host = world.host("asker")
        loop = self.host.boot()
        make = partial(Outbound, new_socket=self.host.socket, rng=world.rng, options=OutboundOptions(**options))
        self.outbound = make(cast(asyncio.AbstractEventLoop, loop), server.host.address, PORT, client_id="asker")
        self.told: dict[str, Any] = {}
        self.asked_us: dict[str, int] = {}
        #: When each must have been told.
        self.until_us: dict[str, int] = {}
        self.told_us: dict[str, int] = {}

    def ask(self, timeout_ms: int = 2_000) -> str:
        name = str(len(self.asked_us))
        self.asked_us[name] = self.world.now_us
        self.until_us[name] = self.world.now_us + 1000 * timeout_ms + _SLACK_US
        request = ListGroupsRequest(states_filter=[name])

        def done(value: Any) -> None:
            assert name not in self.told, "told twice"
            self.told[name] = value
            self.told_us[name] = self.world.now_us

        assert self.host.loop is not None
        self.host.loop.call_soon(lambda: self.outbound.ask(request, done, timeout_ms=timeout_ms))
        return name

    def answer(self, name: str) -> Any:
        """What was told, which must have come by now."""
        self.world.run_until(lambda: name in self.told, limit_ms=120_000)
        return self.told[name]


def _both(seed: int = 1, **options: int) -> tuple[World, Server, Asker]:
    world = World(seed)
    server = Server(world)
    server.start()
    return world, server, Asker(world, server, **options)


def test_requests_are_answered_in_their_order() -> None:
    _, server, asker = _both()
    names = [asker.ask() for _ in range(30)]
    answers = [asker.answer(name) for name in names]
    assert [each.groups[0].group_id for each in answers] == names == server.handled == list(asker.told)
    assert asker.outbound.is_connected


def test_a_cut_link_ends_in_the_request_s_time_and_is_found_again() -> None:
    world, server, asker = _both()
    asker.answer(asker.ask())
    for there, back in ((asker.host, server.host), (server.host, asker.host)):
        world.network.cut(there, back)
        lost = asker.ask()
        assert isinstance(asker.answer(lost), Expired)
        took_ms = (asker.told_us[lost] - asker.asked_us[lost]) / 1000
        assert 1_999 <= took_ms < 2_100
        world.network.heal(there, back)
        assert isinstance(asker.answer(asker.ask(10_000)), ListGroupsResponse)


def test_a_connection_whose_other_end_lost_its_power_is_given_up() -> None:
    _, server, asker = _both()
    asker.answer(asker.ask())
    server.host.power_off()
    assert isinstance(asker.answer(asker.ask()), Expired)
    # Half open no more: the next attempt is a new connection, which nobody answers until the setup time is over.
    assert isinstance(asker.answer(asker.ask(60_000)), Disconnected)
    server.start()
    assert isinstance(asker.answer(asker.ask()), ListGroupsResponse)


def test_a_killed_server_is_noticed_at_once_and_its_successor_found() -> None:
    _, server, asker = _both()
    asker.answer(asker.ask())
    server.host.kill()
    lost = asker.ask()
    broken = asker.answer(lost)
    assert isinstance(broken, Disconnected) and not isinstance(broken, PeerRefused)
    refused = asker.answer(asker.ask())
    assert isinstance(refused, PeerRefused) and "refused" in str(refused)
    server.start()
    assert isinstance(asker.answer(asker.ask()), ListGroupsResponse)


def test_a_slow_link_is_only_slow() -> None:
    world, server, asker = _both()
    world.network.slow(asker.host, server.host, 400_000)
    names = [asker.ask(5_000) for _ in range(5)]
    assert all(isinstance(asker.answer(name), ListGroupsResponse) for name in names)


@pytest.mark.parametrize("seed", [*range(1, 13), 47])
def test_whatever_happens_everyone_is_told_once_and_in_time(seed: int) -> None:
    world, server, asker = _both(seed, setup_timeout_ms=1_000, setup_timeout_max_ms=3_000, in_flight_max=seed % 3 + 1)
    rng, network = world.rng, world.network
    there, back = asker.host, server.host
    for _ in range(150):
        match rng.randrange(12):
            case 0:
                network.cut(*rng.sample((there, back), 2))
            case 1 | 2:
                network.heal_all()
            case 3 if server.host.loop is not None:
                rng.choice((server.host.kill, server.host.power_off))()
            case 4 | 5 if server.host.loop is None:
                server.start()
            case 6:
                network.slow(there, back, rng.choice((0, 0, 300_000)))
            case 7 if server.host.loop is not None:
                rng.choice((server.host.pause, server.host.resume))()
            case _:
                asker.ask(rng.randrange(50, 3_000))
        world.run_for(rng.randrange(400))
    network.heal_all()
    network.slow(there, back, 0)
    server.host.resume()
    if server.host.loop is None:
        server.start()
    world.run_for(20_000)
    assert set(asker.told) == set(asker.asked_us)
    for name, value in asker.told.items():
        assert isinstance(value, ListGroupsResponse | Unanswered)
        assert asker.told_us[name] < asker.until_us[name]
        if isinstance(value, ListGroupsResponse):
            assert [each.group_id for each in value.groups] == [name]
        elif not value.was_sent:
            assert name not in server.handled
    assert not asker.outbound.pending
    if isinstance(first := asker.answer(asker.ask(20_000)), Disconnected):
        # Of a connection that the other end lost with its power, the next request tells.
        first = asker.answer(asker.ask(20_000))
    assert isinstance(first, ListGroupsResponse)
    # Nothing is sent twice by the connection itself.
    assert len(server.handled) == len(set(server.handled))
    # What a connection that was given up still carried may arrive after the requests of the next one.
    answered = [name for name in server.handled if isinstance(asker.told.get(name), ListGroupsResponse)]
    assert answered == sorted(answered, key=int)
    assert len(answered) > 3
    assert not asker.host.unretrieved
