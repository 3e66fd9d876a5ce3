"""Run a node in this process: what `ottla start` does once its options are read.

Invariant: this does not import click. `ottla start server.properties` begins here: reading options would take a seventh
of its time.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from ottla.cli import STARTED_AT
from ottla.cli.process import run_and_exit
from ottla.host.config_providers import server_settings
from ottla.kernel.error import OttlaError


def start_file() -> NoReturn:
    """Run `ottla start server.properties`, and exit with its exit code."""
    run_and_exit(lambda: run_node(lambda: read_file(sys.argv[2])))


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


def run_node(
    texts: Callable[[], dict[str, str]],
    *,
    may_format: bool = False,
    log_level: str = "INFO",
    log_file: str | None = None,
    log_format: str = "text",
) -> int:
    """Run the node of these settings until a signal. Returns the exit code, 2 for invalid settings.

    `may_format` formats its directories if they are empty.
    """
    try:
        settings = server_settings(texts())
    except OttlaError as error:
        from ottla.cli.screen import complain

        complain(error)
        return 2
    # Objects made during startup stay alive, so scanning them for garbage is wasted time. `run` enables the collector.
    gc.disable()
    from ottla.broker.log_output import configure
    from ottla.broker.serve import run

    configure(log_level, log_file, log_format)
    if may_format:
        from ottla.broker.metadata.format import format_if_empty
        from ottla.host.disk import HostDisk

        format_if_empty(HostDisk(), settings)
    return run(settings, partial(_report, in_file=log_file is not None), STARTED_AT)


def _report(line: str, *, in_file: bool) -> None:
    import logging

    print(line, flush=True)
    if in_file:
        logging.getLogger("ottla.broker").info("%s", line.removeprefix("ottla: "))
    if "ready on" in line:
        at = line.partition(" ready on ")[2].partition(" in ")[0].partition(",")[0]
        where = "" if at.endswith(":9092") and at.startswith(("127.0.0.1", "localhost")) else f" -b {at}"
        if sys.stderr.isatty():
            import click

            from ottla.cli.screen import styled

            hint = f"Ctrl-C to stop. In another terminal: ottla topics create hello{where}"
            click.echo(styled(f"       {hint}", dim=True), err=True)
