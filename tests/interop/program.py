"""A program of another project that runs beside a scene."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(command: Sequence[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program, until the end of the block at the latest; what it said is shown if the scene fails."""
    with output.open("ab") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        yield process
    except BaseException:
        print(output.read_text(errors="replace")[-4000:])
        raise
    finally:
        process.kill()
        process.wait()
