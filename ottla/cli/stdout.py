"""Setup and final flush of a tool's standard streams.

The caller may have closed a standard stream (`>&-`): it is redirected to the null device then.

Invariant: Python flushes stdout again at exit; a failure there ends the process with code 120 and a line about an
ignored exception. So a tool flushes its own output, and after a failure redirects stdout to the null device.
"""

from __future__ import annotations

import os
import sys


def begin() -> None:
    """Reopen closed standard streams: Python sets them to None, and the next file would get their number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def finish() -> OSError | None:
    """Flush stdout. Returns the error if that fails; later writes to stdout are discarded then."""
    try:
        sys.stdout.flush()
    except OSError as error:
        discard()
        return error
    return None


def discard() -> None:
    """Send buffered and later output to the null device."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
