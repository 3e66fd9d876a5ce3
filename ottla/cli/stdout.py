"""The end of a tool's output.

Invariant: Python flushes stdout once more at exit; what fails there ends the process with code 120 and a line about an
ignored exception. So a tool flushes its own output, and after a failure stdout leads to the null device.
"""

from __future__ import annotations

import os
import sys


def finish() -> OSError | None:
    """Flush stdout; the error if that fails, after which nothing written to stdout fails again."""
    try:
        if sys.stdout is not None:  # None: the caller closed it
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
