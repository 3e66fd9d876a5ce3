"""The tools that people type: `ottla start`, `ottla topics` and the rest, one file a tool.

Invariant: a tool's heavy imports (click's commands, rich, the client, the broker) happen when that tool runs, so that
`ottla --help` answers at once. Start reading at `ottla.cli.main`.
"""


def main() -> None:
    """The console script."""
    from ottla.cli.main import run

    run()
