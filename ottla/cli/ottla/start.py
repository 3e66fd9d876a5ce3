"""`ottla start`: run a node in this process.

Rules:
- With a file, it runs the node of that Kafka server.properties, whose directories must be formatted as in Kafka.
- Without a file, it runs a single-node cluster on 127.0.0.1:9092, which it formats itself, with settings for one node:
  one replica of everything, and no waiting for more group members.
- An error is one line. Exit code 2: invalid options or settings. Exit code 1: a problem of the machine.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import partial

import click

from ottla.cli import STARTED_AT
from ottla.cli.option import pairs
from ottla.host.config_providers import server_settings
from ottla.kernel.error import OttlaError
from ottla.settings.server.single_node import single_node

DATA = "ottla-data"


def read_file(path: str) -> dict[str, str]:
    """Read a server.properties: name -> text. OttlaError names the file and what is wrong with it."""
    from ottla.settings.properties import read

    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except IsADirectoryError as error:
        raise OttlaError(f"{path} is a directory; name the server.properties in it") from error
    except (OSError, UnicodeDecodeError) as error:
        raise OttlaError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    try:
        return read(text)
    except OttlaError as error:
        raise OttlaError(f"{path}, {error}") from error


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
    try:
        if file is None:
            directory = _absolute(data) if data else os.path.abspath(DATA)
            port = 9092 if port is None else port
            texts = single_node(directory, host or "127.0.0.1", port, port + 1 if port else 0)
        else:
            texts = read_file(file)
        settings = server_settings(texts | overrides)
    except OttlaError as error:
        raise _InvalidSettings(str(error)) from error
    # Objects made during startup stay alive, so scanning them for garbage is wasted time. `run` enables the collector.
    gc.disable()
    from ottla.broker.log_output import configure
    from ottla.broker.serve import run

    configure(log_level.upper(), log_file, log_format)
    if file is None:
        from ottla.broker.metadata.format import format_if_empty
        from ottla.host.disk import HostDisk

        format_if_empty(HostDisk(), settings)
    return run(settings, partial(_report, in_file=log_file is not None), STARTED_AT)


class _InvalidSettings(click.ClickException):
    """An error in options or settings: one line, exit code 2."""

    exit_code = 2

    def show(self, file: object = None) -> None:
        """Print the error on stderr, like all errors."""
        from ottla.cli.screen import complain

        complain(OttlaError(self.message))


def _report(line: str, *, in_file: bool) -> None:
    import logging

    print(line, flush=True)
    if in_file:
        logging.getLogger("ottla.broker").info("%s", line.removeprefix("ottla: "))
    if "ready on" in line:
        at = line.partition(" ready on ")[2].partition(" in ")[0].partition(",")[0]
        where = "" if at.endswith(":9092") and at.startswith(("127.0.0.1", "localhost")) else f" -b {at}"
        if sys.stderr.isatty():
            from ottla.cli.screen import styled

            hint = f"Ctrl-C to stop. In another terminal: ottla topics create hello{where}"
            click.echo(styled(f"       {hint}", dim=True), err=True)
