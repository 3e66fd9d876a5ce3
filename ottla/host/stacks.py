"""Dumps the stacks of all threads into a file in memory on SIGUSR2.

    /proc/PID/fd/N -> /memfd:ottla-stacks (deleted)

The handler is the interpreter's own (faulthandler): it needs neither the loop nor the GIL, so it also works in a node
that hangs. It writes names of functions and line numbers, but no values. `ottla debug bundle` empties the file, sends
the signal and reads the file.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal

NAME = "ottla-stacks"


def tell_on_signal() -> None:
    """Install the SIGUSR2 handler. Does nothing on systems without memfd."""
    if not hasattr(os, "memfd_create"):
        return
    fd = os.memfd_create(NAME)
    # Append, so that there is no hole before the next stacks after a reader has emptied the file.
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    faulthandler.register(signal.SIGUSR2, file=fd, all_threads=True)
