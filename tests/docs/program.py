"""A stream program of a guide, run as its reader runs it."""

import subprocess
import time
from pathlib import Path

from tests.crash.pause import pause

#: Spark's start takes half a minute at rest, and minutes on a busy machine.
_SECONDS_MAX = 240


def runs(command: str, here: Path, environment: dict[str, str]) -> "subprocess.Popen[str]":
    """A stream program, once it runs. What it says later goes to the directory, so that nothing waits for a reader."""
    said = here / "streams.log"
    with said.open("w") as log:
        process = subprocess.Popen(command.split(), cwd=here, env=environment, stderr=log, text=True)
    try:
        deadline = time.monotonic() + _SECONDS_MAX
        while "is RUNNING" not in said.read_text():
            assert process.poll() is None and time.monotonic() < deadline, said.read_text()
            pause(0.1)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process
