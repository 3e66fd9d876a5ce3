"""Turns on the loop: work that does not fit into one slice goes on beside the others, round and round."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

#: A round ends after this long, so that the loop looks at its sockets again. What is left comes first next time.
ROUND_SECONDS = 0.004


class Turns:
    """The work that waits for its next slice. A listener makes it."""

    __slots__ = ("_loop", "_waiting", "now")

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = monotonic) -> None:
        self._loop = loop
        #: The time in seconds, also within a turn of the loop, where the loop's own time stands still.
        self.now = now
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` once, when all who wait already have had a slice. It may wait again."""
        if not self._waiting:
            self._loop.call_soon(self._round)
        self._waiting.append(go_on)

    def _round(self) -> None:
        """Give a slice to each who waits, as long as the round lasts."""
        end = self.now() + ROUND_SECONDS
        waiting = self._waiting
        try:
            for _ in range(len(waiting)):
                # The work stays in the queue meanwhile, so that `wait` does not plan a second round.
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
