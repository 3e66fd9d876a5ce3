"""Periodic jobs of a node: retention, checkpoints, overdue flushes.

Rules:
- Each job runs at the interval of its Kafka setting. A job that fails is logged and retried; it never stops the node.
- The node's thread pool deletes files: removing a file of a gigabyte takes a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from ottla.log.checkpoint import HIGH_WATERMARKS, START_OFFSETS
from ottla.log.log import Log
from ottla.replica.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.partitions.flush import Flusher
    from ottla.broker.partitions.leadership import Leadership
    from ottla.broker.partitions.log_dirs import LogDirs
    from ottla.broker.runtime import Runtime
    from ottla.kernel.ids import TopicPartition
    from ottla.log.directory.store import Store
    from ottla.replica.hosted import HostedReplica

_log = logging.getLogger("ottla.broker")
_MAX_MS = (1 << 31) - 1


class Housekeeping:
    """The periodic jobs. The node creates, starts and stops it."""

    def __init__(
        self, runtime: Runtime, store: Store, leadership: Leadership, flusher: Flusher, log_dirs: LogDirs
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._leadership = leadership
        self._flusher = flusher
        self._log_dirs = log_dirs
        self._handles: dict[str, asyncio.TimerHandle] = {}
        #: Directories whose last checkpoint failed, which is logged once.
        self._failing: set[str] = set()

    def start(self) -> None:
        """Schedule the first run of every job."""
        settings = self._runtime.settings
        self._schedule(settings.log_retention_check_interval_ms, self.retain)
        self._schedule(settings.log_flush_offset_checkpoint_interval_ms, self.checkpoint)
        self._schedule(settings.log_flush_start_offset_checkpoint_interval_ms, self.checkpoint_start_offsets)
        self._schedule(settings.replica_high_watermark_checkpoint_interval_ms, self.checkpoint_high_watermarks)
        self._schedule(settings.log_flush_scheduler_interval_ms, self.flush_overdue)

    def _schedule(self, interval_ms: int, job: Callable[[], None]) -> None:
        if not 0 < interval_ms <= _MAX_MS:
            # Kafka's ways to say never, or once after the start, when there is nothing to do.
            return

        def run() -> None:
            try:
                job()
            except OSError:
                _log.exception("the periodic job %s failed; will retry", job.__name__)
            finally:
                # Also after a bug, which the loop logs.
                plan()

        def plan() -> None:
            self._handles[job.__name__] = self._runtime.loop.call_later(interval_ms / 1000, run)

        plan()

    def retain(self) -> None:
        """Delete segments past retention by time, by size or below the log start offset; expire idle producers."""
        self._retain(list(self._leadership.hosted.values()))

    def retain_one(self, tp: TopicPartition) -> None:
        """Do the same for one partition, whose cleaning retention has waited for."""
        partition = self._leadership.hosted.get(tp)
        if partition is not None:
            self._retain([partition])

    def _retain(self, partitions: Iterable[HostedReplica]) -> None:
        now_ms = self._runtime.clock.now_ms()
        failed: list[tuple[Log, OSError]] = []
        for partition in partitions:
            try:
                if partition.log.delete_old_segments(now_ms) and isinstance(partition, Partition):
                    partition.log_start_moved()
            except OSError as error:
                _log.exception("cannot delete the old segments of %s; will retry", partition.tp)
                failed.append((partition.log, error))
            partition.log.producers.expire(now_ms, partition.log.settings.producer_expiration_ms)
        for log, reason in failed:
            self._log_dirs.check(log, reason)

    def checkpoint(self) -> None:
        """Flush the logs that have rolled, and write recovery-point, log-start and high-watermark checkpoints."""
        self._leadership.retry_creation()
        try:
            self._store.remove_deleted(self._runtime.clock.now_ms())
        except OSError:
            _log.exception("cannot remove the files of deleted logs; will retry")
        rolled = [replica.log for replica in self._leadership.hosted.values() if replica.log.wants_flush]
        if rolled:
            self._flusher.flush(rolled, lambda: None)
        self._write(zip(self._store.directories, self._store.checkpoint_tasks(), strict=True))

    def checkpoint_start_offsets(self) -> None:
        """Write the start offsets of the directories where these have changed."""
        self._write(self._store.changed_tasks(START_OFFSETS).items())

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks of the directories where these have changed."""
        self._write(self._store.changed_tasks(HIGH_WATERMARKS).items())

    def _write(self, tasks: Iterable[tuple[str, Callable[[], None]]]) -> None:
        for path, task in tasks:
            self._runtime.pool.submit(task).add_done_callback(partial(self._report, path))

    def flush_overdue(self) -> None:
        """Flush the logs whose `flush.ms` has passed."""
        now_ms = self._runtime.clock.now_ms()
        overdue = [replica.log for replica in self._leadership.hosted.values() if replica.log.flush_is_overdue(now_ms)]
        if overdue:
            self._flusher.flush(overdue, lambda: None)

    def _report(self, path: str, task: Future[None]) -> None:
        error = task.exception()
        if error is None:
            return self._failing.discard(path)
        if not isinstance(error, OSError):
            return _log.error("cannot write a checkpoint; will retry", exc_info=error)
        if path not in self._failing:
            self._failing.add(path)
            _log.error("cannot write a checkpoint in %s: %s; will retry", path, error)
        if not self._runtime.closed:
            self._runtime.loop.call_soon_threadsafe(self._log_dirs.suspect, path, error)
        return None

    def stop(self) -> None:
        """Cancel the scheduled runs."""
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
