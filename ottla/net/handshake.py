"""A TLS handshake on a connection's socket, bounded in time and bytes; OpenSSL's part of it runs on a thread.

Rules:
- The loop reads and writes, a thread signs and checks: meanwhile the loop does not touch the connection's TLS.
- `done` is called once, from the loop, with None or the error; never after `cancel`.
- A handshake that takes longer than `HANDSHAKE_SECONDS`, or more than `_BYTES_MAX`, has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from ottla.net.tls import TlsSocket

#: As long as a client waits for a connection at the most (socket.connection.setup.timeout.max.ms is 30 s).
HANDSHAKE_SECONDS = 15.0
#: A chain of certificates is a few KiB; OpenSSL takes 100 KiB of one.
_BYTES_MAX = 1 << 18


class Handshake:
    """Made when the socket is connected; it takes the loop's reader and writer of the socket until it is over."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: Executor | None,
        sock: TlsSocket,
        done: Callable[[OSError | None], None],
        seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        self._loop = loop
        self._pool = pool
        self._sock = sock
        self._fd = sock.fileno()
        self._done = done
        self._taken = 0
        #: After success, failure, or `cancel`.
        self.is_over = False
        self._timer = loop.call_later(seconds, self._expired, seconds)

    def accept(self) -> None:
        """Wait for the client's first word."""
        self._loop.add_reader(self._fd, self._readable)

    def connect(self) -> None:
        """Say the first word."""
        self._think()

    def cancel(self) -> None:
        """The connection is closed; nothing more is done or told."""
        if not self.is_over:
            self.is_over = True
            self._timer.cancel()
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)

    def _readable(self) -> None:
        try:
            count = self._sock.receive_some()
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            return self._end(error)
        if not count:
            return self._end(ConnectionError("the peer closed the connection in the TLS handshake"))
        self._taken += count
        if self._taken > _BYTES_MAX:
            return self._end(ConnectionError(f"the TLS handshake is longer than {_BYTES_MAX} bytes"))
        self._loop.remove_reader(self._fd)
        return self._think()

    def _think(self) -> None:
        """Let OpenSSL make what it can of what has come."""
        step = self._loop.run_in_executor(self._pool, self._sock.step)
        step.add_done_callback(self._thought)

    def _thought(self, step: asyncio.Future[bool]) -> None:
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
            flushed = self._sock.flush()
        except OSError as lost:
            return self._end(error or lost)
        if error is not None:
            return self._end(error)
        self._loop.remove_writer(self._fd)
        if not flushed:
            self._loop.add_writer(self._fd, self._answer, None, finished)
        elif finished:
            self._sock.is_ready = True
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
