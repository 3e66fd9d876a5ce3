"""Flushes of the metadata log: on a thread, one for all waiters, or blocking for callers that cannot wait.

Rules:
- One flush is in progress at a time. Records appended meanwhile wait for the next one, which covers all of them.
- Committed records were appended before their flush began.
- After a failed flush it is unknown what is durable: there is no further flush, and nothing is committed any more.
- A flush without room or descriptors for its files is retried (docs/decisions/0142).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future

from ottla.log.durability import OutOfResources
from ottla.log.log import Log

_log = logging.getLogger("ottla.broker")
_RETRY_SECONDS = 1.0


class MetadataSync:
    """The flushes of the metadata log, which creates it. Until `start_threads` every flush blocks."""

    def __init__(
        self, now_ms: Callable[[], int], on_synced: Callable[[int], None], on_failure: Callable[[OSError], None]
    ) -> None:
        self.log: Log
        self._now_ms = now_ms
        #: Called with the offset up to which the log is durable.
        self._on_synced = on_synced
        self._on_failure = on_failure
        self._beside: tuple[asyncio.AbstractEventLoop, Executor] | None = None
        #: True if records were appended since the last flush began.
        self._wanted = False
        #: Incremented when the log is truncated: a flush that began before says nothing about later records.
        self._generation = 0
        self._running: Future[None] | None = None
        self.failure: OSError | None = None

    def start_threads(self, loop: asyncio.AbstractEventLoop, pool: Executor) -> None:
        """From now on `later` uses a thread."""
        self._beside = loop, pool

    def stop_threads(self) -> None:
        """From now on every flush blocks, because the threads are about to end."""
        self._beside = None

    def want(self) -> None:
        """Note that records were appended."""
        self._wanted = True

    def cut(self) -> None:
        """Note that the log was truncated; the rest of it is durable."""
        self._generation += 1

    def later(self) -> None:
        """Flush everything appended so far, without blocking the loop."""
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
        """Flush, blocking, everything appended before this returns. OSError on failure."""
        if self._running is not None:
            # Only a single flush at a time: the current one's records are flushed again with the rest.
            self._wanted = True
            error = self._running.exception()
            if error is not None and not isinstance(error, OutOfResources):
                self.fail(error)
        while self._wanted and self.failure is None:
            self._wanted = False
            end_offset = self.log.end_offset
            try:
                self.log.flush(self._now_ms())
            except OutOfResources:
                self._wanted = True
                raise
            except OSError as error:
                self.fail(error)
            else:
                self._on_synced(end_offset)
        if self.failure is not None:
            raise self.failure

    def _finish(self, end_offset: int, generation: int, finished: Future[None]) -> None:
        self._running = None
        error = finished.exception()
        if isinstance(error, OutOfResources):
            _log.error("cannot flush the metadata log: %s; will retry", error)
            self._wanted = True
            if self._beside is not None:
                self._beside[0].call_later(_RETRY_SECONDS, self._retry)
            return None
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

    def _retry(self) -> None:
        if self._beside is not None and not self.log.closed:
            self.later()

    def fail(self, error: BaseException) -> None:
        """Mark the log unusable: there is no flush after this."""
        assert isinstance(error, OSError), error
        if self.failure is None:
            self.failure = error
            self._on_failure(error)
