"""A clock that runs like the machine's and can be moved ahead, and a loop whose timers follow it.

Rules:
- Time moves in one step, as when a laptop wakes up: each timer that is due by then runs once, earliest first, and all
  of them see the new time.
- Sockets stay on the machine's time: `loop.time()` does not move, so that no connection becomes idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from time import monotonic_ns, time_ns
from typing import Any, Protocol, cast


class _Follower(Protocol):
    def clock_moved(self) -> None: ...


class ShiftedClock:
    """The machine's time plus `ahead_ms`."""

    def __init__(self) -> None:
        self.ahead_ms = 0
        #: The loop whose timers follow this clock, while there is one.
        self.follower: _Follower | None = None

    def now_ms(self) -> int:
        return time_ns() // 1_000_000 + self.ahead_ms

    def monotonic_ms(self) -> int:
        return monotonic_ns() // 1_000_000 + self.ahead_ms

    def advance(self, ms: int) -> None:
        """Move ahead and run the timers that became due. Call it on the loop's thread if there is a loop."""
        self.ahead_ms += ms
        if self.follower is not None:
            self.follower.clock_moved()


class _Timer:
    """The result of `call_later`: the parts of asyncio's TimerHandle in use. It stays valid when rescheduled."""

    __slots__ = ("_callback", "_timers", "due_ms", "handle", "number")

    def __init__(self, timers: set[_Timer], due_ms: float, number: int, callback: Callable[[], object]) -> None:
        self._timers = timers
        self._callback = callback
        self.due_ms = due_ms
        #: The tie-breaker: timers due at once run in the order in which they were planned.
        self.number = number
        self.handle: asyncio.Handle
        timers.add(self)

    def run(self) -> None:
        self._timers.discard(self)
        self._callback()

    def cancel(self) -> None:
        self._timers.discard(self)
        self.handle.cancel()

    def cancelled(self) -> bool:
        return self.handle.cancelled()

    def when(self) -> float:
        """When the timer is due, in seconds of the clock that it follows."""
        return self.due_ms / 1000


class _Shifted:
    """A mixin for the machine's loop. `call_at` stays on the machine's time."""

    def follow(self, clock: ShiftedClock) -> None:
        """Make all later timers follow this clock."""
        self._clock = clock
        self._timers: set[_Timer] = set()
        self._numbers = count()
        clock.follower = self

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        due_ms = self._clock.monotonic_ms() + delay * 1000
        timer = _Timer(self._timers, due_ms, next(self._numbers), lambda: callback(*args))
        timer.handle = super().call_later(delay, timer.run, context=context)  # type: ignore[misc]
        return cast(asyncio.TimerHandle, timer)

    def clock_moved(self) -> None:
        """Run the timers that are due now, and reschedule the others."""
        now_ms = self._clock.monotonic_ms()
        for timer in sorted(self._timers, key=lambda each: (each.due_ms, each.number)):
            if timer not in self._timers:
                # Cancelled by a timer that ran before it.
                continue
            timer.handle.cancel()
            if timer.due_ms > now_ms:
                timer.handle = super().call_later((timer.due_ms - now_ms) / 1000, timer.run)  # type: ignore[misc]
                continue
            try:
                timer.run()
            except Exception as error:
                context = {"message": "a timer failed", "exception": error}
                cast(asyncio.AbstractEventLoop, self).call_exception_handler(context)

    def close(self) -> None:
        self._clock.follower = None
        super().close()  # type: ignore[misc]


def new_shifted_loop(clock: ShiftedClock) -> asyncio.AbstractEventLoop:
    """The machine's loop (uvloop where it is installed), with timers that follow `clock`."""
    try:
        import uvloop
    except ImportError:
        machine: Any = asyncio.SelectorEventLoop
    else:
        machine = uvloop.Loop
    loop: Any = type("ShiftedLoop", (_Shifted, machine), {})()
    loop.follow(clock)
    return cast(asyncio.AbstractEventLoop, loop)
