"""The tools that people type: `ottla start`, `ottla topics` and the rest, one file a tool.

Invariant: a tool's heavy imports (the client, the broker, rich) happen when that tool runs, so that `ottla --help`
answers at once; and every error that a person can mend is one line that says how. Read `root` first: it knows all
tools; `screen` is how they speak, `option` what they have in common.
"""

import time

#: When the process came to us: `ottla start` counts its milliseconds from here.
STARTED_AT = time.monotonic()


def main() -> None:
    """The console script."""
    try:
        from ottla.cli.ottla.root import run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()
