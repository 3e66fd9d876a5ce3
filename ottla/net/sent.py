"""Callbacks for when a connection has sent what was queued."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class SentMarks:
    """Positions in a connection's outgoing bytes, with a callback each. The connection creates it on first use."""

    __slots__ = ("_sent_bytes", "_waiting")

    def __init__(self) -> None:
        #: Bytes sent since this was created.
        self._sent_bytes = 0
        #: (value of `_sent_bytes` at which it is due, callback), in order.
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def add(self, unsent_bytes: int, done: Callable[[], None]) -> None:
        """Call `done` when `unsent_bytes` more are sent."""
        if unsent_bytes:
            self._waiting.append((self._sent_bytes + unsent_bytes, done))
        else:
            done()

    def sent(self, count: int) -> None:
        """Count `count` more sent bytes, and make the callbacks that are due."""
        self._sent_bytes += count
        while self._waiting and self._waiting[0][0] <= self._sent_bytes:
            self._waiting.popleft()[1]()

    def end(self) -> None:
        """Make all remaining callbacks: the connection is closed."""
        while self._waiting:
            self._waiting.popleft()[1]()
