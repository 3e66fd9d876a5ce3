"""Log compaction in a node: the dirtiest log first, the work in a separate process, the swap on the loop.

Rules:
- One process cleans a log at a time, and only below a recovery point that is on disk: recovery after a crash must tell
  a gap left by the cleaner from a gap left by the crash.
- The loop does only the renames of a swap. They are durable before the process may continue.
- `Log.cleaner_offset` moves when all groups of a job are in place.
- A log that moves to another directory is not cleaned, and a cleaning that runs then ends: the copy would have records
  of before and after it, and a tombstone could go without the records that it deletes.
- A log with bytes that cannot be cleaned is left alone until the node restarts. After any other failure a log is tried
  again when no other one is due.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.kernel.ids import TopicPartition
from ottla.kernel.lazy import LazyModule
from ottla.log.log import Log

if TYPE_CHECKING:
    from ottla.broker.partitions.clean_worker import CleanerWorker
    from ottla.broker.partitions.flush import Flusher
    from ottla.broker.partitions.log_dirs import LogDirs
    from ottla.broker.runtime import Runtime
    from ottla.log.cleaning import job, offset_map, plan
    from ottla.log.cleaning import swap as clean_swap
    from ottla.log.directory.store import Store
    from ottla.replica.hosted import HostedReplica
else:
    plan = LazyModule("ottla.log.cleaning.plan")
    job = LazyModule("ottla.log.cleaning.job")
    offset_map = LazyModule("ottla.log.cleaning.offset_map")
    clean_swap = LazyModule("ottla.log.cleaning.swap")

_log = logging.getLogger("ottla.broker")
_BUFFER_BYTES_MIN = 4096


class _CleaningRun:
    """A log being cleaned: receives the worker's progress for `Cleaner`, which creates it."""

    def __init__(self, cleaner: Cleaner, tp: TopicPartition, log: Log, worker: CleanerWorker) -> None:
        self.tp = tp
        self.log = log
        self.worker = worker
        self.job: job.Job
        #: True once the result is no longer wanted.
        self.stopped = False
        self.on_ready = partial(cleaner.swap, self)
        self.on_end = partial(cleaner.finish, self)


class Cleaner:
    """A node's compaction. The node creates, starts and stops it."""

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        hosted: Mapping[tuple[str, int], HostedReplica],
        flusher: Flusher,
        log_dirs: LogDirs,
        retain: Callable[[TopicPartition], None],
        new_worker: Callable[[], CleanerWorker],
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._hosted = hosted
        self._flusher = flusher
        self._log_dirs = log_dirs
        self._retain = retain
        self._new_worker = new_worker
        self._handle: asyncio.TimerHandle | None = None
        #: Log directory -> run. By path, so that a topic created again waits for the process of its namesake.
        self._runs: dict[str, _CleaningRun] = {}
        #: Logs with bytes that cannot be cleaned.
        self._uncleanable: set[Log] = set()
        #: Logs whose last cleaning failed for another reason.
        self._failed: set[Log] = set()

    def start(self) -> None:
        """Schedule the first check."""
        if self._runtime.settings.log_cleaner_enable:
            self._schedule()

    def stop(self) -> None:
        """Stop the processes and discard unfinished work."""
        if self._handle is not None:
            self._handle.cancel()
        for run in self._runs.values():
            run.stopped = True
            run.worker.stop()
            self._discard(run)
        self._runs.clear()

    # ---- on the loop

    def _schedule(self) -> None:
        wait_ms = max(1, self._runtime.settings.log_cleaner_backoff_ms)
        self._handle = self._runtime.loop.call_later(wait_ms / 1000, self._start_due)

    def _start_due(self) -> None:
        """Start cleaning as many logs as log.cleaner.threads allows."""
        if self._handle is not None:
            self._handle.cancel()
        self._schedule()
        self._uncleanable = {log for log in self._uncleanable if not log.closed}
        self._failed = {log for log in self._failed if not log.closed}
        while len(self._runs) < self._runtime.settings.log_cleaner_threads:
            tp = self._dirtiest()
            if tp is None:
                break
            self._begin(tp)

    def _dirtiest(self) -> TopicPartition | None:
        now_ms = self._runtime.clock.now_ms()
        dirtiest, highest = None, (False, -1.0)
        for replica in self._hosted.values():
            log = replica.log
            if "compact" not in log.settings.cleanup_policy or log.path in self._runs or log in self._uncleanable:
                continue
            if self._store.future(replica.tp) is not None:
                continue
            cleanable = plan.cleanable(log, now_ms)
            if cleanable is None:
                continue
            rank = log not in self._failed, cleanable.ratio
            if rank > highest and plan.is_due(cleanable, log):
                dirtiest, highest = replica.tp, rank
        return dirtiest

    def _begin(self, tp: TopicPartition) -> None:
        log = self._hosted[tp].log
        run = self._runs[log.path] = _CleaningRun(self, tp, log, self._new_worker())
        log.being_cleaned = True
        if log.recovery_point < log.active.base_offset:
            self._flusher.flush([log], lambda: self._start(run))
        else:
            self._start(run)

    def _start(self, run: _CleaningRun) -> None:
        if run.stopped:
            return
        log, now_ms = run.log, self._runtime.clock.now_ms()
        try:
            cleanable = None if log.closed else plan.cleanable(log, now_ms)
            if cleanable is None:
                self._end(run)
                return
            run.job = self._job(log, cleanable, now_ms)
            settings = self._runtime.settings
            rate = settings.log_cleaner_io_max_bytes_per_second / max(1, settings.log_cleaner_threads)
            run.worker.start(run.job, rate, self._store.recovery_task(run.tp), run)
        except Exception:
            # The machine may have no thread left, for example. A run without an end would keep retention from its log.
            self._failed.add(log)
            self._end(run)
            raise

    def _job(self, log: Log, cleanable: plan.Cleanable, now_ms: int) -> job.Job:
        settings = self._runtime.settings
        threads = max(1, settings.log_cleaner_threads)
        buffer_bytes = settings.log_cleaner_dedupe_buffer_size // threads
        return job.plan(
            log,
            cleanable.first_dirty_offset,
            cleanable.end_offset,
            now_ms,
            keys_max=offset_map.keys_of_buffer(buffer_bytes, settings.log_cleaner_io_buffer_load_factor),
            # Halved as in Kafka: one half to read into, one to write from.
            buffer_bytes=max(_BUFFER_BYTES_MIN, settings.log_cleaner_io_buffer_size // threads // 2),
        )

    def swap(self, run: _CleaningRun, bases: list[int]) -> None:
        """Put a cleaned group in place, if the log is still as the job saw it and does not move."""
        try:
            stays = self._store.future(run.tp) is None
            run.worker.answer(stays and clean_swap.swap(run.log, run.job, bases, self._runtime.clock.now_ms()))
        except OSError as error:
            # Some files are renamed and others are not. Only recovery at the next start can repair that.
            run.worker.answer(False)
            _log.error("cannot swap in a cleaned segment of %s: %s", run.tp, error)
            self._log_dirs.sync_failed(run.log, error)

    def finish(self, run: _CleaningRun, result: dict[str, Any]) -> None:
        """Take the result of a worker that has ended."""
        if run.log.closed or run.log.generation != run.job.generation:
            # Neither a result nor an error is about the log as it is: the process may have read a truncated file.
            pass
        elif "end_offset" in result:
            run.log.cleaner_offset = result["end_offset"]
            self._failed.discard(run.log)
            self._runtime.pool.submit(self._store.cleaner_task(run.tp)).add_done_callback(
                lambda written: _report(run.tp, written.exception())
            )
            _log.info(
                "cleaned %s up to %d: %d bytes read, %d written",
                run.tp,
                result["end_offset"],
                result["read"],
                result["written"],
            )
        elif "error" in result:
            (self._uncleanable if result["corrupt"] else self._failed).add(run.log)
            _report(run.tp, result["error"])
        self._end(run)
        # Retention waits for a cleaning, and the next cleaning of this log may begin at once.
        self._retain(run.tp)
        if "end_offset" in result:
            # As in Kafka: a cleaner that has found something to do looks again at once.
            self._start_due()

    def _end(self, run: _CleaningRun) -> None:
        self._discard(run)
        del self._runs[run.log.path]

    def _discard(self, run: _CleaningRun) -> None:
        run.log.being_cleaned = False
        try:
            clean_swap.discard(self._runtime.disk, run.log.path)
        except OSError as error:
            _report(run.tp, error)


def _report(tp: TopicPartition, error: BaseException | str | None) -> None:
    if error is not None:
        _log.error("cannot clean %s: %s", tp, error)
