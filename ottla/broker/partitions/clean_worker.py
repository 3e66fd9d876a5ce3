"""Runs one cleaning job in a process: starts it, sends it the job, reports the groups that are ready.

Rules:
- `on_ready` and `on_end` are called on the loop; neither is called after `stop`.
- The renames of a group are durable before the process may continue.

Not obvious: each worker has one thread, which reads and writes the pipes of its process (decision 0025).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from ottla.kernel.ports import Disk
from ottla.log.cleaning.job import Job

#: Directory from which `ottla` is imported. Appended last to sys.path: the child must import the same standard library.
_ROOT = str(Path(__file__).parents[3])
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from ottla.broker.partitions.clean_process import main; main()"


class Cleaned(Protocol):
    """Listener to the progress of a cleaning job."""

    def on_ready(self, bases: list[int]) -> None:
        """The `.cleaned` segment of these base offsets is ready; reply with `CleanerWorker.answer`."""

    def on_end(self, result: dict[str, Any]) -> None:
        """The job is over: `end_offset`, `read` and `written`; or `error` and `corrupt`; or none of them."""


class CleanerWorker(Protocol):
    """Carries out one job off the loop."""

    def start(self, job: Job, bytes_per_second: float, before: Callable[[], None], listener: Cleaned) -> None:
        """Start the job; call `before` first, on a thread where it may block."""

    def answer(self, in_place: bool) -> None:
        """Reply to `on_ready`: was the segment put in place? False ends the job."""

    def stop(self) -> None:
        """Stop the job, and return when it has stopped."""


class ProcessWorker:
    """`CleanerWorker` in a process. The cleaner creates one for each job."""

    def __init__(self, loop: asyncio.AbstractEventLoop, disk: Disk) -> None:
        self._loop = loop
        self._disk = disk
        self._starting = threading.Lock()
        self._stopped = False
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._answers: SimpleQueue[bool] = SimpleQueue()

    def start(self, job: Job, bytes_per_second: float, before: Callable[[], None], listener: Cleaned) -> None:
        self._thread = threading.Thread(
            target=self._run, args=(job, bytes_per_second, before, listener), name="ottla-cleaner", daemon=True
        )
        self._thread.start()

    def answer(self, in_place: bool) -> None:
        self._answers.put(in_place)

    def stop(self) -> None:
        with self._starting:
            self._stopped = True
            if self._process is not None:
                self._process.kill()
        self._answers.put(False)
        if self._thread is not None:
            self._thread.join()

    # ---- on the worker's thread

    def _run(self, job: Job, bytes_per_second: float, before: Callable[[], None], listener: Cleaned) -> None:
        try:
            before()
            result = self._run_job(job, bytes_per_second, listener)
        except (OSError, ValueError) as error:
            result = {"error": str(error), "corrupt": False}
        self._call(listener.on_end, result)

    def _call(self, callback: Callable[[Any], None], value: Any) -> None:
        if not self._stopped:
            self._loop.call_soon_threadsafe(lambda: None if self._stopped else callback(value))

    def _run_job(self, job: Job, bytes_per_second: float, listener: Cleaned) -> dict[str, Any]:
        command = [sys.executable, "-P", "-c", _PROGRAM, _ROOT]
        with self._starting:
            if self._stopped:
                return {}
            # A session of its own, so that an interrupt from the terminal reaches only the node.
            self._process = process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        assert process.stdout is not None
        assert process.stderr is not None
        with process:
            try:
                self._send(process, {"job": job._asdict(), "bytes_per_second": bytes_per_second})
                for line in process.stdout:
                    message: dict[str, Any] = json.loads(line)
                    if "ready" not in message:
                        return message
                    self._call(listener.on_ready, message["ready"])
                    if not self._answers.get():
                        return {}
                    self._disk.sync_directory(job.directory)
                    self._send(process, {})
                return {"error": f"the cleaner process gave no result: {process.stderr.read()}", "corrupt": False}
            finally:
                process.kill()

    def _send(self, process: subprocess.Popen[str], message: dict[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
