"""A connection that is dialled: attempts that fail at once or too late, what a peer may not say, and what waits."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ottla.net.outbound import Outbound
from ottla.net.peer import Disconnected, Expired, OutboundOptions, PeerRefused
from ottla.wire.api import ApiKey
from ottla.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.net.test_outbound import LONG_MS, QUICK, FarEnd, Told, ask, outbound, versions

QUICK_BUT_PATIENT = OutboundOptions(backoff_ms=1, setup_timeout_ms=60_000, setup_timeout_max_ms=60_000)


class Even:
    """A source of chance that gives the middle: no jitter."""

    def random(self) -> float:
        return 0.5


def with_sockets(
    far: FarEnd, new_socket: Callable[..., socket.socket], host: str = "127.0.0.1", rng: Any = None, **options: int
) -> Outbound:
    given = OutboundOptions(**options) if options else QUICK
    chance = rng or Random(1)
    return Outbound(far.loop, host, far.port, client_id="me", rng=chance, options=given, new_socket=new_socket)


def turns(far: FarEnd, count: int = 30) -> None:
    for _ in range(count):
        far.loop.run_until_complete(asyncio.sleep(0))


def failed(far: FarEnd, near: Outbound) -> Disconnected:
    told = ask(near)
    far.until(lambda: bool(told.values))
    assert isinstance(told.value, Disconnected) and not told.value.was_sent
    return told.value


def listed(far: FarEnd, told: Told) -> None:
    far.answer(far.frame()[0], ListGroupsResponse())
    far.until(lambda: bool(told.values))
    assert isinstance(told.value, ListGroupsResponse)


class NoNetwork(socket.socket):
    def connect_ex(self, address: Any) -> int:
        return errno.ENETUNREACH


class Refusing(socket.socket):
    def connect_ex(self, address: Any) -> int:
        return errno.ECONNREFUSED


class NoOption(socket.socket):
    def setsockopt(self, *_: Any) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")


class Immediate(socket.socket):
    """Connects before it says so, as to an address of the same machine."""

    def connect_ex(self, address: Any) -> int:
        self.setblocking(True)
        self.connect(address)
        self.setblocking(False)
        return 0


def no_socket(*_: Any) -> socket.socket:
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize(
    ("new_socket", "words", "kind"),
    [
        (no_socket, "Too many open files", Disconnected),
        (NoNetwork, "Network is unreachable", Disconnected),
        (NoOption, "Invalid argument", Disconnected),
        (Refusing, "Connection refused", PeerRefused),
    ],
)
def test_an_attempt_that_fails_at_once_is_told_and_repeated(
    far: FarEnd, new_socket: Callable[..., socket.socket], words: str, kind: type
) -> None:
    near = with_sockets(far, new_socket)
    for _ in range(2):
        error = failed(far, near)
        assert type(error) is kind and str(error) == f"127.0.0.1:{far.port} cannot be reached: {words}"
        assert near.last_failure == f"cannot be reached: {words}"
    near._new_socket = socket.socket
    told = ask(near)
    far.agree()
    listed(far, told)
    near.close()


def test_a_peer_that_refuses_after_another_failure_is_a_peer_that_refuses(far: FarEnd) -> None:
    near = with_sockets(far, NoNetwork)
    for new_socket, kind in ((NoNetwork, Disconnected), (Refusing, PeerRefused), (NoNetwork, Disconnected)):
        near._new_socket = new_socket
        assert type(failed(far, near)) is kind
    near.close()


def test_a_connection_that_is_made_at_once_is_used(far: FarEnd) -> None:
    near = with_sockets(far, Immediate)
    told = ask(near)
    far.agree()
    listed(far, told)
    near.close()


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_the_socket_is_of_the_addresss_family(far: FarEnd, host: str, family: int) -> None:
    made: list[tuple[int, int]] = []

    def new_socket(family: int, kind: int) -> socket.socket:
        made.append((family, kind))
        return Refusing(family, kind)

    near = with_sockets(far, new_socket, host)
    failed(far, near)
    assert made == [(family, socket.SOCK_STREAM)]
    near.close()


def test_a_request_of_the_backoff_waits_and_goes_with_the_connection_that_is_closed(far: FarEnd) -> None:
    near = with_sockets(far, NoNetwork, backoff_ms=1_000_000, backoff_max_ms=1_000_000)
    failed(far, near)
    told = ask(near)
    turns(far)
    retry = near._retry
    assert not told.values and retry is not None
    near.close()
    far.until(lambda: bool(told.values))
    assert retry.cancelled() and "closed by this node" in str(told.value) and not told.value.was_sent


class LookUps:
    """A name service that answers when the test says so."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = threading.Event()
        self.answered = threading.Event()

    def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        assert self.may_answer.wait(60)
        return ["127.0.0.1"]


def test_a_look_up_that_outlasts_the_setup_time_serves_the_requests_made_since(
    far: FarEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = LookUps()
    monkeypatch.setattr("ottla.net.outbound._resolve", service)
    near = outbound(far, OutboundOptions(backoff_ms=1, setup_timeout_ms=10), host="slow")
    assert "took too long" in str(failed(far, near))
    # The next attempt has time, however busy the machine is.
    near._options = QUICK_BUT_PATIENT
    told = ask(near)
    turns(far)
    assert service.asked == 1, "one look-up at a time"
    service.may_answer.set()
    far.agree()
    listed(far, told)
    near.close()


def test_a_look_up_that_ends_after_the_connection_was_closed_dials_nobody(
    far: FarEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = LookUps()
    monkeypatch.setattr("ottla.net.outbound._resolve", service)
    made: list[int] = []

    def new_socket(family: int, kind: int) -> socket.socket:
        made.append(family)
        return Refusing(family, kind)

    near = with_sockets(far, new_socket, "slow")
    told = ask(near)
    far.until(lambda: service.asked == 1)
    near.close()
    service.may_answer.set()
    far.until(lambda: not near._is_resolving)
    turns(far)
    assert not made and len(told.values) == 1


def test_after_a_connection_the_name_is_looked_up_again(far: FarEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def found(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1", "127.0.0.9"]

    monkeypatch.setattr("ottla.net.outbound._resolve", found)
    near = outbound(far, host="moving")
    for number in (1, 2):
        told = ask(near)
        far.agree()
        listed(far, told)
        assert asked == ["moving"] * number, "the first address again, not the second"
        far.drop()
        far.until(lambda: not near.is_connected)
    near.close()


def test_an_error_in_the_answer_to_apiversions_is_told_and_nothing_behind_it_is_read(far: FarEnd) -> None:
    near = outbound(far)
    told = ask(near)
    far.accept()
    header, _ = far.frame()
    refused = versions()
    refused.error_code = 29
    far.answer(header, refused)
    far.answer(header, versions())
    far.until(lambda: bool(told.values))
    assert "it answers ApiVersions with" in str(told.value) and not told.value.was_sent
    assert not near.is_connected
    near.close()


def test_a_setup_time_doubles_with_each_failure_up_to_its_bound(far: FarEnd) -> None:
    options = OutboundOptions(setup_timeout_ms=1_000, setup_timeout_max_ms=3_000)
    near = Outbound(far.loop, "127.0.0.1", 1, client_id="", rng=Even(), options=options)  # type: ignore[arg-type]
    seconds = []
    for failures in (0, 1, 2, 3, 60):
        near._failures = failures
        seconds.append(near._setup_seconds())
    assert seconds == [1.0, 2.0, 3.0, 3.0, 3.0]
    near.close()


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2)])
def test_times_vary_by_a_fifth(far: FarEnd, chance: float, seconds: float) -> None:
    class Given:
        def random(self) -> float:
            return chance

    near = Outbound(far.loop, "127.0.0.1", 1, client_id="", rng=Given())  # type: ignore[arg-type]
    assert near._jittered(1_000) == pytest.approx(seconds)
    near.close()


def test_a_backoff_grows_to_its_bound_and_begins_again_after_a_connection(far: FarEnd) -> None:
    near = with_sockets(far, NoNetwork, rng=Even(), backoff_ms=2, backoff_max_ms=7)
    waits = []
    for _ in range(4):
        failed(far, near)
        waits.append(near._not_before - far.loop.time())
    # Upper bounds: it had begun when we looked.
    assert [wait < most for wait, most in zip(waits, (0.0021, 0.0041, 0.0071, 0.0071), strict=True)] == [True] * 4
    assert near._failures == 4
    near._new_socket = socket.socket
    told = ask(near)
    far.agree()
    listed(far, told)
    assert (near._failures, near._not_before) == (0, 0.0)
    # One that breaks has the first backoff before it.
    broke_after = far.loop.time()
    far.drop()
    far.until(lambda: not near.is_connected)
    assert broke_after + 0.002 <= near._not_before and near._failures == 0
    near.close()


def test_each_request_has_its_own_time(far: FarEnd) -> None:
    near = outbound(far, OutboundOptions(in_flight_max=1))
    first = ask(near)
    far.agree()
    header, _ = far.frame()
    told = [ask(near, timeout_ms=ms) for ms in (40, 20, 60)]
    far.until(lambda: all(each.values for each in told))
    assert all(isinstance(each.value, Expired) and not each.value.was_sent for each in told)
    assert str(told[0].value).endswith("ListGroups was not answered in 40 ms; it was not sent")
    assert not first.values and near.pending == 1
    far.answer(header, ListGroupsResponse())
    far.until(lambda: bool(first.values))
    near.close()


def test_a_request_that_was_not_sent_in_time_tells_why_there_is_no_connection(far: FarEnd) -> None:
    near = with_sockets(far, NoNetwork, backoff_ms=1_000_000, backoff_max_ms=1_000_000)
    failed(far, near)
    told = ask(near, timeout_ms=5)
    far.until(lambda: bool(told.values))
    assert isinstance(told.value, Expired)
    assert str(told.value).endswith("in 5 ms; it was not sent: cannot be reached: Network is unreachable")
    near.close()


@pytest.mark.parametrize("method", ["send", "recv_into"])
def test_an_error_of_the_socket_ends_its_requests(far: FarEnd, method: str) -> None:
    class Breaking(socket.socket):
        is_broken = False

        def _check(self) -> None:
            if Breaking.is_broken:
                raise OSError("the cable is out")

        def send(self, *words: Any) -> int:
            if method == "send":
                self._check()
            return super().send(*words)

        def recv_into(self, *words: Any) -> int:
            if method == "recv_into":
                self._check()
            return super().recv_into(*words)

    near = with_sockets(far, Breaking)
    told = ask(near)
    far.agree()
    listed(far, told)
    Breaking.is_broken = True
    told = ask(near)
    if method == "recv_into":
        far.answer(far.frame()[0], ListGroupsResponse())
    far.until(lambda: bool(told.values))
    assert isinstance(told.value, Disconnected) and str(told.value).endswith("the cable is out")
    assert told.value.was_sent and not near.is_connected
    Breaking.is_broken = False
    told = ask(near)
    far.agree()
    listed(far, told)
    near.close()


def test_a_socket_that_has_nothing_after_all_is_read_again(far: FarEnd) -> None:
    near = outbound(far)
    told = ask(near)
    far.agree()
    header, _ = far.frame()
    near._readable()
    assert near.is_connected
    far.answer(header, ListGroupsResponse())
    far.until(lambda: bool(told.values))
    assert isinstance(told.value, ListGroupsResponse)
    near.close()


def test_what_is_called_back_may_ask_again_and_close(far: FarEnd) -> None:
    near = outbound(far)
    second = Told()

    def again(answer: Any) -> None:
        assert isinstance(answer, ListGroupsResponse)
        near.ask(ListGroupsRequest(), second, timeout_ms=LONG_MS)

    near.ask(ListGroupsRequest(), again, timeout_ms=LONG_MS)
    far.agree((ApiKey.LIST_GROUPS, 0, 4))
    far.answer(far.frame()[0], ListGroupsResponse())
    listed(far, second)
    near.close()


def test_a_name_that_no_thread_could_look_up_is_looked_up_later(far: FarEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("ottla.net.outbound._resolve", lambda host, port: ["127.0.0.1"])
    near = outbound(far, OutboundOptions(backoff_ms=1), host="far")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        assert "can't start new thread" in str(failed(far, near))
    told = ask(near)
    far.agree()
    listed(far, told)
    near.close()
