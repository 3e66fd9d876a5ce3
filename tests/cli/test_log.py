"""A node's log: levels, times, a file, JSON lines, and levels that change while it runs."""

import json
import os
import re
import signal
from pathlib import Path

from tests.cli.test_start import running
from tests.cli.tool import in_process, on_terminal

_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (FATAL|ERROR|WARN |INFO |DEBUG|TRACE) (\S+)  (.*)")


def test_a_log_file_has_times_and_levels_and_the_requests_when_they_are_wanted(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    words = ("--port", "0", "--data", str(tmp_path / "data"), "--log-file", str(log))
    with running("start", *words) as (process, port):
        at = ("-b", f"127.0.0.1:{port}")
        assert in_process("topics", "create", "before", *at).code == 0
        quiet = log.read_text()
        assert in_process("configs", "set", "logger", "1", "ottla=TRACE", *at).code == 0
        assert in_process("topics", "create", "after\n2026-11-22T00:00:00.000Z FATAL forged", *at).code == 1
        assert in_process("topics", "create", "after", *at).code == 0
        assert in_process("configs", "set", "logger", "1", "ottla=INFO", *at).code == 0
        size = log.stat().st_size
        assert in_process("topics", "create", "last", *at).code == 0
        loud = log.read_text()
        os.kill(process.pid, signal.SIGTERM)
        process.communicate(timeout=30)
    assert "CreateTopics" not in quiet
    matched = [_LINE.fullmatch(line) for line in loud.splitlines()]
    assert all(matched)
    found = [each.groups() for each in matched if each]
    assert ("DEBUG", "ottla.request") in {each[:2] for each in found}
    assert any(level == "DEBUG" and logger == "ottla.net" for level, logger, _ in found)
    assert any(level == "TRACE" and "CreateTopics" in text and "'after'" in text for level, _, text in found)
    assert "CreateTopics" not in loud[size:]
    assert "ready on" in loud
    assert "stopped" in log.read_text()


def test_a_log_in_json_is_an_object_a_line_and_names_no_passwords(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    words = ("--log-level", "trace", "--log-format", "json", "--log-file", str(log))
    with running("start", "--port", "0", "--data", str(tmp_path / "data"), *words) as (_, port):
        at = ("-b", f"127.0.0.1:{port}")
        assert in_process("users", "set", "ann", *at, stdin=b"s3cret\n").code == 0
        assert in_process("produce", "t", "--create", *at, stdin=b"x\n").code == 0
        assert in_process("consume", "t", "-g", "readers", "-e", *at).code == 0
    found = [json.loads(line) for line in log.read_text().splitlines()]
    assert {"time", "level", "logger", "message"} <= found[0].keys()
    assert {"DEBUG", "TRACE", "INFO"} <= {each["level"] for each in found}
    assert any(each["logger"] == "ottla.group" and "'readers'" in each["message"] for each in found)
    assert any("AlterUserScramCredentials" in each["message"] for each in found)
    assert not any("salt" in each["message"] for each in found)


def test_a_log_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    said = in_process("start", "--port", "0", "--data", str(tmp_path / "data"), "--log-file", "/nowhere/log")
    assert said.code == 1
    assert said.err == "ottla: cannot write the log to /nowhere/log: No such file or directory\n"


def test_the_ready_line_says_where_the_data_are_and_what_to_type(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    shown = on_terminal("start", "--port", "0", "--data", data, typed=[("hello", b"\x03")], NO_COLOR="1").out
    found = re.search(r"ready on (127\.0\.0\.1:\d+) in \d+ ms, data in (.+)\n", shown)
    assert found is not None
    assert found[2] == data
    assert f"ottla topics create hello -b {found[1]}" in shown
