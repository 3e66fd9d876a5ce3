"""Stacks of all threads on request: SIGUSR2 has the interpreter write them into a file in memory.

    /proc/PID/fd/N -> /memfd:ottla-stacks (deleted)

The handler is the interpreter's own (faulthandler): it needs neither the loop nor the interpreter's lock, so a node
that hangs answers, too. It writes names of functions and lines, and no values. `ottla debug bundle` empties the file,
sends the signal and reads.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal

NAME = "ottla-stacks"


def tell_on_signal() -> None:
    """Write stacks when SIGUSR2 comes, until the process ends. Nothing where the machine has no files in memory."""
    if not hasattr(os, "memfd_create"):
        return
    fd = os.memfd_create(NAME)
    # A reader that empties the file leaves no hole before the next stacks.
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    faulthandler.register(signal.SIGUSR2, file=fd, all_threads=True)
