"""Round-robin turns on the loop for work that does not fit into one slice."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

#: A round ends after this long, so that the loop can poll its sockets: a client that waits for each answer pays it with
#: every request. The next round starts where this one ended.
ROUND_SECONDS = 0.001


class Turns:
    """The work that waits for its next slice. A listener creates it."""

    __slots__ = ("_loop", "_waiting", "now")

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = monotonic) -> None:
        self._loop = loop
        #: The time in seconds. Unlike the loop's time, it advances within a turn of the loop.
        self.now = now
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` once, after everything that already waits has had a slice. It may call `wait` again."""
        if not self._waiting:
            self._loop.call_soon(self._round)
        self._waiting.append(go_on)

    def _round(self) -> None:
        """Give each waiter a slice, as long as the round lasts."""
        end = self.now() + ROUND_SECONDS
        waiting = self._waiting
        try:
            for _ in range(len(waiting)):
                # The entry stays in the queue while it runs, so that `wait` does not plan a second round.
                waiting[0]()
                waiting.popleft()
                if self.now() >= end:
                    break
        except BaseException:
            waiting.popleft()
            raise
        finally:
            if waiting:
                self._loop.call_soon(self._round)
