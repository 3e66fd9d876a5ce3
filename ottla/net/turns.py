"""Round-robin turns on the loop for work that does not fit into one slice, and answers that leave together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

#: A round ends after this long, so that the loop can poll its sockets: a client that waits for each answer pays it with
#: every request. The next round starts where this one ended.
ROUND_SECONDS = 0.001
#: A request that is read so soon after the last answer came in the same turn of the loop, or nearly so.
BUSY_SECONDS = 15e-6
#: An answer waits this long for others of its turn at most, and then for the request that is being handled.
TOGETHER_SECONDS = 0.001


class Turns:
    """The work that waits for its next slice. A listener creates it."""

    __slots__ = ("_answered_at", "_end_is_planned", "_loop", "_sending", "_sending_since", "_waiting", "now")

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = monotonic) -> None:
        self._loop = loop
        #: The time in seconds. Unlike the loop's time, it advances within a turn of the loop.
        self.now = now
        self._waiting: deque[Callable[[], None]] = deque()
        #: Calls that send answers of this turn.
        self._sending: deque[Callable[[], None]] = deque()
        self._sending_since = self._answered_at = float("-inf")
        self._end_is_planned = False

    def answer(self, send: Callable[[], None], read_at: float) -> None:
        """Call `send` for a request that was read then: now, or at the end of the turn if requests come thick and fast.

        An answer that wakes a process costs half as much again as one that finds it at work on the answer before.
        """
        if read_at - self._answered_at > BUSY_SECONDS:
            send()
        else:
            if not self._sending:
                self._sending_since = read_at
                if not self._end_is_planned:
                    self._end_is_planned = True
                    self._loop.call_soon(self._end)
            self._sending.append(send)
            if read_at - self._sending_since > TOGETHER_SECONDS:
                self._send()
        self._answered_at = self.now()

    def _end(self) -> None:
        self._end_is_planned = False
        self._send()

    def _send(self) -> None:
        sending = self._sending
        try:
            while sending:
                sending.popleft()()
        finally:
            # After an error the others are sent all the same.
            if sending and not self._end_is_planned:
                self._end_is_planned = True
                self._loop.call_soon(self._end)

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
