"""TLS handshakes on connections' sockets, bounded in time and bytes; OpenSSL's part of them runs on a thread.

Rules:
- The loop reads and writes, a thread signs and checks: meanwhile the loop does not touch the connection's TLS.
- One handshake of a node is read, thought about and answered at a time (`Handshakes`), and between two of them the loop
  looks at its sockets: 200 that come at once cost the others a step of one.
- `done` is called once, from the loop, with None or the error; never after `cancel`.
- A handshake that takes longer than `HANDSHAKE_SECONDS`, or more than `_BYTES_MAX`, has failed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from ottla.net.tls import TlsSocket

#: As long as a client waits for a connection at the most (socket.connection.setup.timeout.max.ms is 30 s).
HANDSHAKE_SECONDS = 15.0
#: A chain of certificates is a few KiB; OpenSSL takes 100 KiB of one.
_BYTES_MAX = 1 << 18


class Handshakes:
    """Gives turns to the handshakes of a node. `pool` has the thread (None: the loop's own threads)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Executor | None) -> None:
        self._loop = loop
        self._pool = pool
        self._waiting: deque[Handshake] = deque()
        self._busy = False

    def wait(self, handshake: Handshake) -> None:
        """Let it take one step when those before it have had theirs."""
        self._waiting.append(handshake)
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._take)

    def _next(self) -> None:
        if self._waiting:
            # Not `_take` at once: what has become ready at other sockets comes first.
            self._loop.call_soon(self._loop.call_soon, self._take)
        else:
            self._busy = False

    def _take(self) -> None:
        handshake = self._waiting.popleft()
        thinks = False
        try:
            thinks = handshake.has_to_think()
        finally:
            # Whatever became of this one, the others go on.
            if not thinks:
                self._next()
        if thinks:
            step = self._loop.run_in_executor(self._pool, handshake.sock.step)
            step.add_done_callback(partial(self._thought, handshake))

    def _thought(self, handshake: Handshake, step: asyncio.Future[bool]) -> None:
        self._next()
        handshake.thought(step)


class Handshake:
    """Made when the socket is connected; it takes the loop's reader and writer of the socket until it is over."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        turns: Handshakes,
        sock: TlsSocket,
        done: Callable[[OSError | None], None],
        seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        self._loop = loop
        self._turns = turns
        self.sock = sock
        self._fd = sock.fileno()
        self._done = done
        self._taken = 0
        self._is_first = False
        #: After success, failure, or `cancel`.
        self.is_over = False
        self._timer = loop.call_later(seconds, self._expired, seconds)

    def accept(self) -> None:
        """Wait for the client's first word."""
        self._loop.add_reader(self._fd, self._readable)

    def connect(self) -> None:
        """Say the first word."""
        self._is_first = True
        self._turns.wait(self)

    def cancel(self) -> None:
        """The connection is closed; nothing more is done or told."""
        if not self.is_over:
            self.is_over = True
            self._timer.cancel()
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)

    def _readable(self) -> None:
        self._loop.remove_reader(self._fd)
        self._turns.wait(self)

    def has_to_think(self) -> bool:
        """Read what has come, when it is this handshake's turn. Is there something for OpenSSL?"""
        if self.is_over:
            return False
        if self._is_first:
            self._is_first = False
            return True
        try:
            count = self.sock.receive_some()
        except (BlockingIOError, InterruptedError):
            self._loop.add_reader(self._fd, self._readable)
            return False
        except OSError as error:
            self._end(error)
            return False
        self._taken += count
        if not count:
            self._end(ConnectionError("the peer closed the connection in the TLS handshake"))
        elif self._taken > _BYTES_MAX:
            self._end(ConnectionError(f"the TLS handshake is longer than {_BYTES_MAX} bytes"))
        return not self.is_over

    def thought(self, step: asyncio.Future[bool]) -> None:
        """OpenSSL has made what it could of what had come."""
        if self.is_over:
            # Looked at, so that the loop does not complain of it.
            _ = step.cancelled() or step.exception()
            return
        error = ConnectionError("the node stops") if step.cancelled() else step.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        self._answer(error, error is None and step.result())

    def _answer(self, error: OSError | None, finished: bool) -> None:
        try:
            flushed = self.sock.flush()
        except OSError as lost:
            return self._end(error or lost)
        if error is not None:
            return self._end(error)
        self._loop.remove_writer(self._fd)
        if not flushed:
            self._loop.add_writer(self._fd, self._answer, None, finished)
        elif finished:
            self.sock.is_ready = True
            self._end(None)
        else:
            self._loop.add_reader(self._fd, self._readable)
        return None

    def _expired(self, seconds: float) -> None:
        self._end(TimeoutError(f"the TLS handshake was not over after {seconds:g} s"))

    def _end(self, error: OSError | None) -> None:
        if not self.is_over:
            self.cancel()
            self._done(error)
