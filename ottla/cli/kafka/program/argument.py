"""Command lines of the tools for which Apache uses argparse4j, mostly those with subcommands.

argparse4j is modelled on Python's argparse, so argparse parses them here: a usage error prints the usage and, after the
name of the tool, the message; the exit code is 1.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ottla.cli.kafka.program.option import Option
from ottla.cli.kafka.program.tool import leave, tell


@dataclass(frozen=True)
class Command:
    """A subcommand. Each tuple in `either` needs exactly one option, each in `at_most_one` at most one."""

    name: str
    help: str
    options: tuple[Option, ...] = ()
    either: tuple[tuple[Option, ...], ...] = ()
    at_most_one: tuple[tuple[Option, ...], ...] = ()


class Words:
    """A parsed command line: `words["name"]` is the value; None (False for a flag) if the option is missing."""

    def __init__(self, values: argparse.Namespace) -> None:
        self._found = values

    def __getitem__(self, name: str) -> Any:
        return getattr(self._found, _attribute(name), None)

    @property
    def command(self) -> str:
        """The subcommand."""
        name: str = self._found.command
        return name


class Misused(Exception):
    """A usage error, reported like argparse's own."""


def usage_error(message: str) -> Misused:
    """Return a usage error, for a tool's body to raise."""
    return Misused(message)


class _Parser(argparse.ArgumentParser):
    #: Formats a usage error.
    wrong: Callable[[argparse.ArgumentParser, str], str]
    help_code: int

    def error(self, message: str) -> NoReturn:
        # Replace Python's wording with argparse4j's.
        missing = message.removeprefix("the following arguments are required: ")
        if missing != message:
            message = "too few arguments" if missing == "command" else f"argument {missing.split(', ')[0]} is required"
        message = re.sub(r"(?<=^unrecognized arguments: )(.*)", r"'\1'", message)
        message = re.sub(r"invalid (?:int32|partition_id) value: ('.*')", r"could not convert \1 to Integer", message)
        message = re.sub(r"invalid double value: ('.*')", r"could not convert \1 to Double", message)
        message = re.sub(r"invalid int64 value: ('.*')", r"could not convert \1 to Long", message)
        tell(type(self).wrong(self, message))
        raise SystemExit(1)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise SystemExit(type(self).help_code)


def _usage(parser: argparse.ArgumentParser, message: str) -> str:
    return f"{parser.format_usage()}{parser.prog.split()[0]}: error: {message}"


def tool(
    name: str,
    about: str,
    body: Callable[[Words], int],
    *,
    options: Sequence[Option] = (),
    either: Sequence[tuple[Option, ...]] = (),
    commands: Sequence[Command] = (),
    rest: tuple[str, str] | None = None,
    wrong: Callable[[argparse.ArgumentParser, str], str] = _usage,
    help_code: int = 0,
    words: Sequence[str] | None = None,
    failed: Callable[[Exception], int] | None = None,
) -> NoReturn:
    """Run a tool and end the process. `words` replace the command line.

    `rest`: name and help of the positional arguments, which are `words["rest"]`.
    """
    kind = type("_ToolParser", (_Parser,), {"wrong": staticmethod(wrong), "help_code": help_code})
    parser = kind(prog=name, description=about, allow_abbrev=False)
    _add(parser, options, either)
    if rest is not None:
        parser.add_argument("rest", metavar=rest[0], nargs="*", help=rest[1])
    if commands:
        below = parser.add_subparsers(dest="command", required=True, parser_class=kind)
        for command in commands:
            of_command = below.add_parser(command.name, help=command.help, allow_abbrev=False)
            _add(of_command, command.options, command.either)
            _add(of_command, (), command.at_most_one, required=False)

    def run() -> int:
        try:
            return body(Words(parser.parse_args(words)))
        except Misused as error:
            parser.error(str(error))
            raise AssertionError("argparse ends the process") from error

    leave(run, failed)


def _add(
    parser: argparse.ArgumentParser,
    options: Sequence[Option],
    groups: Sequence[tuple[Option, ...]],
    *,
    required: bool = True,
) -> None:
    for group in groups:
        among = parser.add_mutually_exclusive_group(required=required)
        for option in group:
            _add_option(among, option)
    for option in options:
        _add_option(parser, option)


def _add_option(parser: Any, option: Option) -> None:
    names = [f"--{option.name}", *([f"-{option.short}"] if option.short else [])]
    keywords: dict[str, Any] = {"dest": _attribute(option.name), "help": option.help.replace("%", "%%")}
    if option.value is None:
        keywords["action"] = "store_true"
    else:
        keywords |= {"metavar": option.value, "type": option.read, "default": option.default}
        keywords |= {"action": "append"} if option.often else {}
        keywords |= {"nargs": "+"} if option.several else {}
        keywords |= {"required": True} if option.required else {}
        keywords |= {"choices": option.choices} if option.choices else {}
    parser.add_argument(*names, **keywords)


def _attribute(name: str) -> str:
    return name.replace("-", "_").replace(".", "_")


SERVER = Option("bootstrap-server", "Brokers to connect to first, HOST:PORT,HOST:PORT.", "BOOTSTRAP_SERVER")
CONTROLLER = Option("bootstrap-controller", "Controllers to connect to first.", "BOOTSTRAP_CONTROLLER")
