"""A node's process without the half second of its imports: forked from one that has them behind it.

What is killed is a process of its own all the same: its threads, files and sockets are its own. `Forker` asks for one;
the module run as a program is the process that they are forked from. It has no threads and no node.
"""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path


class Forked:
    """As much of `subprocess.Popen` as a server needs, for a process that is another's child."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        #: What it ended with is its parent's to know: 0 stands for any end.
        self.returncode: int | None = None
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        if self._ended(timeout) is None:
            raise subprocess.TimeoutExpired("ottla start", timeout or 0)
        return 0

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._descriptor], [], [], timeout_s)[0]:
            os.close(self._descriptor)
            self.returncode = 0
        return self.returncode


class Forker:
    """The process that forks. Whoever makes it calls `close`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.forked"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, properties: Path, output: Path) -> Forked:
        """A process that runs `ottla start` with this file."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(properties, output, sep="\t", file=self._process.stdin, flush=True)
        return Forked(int(self._process.stdout.readline()))

    def close(self) -> None:
        """What was forked goes on."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(10)


def _serve() -> None:
    """For every line with a properties file and one for the output, a process; its id is printed."""
    import ottla.broker.serve
    import ottla.cli.root
    import ottla.cli.start  # noqa: F401

    answers = os.fdopen(os.dup(1), "w")
    # Its children leave no zombies.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        properties, output = line.rstrip("\n").split("\t")
        pid = os.fork()
        if not pid:
            answers.close()
            _become_node(properties, output)
        print(pid, file=answers, flush=True)


def _become_node(properties: str, output: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    said = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for descriptor, taken in enumerate((nothing, said, said)):
        os.dup2(taken, descriptor)
    os.close(nothing)
    os.close(said)
    import ottla.cli.start
    from ottla.cli.root import run

    vars(ottla.cli.start)["STARTED_AT"] = time.monotonic()
    sys.argv = ["ottla", "start", properties]
    run()


if __name__ == "__main__":
    _serve()
