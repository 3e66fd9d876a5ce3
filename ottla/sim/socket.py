"""A TCP socket of a simulated host, with the methods that `ottla.net` and `ottla/sim/transport.py` use.

Rules:
- Always non-blocking. The kernel's state (`inbox`, `eof`, `error`) changes only when something arrives.
- A socket that is reset, or closed with unread bytes, resets its peer; otherwise the peer sees the end of the stream.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.sim.network import WINDOW_BYTES, Link

if TYPE_CHECKING:
    from ottla.sim.host import Host

_Buffer = bytes | bytearray | memoryview


class SimSocket:
    """An end of a connection, or a listening socket. `Host.socket` creates it."""

    def __init__(self, host: Host, fd: int) -> None:
        self.host = host
        self._world = host.world
        self._network = host.world.network
        self._fd = fd
        self._local = (host.address, 0)
        self._remote = ("", 0)
        #: To the other end's host.
        self._link: Link | None = None
        self.peer: SimSocket | None = None
        self._listening = False
        self.backlog: deque[SimSocket] = deque()
        self._connecting = False
        self.inbox = bytearray()
        self.eof = False
        #: An errno that the next use raises.
        self.error = 0
        self.closed = False
        #: Sent bytes that the peer's program has not read.
        self._in_flight = 0
        #: When the last segment that this end sent arrives, in microseconds.
        self.arrives_us = 0
        self._options: dict[int, int] = {}
        #: When the other kernel last answered, and whether keepalive checks it.
        self._heard_us = 0
        self._probing = False
        #: The loop's callbacks for this descriptor, and whether it will call them.
        self.on_readable: Callable[[], object] | None = None
        self.on_writable: Callable[[], object] | None = None
        self.read_planned = False
        self.write_planned = False

    # ---- state in the kernel

    @property
    def readable(self) -> bool:
        return bool(self.backlog or self.inbox or self.eof or self.error)

    @property
    def writable(self) -> bool:
        if self._listening or self._connecting:
            return False
        return bool(self.error) or self._in_flight < WINDOW_BYTES

    # ---- the interface of socket.socket

    def fileno(self) -> int:
        return -1 if self.closed else self._fd

    def setsockopt(self, _level: int, option: int, value: int) -> None:
        """Set an option; TCP_KEEPIDLE starts keepalive. Without it, no probes: the system's times exceed a world's."""
        self._options[option] = value
        if option == socket.TCP_KEEPIDLE and self.peer is not None:
            self._probe()

    def getsockopt(self, *_: Any) -> int:
        """SO_ERROR: the error of a connection attempt; reading clears it."""
        code, self.error = self.error, 0
        return code

    def setblocking(self, flag: bool) -> None:
        assert not flag, "simulated sockets do not block"

    def bind(self, address: tuple[str, int]) -> None:
        host, port = address[:2]
        self._local = (host, port or self._network.new_port())

    def listen(self, backlog: int) -> None:
        self._network.listen(self, self._local)
        self._listening = True

    def getsockname(self) -> tuple[str, int]:
        return self._local

    def getpeername(self) -> tuple[str, int]:
        if self.peer is None:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
        return self._remote

    def accept(self) -> tuple[SimSocket, tuple[str, int]]:
        if not self.backlog:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        sock = self.backlog.popleft()
        return sock, sock._remote

    def connect_ex(self, address: tuple[str, int]) -> int:
        """Begin to connect; the socket becomes writable with the outcome, which `getsockopt` returns."""
        target = self._network.host_of(address[0])
        self._local = (self.host.address, self._network.new_port())
        self._remote = address
        self._connecting = True
        if target is None:
            self._connect_finished(errno.EHOSTUNREACH)
        else:
            self._link = self._network.link(self.host, target)
            self._carry(lambda: self._connection_attempt(target, address))
        return errno.EINPROGRESS

    def recv_into(self, buffer: Any) -> int:
        self._raise()
        if not self.inbox:
            if self.eof:
                return 0
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        view, inbox = memoryview(buffer).cast("B"), self.inbox
        count = len(inbox)
        if count <= len(view):
            view[:count] = inbox
            inbox.clear()
        else:
            count = len(view)
            view[:] = inbox[:count]
            del inbox[:count]
        self._acknowledge(count)
        return count

    def recvmsg_into(self, buffers: Sequence[Any]) -> tuple[int, list[Any], int, Any]:
        total = 0
        for buffer in buffers:
            if total and not self.inbox:
                break
            if len(buffer):
                total += self.recv_into(buffer)
        return total, [], 0, None

    def send(self, data: _Buffer) -> int:
        self._raise()
        if self.peer is None or self.closed:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        room = WINDOW_BYTES - self._in_flight
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        piece = bytes(data if len(data) <= room else memoryview(data).cast("B")[:room])
        self._in_flight += len(piece)
        peer = self.peer
        self._carry(partial(peer._arrived, piece))
        return len(piece)

    def sendmsg(self, pieces: Sequence[_Buffer], *_: Any) -> int:
        return self.send(b"".join(pieces))

    def close(self) -> None:
        if self.closed:
            return
        if self.inbox:
            return self.reset()
        self._forget()
        peer = self.peer
        if peer is not None:
            self._carry(peer._ended)

    # ---- in the kernel

    def reset(self) -> None:
        """Reset the connection: the process died or aborted it."""
        if not self.closed:
            self._forget()
            peer = self.peer
            if peer is not None:
                self._carry(peer._was_reset)

    def vanish(self) -> None:
        """Drop the socket without notice to the peer: the machine lost power."""
        self._forget()

    def _forget(self) -> None:
        self.closed = True
        self.host.sockets.pop(self._fd, None)
        if self._listening:
            self._network.unlisten(self._local)
            for each in self.backlog:
                each.reset()

    def _carry(self, action: Any) -> None:
        assert self._link is not None
        self._link.send(self, action)

    def _connection_attempt(self, target: Host, address: tuple[str, int]) -> None:
        """Handle a connection attempt that arrives at the other host."""
        if not target.is_up:
            return
        listener = self._network.listener(address)
        if listener is None:
            back = self._network.link(target, self.host)
            back.send(None, lambda: self._connect_finished(errno.ECONNREFUSED))
            return
        far = target.socket()
        far._local, far._remote = address, self._local
        far._link, far.peer = self._network.link(target, self.host), self
        listener.backlog.append(far)
        listener._changed()
        far._carry(lambda: self._accepted(far))

    def _accepted(self, far: SimSocket) -> None:
        if self.closed:
            # The socket was closed meanwhile.
            self._network.link(self.host, far.host).send(None, far._was_reset)
            return
        self.peer = far
        self._connect_finished(0)

    def _connect_finished(self, error: int) -> None:
        self._connecting = False
        self.error = error
        self._changed()

    def _probe(self) -> None:
        """Keepalive: after a silence, probe the other kernel; ETIMEDOUT if it answers no probe."""
        world, idle_us = self._world, 1_000_000 * self._options[socket.TCP_KEEPIDLE]
        interval_us = 1_000_000 * self._options.get(socket.TCP_KEEPINTVL, 75)
        if not self._probing:
            self._probing, self._heard_us = True, world.now_us
        if self.closed or self.eof or self.error or self.peer is None or self._link is None:
            return
        silent_us = world.now_us - self._heard_us
        if silent_us < idle_us:
            world.after(idle_us - silent_us, self._probe, "keepalive")
        elif silent_us < idle_us + interval_us * self._options.get(socket.TCP_KEEPCNT, 9):
            self._link.probe(self.peer._probed)
            world.after(interval_us, self._probe, "keepalive")
        else:
            self.error = errno.ETIMEDOUT
            self._changed()

    def _probed(self) -> None:
        if self.closed:
            self._answer_by_reset()
        elif self.peer is not None and self._link is not None:
            self._link.probe(self.peer._heard)

    def _heard(self) -> None:
        self._heard_us = self._world.now_us

    def _arrived(self, piece: bytes) -> None:
        self._heard_us = self._world.now_us
        if self.closed:
            return self._answer_by_reset()
        self.inbox += piece
        self._changed()

    def _acknowledge(self, count: int) -> None:
        peer = self.peer
        if peer is not None:
            self._carry(partial(peer._taken, count))

    def _taken(self, count: int) -> None:
        self._heard_us = self._world.now_us
        self._in_flight -= count
        if self.on_writable is not None:
            self._changed()

    def _ended(self) -> None:
        self.eof = True
        self._changed()

    def _was_reset(self) -> None:
        if not self.closed:
            self.error = errno.ECONNRESET
            self._changed()

    def _answer_by_reset(self) -> None:
        """Reset the peer of a connection that this host does not know any more."""
        peer = self.peer
        if peer is not None and self.host.is_up:
            self._carry(peer._was_reset)

    def _changed(self) -> None:
        loop = self.host.loop
        if loop is not None:
            loop.poll(self)

    def _raise(self) -> None:
        if self.error:
            code, self.error = self.error, 0
            self.eof = True
            raise OSError(code, os.strerror(code))
