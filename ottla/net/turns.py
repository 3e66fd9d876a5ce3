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
#: When an answer has waited for others of its turn for this long, the next read sends it first.
TOGETHER_SECONDS = 0.001
_NEVER = float("inf")


class Turns:
    """The work that waits for its next slice. A listener creates it."""

    __slots__ = ("_answered_at", "_end_is_planned", "_loop", "_sending", "_waiting", "due", "now")

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = monotonic) -> None:
        self._loop = loop
        #: The time in seconds. Unlike the loop's time, it advances within a turn of the loop.
        self.now = now
        self._waiting: deque[Callable[[], None]] = deque()
        #: Calls that send answers of this turn.
        self._sending: deque[Callable[[], None]] = deque()
        #: From then on a read calls `send` first.
        self.due = _NEVER
        self._answered_at = -_NEVER
        self._end_is_planned = False

    def answer(self, send: Callable[[], None], read_at: float) -> None:
        """Call `send` for a request that was read then: now, or at the end of the turn if requests come thick and fast.

        An answer that wakes a process costs half as much again as one that finds it at work on the answer before.
        """
        if read_at - self._answered_at > BUSY_SECONDS:
            send()
        else:
            if not self._sending:
                self.due = read_at + TOGETHER_SECONDS
                if not self._end_is_planned:
                    self._end_is_planned = True
                    self._loop.call_soon(self._end)
            self._sending.append(send)
        self._answered_at = self.now()

    def _end(self) -> None:
        self._end_is_planned = False
        self.send()

    def send(self) -> None:
        """Send what waits for the end of the turn. An answer that fails holds up no other."""
        self.due = _NEVER
        sending = self._sending
        while sending:
            try:
                sending.popleft()()
            except Exception as error:
                self._loop.call_exception_handler({"message": "An answer cannot be sent", "exception": error})

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
