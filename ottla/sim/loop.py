"""An event loop on simulated time, with threads beside it: one seed gives one order of everything.

Rules:
- Callbacks run in asyncio's order (first in, first out; timers when they are due). A job beside the loop (`SimPool`,
  `SimWorker`) runs atomically between two callbacks, at a moment that the seed chooses.
- Time stands still while there is something to run, and then jumps to the next timer.
- `turn` raises the exceptions of callbacks, above all `Crashed` of the simulated disk.
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
#: While the loop is busy, jobs beside it get one turn in this many on average.
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
    """The part of `asyncio.AbstractEventLoop` that a node uses: callbacks, timers, and jobs on other threads."""

    def __init__(self, clock: SimClock, rng: Rng) -> None:
        self.clock = clock
        self._rng = rng
        self._ready: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._count = count()
        #: The jobs of pools and workers; any of them may run next.
        self._beside: list[Callable[[], None]] = []

    # ---- asyncio's interface

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
        """asyncio's handles report their cancellation here; the queue drops them when they are due."""

    # ---- for the simulation

    def beside(self, work: Callable[[], None]) -> None:
        """Run `work` on another thread: atomically, at some later moment."""
        self._beside.append(work)

    @property
    def busy(self) -> bool:
        """Whether something can run now, without time passing."""
        return bool(self._ready or self._beside)

    def turn(self) -> bool:
        """Run one callback or job, or advance the time to the next timer; False if nothing is left."""
        if self._beside and (not self._ready or not self._rng.randrange(_TURNS_BESIDE)):
            self._beside.pop(self._rng.randrange(len(self._beside)))()
        elif self._ready:
            self._ready.popleft().run()
        elif self._timers:
            when, _, handle = heapq.heappop(self._timers)
            if not handle.cancelled():
                # Rounded up to a millisecond, so that it never runs too early.
                self.clock.advance(max(0, -int(-when * 1000 // 1) - self.clock.monotonic_ms()))
                self._ready.append(handle)
        else:
            return False
        return True


class Beside(Protocol):
    """A loop with threads beside it: `SimLoop`, or `HostLoop` in a world."""

    def beside(self, work: Callable[[], None]) -> None: ...


class SimPool(Executor):
    """A node's threads: each job runs atomically, beside the loop."""

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
    """A job that runs in its turn, or when its result is requested."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work

    def run(self) -> None:
        # A job that is still running was interrupted by a power failure.
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
