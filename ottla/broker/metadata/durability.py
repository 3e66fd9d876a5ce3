"""When the metadata log is synced: on a thread, once for all who came meanwhile, or here and now for who cannot wait.

Rules:
- One sync is under way at a time. What is appended meanwhile waits for the next one, which covers all of it.
- What is committed was appended before its sync began.
- A sync that fails leaves unknown what is durable: there is none after it, and nothing is committed any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future

from ottla.log.log import Log


class MetadataSync:
    """The metadata log makes it. Until `run_beside` every sync is one that is waited for."""

    def __init__(
        self, now_ms: Callable[[], int], on_synced: Callable[[int], None], on_failure: Callable[[OSError], None]
    ) -> None:
        self.log: Log
        self._now_ms = now_ms
        #: Told up to where the log is durable.
        self._on_synced = on_synced
        self._on_failure = on_failure
        self._beside: tuple[asyncio.AbstractEventLoop, Executor] | None = None
        #: Something was appended since the last sync began.
        self._wanted = False
        #: Raised when the log is cut: a sync that began before says nothing about what came after.
        self._generation = 0
        self._running: Future[None] | None = None
        self.failure: OSError | None = None

    def run_beside(self, loop: asyncio.AbstractEventLoop, pool: Executor) -> None:
        """From now on `later` has a thread."""
        self._beside = loop, pool

    def run_here(self) -> None:
        """The threads end: from now on every sync is waited for."""
        self._beside = None

    def want(self) -> None:
        """Something was appended."""
        self._wanted = True

    def cut(self) -> None:
        """The log was cut, and what is left is durable."""
        self._generation += 1

    def later(self) -> None:
        """Have everything synced that was appended, while the loop goes on."""
        if self._beside is None:
            return self.now()
        if not self._wanted or self._running is not None or self.failure is not None:
            return None
        loop, pool = self._beside
        self._wanted = False
        began = self.log.end_offset, self._generation
        self._running = pool.submit(self.log.sync)
        self._running.add_done_callback(lambda finished: loop.call_soon_threadsafe(self._finish, *began, finished))
        return None

    def now(self) -> None:
        """Sync everything that was appended before this returns. OSError when that fails."""
        if self._running is not None:
            # Not two at a time; what the one under way is about is synced with the rest.
            self._wanted = True
            error = self._running.exception()
            if error is not None:
                self.fail(error)
        while self._wanted and self.failure is None:
            self._wanted = False
            end_offset = self.log.end_offset
            try:
                self.log.flush(self._now_ms())
            except OSError as error:
                self.fail(error)
            else:
                self._on_synced(end_offset)
        if self.failure is not None:
            raise self.failure

    def _finish(self, end_offset: int, generation: int, finished: Future[None]) -> None:
        self._running = None
        error = finished.exception()
        if error is not None:
            return self.fail(error)
        if generation != self._generation:
            self._wanted = True
            return self.later()
        if self.failure is None and not self.log.closed:
            self.log.synced(end_offset, self._now_ms())
            self._on_synced(end_offset)
            self.later()
        return None

    def fail(self, error: BaseException) -> None:
        """The log cannot be used any more: nothing is synced after this."""
        assert isinstance(error, OSError), error
        if self.failure is None:
            self.failure = error
            self._on_failure(error)
