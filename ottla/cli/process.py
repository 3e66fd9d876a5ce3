"""A tool as a process: its exit code, and one line on stderr for an error that a user can fix.

Invariant: this does not import click, which a node that starts from a file does not need.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from ottla.cli.stdout import begin, discard, finish
from ottla.kernel.error import KafkaError, OttlaError


def run_and_exit(tool: Callable[[], object]) -> NoReturn:
    """Run the tool and exit with the exit code that it returns (none: 0). Its errors end in exit code 1."""
    begin()
    try:
        code = tool()
    except BrokenPipeError:
        discard()
        _exit(0)
    except (OttlaError, KafkaError) as error:
        _report(error)
        _exit(1)
    except OSError as error:
        # A full disk, a directory without write permission.
        _report(as_ottla_error(error))
        _exit(1)
    except KeyboardInterrupt:
        _exit(130)
    _exit(code if isinstance(code, int) else 0)


def as_ottla_error(error: OSError) -> OttlaError:
    """Name the file of an operating system's error."""
    return OttlaError(f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}")


def _exit(code: int) -> NoReturn:
    error = finish()
    # After another error, this one was reported already or matters less.
    if error is not None and code == 0 and not isinstance(error, BrokenPipeError):
        _report(as_ottla_error(error))
        code = 1
    sys.exit(code)


def _report(error: OttlaError | KafkaError) -> None:
    from ottla.cli.screen import complain

    complain(error)
