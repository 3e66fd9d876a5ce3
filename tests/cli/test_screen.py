"""Output of the tools: tables on wide and narrow terminals and in pipes, colours, and errors in words."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import click
import pytest

from ottla.cli import screen, top
from ottla.cli.option import TABLES_WANTED
from ottla.cli.screen import Column
from ottla.client import ErrorCode, KafkaError
from ottla.kernel.error import OttlaError


class Stream(io.StringIO):
    """A standard stream that is a terminal or none."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, str]]:
    """What a function prints: (stdout, stderr), on a terminal of so many columns or (0) in a pipe."""

    def run(body: Callable[[], object], columns: int = 0, *, wanted: bool = False) -> tuple[str, str]:
        monkeypatch.setenv("COLUMNS", str(columns or 80))
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("NO_COLOR", "1")
        out, err = Stream(terminal=columns > 0), Stream(terminal=columns > 0)
        for console in (screen.out, screen.err, screen._pipe_console):
            console.cache_clear()
        context = click.Context(click.Command("x"))
        context.meta[TABLES_WANTED] = wanted
        with monkeypatch.context() as streams, context:
            streams.setattr(sys, "stdout", out)
            streams.setattr(sys, "stderr", err)
            body()
        for console in (screen.out, screen.err, screen._pipe_console):
            console.cache_clear()
        return plain(out.getvalue()), plain(err.getvalue())

    return run


def plain(text: str) -> str:
    """The text without styles and without blanks at the ends of lines."""
    return "\n".join(line.rstrip() for line in click.unstyle(text).split("\n"))


COLUMNS = [Column("name", "name"), Column("bytes", numeric=True), Column("note"), Column("id", whole=True)]
ROWS: list[list[object]] = [["first", 1234, None, "abc"], ["second", 5, "a note of several words", "de"]]


def table(**more: Any) -> Callable[[], None]:
    return lambda: screen.table(COLUMNS, ROWS, **more)


def test_a_table_in_a_pipe_is_lines_with_tabs(shown: Callable[..., tuple[str, str]]) -> None:
    lines = "first\t1234\t\tabc\nsecond\t5\ta note of several words\tde\n"
    assert shown(table()) == (lines, "")
    assert shown(table(headless=True, sparse=True, empty="none")) == (lines, "")
    assert shown(lambda: screen.table(COLUMNS, [], empty="none")) == ("", "")


def test_a_table_that_is_wanted_in_a_pipe_is_as_wide_as_it_has_to_be(shown: Callable[..., tuple[str, str]]) -> None:
    note = "word " * 40
    out, _ = shown(lambda: screen.table(COLUMNS, [["first", 1234, note, "abc"]]), wanted=True)
    assert out == f"name   bytes  note{' ' * 198}id\nfirst  1,234  {note}  abc\n"


def test_a_table_on_a_terminal_has_headings_and_a_dash_for_nothing(shown: Callable[..., tuple[str, str]]) -> None:
    head = "name    bytes  note                     id\n"
    rows = "first   1,234  -                        abc\nsecond      5  a note of several words  de\n"
    assert shown(table(), 100) == (head + rows, "")
    assert shown(table(headless=True), 100) == (rows, "")
    assert shown(lambda: screen.table(COLUMNS, [], empty="nothing here"), 100) == ("nothing here\n", "")
    assert shown(lambda: screen.table(COLUMNS, []), 100) == ("", "")


def test_a_sparse_table_leaves_out_what_no_row_has(shown: Callable[..., tuple[str, str]]) -> None:
    rows: list[list[object]] = [["first", 0, None, "abc"], ["second", None, None, ""]]
    out, _ = shown(lambda: screen.table(COLUMNS, rows, sparse=True), 100)
    assert out == "name    bytes  id\nfirst       0  abc\nsecond      -\n"
    out, _ = shown(lambda: screen.table(COLUMNS, rows), 100)
    assert out.startswith("name    bytes  note  id\n")


def test_a_table_folds_texts_down_to_twelve_columns_and_then_becomes_lists(
    shown: Callable[..., tuple[str, str]],
) -> None:
    # name 6, bytes 5, note 12 at least, id 3, and three gaps of 2.
    out, _ = shown(table(), 32)
    assert out.splitlines()[0] == "name    bytes  note          id"
    assert out.splitlines()[2:] == ["second      5  a note of     de", f"{' ' * 15}several", f"{' ' * 15}words"]
    out, _ = shown(table(), 31)
    assert out == (
        "name   first\nbytes  1,234\nnote   -\nid     abc\n"
        "\n"
        "name   second\nbytes  5\nnote   a note of several words\nid     de\n"
    )
    out, _ = shown(table(headless=True), 31)
    assert out.splitlines()[0].split()[0] == "first"


def test_a_live_table_loses_the_last_columns_that_do_not_fit(shown: Callable[..., tuple[str, str]]) -> None:
    def live(columns: int) -> str:
        return shown(lambda: screen.out().print(screen.fitting(COLUMNS, ROWS)), columns)[0].split("\n")[0]

    assert [live(columns).split() for columns in (32, 31, 27, 26, 13, 12, 4)] == [
        ["name", "bytes", "note", "id"],
        ["name", "bytes", "note"],
        ["name", "bytes", "note"],
        ["name", "bytes"],
        ["name", "bytes"],
        ["name"],
        ["name"],
    ]


def test_words_for_people_are_on_a_terminal_only(shown: Callable[..., tuple[str, str]]) -> None:
    evil = "a[b]\x1b"
    safe = "a[b]\\x1b"
    assert shown(lambda: screen.heading(evil, "more"), 80) == (f"{safe}  more\n", "")
    assert shown(lambda: screen.heading(evil), 80) == (f"{safe}\n", "")
    assert shown(lambda: screen.heading(evil, "more")) == ("", "")
    assert shown(lambda: screen.hint(evil), 80) == ("", f"{safe}\n")
    assert shown(lambda: screen.hint(evil)) == ("", "")
    assert shown(lambda: screen.done(evil), 80) == ("", f"\u2713 {safe}\n")
    assert shown(lambda: screen.done("a[b]")) == ("", "a[b]\n")
    assert shown(lambda: screen.note(evil)) == ("", f"ottla: {safe}\n")


def test_a_change_is_reported_as_lines_or_as_a_document(shown: Callable[..., tuple[str, str]]) -> None:
    assert shown(lambda: screen.report(False, {"a": 1}, "one", "two")) == ("", "one\ntwo\n")
    assert shown(lambda: screen.report(True, {"a": "\u00e9"}, "one")) == ('{"a": "\u00e9"}\n', "")
    assert shown(lambda: screen.report(True, {"a": 1}, "one"), 80) == ('{\n  "a": 1\n}\n', "")
    assert shown(lambda: screen.line({"a": [1, "\u00e9"]}), 80) == ('{"a":[1,"\u00e9"]}\n', "")


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"TERM": "xterm"}, "\x1b[31m\x1b[1mx\x1b[0m"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, "\x1b[1mx\x1b[0m"),
        ({"TERM": "dumb"}, "x"),
        ({"TERM": "unknown"}, "x"),
    ],
)
def test_styles_are_what_the_terminal_has(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], text: str
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert screen.styled("x", "red", bold=True) == text
    assert screen.styled("x") == ("x" if environment["TERM"] in ("dumb", "unknown") else "x\x1b[0m")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OttlaError("as it is."), "as it is."),
        (KafkaError(ErrorCode.GROUP_ID_NOT_FOUND), "there is no such group"),
        (KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "group g"), "group g: there is no such group"),
        (KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "group g: GROUP_ID_NOT_FOUND"), "group g: there is no such group"),
        (
            KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "group g: The group id does not exist."),
            "group g: there is no such group",
        ),
        (KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "A whole sentence."), "A whole sentence"),
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic x has no partition 7"), "topic x has no partition 7"),
        (
            KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic x of y"),
            "topic x of y: there is no such topic or partition",
        ),
        (KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "a b c d e"), "a b c d e: there is no such group"),
        (KafkaError(ErrorCode.INVALID_CONFIG, "retention.ms is wrong"), "retention.ms is wrong (INVALID_CONFIG)"),
        (KafkaError(ErrorCode.INVALID_CONFIG), "invalid config (INVALID_CONFIG)"),
        (KafkaError(ErrorCode.INVALID_CONFIG, "x: INVALID_CONFIG"), "x (INVALID_CONFIG)"),
    ],
)
def test_an_error_is_a_sentence(error: OttlaError | KafkaError, words: str) -> None:
    assert screen.in_words(error) == words


def test_an_error_in_json_has_the_code_of_its_cause(capsys: pytest.CaptureFixture[str]) -> None:
    def told(error: OttlaError | KafkaError) -> Any:
        screen.complain_as_json(error)
        out, err = capsys.readouterr()
        assert out == ""
        return json.loads(err)

    refused = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "group \u00e9")
    assert told(refused) == {"error": "GROUP_ID_NOT_FOUND", "message": "group \u00e9: there is no such group"}
    wrapped = OttlaError("no")
    wrapped.__cause__ = refused
    assert told(wrapped) == {"error": "GROUP_ID_NOT_FOUND", "message": "no"}
    assert told(OttlaError("no")) == {"error": None, "message": "no"}


def test_only_a_regular_file_has_a_bar_beside_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(screen, "sys", SimpleNamespace(stdout=file))
        assert screen.into_file()
    # Closed; in memory; a device.
    assert not screen.into_file()
    monkeypatch.setattr(screen, "sys", SimpleNamespace(stdout=io.StringIO()))
    assert not screen.into_file()
    with open("/dev/null") as device:
        monkeypatch.setattr(screen, "sys", SimpleNamespace(stdout=device))
        assert not screen.into_file()


def test_a_bar_counts_what_it_is_for(shown: Callable[..., tuple[str, str]]) -> None:
    def bar(total: float | None) -> Callable[[], None]:
        def body() -> None:
            with screen.progress("reading", total, "bytes") as made:
                made.update(made.task_ids[0], completed=50, count=1234, rate="7/s")
                made.refresh()

        return body

    assert shown(bar(100)) == ("", "")
    out, err = shown(bar(100), 100)
    assert out == ""
    assert "reading" in err and "50%" in err and "1,234 bytes" in err and "7/s" in err
    _, err = shown(bar(None), 100)
    assert "%" not in err and "1,234 bytes" in err
    assert "0:00:0" in err, "the time that has passed, for what has no end"


@pytest.mark.parametrize(("columns", "between"), [(100, ["", "group"]), (0, ["g"])])
def test_top_once_puts_the_groups_below_the_topics(
    shown: Callable[..., tuple[str, str]], columns: int, between: list[str]
) -> None:
    topic = {"topic": "t", "partitions": 1, "records": 9, "records_per_s": 1.5, "bytes": 70, "bytes_per_s": 9.0}
    group = {"group": "g", "state": "Stable", "members": 1, "lag": 4, "lag_per_s": -2.4}
    topics, groups = [topic | {"hottest_partition": 0}], [group]
    out, _ = shown(lambda: top._print(topics, groups), columns)
    firsts = [line.split("\t")[0].split("  ")[0] for line in out.split("\n")]
    assert firsts == [*["topic"] * (columns > 0), "t", *between, *["g"] * (columns > 0), ""]
    alone, _ = shown(lambda: top._print(topics, []), columns)
    assert out.startswith(alone)
    assert len(alone.split("\n")) == 2 + (columns > 0)
