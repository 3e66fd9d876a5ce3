"""The command-line tools: `ottla start`, `ottla topics` and the rest, one file per tool.

Invariant: a tool imports heavy modules (the client, the broker, rich) only when it runs, so that `ottla --help` is
instant; and every error that a user can fix is one line that says how. Read `root` first: it lists all tools; `screen`
is their output, `option` their common options.
"""

import gc
import os
import sys
import time

#: When the process came to us: `ottla start` counts its milliseconds from here.
STARTED_AT = time.monotonic()


def main() -> None:
    """Run the console script `ottla`."""
    # The first process of a container has no parent; with an init, that is its parent.
    if os.getppid() <= 1:
        _end_by_sigterm()
    words = sys.argv[1:]
    try:
        if len(words) == 2 and words[0] == "start" and not words[1].startswith("-"):
            # The collector's passes over imported modules find nothing. The node enables it.
            gc.disable()
            from ottla.cli.node import start_file as run
        else:
            from ottla.cli.ottla.root import run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()


def _end_by_sigterm() -> None:
    """Let SIGTERM end a container's process until it installs a handler of its own.

    Linux drops a signal without a handler for the first process of a container. A container that is stopped while a
    node still starts would otherwise run until the end of the grace period. The image starts the process with the
    signal blocked, which keeps one that comes before this.
    """
    import signal

    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
