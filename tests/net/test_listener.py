"""A listening socket: who is accepted when, and what happens when nothing is left to accept with."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from ottla.host.loop import new_loop
from ottla.net.listener import (
    ACCEPTS_AT_ONCE,
    TLS_ACCEPTS_AT_ONCE,
    Gate,
    ListeningSocket,
    OpenGate,
    listening_socket,
)
from tests.net.turning import turn_until


class Poor(socket.socket):
    """A listening socket whose `accept` fails some times."""

    tries = 0
    failures = 0
    code = errno.EMFILE

    def accept(self) -> tuple[socket.socket, object]:
        Poor.tries += 1
        if Poor.failures:
            Poor.failures -= 1
            raise OSError(Poor.code, "as the system says")
        return super().accept()


@contextlib.contextmanager
def served(
    new_socket: Callable[..., socket.socket] = socket.socket,
    accepts_at_once: int = ACCEPTS_AT_ONCE,
    gate: Gate | None = None,
    host: str = "127.0.0.1",
) -> Iterator[tuple[asyncio.AbstractEventLoop, ListeningSocket, contextlib.ExitStack]]:
    loop = new_loop()
    listener = ListeningSocket(
        "PLAINTEXT",
        loop,
        lambda connection, frame, slot: None,
        lambda connection, why: None,
        frame_bytes_max=1 << 20,
        idle_ms_max=0,
        accepts_at_once=accepts_at_once,
        gate=gate,
        new_socket=new_socket,
    )
    listener.bind(host, 0)
    listener.serve()
    with contextlib.ExitStack() as stack:
        stack.callback(loop.close)
        stack.callback(listener.close)
        yield loop, listener, stack


def arrive(listener: ListeningSocket, count: int, stack: contextlib.ExitStack) -> None:
    for _ in range(count):
        stack.enter_context(socket.create_connection(("127.0.0.1", listener.port), timeout=5))


@pytest.mark.parametrize("at_once", [ACCEPTS_AT_ONCE, TLS_ACCEPTS_AT_ONCE])
def test_a_storm_of_connections_leaves_the_others_their_turns(at_once: int) -> None:
    with served(accepts_at_once=at_once) as (loop, listener, stack):
        arrive(listener, 60, stack)
        turns: list[int] = []

        def count() -> None:
            turns.append(len(listener.connections))
            if len(listener.connections) < 60:
                loop.call_soon(count)

        loop.call_soon(count)
        turn_until(loop, lambda: len(listener.connections) == 60)
        assert all(later - earlier <= at_once for earlier, later in pairwise(turns)), turns


def test_the_system_asks_whether_a_silent_client_is_still_there() -> None:
    with served() as (loop, listener, stack):
        arrive(listener, 1, stack)
        turn_until(loop, lambda: len(listener.connections) == 1)
        [connection] = listener.connections
        with socket.fromfd(connection._sock.fileno(), socket.AF_INET, socket.SOCK_STREAM) as same:
            assert same.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM], ids=errno.errorcode.get)
def test_without_a_descriptor_or_memory_the_listener_waits_and_does_not_spin(code: int) -> None:
    Poor.tries, Poor.failures, Poor.code = 0, 1, code
    with served(Poor) as (loop, listener, stack):
        arrive(listener, 1, stack)
        turns = 0

        def done() -> bool:
            nonlocal turns
            turns += 1
            return len(listener.connections) == 1

        turn_until(loop, done)
        # One failed, one took the client, one found nobody.
        assert Poor.tries == 3
        assert turns > 20, "it tried in every turn"


@pytest.mark.parametrize(
    "code", [errno.EPROTO, errno.EPERM, errno.ENETDOWN, errno.EHOSTUNREACH], ids=errno.errorcode.get
)
def test_a_connection_that_was_lost_before_it_was_taken_costs_the_next_one_nothing(code: int) -> None:
    Poor.tries, Poor.failures, Poor.code = 0, 1, code
    with served(Poor) as (loop, listener, stack):
        errors: list[object] = []
        loop.set_exception_handler(lambda loop, context: errors.append(context))
        arrive(listener, 1, stack)
        turn_until(loop, lambda: len(listener.connections) == 1)
        assert (Poor.tries, errors) == (3, [])


class OfBothKinds(socket.socket):
    """A socket as of an IPv6 listener that serves IPv4 clients, too."""

    def accept(self) -> tuple[socket.socket, object]:
        sock, (host, port) = super().accept()
        return OfBothKinds(fileno=sock.detach()), (f"::ffff:{host}", port, 0, 0)

    def getpeername(self) -> object:
        host, port = super().getpeername()
        return f"::ffff:{host}", port, 0, 0


class Noting(OpenGate):
    def __init__(self) -> None:
        self.addresses: list[str] = []

    def enter(self, address: str) -> None:
        self.addresses.append(address)

    def leave(self, address: str) -> None:
        self.addresses.append(address)


def test_an_ipv4_client_of_an_ipv6_listener_is_known_by_its_ipv4_address() -> None:
    gate = Noting()
    with served(OfBothKinds, gate=gate) as (loop, listener, stack):
        arrive(listener, 1, stack)
        turn_until(loop, lambda: len(listener.connections) == 1)
        [connection] = listener.connections
        assert connection.peer[0] == "127.0.0.1"
        connection.close("")
    assert gate.addresses == ["127.0.0.1"] * 2


def test_a_listener_at_all_addresses_serves_clients_of_ipv4() -> None:
    with served(host="") as (loop, listener, stack):
        arrive(listener, 1, stack)
        turn_until(loop, lambda: len(listener.connections) == 1)
        assert [connection.peer[0] for connection in listener.connections] == ["127.0.0.1"]


_4, _6 = socket.AF_INET, socket.AF_INET6
_TAKEN, _NO_ADDRESS = OSError(errno.EADDRINUSE, "taken"), OSError(errno.EADDRNOTAVAIL, "no IPv6 here")
_NO_NAME = socket.gaierror(socket.EAI_NONAME, "no such name")


@pytest.mark.parametrize(
    ("host", "failures", "bound"),
    [
        pytest.param("", {}, (_6, "::"), id="all"),
        pytest.param("", {_6: _NO_ADDRESS}, (_4, ""), id="all without IPv6"),
        pytest.param("", {_6: _TAKEN}, _TAKEN, id="all, and one is taken"),
        pytest.param("::", {}, (_6, "::"), id="the same by its IPv6 name"),
        pytest.param("fe80::1", {}, (_6, "fe80::1"), id="one of IPv6"),
        pytest.param("10.0.0.1", {}, (_4, "10.0.0.1"), id="one of IPv4"),
        pytest.param("10.0.0.1", {_4: _NO_ADDRESS}, _NO_ADDRESS, id="one of another machine"),
        pytest.param("name", {}, (_4, "name"), id="a name"),
        pytest.param("name", {_4: _NO_NAME}, (_6, "name"), id="a name that has an IPv6 address only"),
        pytest.param("name", {_4: _NO_NAME, _6: _NO_NAME}, _NO_NAME, id="a name that has none"),
    ],
)
def test_a_listener_is_reached_by_every_kind_of_address_that_its_host_stands_for(
    host: str, failures: dict[int, OSError], bound: tuple[int, str] | OSError
) -> None:
    """In a cluster of IPv6 addresses only, an empty host that means those of IPv4 is reached by nothing."""

    class Socket:
        def __init__(self, family: int, _kind: int) -> None:
            self.family, self.address, self.closed = family, "", False
            self.options: dict[int, int] = {}
            sockets.append(self)

        def setsockopt(self, _level: int, option: int, value: int) -> None:
            self.options[option] = value

        def bind(self, address: tuple[str, int]) -> None:
            if self.family in failures:
                raise failures[self.family]
            self.address = address[0]

        def listen(self, _backlog: int) -> None: ...
        def setblocking(self, _flag: bool) -> None: ...
        def close(self) -> None:
            self.closed = True

    sockets: list[Socket] = []
    if isinstance(bound, OSError):
        with pytest.raises(type(bound)) as raised:
            listening_socket(host, 9092, 5, Socket)  # type: ignore[arg-type]
        assert raised.value is bound
        assert all(each.closed for each in sockets)
        return
    listening_socket(host, 9092, 5, Socket)  # type: ignore[arg-type]
    assert ((sockets[-1].family, sockets[-1].address), sockets[-1].closed) == (bound, False)
    assert [each.closed for each in sockets[:-1]] == [True] * len(failures)
    # Some systems serve IPv4 clients by an IPv6 socket only when they are asked to.
    assert (sockets[-1].options.get(socket.IPV6_V6ONLY) == 0) is (bound[1] == "::")
