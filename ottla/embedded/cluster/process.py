"""A node's process: start it, check it, and send it signals.

Rules:
- A process is identified by its pid and start time: another process that reuses the pid is never touched.
- A node runs as `python -m ottla.cli start FILE`, in its own session; its output goes to a file.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ottla.kernel.error import OttlaError
from ottla.kernel.named import NamedTuple

_LOOK_SECONDS = 0.02
_QUIET_SECONDS = 1.0
_READY = " ready on "
#: Field 22 of /proc/PID/stat, counted after the program's name, which may hold any character.
_STARTED_FIELD = 19


class NodeProcess(NamedTuple):
    """A process started here or by an earlier command."""

    pid: int
    #: Start time in clock ticks since boot, from /proc; 0 where there is no /proc.
    began: int

    @classmethod
    def of_text(cls, text: str) -> NodeProcess:
        pid, began = text.split()
        return cls(int(pid), int(began))

    def __str__(self) -> str:
        return f"{self.pid} {self.began}"

    @property
    def runs(self) -> bool:
        """Whether the process still runs, and is the one that was started."""
        state, began = _process_state(self.pid)
        return state not in ("", "Z") and (not self.began or began == self.began)

    def send(self, number: signal.Signals) -> None:
        """Send a signal if the process runs."""
        if self.runs:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait for the process to end; False if it still runs after `seconds`."""
        until = time.monotonic() + seconds
        while self.runs:
            with suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)
            if time.monotonic() > until:
                return False
            time.sleep(_LOOK_SECONDS)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return True


def start(properties: Path, log: Path, output: Path) -> NodeProcess:
    """Start a node without waiting; `wait_until_ready` reads its output."""
    command = [sys.executable, "-m", "ottla.cli", "start", str(properties), "--log-file", str(log)]
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
    # Keeps Popen from warning about a running process: NodeProcess checks and reaps it.
    process.returncode = 0
    return NodeProcess(process.pid, _process_state(process.pid)[1])


def wait_until_ready(process: NodeProcess, output: Path, until: float, tell: Callable[[str], None]) -> None:
    """Wait until the node serves. OttlaError with its last line if it ended, or at `until` (monotonic seconds).

    After a second, `tell` gets the node's last line, and then each new one; "" while there is no output.
    """
    quiet_until, last_line = time.monotonic() + _QUIET_SECONDS, None
    while _READY not in (text := output.read_text("utf-8", "replace")):
        if not process.runs:
            process.wait(0)
            raise OttlaError(_last_line(output.read_text("utf-8", "replace")) or "the node ended without a word")
        if time.monotonic() > until:
            raise OttlaError(f"the node is not ready yet; it says: {_last_line(text) or 'nothing'}")
        if time.monotonic() > quiet_until and (line := _last_line(text)) != last_line:
            tell(line)
            last_line = line
        time.sleep(_LOOK_SECONDS)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("ottla: ") if lines else ""


def _process_state(pid: int) -> tuple[str, int]:
    """(state, start time) of a process; ("", 0) if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return _without_proc(pid)
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[_STARTED_FIELD])


def _without_proc(pid: int) -> tuple[str, int]:
    if Path("/proc/self").exists():
        return "", 0
    try:
        os.kill(pid, 0)
    except OSError:
        return "", 0
    return "S", 0
