"""The runner of Kafka's tools: entry point, clients, and the lines and exit codes for errors.

Rules:
- Every error is exit code 1, as in Apache's tools; we leave out their stack traces.
- A setting in a properties file that our clients do not have is reported on stderr and ignored, as in the Java clients;
  an invalid value of a known setting ends the tool.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ottla.cli.kafka.program.error import caused
from ottla.cli.kafka.program.option import Given, Option, Refused, Usage, help_text, parse
from ottla.cli.stdout import begin, discard, finish
from ottla.kernel.error import KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.settings.client.schema import DeclaredSettings

#: The release whose tools these are.
KAFKA_VERSION = "4.3.1"


class Failed(Exception):
    """An error: a message for stderr, and exit code 1."""


def tell(*lines: str) -> None:
    """Print lines on stderr."""
    for line in lines:
        print(line, file=sys.stderr)


def command(
    options: Sequence[Option],
    about: str,
    body: Callable[[Given], int],
    *,
    alone: str | None = None,
    refused: str = "{}",
    usage_when_refused: bool = False,
    failed: Callable[[Exception], int] | None = None,
) -> NoReturn:
    """Run a tool for which Apache uses jopt-simple, and end the process.

    `alone` is printed, with the help, when there are no arguments; `refused` is the format of the message for an
    unknown option, and `usage_when_refused` prints the help after it; `failed` prints any other error and returns the
    exit code.
    """

    def run() -> int:
        try:
            given = parse(options, sys.argv[1:])
            if len(sys.argv) == 1 or "help" in given:
                raise Usage(about if "help" in given else alone or about)
            if "version" in given:
                print(KAFKA_VERSION)
                return 0
            return body(given)
        except Usage as wrong:
            tell(str(wrong), help_text(options))
            return 1
        except Refused as wrong:
            tell(refused.format(wrong), *([help_text(options)] if usage_when_refused else []))
            return 1

    leave(run, failed)


def leave(run: Callable[[], int], failed: Callable[[Exception], int] | None = None) -> NoReturn:
    """Run, print the error if any, and end the process with the exit code."""
    begin()
    try:
        code = _attempt(run, failed or say)
    except BrokenPipeError:
        discard()
        code = 1
    except KeyboardInterrupt:
        code = 130
    error = finish()
    if error is not None and code == 0:
        code = 1
        if not isinstance(error, BrokenPipeError):
            tell(error.strerror or str(error))
    sys.exit(code)


def _attempt(run: Callable[[], int], failed: Callable[[Exception], int]) -> int:
    try:
        return run()
    except (KafkaError, OttlaError, Failed) as error:
        return failed(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        return failed(Failed(f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}"))


def say(error: Exception) -> int:
    """Print an error on stderr like Java's ExecutionException, as most tools do, and return exit code 1."""
    tell(caused(error))
    return 1


def load(path: str) -> dict[str, str]:
    """Read a properties file. Failed if that is not possible."""
    from ottla.settings.properties import read

    try:
        return read(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise Failed(f"java.nio.file.NoSuchFileException: {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def read_text(path: str) -> str:
    """Read a whole file. Failed if that is not possible."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise Failed(f"Unable to read file {path}") from error
    except UnicodeDecodeError as error:
        raise Failed(f"Unable to read file {path}: byte {error.start} is not UTF-8") from error


def settings_for(kind: type[DeclaredSettings], properties: Mapping[str, object]) -> dict[str, object]:
    """Return the properties that our client has; report the others on stderr."""
    known = {setting.name for setting in kind.declared.values()}
    for name in properties:
        if name not in known and name not in _MEANINGLESS:
            tell(f"WARN the client has no setting {name}: ignoring it")
    return {name: value for name, value in properties.items() if name in known}


#: Settings that only a Java client can do something with.
_MEANINGLESS = frozenset(
    {
        "key.serializer",
        "value.serializer",
        "key.deserializer",
        "value.deserializer",
        "interceptor.classes",
        "metric.reporters",
        "auto.include.jmx.reporter",
        "enable.metrics.push",
        "send.buffer.bytes",
        "receive.buffer.bytes",
    }
)


@contextmanager
def admin(bootstrap: str, properties: Mapping[str, object] | None = None, **more: object) -> Iterator[Admin]:
    """Open an admin client that connects to `bootstrap` first."""
    from ottla.client import Admin
    from ottla.settings.client.client import AdminSettings

    given = {**(properties or {}), "bootstrap.servers": bootstrap}
    settings = settings_for(AdminSettings, given)
    with Admin({**settings, **more}) as client:
        yield client


def admin_of(given: Given, option: str = "command-config") -> dict[str, str]:
    """Return the properties of a tool's `--command-config` file; none without that option."""
    return load(given[option]) if option in given else {}


def check_addresses(text: str | None) -> None:
    """Raise Usage unless the text is HOST:PORT, or several separated by commas."""
    if not (text or "").strip():
        raise Usage("Error while validating the bootstrap address\n")
    if not all(part.rpartition(":")[2].strip().isdecimal() and ":" in part for part in (text or "").split(",")):
        raise Usage("Please provide valid host:port like host1:9091,host2:9092\n")
