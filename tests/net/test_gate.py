"""What a listener does with the connections that its gate holds or refuses, and with what it cannot bind or accept."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator

import pytest

from ottla.host.loop import new_loop
from ottla.kernel.error import OttlaError
from ottla.net.listener import ListeningSocket
from tests.net.test_listener import arrive, served
from tests.net.turning import turn_until

#: Turns of the loop in which a client would be let in, if it were.
_TURNS = 50
#: Longer than a test.
_FOREVER_SECONDS = 1000.0


class Scripted:
    """A gate that does as the test says, and notes what it is told."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.room = True
        self.refuses_after: float | None = None
        self.told: list[str] = []
        self.listeners: list[ListeningSocket] = []

    def attach(self, listener: ListeningSocket) -> None:
        self.listeners.append(listener)

    def arrive(self) -> float:
        self.told.append("arrive")
        return self.waits.pop(0) if self.waits else 0

    def has_room(self) -> bool:
        return self.room

    def enter(self, address: str) -> float | None:
        self.told.append(f"enter {address}")
        return self.refuses_after

    def leave(self, address: str) -> None:
        self.told.append(f"leave {address}")


@pytest.fixture
def gate() -> Scripted:
    return Scripted()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = new_loop()
    yield loop
    loop.close()


def turns(loop: asyncio.AbstractEventLoop) -> None:
    for _ in range(_TURNS):
        loop.run_until_complete(asyncio.sleep(0))


def is_closed(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> bool:
    """Whether the listener has closed this client's connection, after some turns."""
    turns(loop)
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def client(listener: ListeningSocket) -> socket.socket:
    return socket.create_connection(("127.0.0.1", listener.port), timeout=5)


def test_a_gate_knows_its_listener(gate: Scripted) -> None:
    with served(gate=gate) as (_, listener, _stack):
        assert gate.listeners == [listener]


def test_a_connection_that_came_too_fast_waits_its_time_and_those_after_it_stay_in_the_backlog(gate: Scripted) -> None:
    gate.waits = [0, 0.02]
    with served(gate=gate) as (loop, listener, stack):
        arrive(listener, 3, stack)
        began = loop.time()
        turn_until(loop, lambda: gate.told.count("arrive") == 2)
        assert len(listener.connections) == 1
        # Room that comes up meanwhile does not shorten its time.
        listener.admit_held()
        assert len(listener.connections) == 1
        turn_until(loop, lambda: len(listener.connections) == 3)
        assert round(loop.time() - began, 3) >= 0.02
        assert gate.told == ["arrive", "enter 127.0.0.1"] * 3


def test_a_connection_for_which_there_is_no_room_is_let_in_when_there_is(gate: Scripted) -> None:
    gate.room = False
    with served(gate=gate) as (loop, listener, stack):
        arrive(listener, 2, stack)
        turn_until(loop, lambda: bool(gate.told))
        turns(loop)
        assert gate.told == ["arrive"], "the second is not accepted while the first one waits"
        listener.admit_held()
        assert not listener.connections, "there is still no room"
        gate.room = True
        listener.admit_held()
        assert len(listener.connections) == 1
        listener.admit_held()
        turn_until(loop, lambda: len(listener.connections) == 2)


def test_one_that_waited_its_time_still_waits_for_room(gate: Scripted) -> None:
    gate.waits, gate.room = [0.001], False
    with served(gate=gate) as (loop, listener, stack):
        arrive(listener, 1, stack)
        turn_until(loop, lambda: gate.told == ["arrive"])
        turn_until(loop, lambda: listener._waiting is None)
        turns(loop)
        assert not listener.connections
        gate.room = True
        listener.admit_held()
        assert len(listener.connections) == 1


def test_a_refused_connection_is_closed_at_once_and_is_none_of_the_listeners(gate: Scripted) -> None:
    gate.refuses_after = 0
    with served(gate=gate) as (loop, listener, _), client(listener) as sock:
        turn_until(loop, lambda: len(gate.told) == 2)
        assert is_closed(loop, sock)
        assert not listener.connections and not listener._refused
        assert gate.told == ["arrive", "enter 127.0.0.1"], "one that was not let in does not leave"


def test_a_refused_connection_may_be_kept_for_a_time(gate: Scripted) -> None:
    gate.refuses_after = 0.02
    with served(gate=gate) as (loop, listener, _), client(listener) as sock:
        began = loop.time()
        turn_until(loop, lambda: len(gate.told) == 2)
        turn_until(loop, lambda: not listener._refused)
        assert loop.time() - began >= 0.01
        assert is_closed(loop, sock)


def test_the_end_closes_what_is_held_and_refused(gate: Scripted) -> None:
    gate.refuses_after = _FOREVER_SECONDS
    with served(gate=gate) as (loop, listener, _), client(listener) as refused:
        turn_until(loop, lambda: bool(listener._refused))
        gate.refuses_after, gate.waits = None, [_FOREVER_SECONDS]
        with client(listener) as held:
            turn_until(loop, lambda: listener._held is not None)
            assert not is_closed(loop, refused) and not is_closed(loop, held)
            waiting = listener._waiting
            [refusal] = listener._refused.values()
            listener.close()
            assert is_closed(loop, refused) and is_closed(loop, held)
            assert waiting is not None and waiting.cancelled() and refusal.cancelled()
            # Room that comes up later lets nobody in.
            listener._waiting = None
            listener.admit_held()
            assert not listener.connections


def test_the_end_tells_the_gate_of_every_connection(gate: Scripted) -> None:
    with served(gate=gate) as (loop, listener, stack):
        arrive(listener, 2, stack)
        turn_until(loop, lambda: len(listener.connections) == 2)
        listener.close()
        assert gate.told[-2:] == ["leave 127.0.0.1"] * 2 and not listener.connections


def test_a_listener_that_ends_in_a_pause_does_not_accept_again() -> None:
    class Poor(socket.socket):
        def accept(self) -> tuple[socket.socket, object]:
            raise OSError(errno.ENFILE, "too many open files in the system")

    with served(Poor) as (loop, listener, stack):
        arrive(listener, 1, stack)
        turn_until(loop, lambda: listener._waiting is not None)
        waiting = listener._waiting
        listener.close()
        assert waiting is not None and waiting.cancelled()


def test_another_error_of_accept_is_told() -> None:
    class Broken(socket.socket):
        def accept(self) -> tuple[socket.socket, object]:
            raise OSError(errno.EINVAL, "broken")

    errors: list[object] = []
    with served(Broken) as (loop, listener, stack):
        loop.set_exception_handler(lambda _, context: errors.append(context.get("exception")))
        arrive(listener, 1, stack)
        turn_until(loop, lambda: bool(errors))
    assert isinstance(errors[0], OSError) and errors[0].errno == errno.EINVAL


@pytest.mark.parametrize("code", [errno.EADDRNOTAVAIL, errno.EACCES, errno.EADDRINUSE, errno.ENOBUFS])
def test_an_address_that_cannot_be_bound_is_said_in_words(loop: asyncio.AbstractEventLoop, code: int) -> None:
    closed: list[bool] = []

    class Unbound(socket.socket):
        def bind(self, address: object) -> None:
            raise OSError(code, "the reason")

        def close(self) -> None:
            closed.append(True)
            super().close()

    listener = ListeningSocket(
        "INTERNAL",
        loop,
        lambda *_: None,
        lambda *_: None,
        frame_bytes_max=1,
        idle_ms_max=0,
        new_socket=Unbound,
    )
    with pytest.raises(OttlaError) as error:
        listener.bind("127.0.0.1", 9092)
    taken = "127.0.0.1:9092 is taken by another process; stop it, or give the listener INTERNAL another port"
    said = {
        errno.EADDRINUSE: taken,
        errno.ENOBUFS: "the listener INTERNAL cannot open 127.0.0.1:9092: the reason",
    }
    assert str(error.value) == said.get(code, "the listener INTERNAL cannot use 127.0.0.1:9092: the reason")
    assert closed
    listener.close()


def test_a_name_that_does_not_resolve_is_said_in_words(loop: asyncio.AbstractEventLoop) -> None:
    listener = ListeningSocket("INTERNAL", loop, lambda *_: None, lambda *_: None, frame_bytes_max=1, idle_ms_max=0)
    with pytest.raises(OttlaError, match="the listener INTERNAL cannot use no such name:9092"):
        listener.bind("no such name", 9092)
