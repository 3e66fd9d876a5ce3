"""A listening socket and the connections it has accepted.

Rules:
- `bind` takes the port at once, so that a taken port is an error before the node says it is ready.
- A gate decides which connections are let in and when; a refused one is closed, at once or after a delay.
- A connection that neither sent nor got bytes for `connections.max.idle.ms` is closed, as Kafka does.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from ottla.kernel.address import plain_address
from ottla.kernel.error import OttlaError
from ottla.net.inbound import Connection, Slot
from ottla.net.keepalive import keep_alive
from ottla.net.memory import ReceiveMemory, RequestMemory
from ottla.net.turns import Turns

_BACKLOG = 1024
#: Connections accepted in one turn of the loop: one takes 20 to 40 us, and the next turn may be milliseconds away.
ACCEPTS_AT_ONCE = 8
#: The same with TLS, where one takes some 100 us.
TLS_ACCEPTS_AT_ONCE = 1
#: Until the next try when no descriptor or memory is left: the listening socket would stay readable all the time.
_PAUSE_SECONDS = 0.1
_NOTHING_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
#: Linux's accept says so of a connection that was lost before (accept(2)), or that a firewall forbids.
_LOST_BEFORE = (
    errno.EPROTO,
    errno.EPERM,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENOPROTOOPT,
    errno.EOPNOTSUPP,
)
_WITHOUT_IPV6 = (errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EADDRNOTAVAIL)
_SWEEPS_PER_IDLE_TIME = 4


class Gate(Protocol):
    """Decides which connections a listener lets in."""

    def attach(self, listener: ListeningSocket) -> None:
        """Remember the listener; the gate calls its `admit_held` when there may be room for a waiting connection."""

    def arrive(self) -> float:
        """Count a new connection; returns the seconds that it must wait."""

    def has_room(self) -> bool:
        """Whether one more connection may be let in."""

    def enter(self, address: str) -> float | None:
        """None when the connection is let in, else the seconds until it must be closed."""

    def leave(self, address: str) -> None:
        """Count that an admitted connection is gone."""


class OpenGate:
    """Lets every connection in."""

    def attach(self, listener: ListeningSocket) -> None:
        return None

    def arrive(self) -> float:
        return 0

    def has_room(self) -> bool:
        return True

    def enter(self, address: str) -> float | None:
        return None

    def leave(self, address: str) -> None:
        return None


def listening_socket(
    host: str, port: int, backlog: int, new_socket: Callable[..., socket.socket] = socket.socket
) -> socket.socket:
    """A non-blocking socket that listens at this address. `new_socket` creates it. Raises OSError.

    An empty host means all addresses, IPv6 and IPv4 by one socket. A name stands for its IPv4 address, if it has one.
    """
    if not host:
        try:
            return _listening(socket.AF_INET6, "::", port, backlog, new_socket)
        except OSError as error:
            if error.errno not in _WITHOUT_IPV6:
                raise
    if ":" in host:
        return _listening(socket.AF_INET6, host, port, backlog, new_socket)
    try:
        return _listening(socket.AF_INET, host, port, backlog, new_socket)
    except socket.gaierror:
        return _listening(socket.AF_INET6, host, port, backlog, new_socket)


def _listening(
    family: int, host: str, port: int, backlog: int, new_socket: Callable[..., socket.socket]
) -> socket.socket:
    sock = new_socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == "::":
            # Otherwise a setting of the system decides about IPv4 clients.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((host, port))
        sock.listen(backlog)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


class ListeningSocket:
    """Accepts clients on one address. The node creates and closes it."""

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        on_frame: Callable[[Connection, memoryview, Slot], None],
        on_close: Callable[[Connection, str], None],
        *,
        frame_bytes_max: int,
        idle_ms_max: int,
        gate: Gate | None = None,
        connection: Callable[..., Connection] | None = None,
        accepts_at_once: int = ACCEPTS_AT_ONCE,
        new_socket: Callable[..., socket.socket] = socket.socket,
        now: Callable[[], float] = monotonic,
        requests: RequestMemory | None = None,
    ) -> None:
        self.name = name
        self._loop = loop
        #: Creates the listening socket; a simulated host passes its own.
        self._new_socket = new_socket
        #: Creates the connection of an accepted socket; a TLS listener passes its own.
        self._connection = connection
        self._accepts_at_once = accepts_at_once
        self._on_frame = on_frame
        self._on_close = on_close
        self._frame_bytes_max = frame_bytes_max
        self._idle_seconds_max = idle_ms_max / 1000
        self.memory = ReceiveMemory(requests)
        self._turns = Turns(loop, now)
        self._sock: socket.socket | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self.connections: dict[Connection, None] = {}
        self.port = 0
        self._gate = gate or OpenGate()
        self._gate.attach(self)
        #: A connection that came too fast, or for which there is no room; meanwhile the others wait in the backlog.
        self._held: tuple[socket.socket, str] | None = None
        #: Ends the wait of the held connection, or the pause after a resource ran out.
        self._waiting: asyncio.TimerHandle | None = None
        #: Refused connections that are closed later.
        self._refused: dict[socket.socket, asyncio.TimerHandle] = {}

    def bind(self, host: str, port: int) -> None:
        """Bind the address; port 0 takes a free one. Clients wait in the backlog until `serve`."""
        try:
            sock = listening_socket(host, port, _BACKLOG, self._new_socket)
        except OSError as error:
            raise OttlaError(_explain(error, self.name, host, port)) from error
        self._sock = sock
        self.port = sock.getsockname()[1]

    def serve(self) -> None:
        """Begin to accept connections."""
        assert self._sock is not None, "bind comes first"
        self._loop.add_reader(self._sock.fileno(), self._accept)
        self._plan_sweep()

    def _accept(self) -> None:
        """Accept a few connections; those that exist are served before the next few."""
        assert self._sock is not None
        for _ in range(self._accepts_at_once):
            try:
                sock, peer = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return None
            except OSError as error:
                if error.errno in _LOST_BEFORE:
                    return None
                if error.errno in _NOTHING_LEFT:
                    # Clients wait in the backlog until a connection is closed.
                    return self._pause()
                raise
            seconds = self._gate.arrive()
            if seconds > 0 or not self._gate.has_room():
                return self._hold(sock, plain_address(peer[0]), seconds)
            self._take(sock, plain_address(peer[0]))
        return None

    def _pause(self) -> None:
        assert self._sock is not None
        self._loop.remove_reader(self._sock.fileno())
        self._waiting = self._loop.call_later(_PAUSE_SECONDS, self._resume_accepting)

    def _resume_accepting(self) -> None:
        assert self._sock is not None
        self._waiting = None
        self._loop.add_reader(self._sock.fileno(), self._accept)

    def _hold(self, sock: socket.socket, address: str, seconds: float) -> None:
        assert self._sock is not None
        self._held = sock, address
        self._loop.remove_reader(self._sock.fileno())
        if seconds > 0:
            self._waiting = self._loop.call_later(seconds, self._waited)

    def _waited(self) -> None:
        self._waiting = None
        self.admit_held()

    def admit_held(self) -> None:
        """Let the held connection in if there is room now."""
        if self._held is None or self._waiting is not None or self._sock is None or not self._gate.has_room():
            return
        (sock, address), self._held = self._held, None
        self._loop.add_reader(self._sock.fileno(), self._accept)
        self._take(sock, address)

    def _take(self, sock: socket.socket, address: str) -> None:
        refused_seconds = self._gate.enter(address)
        if refused_seconds is not None:
            return self._refuse(sock, refused_seconds)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(sock)
            connection = (self._connection or Connection)(
                sock,
                self._loop,
                self.memory,
                self._turns,
                self._on_frame,
                self._closed,
                self._frame_bytes_max,
                self.name,
            )
        except OSError:
            # The peer was gone before: macOS then refuses the options, and getpeername fails anywhere.
            sock.close()
            self._gate.leave(address)
        else:
            self.connections[connection] = None

    def _closed(self, connection: Connection, why: str) -> None:
        self.connections.pop(connection, None)
        self._gate.leave(connection.peer[0])
        self._on_close(connection, why)

    def _refuse(self, sock: socket.socket, seconds: float) -> None:
        def close() -> None:
            self._refused.pop(sock, None)
            sock.close()

        if seconds > 0:
            self._refused[sock] = self._loop.call_later(seconds, close)
        else:
            close()

    def _plan_sweep(self) -> None:
        if self._idle_seconds_max > 0:
            self._sweep = self._loop.call_later(self._idle_seconds_max / _SWEEPS_PER_IDLE_TIME, self._close_idle)

    def _close_idle(self) -> None:
        oldest = self._turns.now() - self._idle_seconds_max
        for connection in [each for each in self.connections if each.heard_at < oldest]:
            connection.close("idle for longer than connections.max.idle.ms")
        self._plan_sweep()

    def close(self) -> None:
        """Stop accepting, and close every connection."""
        if self._sweep is not None:
            self._sweep.cancel()
        if self._waiting is not None:
            self._waiting.cancel()
        if self._sock is not None:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
            self._sock = None
        if self._held is not None:
            self._held[0].close()
            self._held = None
        for sock, handle in self._refused.items():
            handle.cancel()
            sock.close()
        self._refused.clear()
        # The loop may have been stopped before the end of its turn.
        self._turns.send()
        for connection in list(self.connections):
            connection.close("the node stops")


def _explain(error: OSError, name: str, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{host}:{port} is taken by another process; stop it, or give the listener {name} another port"
    if error.errno in (errno.EADDRNOTAVAIL, errno.EACCES) or isinstance(error, socket.gaierror):
        return f"the listener {name} cannot use {host}:{port}: {error.strerror}"
    return f"the listener {name} cannot open {host}:{port}: {error.strerror}"
