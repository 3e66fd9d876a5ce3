"""Group commit: fsync off the loop, once for everyone who waits.

Rules:
- One fsync of a log is under way at a time. Requests for another wait for the next one, which covers all of them.
- What is answered after a flush was written before that flush began.
- An fsync that fails takes the log directory's promise with it (fsyncgate): `on_failure` closes its logs, and waiters
  find their log closed; or the node stops, and no client is answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future

from ottla.log.log import Log
from ottla.replica.partition import Partition

_log = logging.getLogger("ottla.broker")


class _Round:
    """The waiters of one log: those whom the fsync under way serves, and those who came since."""

    __slots__ = ("future", "next", "serving")

    def __init__(self) -> None:
        #: The fsync, once it has begun.
        self.future: Future[None] | None = None
        self.serving: list[Callable[[], None]] = []
        self.next: list[Callable[[], None]] = []


class Flusher:
    """A node's fsyncs. The node makes it with its thread pool and its way to stop."""

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
        """Call `done` on the loop when everything that is in these logs now is on the disk."""
        left = list(logs)
        count = len(left)

        def one() -> None:
            nonlocal count
            count -= 1
            if not count:
                done()

        for log in left:
            self._join(log, one)

    def flush_now(self, partition: Partition) -> None:
        """Sync here and now what `flush.messages` wants synced (decision 0180).

        For what coordinators write: nothing may follow from it before it is durable, neither an answer nor a marker.
        """
        log = partition.log
        if not log.must_flush:
            return
        running = self._rounds.get(log)
        if running is not None and running.future is not None:
            running.future.exception()
        try:
            log.flush(self._now_ms())
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
        # Let everyone whose request is read in this turn of the loop come aboard.
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
        # The files of a log that was deleted meanwhile are not where they were; they need not be durable.
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
        for done in served:
            done()
