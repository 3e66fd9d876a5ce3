"""Compaction as a node drives it: the dirtiest log first, the work in a process, the swap on the loop.

Rules:
- A log is cleaned by one process at a time, and only below a recovery point that is on the disk: after a crash nobody
  has to tell a gap that the cleaner left from one that the crash did.
- The loop does no more than the renames of a swap. Each is durable before the process may go on.
- `Log.cleaner_offset` moves when all groups of a job are in place.
- A log with bytes that cannot be cleaned is left alone until the node starts anew; all else is tried again.

Not obvious: one thread a job holds the pipes of its process (decision 0025).
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import ottla
from ottla.kernel.name import TopicPartition
from ottla.log.clean import Cleanable, cleanable, is_due
from ottla.log.clean_job import Job, plan
from ottla.log.clean_map import keys_of_buffer
from ottla.log.clean_swap import discard, swap
from ottla.log.log import Log

if TYPE_CHECKING:
    from ottla.broker.node import Node

_log = logging.getLogger("ottla.broker")
#: Where `ottla` is imported from. Behind everything else, as the child must find the same standard library.
_ROOT = str(Path(ottla.__file__).parent.parent)
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from ottla.broker.clean_process import main; main()"
_BUFFER_BYTES_MIN = 4096


class _Run:
    """One log being cleaned. `Cleaner` makes it; its thread ends with its process."""

    def __init__(self, tp: TopicPartition, log: Log) -> None:
        self.tp = tp
        self.log = log
        self.job: Job
        #: Set when nobody waits for the result any more.
        self.stopped = False
        self.process: subprocess.Popen[str] | None = None
        self.thread: threading.Thread | None = None
        #: What the loop says to "is the group in place?"
        self.answers: SimpleQueue[bool] = SimpleQueue()


class Cleaner:
    """A node's compaction. The node makes, starts and stops it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._handle: asyncio.TimerHandle | None = None
        self._starting = threading.Lock()
        #: By directory: a topic that is made anew waits for the process of its namesake.
        self._runs: dict[str, _Run] = {}
        #: Logs with bytes that cannot be cleaned.
        self._uncleanable: set[Log] = set()

    def start(self) -> None:
        """Plan the first look."""
        if self._node.settings.log_cleaner_enable:
            self._plan()

    def stop(self) -> None:
        """End the processes; what they were at is as it was."""
        if self._handle is not None:
            self._handle.cancel()
        for run in self._runs.values():
            with self._starting:
                run.stopped = True
                if run.process is not None:
                    run.process.kill()
            run.answers.put(False)
            if run.thread is not None:
                run.thread.join()
            self._tidy(run)
        self._runs.clear()

    # ---- on the loop

    def _plan(self) -> None:
        wait_ms = max(1, self._node.settings.log_cleaner_backoff_ms)
        self._handle = self._node.loop.call_later(wait_ms / 1000, self._look)

    def _look(self) -> None:
        """Begin with as many logs as there may be at a time."""
        if self._handle is not None:
            self._handle.cancel()
        self._uncleanable = {log for log in self._uncleanable if not log.closed}
        while len(self._runs) < self._node.settings.log_cleaner_threads:
            tp = self._dirtiest()
            if tp is None:
                break
            self._begin(tp)
        self._plan()

    def _dirtiest(self) -> TopicPartition | None:
        now_ms = self._node.clock.now_ms()
        dirtiest, ratio = None, -1.0
        for partition in self._node.partitions.values():
            log = partition.log
            if "compact" not in log.settings.cleanup_policy or log.path in self._runs or log in self._uncleanable:
                continue
            found = cleanable(log, now_ms)
            if found is not None and found.ratio > ratio and is_due(found, log):
                dirtiest, ratio = partition.tp, found.ratio
        return dirtiest

    def _begin(self, tp: TopicPartition) -> None:
        log = self._node.partitions[tp].log
        run = self._runs[log.path] = _Run(tp, log)
        log.being_cleaned = True
        if log.recovery_point < log.active.base_offset:
            self._node.flusher.flush([log], lambda: self._start(run))
        else:
            self._start(run)

    def _start(self, run: _Run) -> None:
        if run.stopped:
            return
        log, now_ms = run.log, self._node.clock.now_ms()
        found = None if log.closed else cleanable(log, now_ms)
        if found is None:
            self._end(run)
            return
        run.job = self._job(log, found, now_ms)
        points = self._node.store.recovery_task(run.tp)
        run.thread = threading.Thread(target=self._attend, args=(run, points), name="ottla-cleaner", daemon=True)
        run.thread.start()

    def _job(self, log: Log, found: Cleanable, now_ms: int) -> Job:
        settings = self._node.settings
        threads = max(1, settings.log_cleaner_threads)
        buffer_bytes = settings.log_cleaner_dedupe_buffer_size // threads
        return plan(
            log,
            found.first_dirty_offset,
            found.end_offset,
            now_ms,
            keys_max=keys_of_buffer(buffer_bytes, settings.log_cleaner_io_buffer_load_factor),
            # As Kafka halves it: one half to read into, one to write from.
            buffer_bytes=max(_BUFFER_BYTES_MIN, settings.log_cleaner_io_buffer_size // threads // 2),
        )

    def _swap(self, run: _Run, bases: list[int]) -> None:
        """A group is ready. Put it in place, if the log is still what the job saw."""
        if run.stopped:
            return
        try:
            run.answers.put(swap(run.log, run.job, bases, self._node.clock.now_ms()))
        except OSError as error:
            # Some files are renamed and others are not: a start makes it whole, we cannot.
            run.answers.put(False)
            self._node.on_failure(f"a cleaned segment of {run.tp} cannot be put in place: {error}")

    def _finish(self, run: _Run, result: dict[str, Any]) -> None:
        """The process is gone and its thread about to be."""
        if run.stopped:
            return
        if "end_offset" in result and not run.log.closed and run.log.generation == run.job.generation:
            run.log.cleaner_offset = result["end_offset"]
            self._node.pool.submit(self._node.store.cleaner_task(run.tp)).add_done_callback(
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
            if result["corrupt"]:
                self._uncleanable.add(run.log)
            _report(run.tp, result["error"])
        self._end(run)
        if "end_offset" in result:
            # As Kafka: whoever has found something to do looks again at once.
            self._look()

    def _end(self, run: _Run) -> None:
        self._tidy(run)
        del self._runs[run.log.path]

    def _tidy(self, run: _Run) -> None:
        run.log.being_cleaned = False
        try:
            discard(self._node.disk, run.log.path)
        except OSError as error:
            _report(run.tp, error)

    # ---- on the run's thread

    def _attend(self, run: _Run, write_points: Callable[[], None]) -> None:
        try:
            write_points()
            result = self._converse(run)
        except (OSError, ValueError) as error:
            result = {"error": str(error), "corrupt": False}
        if not run.stopped:
            self._node.loop.call_soon_threadsafe(self._finish, run, result)

    def _converse(self, run: _Run) -> dict[str, Any]:
        settings = self._node.settings
        command = [sys.executable, "-P", "-c", _PROGRAM, _ROOT]
        with self._starting:
            if run.stopped:
                return {}
            # A session of its own: an interrupt from the terminal is ours to deal with.
            run.process = process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        rate = settings.log_cleaner_io_max_bytes_per_second / max(1, settings.log_cleaner_threads)
        with process:
            try:
                self._say(process, {"job": run.job._asdict(), "bytes_per_second": rate})
                for line in process.stdout:
                    told: dict[str, Any] = json.loads(line)
                    if "ready" not in told:
                        return told
                    self._node.loop.call_soon_threadsafe(self._swap, run, told["ready"])
                    if not run.answers.get():
                        return {}
                    self._node.disk.sync_directory(run.job.directory)
                    self._say(process, {})
                return {"error": f"its process ended without a word: {process.stderr.read()}", "corrupt": False}
            finally:
                process.kill()

    def _say(self, process: subprocess.Popen[str], what: dict[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(what) + "\n")
        process.stdin.flush()


def _report(tp: TopicPartition, error: BaseException | str | None) -> None:
    if error is not None:
        _log.error("%s cannot be cleaned: %s", tp, error)
