"""`ottla start`: run a node in this process.

Rules:
- With a file it is Kafka's server.properties, and its directories are formatted as Kafka wants it.
- Without one it is a single node of its own cluster on 127.0.0.1:9092, formatted by itself, with what one node needs:
  one replica of everything, and no waiting for members that will not come.
- What is wrong is one line. Exit code 2: what you wrote. Exit code 1: what the machine has.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import partial

import click

from ottla.cli import STARTED_AT
from ottla.cli.option import pairs
from ottla.kernel.error import OttlaError
from ottla.settings.server.settings import ServerSettings
from ottla.settings.server.single_node import single_node

DATA = "ottla-data"


def read_file(path: str) -> dict[str, str]:
    """A server.properties as text by Kafka's names. OttlaError names the file and what is wrong with it."""
    from ottla.settings.properties import read

    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except IsADirectoryError as error:
        raise OttlaError(f"{path} is a directory; give the server.properties in it") from error
    except (OSError, UnicodeDecodeError) as error:
        raise OttlaError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        return read(text)
    except OttlaError as error:
        raise OttlaError(f"{path}, {error}") from error


def _absolute(directory: str) -> str:
    # pathlib takes a start as long as ten modules of ours; it leaves ".." behind links alone.
    from pathlib import Path

    return str(Path(directory).absolute())


@click.command()
@click.argument("file", required=False, metavar="[server.properties]", type=click.Path())
@click.option("--set", "changes", metavar="KEY=VALUE", multiple=True, help="A setting that overrides the file's.")
@click.option("--port", type=click.IntRange(0, 65534), default=None, help="Without a file: the port (9092; 0: any).")
@click.option("--host", default=None, help="Without a file: the address to listen on (127.0.0.1).")
@click.option("--data", type=click.Path(), default=None, help=f"Without a file: the data directory (./{DATA}).")
@click.option(
    "--log-level",
    type=click.Choice(["FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"], case_sensitive=False),
    default="INFO",
    show_default=True,
    help="What goes into the log; `ottla configs set logger` changes it later.",
)
@click.option("--log-file", type=click.Path(), default=None, help="The log goes to this file instead of stderr.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="A line, or a JSON object.")
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

    Without a file: a single node on 127.0.0.1:9092 with its data in ./ottla-data, formatted by itself.

    With Apache Kafka's server.properties: the node that it describes. Format its directories once with
    `ottla storage format`; those of an Apache Kafka node are taken as they are.
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
        settings = ServerSettings.parse(texts | overrides)
    except OttlaError as error:
        raise _Wrong(str(error)) from error
    # What a start imports and makes stays: the collector would look through it again and again. `run` switches it on.
    gc.disable()
    from ottla.broker.log_output import configure
    from ottla.broker.serve import run

    configure(log_level.upper(), log_file, log_format)
    if file is None:
        from ottla.broker.metadata.format import format_if_empty
        from ottla.host.disk import HostDisk

        format_if_empty(HostDisk(), settings)
    return run(settings, partial(_say, in_file=log_file is not None), STARTED_AT)


class _Wrong(click.ClickException):
    """What a person wrote wrongly: one line, exit code 2."""

    exit_code = 2

    def show(self, file: object = None) -> None:
        """On stderr, in the form of all errors."""
        from ottla.cli.screen import complain

        complain(OttlaError(self.message))


def _say(line: str, *, in_file: bool) -> None:
    import logging

    print(line, flush=True)
    if in_file:
        logging.getLogger("ottla.broker").info("%s", line.removeprefix("ottla: "))
    if "ready on" in line:
        at = line.partition(" ready on ")[2].partition(" in ")[0].partition(",")[0]
        where = "" if at.endswith(":9092") and at.startswith(("127.0.0.1", "localhost")) else f" -b {at}"
        if sys.stderr.isatty():
            from ottla.cli.screen import styled

            hint = f"Ctrl-C stops it. In another terminal: ottla topics create hello{where}"
            click.echo(styled(f"       {hint}", dim=True), err=True)
