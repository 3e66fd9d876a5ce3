"""`ottla start`: run a node in this process.

Rules:
- With a file, it runs the node of that Kafka server.properties, whose directories must be formatted as in Kafka.
- Without a file, it runs a single-node cluster on 127.0.0.1:9092, which it formats itself, with settings for one node:
  one replica of everything, and no waiting for more group members.
- An error is one line. Exit code 2: invalid options or settings. Exit code 1: a problem of the machine.
"""

from __future__ import annotations

import os

import click

from ottla.cli.node import read_file, run_node
from ottla.cli.option import pairs
from ottla.settings.server.single_node import single_node

DATA = "ottla-data"


def _absolute(directory: str) -> str:
    # Imported here: pathlib takes as long to import as ten of our modules. It keeps ".." after symbolic links.
    from pathlib import Path

    return str(Path(directory).absolute())


@click.command()
@click.argument("file", required=False, metavar="[server.properties]", type=click.Path())
@click.option(
    "--set", "changes", metavar="KEY=VALUE", multiple=True, help="Setting that overrides the file; may be repeated."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65534),
    default=None,
    help="Without a file: port (default: 9092; 0: any free port).",
)
@click.option("--host", default=None, help="Without a file: address to listen on (default: 127.0.0.1).")
@click.option("--data", type=click.Path(), default=None, help=f"Without a file: data directory (default: ./{DATA}).")
@click.option(
    "--log-level",
    type=click.Choice(["FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"], case_sensitive=False),
    default="INFO",
    show_default=True,
    help="Level of the log; `ottla configs set logger` changes it later.",
)
@click.option("--log-file", type=click.Path(), default=None, help="Write the log to this file instead of stderr.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Format of the log's lines (default: text).",
)
def start(
    file: str | None,
    changes: tuple[str, ...],
    port: int | None,
    host: str | None,
    data: str | None,
    log_level: str,
    log_file: str | None,
    log_format: str,
) -> int:
    """Run a node until Ctrl-C or SIGTERM.

    Without a file, it runs a single-node cluster on 127.0.0.1:9092, formatted on the first start, with its data in
    ./ottla-data.

    With a server.properties of Apache Kafka, it runs the node that the file describes. Format its directories once with
    `ottla storage format`; the directories of an Apache Kafka node work as they are.
    """
    if file is not None and (port, host, data) != (None, None, None):
        raise click.UsageError("--port, --host and --data are for a node without a file; use --set with a file")
    overrides = pairs(changes, "--set")

    def texts() -> dict[str, str]:
        if file is not None:
            return read_file(file) | overrides
        directory = _absolute(data) if data else os.path.abspath(DATA)
        first = 9092 if port is None else port
        return single_node(directory, host or "127.0.0.1", first, first + 1 if first else 0) | overrides

    return run_node(
        texts, may_format=file is None, log_level=log_level.upper(), log_file=log_file, log_format=log_format
    )
