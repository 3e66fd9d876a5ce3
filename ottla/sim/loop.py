"""An event loop on simulated time, and the threads beside it: one seed, one order of everything.

Rules:
- Callbacks run in the order of asyncio (first in, first out; timers when they are due). What runs beside the loop
  (`SimPool`, `SimWorker`) runs whole between two callbacks, at a moment that the seed chooses.
- Time stands still while there is something to run, and then jumps to the next timer.
- What a callback raises comes out of `turn`: `Crashed` of the simulated disk most of all.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from itertools import count
from typing import Any, Protocol, TypeVar, cast

from ottla.kernel.ports import Rng
from ottla.sim.clock import SimClock

_T = TypeVar("_T")
#: A turn is given to what runs beside the loop once in so many, while the loop has something to run.
_TURNS_BESIDE = 4


class _Handle(asyncio.TimerHandle):
    """A planned callback."""

    def __init__(self, when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: "SimLoop") -> None:
        super().__init__(when, callback, args, cast(asyncio.AbstractEventLoop, loop))
        self._run_it: Callable[[], object] = lambda: callback(*args)

    def run(self) -> None:
        if not self.cancelled():
            self._run_it()


class SimLoop:
    """As much of `asyncio.AbstractEventLoop` as a node uses: callbacks, timers, and work on other threads."""

    def __init__(self, clock: SimClock, rng: Rng) -> None:
        self.clock = clock
        self._rng = rng
        self._ready: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._count = count()
        #: What the threads of pools and workers will do next; the first of each thread may be the next to run.
        self._beside: list[Callable[[], None]] = []

    # ---- asyncio's

    def time(self) -> float:
        return self.clock.monotonic_ms() / 1000

    def get_debug(self) -> bool:
        return False

    def call_soon(self, callback: Any, *args: Any) -> asyncio.Handle:
        handle = _Handle(self.time(), callback, args, self)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any) -> asyncio.Handle:
        return self.call_soon(callback, *args)

    def call_later(self, delay: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args)

    def call_at(self, when: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
        handle = _Handle(when, callback, args, self)
        heapq.heappush(self._timers, (when, next(self._count), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """asyncio's handles say when they are cancelled; the queue drops them when their time comes."""

    # ---- the simulation's

    def beside(self, work: Callable[[], None]) -> None:
        """Run this on another thread: whole, at some later moment."""
        self._beside.append(work)

    @property
    def busy(self) -> bool:
        """Something can run now, without time passing."""
        return bool(self._ready or self._beside)

    def turn(self) -> bool:
        """Run one thing, or let time pass until there is one; False when nothing is left to wait for."""
        if self._beside and (not self._ready or not self._rng.randrange(_TURNS_BESIDE)):
            self._beside.pop(self._rng.randrange(len(self._beside)))()
        elif self._ready:
            self._ready.popleft().run()
        elif self._timers:
            when, _, handle = heapq.heappop(self._timers)
            if not handle.cancelled():
                # Whole milliseconds, and never too early.
                self.clock.advance(max(0, -int(-when * 1000 // 1) - self.clock.monotonic_ms()))
                self._ready.append(handle)
        else:
            return False
        return True


class Beside(Protocol):
    """A loop with threads beside it: `SimLoop`, or a host's in a world."""

    def beside(self, work: Callable[[], None]) -> None: ...


class SimPool(Executor):
    """A node's threads: each job runs whole, beside the loop."""

    def __init__(self, loop: Beside) -> None:
        self._loop = loop
        self._jobs: list[_Job] = []

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        job = _Job(lambda: fn(*args, **kwargs))
        self._jobs = [each for each in self._jobs if not each.done()]
        self._jobs.append(job)
        self._loop.beside(job.run)
        return job

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for job in self._jobs:
            if cancel_futures:
                job.cancel()
            job.run()


class _Job(Future[Any]):
    """A job that runs when its turn comes, or when its result is waited for."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work

    def run(self) -> None:
        # Still running is what the power went in the middle of.
        if self.done() or self.running() or not self.set_running_or_notify_cancel():
            return
        try:
            result = self._work()
        except Exception as error:
            self.set_exception(error)
        else:
            self.set_result(result)

    def result(self, timeout: float | None = None) -> Any:
        self.run()
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.run()
        return super().exception(0)
