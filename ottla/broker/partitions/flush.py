"""Group commit: fsync off the loop, one fsync for all waiters.

Rules:
- A log has one fsync in progress at a time. Later requests wait for the next one, which covers all of them.
- Data acknowledged by a flush was written before that flush began.
- After a failed fsync the log directory cannot be trusted (fsyncgate): `on_failure` either closes its logs, and waiters
  find their log closed, or stops the node, and no client is answered.
- A flush without room or descriptors for its files is retried, and its waiters wait (docs/decisions/0142).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import suppress

from ottla.kernel.callbacks import call_each
from ottla.log.durability import OutOfResources
from ottla.log.log import Log
from ottla.replica.partition import Partition

_log = logging.getLogger("ottla.broker")
_RETRY_SECONDS = 1.0


class _Round:
    """The waiters of one log: those that the current fsync serves, and those that came later."""

    __slots__ = ("future", "next", "serving")

    def __init__(self) -> None:
        #: The current fsync; None before it is submitted.
        self.future: Future[None] | None = None
        self.serving: list[Callable[[], None]] = []
        self.next: list[Callable[[], None]] = []


class Flusher:
    """A node's fsyncs. The node creates it with its thread pool and its failure handler."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: Executor,
        now_ms: Callable[[], int],
        on_failure: Callable[[Log, OSError], None],
    ) -> None:
        self._loop = loop
        self._pool = pool
        self._now_ms = now_ms
        self._on_failure = on_failure
        self._rounds: dict[Log, _Round] = {}

    def flush(self, logs: Iterable[Log], done: Callable[[], None]) -> None:
        """Call `done` on the loop when everything written to these logs so far is on disk."""
        left = list(logs)
        count = len(left)

        def on_flushed() -> None:
            nonlocal count
            count -= 1
            if not count:
                done()

        for log in left:
            self._join(log, on_flushed)

    def flush_now(self, partition: Partition) -> None:
        """Flush on the loop, blocking, if `flush.messages` requires a flush (decision 0180).

        For coordinators' records: neither a response nor a marker may be based on them before they are durable.
        """
        log = partition.log
        if not log.must_flush:
            return
        running = self._rounds.get(log)
        try:
            if running is not None and running.future is not None:
                # If it failed, the next sync may succeed, although the records are lost.
                with suppress(OutOfResources):
                    running.future.result()
            log.flush(self._now_ms())
        except OutOfResources:
            raise
        except OSError as error:
            self._on_failure(log, error)
            raise
        partition.synced()

    def _join(self, log: Log, done: Callable[[], None]) -> None:
        running = self._rounds.get(log)
        if running is not None:
            running.next.append(done)
            return
        started = self._rounds[log] = _Round()
        started.serving.append(done)
        # Start at the end of the turn, so that all requests read in this turn share the fsync.
        self._loop.call_soon(self._start, log)

    def _start(self, log: Log) -> None:
        current = self._rounds[log]
        current.serving += current.next
        current.next = []
        end_offset = log.end_offset
        future = current.future = self._pool.submit(log.sync)
        future.add_done_callback(
            lambda finished: self._loop.call_soon_threadsafe(self._finish, log, end_offset, finished)
        )

    def _finish(self, log: Log, end_offset: int, finished: Future[None]) -> None:
        error = finished.exception()
        if isinstance(error, OutOfResources) and not log.closed:
            _log.error("cannot flush %s: %s; will retry", log.path, error)
            self._loop.call_later(_RETRY_SECONDS, self._start, log)
            return
        # The files of a log that was deleted in the meantime are gone; they need not be durable.
        if error is not None and not log.closed:
            assert isinstance(error, OSError), error
            self._on_failure(log, error)
            if not log.closed:
                return
        else:
            log.synced(end_offset, self._now_ms())
        current = self._rounds[log]
        served = current.serving
        current.serving = []
        if current.next:
            self._start(log)
        else:
            del self._rounds[log]
        call_each(served)
