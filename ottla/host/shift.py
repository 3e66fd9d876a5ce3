"""A clock that runs as the machine's does and can be moved ahead, and a loop whose timers follow it.

Rules:
- Time is moved in one step, as when a laptop wakes up: each timer that is due by then runs once, the earliest first,
  and all of them see the time that it is now.
- Sockets stay in the machine's time: `loop.time()` does not move, so that no connection counts as idle.
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
        #: The loop whose timers follow, while there is one.
        self.follower: _Follower | None = None

    def now_ms(self) -> int:
        return time_ns() // 1_000_000 + self.ahead_ms

    def monotonic_ms(self) -> int:
        return monotonic_ns() // 1_000_000 + self.ahead_ms

    def advance(self, ms: int) -> None:
        """Move ahead, and run the timers that became due. On the loop's thread, where there is a loop."""
        self.ahead_ms += ms
        if self.follower is not None:
            self.follower.clock_moved()


class _Timer:
    """The result of `call_later`: asyncio's TimerHandle, as far as it is used. It outlives being planned again."""

    __slots__ = ("_callback", "_timers", "due_ms", "handle", "number")

    def __init__(self, timers: set[_Timer], due_ms: float, number: int, callback: Callable[[], object]) -> None:
        self._timers = timers
        self._callback = callback
        self.due_ms = due_ms
        #: When two are due at once, the one planned first runs first.
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
        """When it is due, in seconds of the clock that it follows."""
        return self.due_ms / 1000


class _Shifted:
    """What is added to the machine's loop. `call_at` stays in the machine's time."""

    def follow(self, clock: ShiftedClock) -> None:
        """Let the timers that are planned from now on follow this clock."""
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
        """Run what is due now, plan the rest again."""
        now_ms = self._clock.monotonic_ms()
        for timer in sorted(self._timers, key=lambda each: (each.due_ms, each.number)):
            if timer not in self._timers:
                # Cancelled by one that ran before it.
                continue
            timer.handle.cancel()
            if timer.due_ms > now_ms:
                timer.handle = super().call_later((timer.due_ms - now_ms) / 1000, timer.run)  # type: ignore[misc]
                continue
            try:
                timer.run()
            except Exception as error:
                told = {"message": "a timer failed", "exception": error}
                cast(asyncio.AbstractEventLoop, self).call_exception_handler(told)

    def close(self) -> None:
        self._clock.follower = None
        super().close()  # type: ignore[misc]


def new_shifted_loop(clock: ShiftedClock) -> asyncio.AbstractEventLoop:
    """The machine's loop (uvloop where there is one), its timers following `clock`."""
    try:
        import uvloop
    except ImportError:
        machine: Any = asyncio.SelectorEventLoop
    else:
        machine = uvloop.Loop
    loop: Any = type("ShiftedLoop", (_Shifted, machine), {})()
    loop.follow(clock)
    return cast(asyncio.AbstractEventLoop, loop)
