"""The ends of replies that a socket has not taken yet, and who wants to know when it has."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class SentMarks:
    """Positions in what a connection sends. The connection makes it when the first one is asked for."""

    __slots__ = ("_gone", "_waiting")

    def __init__(self) -> None:
        #: Bytes that went since this was made.
        self._gone = 0
        #: (`_gone` at which it is called, what is called), in order.
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def add(self, unsent_bytes: int, done: Callable[[], None]) -> None:
        """Call `done` when so many more bytes went."""
        if unsent_bytes:
            self._waiting.append((self._gone + unsent_bytes, done))
        else:
            done()

    def went(self, count: int) -> None:
        """The socket took `count` bytes more."""
        self._gone += count
        while self._waiting and self._waiting[0][0] <= self._gone:
            self._waiting.popleft()[1]()

    def end(self) -> None:
        """The connection is closed: nothing more goes."""
        while self._waiting:
            self._waiting.popleft()[1]()
