"""A connection that is dialled: asks are answered in order or given up once, whatever the peer does."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from ottla.net.outbound import Outbound
from ottla.net.peer import Disconnected, Expired, NotOffered, OutboundOptions, PeerRefused, Unanswered
from ottla.wire.api import API, ApiKey
from ottla.wire.api.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.compile import decode, encode
from ottla.wire.header import RequestHeader, ResponseHeader, request_header_version, response_header_version
from tests.net.turning import turn_until

QUICK = OutboundOptions(backoff_ms=1, backoff_max_ms=4, setup_timeout_ms=200, setup_timeout_max_ms=400)
LONG_MS = 60_000


class FarEnd:
    """The peer: a socket on which the test says what comes back."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._listening = socket.socket()
        self._listening.bind(("127.0.0.1", 0))
        self._listening.listen(8)
        self._listening.setblocking(False)
        self.port = self._listening.getsockname()[1]
        self.sock: socket.socket | None = None
        self._bytes = b""

    def until(self, done: Callable[[], bool]) -> None:
        turn_until(self.loop, done)

    def accept(self) -> None:
        def came() -> bool:
            try:
                self.sock, _ = self._listening.accept()
            except BlockingIOError:
                return False
            return True

        self.drop()
        self.until(came)
        assert self.sock is not None
        self.sock.setblocking(False)

    def frame(self) -> tuple[RequestHeader, Any]:
        """The next request."""

        def whole() -> bool:
            assert self.sock is not None
            with contextlib.suppress(BlockingIOError):
                self._bytes += self.sock.recv(1 << 20)
            return len(self._bytes) >= 4 and len(self._bytes) >= 4 + int.from_bytes(self._bytes[:4], "big")

        self.until(whole)
        end = 4 + int.from_bytes(self._bytes[:4], "big")
        body, self._bytes = self._bytes[4:end], self._bytes[end:]
        key, version = int.from_bytes(body[:2], "big"), int.from_bytes(body[2:4], "big")
        header, position = decode(RequestHeader, request_header_version(key, version), body)
        request, _ = decode(API[key].request, version, body, position)
        return header, request

    def answer(self, header: RequestHeader, response: Any, *, number: int | None = None) -> None:
        key, version = header.request_api_key, header.request_api_version
        said = ResponseHeader(correlation_id=header.correlation_id if number is None else number)
        self.send(encode(said, response_header_version(key, version)) + encode(response, version))

    def send(self, body: bytes, *, length: int | None = None) -> None:
        assert self.sock is not None
        self.sock.setblocking(True)
        self.sock.sendall((len(body) if length is None else length).to_bytes(4, "big") + body)
        self.sock.setblocking(False)

    def agree(self, *ranges: tuple[ApiKey, int, int]) -> None:
        """Take the connection, and say which versions are served."""
        self.accept()
        header, _ = self.frame()
        assert (header.request_api_key, header.request_api_version) == (ApiKey.API_VERSIONS, 4)
        self.answer(header, versions(*ranges))

    def drop(self) -> None:
        self._bytes = b""
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def close(self) -> None:
        self.drop()
        self._listening.close()


def versions(*ranges: tuple[ApiKey, int, int]) -> ApiVersionsResponse:
    given = ranges or ((ApiKey.LIST_GROUPS, 0, 4), (ApiKey.FIND_COORDINATOR, 0, 6))
    rows = [ApiVersion(api_key=int(key), min_version=low, max_version=high) for key, low, high in given]
    return ApiVersionsResponse(api_keys=rows)


class Told:
    """What one `done` was called with."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def __call__(self, value: Any) -> None:
        self.values.append(value)

    @property
    def value(self) -> Any:
        assert len(self.values) == 1
        return self.values[0]


def outbound(far: FarEnd, options: OutboundOptions = QUICK, port: int = 0, host: str = "127.0.0.1") -> Outbound:
    return Outbound(far.loop, host, port or far.port, client_id="me", rng=Random(1), options=options)


def ask(near: Outbound, request: object = None, *, timeout_ms: int = LONG_MS, **bounds: int) -> Told:
    told = Told()
    near.ask(request or ListGroupsRequest(), told, timeout_ms=timeout_ms, **bounds)
    return told


def test_a_request_goes_in_the_highest_version_that_both_know(far: FarEnd) -> None:
    near = outbound(far)
    told = ask(near), ask(near, FindCoordinatorRequest()), ask(near, at_most=2)
    far.agree()
    for version in (4, 6, 2):
        header, _ = far.frame()
        assert (header.request_api_version, header.client_id) == (version, "me")
        key = ApiKey(header.request_api_key)
        far.answer(header, FindCoordinatorResponse() if key == ApiKey.FIND_COORDINATOR else ListGroupsResponse())
    far.until(lambda: all(each.values for each in told))
    assert [type(each.value).__name__ for each in told] == [
        "ListGroupsResponse",
        "FindCoordinatorResponse",
        "ListGroupsResponse",
    ]
    assert near.is_connected and not near.pending
    near.close()


def test_no_common_version_is_said_and_costs_no_connection(far: FarEnd) -> None:
    near = outbound(far)
    told = ask(near), ask(near, FindCoordinatorRequest()), ask(near, at_least=4), ask(near)
    far.agree((ApiKey.LIST_GROUPS, 0, 3))
    header, _ = far.frame()
    far.answer(header, ListGroupsResponse())
    far.answer(far.frame()[0], ListGroupsResponse())
    far.until(lambda: all(each.values for each in told))
    assert isinstance(told[1].value, NotOffered) and "FIND_COORDINATOR not at all" in str(told[1].value)
    assert isinstance(told[2].value, NotOffered) and "v4 is needed" in str(told[2].value)
    assert not told[1].value.was_sent and not told[2].value.was_sent
    assert isinstance(told[0].value, ListGroupsResponse) and isinstance(told[3].value, ListGroupsResponse)
    near.close()


def test_what_a_version_cannot_say_is_not_sent(far: FarEnd) -> None:
    near = outbound(far)
    told = ask(near, ListGroupsRequest(states_filter=["Stable"])), ask(near)
    far.agree((ApiKey.LIST_GROUPS, 0, 3))
    far.answer(far.frame()[0], ListGroupsResponse())
    far.until(lambda: all(each.values for each in told))
    assert isinstance(told[0].value, NotOffered) and "states_filter" in str(told[0].value)
    assert not told[0].value.was_sent
    assert isinstance(told[1].value, ListGroupsResponse)
    near.close()


def test_a_peer_of_an_older_apiversions_is_asked_again(far: FarEnd) -> None:
    near = outbound(far)
    told = ask(near)
    far.accept()
    header, _ = far.frame()
    refused = versions((ApiKey.API_VERSIONS, 0, 2))
    refused.error_code = 35
    far.send(encode(ResponseHeader(correlation_id=header.correlation_id), 0) + encode(refused, 0))
    header, _ = far.frame()
    assert header.request_api_version == 2
    far.answer(header, versions())
    far.answer(far.frame()[0], ListGroupsResponse())
    far.until(lambda: bool(told.values))
    assert isinstance(told.value, ListGroupsResponse)
    near.close()


def test_no_more_than_the_bound_are_on_their_way(far: FarEnd) -> None:
    near = outbound(far, OutboundOptions(in_flight_max=2))
    told = [ask(near) for _ in range(5)]
    far.agree()
    one, two = far.frame()[0], far.frame()[0]
    for _ in range(20):
        far.loop.run_until_complete(asyncio.sleep(0))
    assert far.sock is not None
    with pytest.raises(BlockingIOError):
        far.sock.recv(1)
    for header in (one, two):
        far.answer(header, ListGroupsResponse())
    for _ in range(3):
        far.answer(far.frame()[0], ListGroupsResponse())
    far.until(lambda: all(each.values for each in told))
    near.close()


@pytest.mark.parametrize(
    ("evil", "why"),
    [
        (lambda far, header: far.send(b"", length=0x7FFFFFFF), "a frame of 2147483647 bytes"),
        (lambda far, header: far.send(b"", length=0xFFFFFFFF), "a frame of -1 bytes"),
        (lambda far, header: far.send(b"GET / HTTP/1.1", length=0x48545450), "is it a Kafka broker"),
        (lambda far, header: far.answer(header, ListGroupsResponse(), number=999), "bears the id 999"),
        (lambda far, header: far.send(encode(ResponseHeader(correlation_id=header.correlation_id), 1)), "ListGroups"),
        (lambda far, header: far.sock.send(b"\0\0"), "closed the connection"),
        (lambda far, header: None, "closed the connection"),
    ],
)
def test_a_peer_that_breaks_the_protocol_is_left_and_everyone_is_told(
    far: FarEnd, evil: Callable[[FarEnd, RequestHeader], None], why: str
) -> None:
    near = outbound(far, OutboundOptions(backoff_ms=1, in_flight_max=2))
    told = [ask(near) for _ in range(3)]
    far.agree()
    header, _ = far.frame()
    evil(far, header)
    assert far.sock is not None
    far.sock.shutdown(socket.SHUT_WR)
    far.until(lambda: all(each.values for each in told))
    assert not near.is_connected and not near.pending
    assert [each.value.was_sent for each in told] == [True, True, False]
    assert all(isinstance(each.value, Disconnected) and why in str(each.value) for each in told), told[0].value
    # The next one connects again.
    again = ask(near)
    far.agree()
    far.answer(far.frame()[0], ListGroupsResponse())
    far.until(lambda: bool(again.values))
    assert isinstance(again.value, ListGroupsResponse)
    near.close()


def test_an_answer_that_was_never_asked_for_ends_the_connection(far: FarEnd) -> None:
    near = outbound(far)
    told = ask(near)
    far.agree()
    header, _ = far.frame()
    far.answer(header, ListGroupsResponse())
    far.answer(header, ListGroupsResponse())
    far.until(lambda: bool(told.values) and not near.is_connected)
    assert isinstance(told.value, ListGroupsResponse)
    assert "never asked" in near.last_failure
    near.close()


def test_a_refused_connection_is_tried_again_after_a_backoff_that_doubles(far: FarEnd) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        near = outbound(far, OutboundOptions(backoff_ms=8, backoff_max_ms=20), port=nobody.getsockname()[1])
        waits: list[float] = []
        # The time before the turn of the loop that brought the last answer: no later than its failure.
        unanswered = far.loop.time()

        def is_answered(told: Told) -> bool:
            nonlocal unanswered
            if not told.values:
                unanswered = far.loop.time()
            return bool(told.values)

        for _ in range(4):
            told, failed = ask(near), unanswered
            far.until(partial(is_answered, told))
            assert isinstance(told.value, PeerRefused) and "refused" in str(told.value) and not told.value.was_sent
            waits.append(far.loop.time() - failed)
    # Lower bounds alone: the machine may be busy. 8, 16 and 20 ms, a fifth less at most, in whole milliseconds.
    assert [wait >= least for wait, least in zip(waits, (0, 0.005, 0.011, 0.015), strict=True)] == [True] * 4, waits
    near.close()


def test_a_peer_is_refused_when_all_its_addresses_are(far: FarEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.net.outbound._resolve", lambda host, port: ["127.0.0.2", "127.0.0.1"])

    def failure(near: Outbound) -> type:
        told = ask(near)
        far.until(lambda: bool(told.values))
        return type(told.value)

    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        near = outbound(far, host="two", port=nobody.getsockname()[1])
        assert [failure(near) for _ in range(4)] == [Disconnected, PeerRefused, Disconnected, PeerRefused]
        near.close()
    # The peer lives at the second address, and hangs up there: it refuses nothing.
    near = outbound(far, host="two")
    assert failure(near) is Disconnected
    told = ask(near)
    far.accept()
    far.drop()
    far.until(lambda: bool(told.values))
    assert type(told.value) is Disconnected
    near.close()


def test_a_request_that_is_not_answered_in_time_closes_the_connection(far: FarEnd) -> None:
    near = outbound(far)
    first = ask(near)
    far.agree()
    far.answer(far.frame()[0], ListGroupsResponse())
    far.until(lambda: bool(first.values))
    # The connection is there: both are sent at once, however busy the machine is.
    told = ask(near, timeout_ms=20), ask(near)
    far.until(lambda: all(each.values for each in told))
    assert isinstance(told[0].value, Expired) and told[0].value.was_sent
    assert isinstance(told[1].value, Disconnected) and told[1].value.was_sent
    assert not near.is_connected
    near.close()


def test_a_request_that_was_not_sent_in_its_time_is_given_up_alone(far: FarEnd) -> None:
    near = outbound(far, OutboundOptions(in_flight_max=1))
    told = ask(near), ask(near, timeout_ms=20)
    far.agree()
    header, _ = far.frame()
    far.until(lambda: bool(told[1].values))
    assert isinstance(told[1].value, Expired) and not told[1].value.was_sent
    far.answer(header, ListGroupsResponse())
    far.until(lambda: bool(told[0].values))
    assert isinstance(told[0].value, ListGroupsResponse) and near.is_connected
    near.close()


def test_a_peer_that_accepts_and_says_nothing_is_left_after_the_setup_time(far: FarEnd) -> None:
    near = outbound(far, OutboundOptions(setup_timeout_ms=10, backoff_ms=1))
    told = ask(near)
    far.accept()
    far.until(lambda: bool(told.values))
    assert isinstance(told.value, Disconnected) and "took too long" in str(told.value)
    near.close()


def test_names_are_looked_up_and_no_such_name_is_said(far: FarEnd) -> None:
    near = outbound(far, host="localhost")
    told = ask(near)
    # localhost may be ::1 first, where nobody listens.
    far.until(lambda: bool(told.values) or near.last_failure != "" or bool(near._sent))
    if told.values:
        told = ask(near)
    far.agree()
    far.answer(far.frame()[0], ListGroupsResponse())
    far.until(lambda: bool(told.values))
    assert isinstance(told.value, ListGroupsResponse)
    near.close()
    nowhere = outbound(far, host="no such name")
    told = ask(nowhere)
    far.until(lambda: bool(told.values))
    assert isinstance(told.value, Disconnected) and "no such host" in str(told.value)
    nowhere.close()


def test_close_tells_everyone_once_and_later_asks_at_once(far: FarEnd) -> None:
    near = outbound(far, OutboundOptions(in_flight_max=1))
    told = [ask(near) for _ in range(3)]
    far.agree()
    far.frame()
    near.close()
    near.close()
    assert not any(each.values for each in told)
    told.append(ask(near))
    far.until(lambda: all(each.values for each in told))
    assert all(isinstance(each.value, Unanswered) and "closed by this node" in str(each.value) for each in told)


def test_a_long_request_goes_out_in_pieces_and_a_long_answer_comes_in_pieces(far: FarEnd) -> None:
    near = outbound(far)
    keys = ["k" * 1000] * 9_000
    told = ask(near, FindCoordinatorRequest(coordinator_keys=keys), at_least=4)
    far.agree()
    header, request = far.frame()
    assert request.coordinator_keys == keys
    assert far.sock is not None
    far.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
    far.answer(header, FindCoordinatorResponse(error_code=0))
    far.until(lambda: bool(told.values))
    # The next one goes out although this one had to wait for room.
    again = ask(near)
    far.answer(far.frame()[0], ListGroupsResponse(error_code=0))
    far.until(lambda: bool(again.values))
    # And after a connection that was lost while one waited for room.
    lost = ask(near, FindCoordinatorRequest(coordinator_keys=keys), at_least=4)
    far.until(lambda: near._writing)
    far.drop()
    far.until(lambda: bool(lost.values))
    assert isinstance(lost.value, Disconnected)
    after = ask(near)
    far.agree()
    far.answer(far.frame()[0], ListGroupsResponse(error_code=0))
    far.until(lambda: bool(after.values))
    assert after.value.error_code == 0
    near.close()
