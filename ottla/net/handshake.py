"""TLS handshakes on connections' sockets, bounded in time and bytes; OpenSSL's part runs on a thread.

Rules:
- The loop reads and writes; a thread signs and verifies. While the thread works, the loop does not touch the
  connection's TLS state.
- A node reads, computes and answers one handshake at a time (`Handshakes`), and pauses between two steps while others
  wait: handshakes that arrive at once leave other connections most of the loop's time (decision 0632).
- `done` is called once, from the loop, with None or the error; never after `cancel`.
- A handshake that takes longer than `HANDSHAKE_SECONDS`, or reads more than `_BYTES_MAX`, fails.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from ottla.net.tls import TlsSocket

#: Less than a client waits for a connection (socket.connection.setup.timeout.max.ms is 30 s).
HANDSHAKE_SECONDS = 15.0
#: A certificate chain is a few KiB; OpenSSL accepts up to 100 KiB.
_BYTES_MAX = 1 << 18
#: The pause between two steps: a step costs the loop some 0.2 ms, and twice as much on the thread.
STEP_PAUSE_SECONDS = 0.004
#: Divided by the number that wait, the longest pause: the pauses of a storm of 5,000 add up to some 4 s.
_PAUSES_SECONDS_MAX = 1.0


class Handshakes:
    """Runs the handshakes of a node one step at a time. `pool` has the thread (None: the loop's own threads)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Executor | None) -> None:
        self._loop = loop
        self._pool = pool
        self._waiting: deque[Handshake] = deque()
        self._busy = False

    def wait(self, handshake: Handshake) -> None:
        """Queue the handshake's next step behind the steps that already wait."""
        self._waiting.append(handshake)
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._take)

    def _next(self) -> None:
        if self._waiting:
            pause = min(STEP_PAUSE_SECONDS, _PAUSES_SECONDS_MAX / len(self._waiting))
            self._loop.call_later(pause, self._take)
        else:
            self._busy = False

    def _take(self) -> None:
        handshake = self._waiting.popleft()
        has_work = False
        try:
            has_work = handshake.has_work()
        finally:
            # The others go on even if this one failed.
            if not has_work:
                self._next()
        if has_work:
            step = self._loop.run_in_executor(self._pool, handshake.sock.step)
            step.add_done_callback(partial(self._step_done, handshake))

    def _step_done(self, handshake: Handshake, step: asyncio.Future[bool]) -> None:
        self._next()
        handshake.step_done(step)


class Handshake:
    """A connection's handshake. It owns the socket's reader and writer on the loop until it is over."""

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
        """Wait for the client's first message."""
        self._loop.add_reader(self._fd, self._readable)

    def connect(self) -> None:
        """Send the first message."""
        self._is_first = True
        self._turns.wait(self)

    def cancel(self) -> None:
        """Stop because the connection is closed; `done` is not called."""
        if not self.is_over:
            self.is_over = True
            self._timer.cancel()
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)

    def _readable(self) -> None:
        self._loop.remove_reader(self._fd)
        self._turns.wait(self)

    def has_work(self) -> bool:
        """Read what has arrived; True if OpenSSL has something to do."""
        if self.is_over:
            return False
        if self._is_first:
            self._is_first = False
            return True
        try:
            count = self.sock.receive_handshake()
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

    def step_done(self, step: asyncio.Future[bool]) -> None:
        """Take the result of OpenSSL's step."""
        if self.is_over:
            # Retrieve the exception, so that asyncio does not warn about it.
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
