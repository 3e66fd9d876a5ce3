"""A loop on which no time is waited for, and the client's clock with it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ottla.client.connection import clock

T = TypeVar("T")


class _Hurried(asyncio.SelectorEventLoop):
    """Its time stands still while there is work, and then jumps to the next timer."""

    _now = 1_000.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        due = [each.when() for each in self._scheduled if not each.cancelled()]  # type: ignore[attr-defined]
        if due and not self._ready:  # type: ignore[attr-defined]
            self._now = max(self._now, min(due))
        super()._run_once()  # type: ignore[misc]


class _Clock(clock.MachineClock):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def monotonic_ms(self) -> int:
        return round(1_000 * self._loop.time())


async def passing(seconds: float) -> None:
    """Return when so much of the loop's time has passed."""
    loop = asyncio.get_running_loop()
    passed = asyncio.Event()
    timer = loop.call_later(seconds, passed.set)
    try:
        await passed.wait()
    finally:
        timer.cancel()


def hurried(main: Coroutine[Any, Any, T]) -> T:
    """Run this to its end; a wait takes no time, and `now_ms` agrees with the loop about how long it was."""
    with asyncio.Runner(loop_factory=_Hurried) as runner:
        clock.replace(_Clock(runner.get_loop()), None)
        try:
            return runner.run(main)
        finally:
            clock.replace(None, None)
