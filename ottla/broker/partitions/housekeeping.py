"""Periodic jobs of a node: retention, deleted files, idle producers, checkpoints, overdue flushes.

Rules:
- Each job runs at the interval of its Kafka setting. A job that fails is logged and retried; it never stops the node.
- What is deleted goes when `file.delete.delay.ms` says, or up to one more `log.segment.delete.delay.ms` later.
- What grows with the number of partitions goes in steps, and the loop serves others between them.
- Threads of the node's pool remove deleted logs and close deleted segments: a file of a gigabyte takes 40 ms.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
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
    from ottla.log.directory.removals import Removal
    from ottla.log.directory.store import Store
    from ottla.replica.hosted import HostedReplica

_log = logging.getLogger("ottla.broker")
_MAX_MS = (1 << 31) - 1
_ENDED = object()
#: The partitions that one step looks at, and how many of them a deleted segment costs.
_STEP = 500
_DELETED = 10
#: The shortest and the longest time between two looks at what is deleted: a topic's delay may be below the node's.
_REMOVAL_MS = 1000, 60_000


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
        self._schedule(self._removal_interval_ms(), self.remove_deleted, self._removal_interval_ms)
        self._schedule(settings.producer_id_expiration_check_interval_ms, self.expire_producers)
        self._schedule(settings.log_flush_offset_checkpoint_interval_ms, self.checkpoint)
        self._schedule(settings.log_flush_start_offset_checkpoint_interval_ms, self.checkpoint_start_offsets)
        self._schedule(settings.replica_high_watermark_checkpoint_interval_ms, self.checkpoint_high_watermarks)
        self._schedule(settings.log_flush_scheduler_interval_ms, self.flush_overdue)

    def _removal_interval_ms(self) -> int:
        least, most = _REMOVAL_MS
        return min(most, max(least, self._runtime.settings.log_segment_delete_delay_ms))

    def _schedule(self, interval_ms: int, job: Callable[[], None], renewed: Callable[[], int] | None = None) -> None:
        """Run a job every `interval_ms`, or as `renewed` says after each run: that setting may change."""
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
                plan(interval_ms if renewed is None else renewed())

        def plan(wait_ms: int) -> None:
            self._handles[job.__name__] = self._runtime.loop.call_later(wait_ms / 1000, run)

        plan(interval_ms)

    def _in_steps(self, work: Iterator[None]) -> None:
        """Do the next step of the work now, and the others in later turns of the loop."""
        if not self._runtime.closed and next(work, _ENDED) is not _ENDED:
            self._runtime.loop.call_soon(self._in_steps, work)

    def retain(self) -> None:
        """Delete segments past retention by time, by size or below the log start offset."""
        self._in_steps(self._retain(list(self._leadership.hosted.values())))

    def retain_one(self, tp: TopicPartition) -> None:
        """Do the same for one partition, whose cleaning retention has waited for."""
        partition = self._leadership.hosted.get(tp)
        if partition is not None:
            self._in_steps(self._retain([partition]))

    def _retain(self, partitions: Iterable[HostedReplica]) -> Iterator[None]:
        now_ms, work = self._runtime.clock.now_ms(), 0
        failed: list[tuple[Log, OSError]] = []
        for partition in partitions:
            if self._leadership.hosted.get(partition.tp) is not partition:
                # This node gave the replica up between two steps.
                continue
            deleted = 0
            try:
                deleted = partition.log.delete_old_segments(now_ms)
                if deleted and isinstance(partition, Partition):
                    partition.log_start_moved()
            except OSError as error:
                _log.exception("cannot delete the old segments of %s; will retry", partition.tp)
                failed.append((partition.log, error))
            work += 1 + _DELETED * deleted
            if work >= _STEP:
                work = 0
                yield
        for log, reason in failed:
            self._log_dirs.check(log, reason)

    def expire_producers(self) -> None:
        """Forget the producers that were silent for long."""
        self._in_steps(self._expire_producers(list(self._leadership.hosted.values())))

    def _expire_producers(self, partitions: Iterable[HostedReplica]) -> Iterator[None]:
        now_ms = self._runtime.clock.now_ms()
        for number, partition in enumerate(partitions, 1):
            partition.log.producers.expire(now_ms, partition.log.settings.producer_expiration_ms)
            if not number % _STEP:
                yield

    def checkpoint(self) -> None:
        """Flush the logs that have rolled, and write recovery-point, log-start and high-watermark checkpoints."""
        self._leadership.retry_creation()
        rolled = [replica.log for replica in self._leadership.hosted.values() if replica.log.wants_flush]
        if rolled:
            self._flusher.flush(rolled, lambda: None)
        self._write(zip(self._store.directories, self._store.checkpoint_tasks(), strict=True))

    def remove_deleted(self) -> None:
        """Remove the logs and segments whose delay has passed."""
        if self._runtime.closed:
            return
        now_ms = self._runtime.clock.now_ms()
        self._in_steps(self._rename_deleted(now_ms))
        removals = self._store.take_deleted(now_ms)
        if removals:
            self._runtime.pool.submit(self._store.removals.remove, removals).add_done_callback(self._on_removed)
        self._in_steps(self._remove_segments(now_ms))

    def _rename_deleted(self, now_ms: int) -> Iterator[None]:
        """Rename the deleted logs that a full disk did not let be renamed; one failure is enough for a disk."""
        failing = set[str]()
        for number, log in enumerate(self._store.unrenamed(), 1):
            directory = log.path.rpartition("/")[0]
            if directory not in failing:
                try:
                    self._store.rename_again(log, now_ms)
                except OSError as error:
                    failing.add(directory)
                    self._log_dirs.suspect(directory, error)
            if not number % (_STEP // _DELETED):
                yield

    def _on_removed(self, task: Future[list[tuple[Removal, OSError]]]) -> None:
        left = task.result()
        if left:
            _log.error("cannot remove %d deleted logs; will retry; %s: %s", len(left), left[0][0][1], left[0][1])
            if not self._runtime.closed:
                self._runtime.loop.call_soon_threadsafe(self._store.removals.put_back, left)

    def _remove_segments(self, now_ms: int) -> Iterator[None]:
        for log in [log for log in self._store.logs().values() if log.pending_removals]:
            try:
                while removed := log.remove_deleted(now_ms, _STEP // _DELETED):
                    # The thread drops the last references.
                    self._runtime.pool.submit(removed.clear)
                    yield
            except OSError:
                _log.exception("cannot remove deleted segments of %s; will retry", log.path)

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
