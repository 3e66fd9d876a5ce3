"""A test process with everything that it starts, and a server in the place of the program that starts it."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any


def run_whole(
    command: Sequence[str],
    directory: Path,
    environment: dict[str, str],
    timeout_s: float,
    output: IO[bytes] | int = subprocess.DEVNULL,
) -> int:
    """The code that it ends with. When its time is over it is killed, and its children (a JVM, a fork) with it."""
    process = subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def pass_on_sigterm(process: subprocess.Popen[Any]) -> None:
    """A SIGTERM for this program, which stands for a server, ends the server."""
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
