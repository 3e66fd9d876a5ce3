"""Declaration, parsing and checks of the options of Kafka's tools.

Rules:
- A tool declares its options in one table. The parser is chosen by the library of Apache's tool, because the wording of
  errors depends on it: `parse` here for jopt-simple (most tools), `argument` for argparse4j.
- jopt-simple accepts `--name VALUE`, `--name=VALUE`, and `-name` for `--name`, but no abbreviations. A value may begin
  with a dash. Words that are not options are ignored.
- A usage error raises `Usage` (the message, then the help) or `Refused` (only the message); the exit code is 1.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_WIDTH = 80


class Refused(Exception):
    """An unknown option, or an invalid value: only the message is printed."""


class Usage(Exception):
    """Options that cannot be combined: the message and the help are printed."""


def int16(text: str) -> int:
    """Parse a number like Java's `Short.parseShort`. ValueError for anything else."""
    return _number(text, 16)


def int32(text: str) -> int:
    """Parse a number like Java's `Integer.parseInt`. ValueError for anything else."""
    return _number(text, 32)


def partition_id(text: str) -> int:
    """Parse the number of a partition. ValueError for anything else."""
    number = int32(text)
    if number < 0:
        raise ValueError(text)
    return number


def int64(text: str) -> int:
    """Parse a number like Java's `Long.parseLong`. ValueError for anything else."""
    return _number(text, 64)


def _number(text: str, bits: int) -> int:
    if re.fullmatch(r"[+-]?\d+", text) is None or not -1 << bits - 1 <= int(text) < 1 << bits - 1:
        raise ValueError(text)
    return int(text)


_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)")


def double(text: str) -> float:
    """Parse a number like Java's `Double.parseDouble`, without its hexadecimal form. ValueError for anything else."""
    if _DOUBLE.fullmatch(text.strip()) is None:
        raise ValueError(text)
    return float(text.strip().rstrip("fFdD"))


def pieces(text: str, separator: str = ",") -> list[str]:
    """Split like Java's `String.split`: without the empty texts at the end."""
    parts = text.split(separator)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


@dataclass(frozen=True)
class Option:
    """An option. Without `value` it is a flag."""

    name: str
    help: str
    #: Name of the value in the help.
    value: str | None = None
    #: Parses a value; ValueError for an invalid one.
    read: Callable[[str], Any] = str
    default: Any = None
    #: Whether the value may be omitted.
    optional: bool = False
    #: Separator of several values in one word, such as a comma.
    separator: str = ""
    #: The option requires one of these options.
    only_with: tuple[str, ...] = ()
    #: For argparse4j: one letter, whether it is required, may be repeated, and takes several words.
    short: str = ""
    required: bool = False
    often: bool = False
    several: bool = False
    choices: tuple[Any, ...] = ()


HELP = Option("help", "Show this help.")
VERSION = Option("version", "Show the version of Apache Kafka that this tool follows.")


class Given:
    """A parsed command line: `given[name]` is the value, or the default."""

    def __init__(self, options: Sequence[Option], occurrences: list[tuple[str, str | None]]) -> None:
        self._options = {option.name: option for option in options}
        #: (name, text of the value or None) in the order of the command line.
        self.occurrences = occurrences

    def __contains__(self, name: str) -> bool:
        return any(given_name == name for given_name, _ in self.occurrences)

    def __getitem__(self, name: str) -> Any:
        values = self.values(name)
        if len(values) > 1:
            raise Refused(f"Found multiple arguments for option {name}, but you asked for only one")
        return values[0] if values else self._options[name].default

    def values(self, name: str) -> list[Any]:
        """Return all values of an option. Refused if one of them is invalid."""
        return [
            self._read(name, value)
            for given_name, value in self.occurrences
            if given_name == name and value is not None
        ]

    def _read(self, name: str, value: str) -> Any:
        try:
            return self._options[name].read(value)
        except ValueError:
            raise Refused(f"Cannot parse argument '{value}' of option {name}") from None


def parse(options: Sequence[Option], words: Sequence[str]) -> Given:
    """Parse a command line like jopt-simple. Raises Refused."""
    known = {declared.name: declared for declared in (*options, HELP, VERSION)}
    values: list[tuple[str, str | None]] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            continue
        name, equals, value = word.lstrip("-").partition("=")
        option = known.get(name)
        if option is None:
            raise Refused(f"{name} is not a recognized option")
        if option.value is None:
            values.append((name, None))
            continue
        if not equals:
            if option.optional and (not left or _is_option(left[0], known)):
                values.append((name, None))
                continue
            if not left:
                raise Refused(f"Option {name} requires an argument")
            value = left.pop(0)
        parts = value.split(option.separator) if option.separator else [value]
        values.extend((name, part) for part in parts)
    given = Given((*options, HELP, VERSION), values)
    if "help" not in given and "version" not in given:
        alone = [declared for declared in options if declared.only_with and declared.name in given]
        if unavailable := [
            restricted.name for restricted in alone if not any(other in given for other in restricted.only_with)
        ]:
            raise Refused(
                f"Option(s) [{', '.join(unavailable)}] are unavailable given other options on the command line"
            )
    return given


def _is_option(word: str, known: dict[str, Option]) -> bool:
    return word.startswith("-") and word.lstrip("-").partition("=")[0] in known


def require(given: Given, *names: str) -> None:
    """Raise Usage unless all of these options are given."""
    for name in names:
        if name not in given:
            raise Usage(f'Missing required argument "[{name}]"')


def forbid(given: Given, name: str, others: Iterable[str]) -> None:
    """Raise Usage if `name` is combined with one of these options."""
    if name in given:
        for other in others:
            if other in given:
                raise Usage(f'Option "[{name}]" can\'t be used with option "[{other}]"')


def one_of(given: Given, *names: str) -> None:
    """Raise Usage unless exactly one of these options is given."""
    if sum(name in given for name in names) != 1:
        raise Usage(f"Exactly one of the following arguments is required: {', '.join(f'[{name}]' for name in names)}")


def key_values(entries: Iterable[str]) -> dict[str, str]:
    """Parse `key=value` entries; a missing value is an empty text."""
    return {key: value for key, _, value in (entry.partition("=") for entry in entries)}


def help_text(options: Sequence[Option]) -> str:
    """Format the options in two columns, like jopt-simple."""
    rows = sorted((_shown(option), _about(option)) for option in (*options, HELP, VERSION))
    left = min(max(len(name) for name, _ in rows), _WIDTH // 2 - 1)
    right = _WIDTH - left - 2
    lines = [f"{'Option':<{left}}  {'Description':<{right}}", f"{'------':<{left}}  {'-----------':<{right}}"]
    for name, about in rows:
        names = textwrap.wrap(name, left, subsequent_indent="  ") or [""]
        abouts = textwrap.wrap(about, right, subsequent_indent="  ") or [""]
        for index in range(max(len(names), len(abouts))):
            first = names[index] if index < len(names) else ""
            second = abouts[index] if index < len(abouts) else ""
            lines.append(f"{first:<{left}}  {second:<{right}}")
    return "\n".join(lines)


def _shown(option: Option) -> str:
    if option.value is None:
        return f"--{option.name}"
    kinds: dict[Callable[[str], Any], str] = {int32: "Integer: ", partition_id: "Integer: ", int64: "Long: "}
    kind = kinds.get(option.read, "String: ")
    text = f"{kind}{option.value}" if option.value else kind.removesuffix(": ")
    return f"--{option.name} [{text}]" if option.optional else f"--{option.name} <{text}>"


def _about(option: Option) -> str:
    return option.help if option.default in (None, "") else f"{option.help} (default: {option.default})"


BOOTSTRAP = Option(
    "bootstrap-server", "REQUIRED: brokers to connect to first, HOST:PORT,HOST:PORT.", "server to connect to"
)
CONTROLLER = Option(
    "bootstrap-controller", "Controllers to connect to first, HOST:PORT,HOST:PORT.", "controller to connect to"
)
COMMAND_CONFIG = Option("command-config", "Properties file for the client.", "command config property file")
