"""The beginning and the end of a tool's output.

A caller may have closed a standard stream (`>&-`): it leads to the null device then, as if the caller had said so.

Invariant: Python flushes stdout once more at exit; what fails there ends the process with code 120 and a line about an
ignored exception. So a tool flushes its own output, and after a failure stdout leads to the null device.
"""

from __future__ import annotations

import os
import sys


def begin() -> None:
    """Open what the caller has closed; the next file or socket would get its number, and Python has None for it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def finish() -> OSError | None:
    """Flush stdout; the error if that fails, after which nothing written to stdout fails again."""
    try:
        sys.stdout.flush()
    except OSError as error:
        discard()
        return error
    return None


def discard() -> None:
    """Send what is still buffered, and all that follows, to the null device."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
