"""The command-line tools: `ottla start`, `ottla topics` and the rest, one file per tool.

Invariant: a tool imports heavy modules (the client, the broker, rich) only when it runs, so that `ottla --help` is
instant; and every error that a user can fix is one line that says how. Read `root` first: it lists all tools; `screen`
is their output, `option` their common options.
"""

import time

#: When the process came to us: `ottla start` counts its milliseconds from here.
STARTED_AT = time.monotonic()


def main() -> None:
    """Run the console script `ottla`."""
    try:
        from ottla.cli.ottla.root import run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()
