"""Output of the tools: tables and colours for people, plain lines for pipes, JSON for programs.

Rules:
- Results go to stdout, everything else (progress, hints, errors) to stderr.
- Colours appear only on a terminal, and never with NO_COLOR; in a pipe, the columns of a table are separated by tabs.
- With --json, the output is one document with stable field names, and numbers are numbers. An error is a line of JSON
  on stderr.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.amount import counted as counted
from ottla.cli.amount import duration as duration
from ottla.cli.amount import instant as instant
from ottla.cli.amount import size as size
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.error_message import standard

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress
    from rich.text import Text

#: What a column holds decides how it looks.
_STYLES = {"name": "bold", "number": "", "good": "green", "bad": "red", "dim": "dim", "": ""}


@cache
def out() -> Console:
    """stdout."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


@cache
def err() -> Console:
    """stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


@cache
def _pipe_console() -> Console:
    """stdout for tables in a pipe: wide enough that nothing is cut or wrapped."""
    from rich.console import Console

    return Console(highlight=False, width=1000, no_color=True)


def _wants_table() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get("ottla.table"))


class Column:
    """A column: its heading and style, whether it holds numbers, and whether its cells must not be wrapped."""

    __slots__ = ("numeric", "style", "title", "whole")

    def __init__(self, title: str, style: str = "", *, numeric: bool = False, whole: bool = False) -> None:
        self.title = title
        self.style = style
        self.numeric = numeric
        self.whole = whole or numeric


def on_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def into_file() -> bool:
    """Whether stdout is a file; otherwise (a pipe may end on this terminal) a progress bar could garble the results."""
    import stat

    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False


#: What steers a terminal: C0 but tab and newline, delete, C1, and the marks that turn the direction of text.
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Make external text safe for a terminal: show control characters as escapes."""
    return _CONTROL_CHARACTERS.sub(lambda match: ascii(match[0])[1:-1], text)


#: Between two columns, and the least width of one whose texts are longer and may be folded.
_GAP, _FOLDED_MIN = 2, 12


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[object]],
    *,
    empty: str = "",
    headless: bool = False,
    sparse: bool = False,
) -> None:
    """Print rows as a table on a terminal, as lines with tabs in a pipe. `empty` is printed when there are no rows.

    On a terminal, a `sparse` table leaves out columns that are empty in all rows, and when the terminal is too narrow
    each row is printed as a list.
    """
    rows = [list(row) for row in rows]
    if not on_terminal() and not _wants_table():
        for row in rows:
            click.echo("\t".join("" if cell is None else plain(cell) for cell in row))
        return
    if not rows:
        if empty:
            out().print(f"[dim]{empty}[/]")
        return
    if sparse:
        filled = [index for index in range(len(columns)) if any(row[index] is not None for row in rows)]
        columns = [columns[index] for index in filled]
        rows = [[row[index] for index in filled] for row in rows]
    console = out() if on_terminal() else _pipe_console()
    if headless or _width(columns, rows) <= console.width:
        console.print(grid(columns, rows, headless=headless))
        return
    for number, row in enumerate(rows):
        if number:
            console.print()
        _print_as_list(console, columns, row)


def _print_as_list(console: Console, columns: Sequence[Column], row: Sequence[object]) -> None:
    """Print a row as lines of a title and a cell. A whole cell that does not fit is left to the terminal to wrap: what
    is copied from there has no line break.
    """
    from rich.text import Text

    width = max(len(column.title) for column in columns)
    kinds = [Column("", "dim", whole=True), Column("")]
    room = console.width - width - _GAP
    pairs = [(f"{column.title:<{width}}", cell) for column, cell in zip(columns, row, strict=True)]
    if not any(column.whole and len(str(_cell(cell))) > room for column, cell in zip(columns, row, strict=True)):
        console.print(grid(kinds, pairs, headless=True))
        return
    for column, (title, cell) in zip(columns, pairs, strict=True):
        if column.whole:
            console.print(Text.assemble((title, "dim"), " " * _GAP, Text(str(_cell(cell)))), soft_wrap=True)
        else:
            console.print(grid(kinds, [(title, cell)], headless=True))


def _width(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> int:
    """Return the minimum width of a readable table."""
    cells = [[len(column.title), *(len(str(_cell(row[at]))) for row in rows)] for at, column in enumerate(columns)]
    least = [
        max(lengths) if column.whole else min(max(lengths), _FOLDED_MIN)
        for column, lengths in zip(columns, cells, strict=True)
    ]
    return sum(least) + _GAP * (len(columns) - 1)


def fitting(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> RenderableType:
    """Return a table without the last columns that do not fit the terminal, for a live view."""
    shown = [list(row) for row in rows]
    count = len(columns)
    while count > 1 and _width(columns[:count], [row[:count] for row in shown]) > out().width:
        count -= 1
    return grid(columns[:count], [row[:count] for row in shown])


def grid(columns: Sequence[Column], rows: Iterable[Sequence[object]], *, headless: bool = False) -> RenderableType:
    """Return a table for a terminal."""
    from rich.table import Table

    rich_table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim", show_header=not headless)
    for column in columns:
        rich_table.add_column(
            column.title,
            justify="right" if column.numeric else "left",
            style=_STYLES[column.style],
            overflow="fold",
            no_wrap=column.whole,
        )
    for row in rows:
        rich_table.add_row(*map(_cell, row))
    return rich_table


def _cell(value: object) -> RenderableType:
    from rich.text import Text

    if value is None:
        return Text("-", style="dim")
    if isinstance(value, Text):
        return value
    return Text(f"{value:,}" if isinstance(value, int) else visible(str(value)))


def plain(value: object) -> str:
    """Return a cell as undecorated text."""
    return getattr(value, "plain", None) or str(value)


def coloured(text: object, style: str) -> Text:
    """Return text in a colour, which a pipe shows as plain text."""
    from rich.text import Text

    return Text(visible(str(text)), style=style)


def styled(text: str, fg: str | None = None, *, bold: bool = False, dim: bool = False) -> str:
    """Style text without rich: no colour with NO_COLOR, no styles at all with TERM=dumb."""
    if os.environ.get("TERM") in ("dumb", "unknown"):
        return text
    return click.style(text, fg=None if os.environ.get("NO_COLOR") else fg, bold=bold or None, dim=dim or None)


def _literal(text: str) -> str:
    """Escape external text for rich's markup: no tags, no control characters."""
    from rich.markup import escape

    return escape(visible(text))


def heading(text: str, after: str = "") -> None:
    """Print a line above a table; nothing in a pipe."""
    if sys.stdout.isatty():
        out().print(f"[bold]{_literal(text)}[/]" + (f"  [dim]{_literal(after)}[/]" if after else ""))


def document(value: Any) -> None:
    """Print a result as JSON."""
    click.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False, default=str))


def line(value: Any) -> None:
    """Print one line of JSON, for results that arrive one by one."""
    click.echo(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def done(text: str) -> None:
    """Report a change to the user on stderr; stdout is for results."""
    if sys.stderr.isatty():
        err().print(f"[green]\u2713[/] {_literal(text)}", markup=True)
    else:
        click.echo(text, err=True)


def report(as_json: bool, document_: Any, *lines: str) -> None:
    """Report a change: as a JSON document, or as lines for the user."""
    if as_json:
        document(document_)
        return
    for line in lines:
        done(line)


def report_each(as_json: bool, document_: Any, lines: Sequence[str], failed: Mapping[str, KafkaError]) -> None:
    """Report a change of several things: those that were changed, then an OttlaError that names each failed one."""
    if lines or not failed:
        report(as_json, document_, *lines)
    if failed:
        words = "; ".join(f"{name}: {in_words(error)}" for name, error in failed.items())
        raise OttlaError(words) from next(iter(failed.values()))


def note(text: str) -> None:
    """Print an important message on stderr, on a terminal or not."""
    click.echo(f"{styled('ottla:', 'yellow', bold=True)} {visible(text)}", err=True)


def hint(text: str) -> None:
    """Print a hint on stderr, on a terminal only."""
    if sys.stderr.isatty():
        err().print(f"[dim]{_literal(text)}[/]")


def complain(error: OttlaError | KafkaError) -> None:
    """Print an error as one line on stderr."""
    click.echo(f"{styled('ottla:', 'red', bold=True)} {visible(in_words(error))}", err=True)


def complain_as_json(error: OttlaError | KafkaError) -> None:
    """Print an error as one line of JSON on stderr."""
    refusal = error if isinstance(error, KafkaError) else error.__cause__
    code = refusal.code.name if isinstance(refusal, KafkaError) else None
    click.echo(json.dumps({"error": code, "message": in_words(error)}, ensure_ascii=False), err=True)


_WORDS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.TOPIC_ALREADY_EXISTS: "a topic with this name already exists",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop them first",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "invalid topic name (expected at most 249 letters, digits, dots, _ and -)",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user is not authorized to do that with the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user is not authorized to do that with the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this user is not authorized to do that with the cluster",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members; stop them first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group are reading it; stop them first",
    ErrorCode.OFFSET_OUT_OF_RANGE: "there is no such offset",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "tokens are disabled: the nodes have no delegation.token.secret.key",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "tokens are for users who have authenticated with a password or a certificate (SASL or SSL), not with a token"
    ),
    ErrorCode.SECURITY_DISABLED: (
        "the nodes of this cluster have no authorizer, so every client may do everything; to use rules, set "
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer and super.users on each node"
    ),
}


#: Codes whose words here say what a longer message says already.
_SPECIFIC_MESSAGE = {ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
#: A message with no more spaces only names the thing: "topic x".
_RESOURCE_SPACES_MAX = 3


def in_words(error: OttlaError | KafkaError) -> str:
    """Return an error as a sentence for the user."""
    if not isinstance(error, KafkaError):
        return str(error)
    message = error.message
    for said in (error.code.name, standard(error.code)):
        # Drop the standard text, which repeats the code.
        message = message.removesuffix(said).removesuffix(": ")
    words = _WORDS.get(error.code)
    if words is None:
        return f"{message or error.code.name.lower().replace('_', ' ')} ({error.code.name})"
    if message.endswith("."):
        return message[:-1]
    if error.code in _SPECIFIC_MESSAGE and message.count(" ") > _RESOURCE_SPACES_MAX:
        return message
    return f"{message}: {words}" if message else words


def progress(description: str, total: float | None, unit: str = "records") -> Progress:
    """Return a progress bar for long work; it shows on a terminal only."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f}%" if total else ""),
        TextColumn("[bold]{task.fields[count]:,}[/] " + unit),
        TextColumn("[dim]{task.fields[rate]}[/]"),
        TimeRemainingColumn() if total else TimeElapsedColumn(),
        console=err(),
        transient=True,
        # By default, rich sends what tools write to stdout to the bar's console.
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not sys.stderr.isatty(),
    )
    bar.add_task(description, total=total, count=0, rate="")
    return bar
