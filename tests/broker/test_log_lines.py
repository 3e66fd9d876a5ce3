"""Lines of the node's log: the world's faults are told in their words, our own with a traceback."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.log_output import TRACE, LineFormatter, RequestLog, brief, configure
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import NO_UUID
from ottla.wire.api import ApiKey
from ottla.wire.api.metadata import MetadataRequestTopic


def _line(error: Exception) -> str:
    try:
        raise error
    except Exception:
        record = logging.LogRecord("ottla.broker", logging.ERROR, "f", 1, "it failed", (), sys.exc_info())
    return LineFormatter().format(record)


def test_a_full_disk_is_one_line() -> None:
    line = _line(OSError(28, "No space left on device"))
    assert line.endswith("it failed: [Errno 28] No space left on device")
    assert "\n" not in line


@pytest.mark.parametrize("error", [ValueError("a bug"), AssertionError("a bug")])
def test_a_bug_has_its_traceback(error: Exception) -> None:
    assert "Traceback (most recent call last)" in _line(error)


@pytest.mark.parametrize("error", [OSError(28, "full\nforged"), KafkaError(ErrorCode.NOT_CONTROLLER), OttlaError("no")])
def test_a_fault_of_the_world_is_told_in_its_words_on_one_line(error: Exception) -> None:
    assert _line(error).endswith(f"it failed: {str(error).replace(chr(10), chr(92) + 'n')}")


def _record(level: int, message: str, **more: object) -> logging.LogRecord:
    record = logging.LogRecord("ottla.broker", level, "f", 1, message, (), None)
    record.created, record.msecs = 1_700_000_000.25, 250.0
    vars(record).update(more)
    return record


@pytest.mark.parametrize(
    ("level", "word"), [(50, "FATAL"), (40, "ERROR"), (30, "WARN "), (20, "INFO "), (10, "DEBUG"), (5, "TRACE")]
)
def test_a_line_has_its_time_its_level_in_kafkas_words_and_its_logger(level: int, word: str) -> None:
    record = _record(level, "a client says \x1b[2J\r\nfine")
    assert LineFormatter().format(record) == (
        f"2023-11-14T22:13:20.250Z {word} ottla.broker  a client says \\x1b[2J\\r\\nfine"
    )


def _formatted_by_configure(record: logging.LogRecord, file: Path, form: str) -> str:
    undo = configure("DEBUG", str(file), form)
    try:
        logging.getLogger().handle(record)
    finally:
        undo()
    return file.read_text()


def test_a_line_for_collectors_is_an_object_with_the_fields_of_its_caller(tmp_path: Path) -> None:
    record = _record(30, "größer\nthan", fields={"topic": "t"}, threadName="one")
    assert _formatted_by_configure(record, tmp_path / "log", "json") == (
        '{"time": "2023-11-14T22:13:20.250Z", "level": "WARN", "logger": "ottla.broker", '
        '"message": "größer\\nthan", "thread": "one", "topic": "t"}\n'
    )
    try:
        raise ValueError("a bug")
    except ValueError:
        record.exc_info = sys.exc_info()
    (line,) = _formatted_by_configure(record, tmp_path / "other", "json").splitlines()
    assert json.loads(line)["exception"].startswith("Traceback (most recent call last)")


def test_the_log_goes_where_it_is_sent_until_it_is_undone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, file = logging.getLogger(), tmp_path / "log"
    handlers, level = list(root.handlers), root.level
    undo = configure("TRACE", str(file))
    try:
        assert root.level == 5
        logging.getLogger("ottla.test").log(5, "before")
        file.rename(tmp_path / "log.1")
        logging.getLogger("ottla.test").log(5, "after logrotate")
    finally:
        undo()
    assert (root.handlers, root.level) == (handlers, level)
    logging.getLogger("ottla.test").error("not here")
    assert [each.read_text()[25:] for each in (tmp_path / "log.1", file)] == [
        "TRACE ottla.test  before\n",
        "TRACE ottla.test  after logrotate\n",
    ]
    undo = configure("WARN")
    try:
        logging.getLogger("ottla.test").info("too low")
        logging.getLogger("ottla.test").warning("to stderr")
    finally:
        undo()
    said = capsys.readouterr().err
    assert said.endswith("WARN  ottla.test  to stderr\n") and "too low" not in said


def test_a_log_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    place = tmp_path / "missing" / "log"
    with pytest.raises(OttlaError, match=f"^cannot write the log to {place}: No such file or directory$"):
        configure(file=str(place))


def _deep(levels: int) -> list[object]:
    return [_deep(levels - 1)] if levels else []


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * 80, repr("x" * 80)),
        ("x" * 81, repr("x" * 80)),
        (b"12", "<2 bytes>"),
        (memoryview(b"123"), "<3 bytes>"),
        ([1, 2, 3], "[1, 2, 3]"),
        ((1, 2, 3, 4, 5), "[1, 2, 3, ... 5]"),
        (None, "None"),
        (-7, "-7"),
        (0.5, "0.5"),
        (10**200, f"1{'0' * 79}"),
        ({}, "<dict>"),
        (_deep(5), "[[[[[[]]]]]]"),
        (_deep(6), "[[[[[[...]]]]]]"),
        (
            MetadataRequestTopic(name="t"),
            f"(topic_id=<{len(NO_UUID)} bytes>, name='t')",
        ),
    ],
)
def test_a_messages_content_is_shown_shortened(value: object, shown: str) -> None:
    assert brief(value) == shown


@pytest.mark.parametrize(("level", "lines"), [(logging.INFO, 0), (logging.DEBUG, 1), (TRACE, 2)])
@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.SASL_AUTHENTICATE, ApiKey.INCREMENTAL_ALTER_CONFIGS])
def test_a_request_has_lines_as_the_level_says_and_none_with_secrets(
    level: int, lines: int, key: ApiKey, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(level, "ottla.request"):
        log = RequestLog()
        assert log.wanted == (lines > 0)
        turns = SimpleNamespace(now=lambda: 5.5)
        call: Any = SimpleNamespace(
            connection=SimpleNamespace(turns=turns, peer=("h", 7)), version=3, client_id="c" * 90, correlation_id=9
        )
        handler: Any = SimpleNamespace(api=SimpleNamespace(name="Api", key=key))
        log.answered(call, SimpleNamespace(began_at=5.25), handler, "asked", "said", Mock())  # type: ignore[arg-type]
    said = [record.getMessage() for record in caplog.records]
    shown = 1 if key is not ApiKey.METADATA else 2
    assert (
        said
        == [
            f"Api v3 of h:7, client '{'c' * 80}', correlation id 9: 250.000 ms",
            "Api v3: 'asked' -> 'said'",
        ][: min(lines, shown)]
    )


def test_slow_requests_and_spans_need_the_times_of_requests_too() -> None:
    told: list[Any] = []
    log: Any = RequestLog()
    assert not log.wanted
    given = ("call", "times", "handler", "request", "reply", "slot")
    log.slow = SimpleNamespace(answered=lambda *what: told.append(what))
    log.look()
    assert log.wanted
    log.answered(*given)
    log.slow, log.spans = None, SimpleNamespace(answered=lambda *what: told.append(what))
    log.look()
    assert log.wanted
    log.answered(*given)
    call, times, handler, request, reply, slot = given
    assert told == [(call, handler, times, request, reply, slot), (call, handler, request, reply, slot)]
    log.spans = None
    log.look()
    assert not log.wanted
