"""How a tool ends: its exit code, one line for what a user can mend, and what becomes of its output."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from ottla.cli.measure import Latencies, MeasuredWindow, Pace
from ottla.cli.process import as_ottla_error

_TOOL = """
import sys
from ottla.cli.process import run_and_exit
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError

def tool():
    {body}

run_and_exit(tool)
"""


def ended(body: str, shell: str = "") -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a tool with this body; `shell` redirects its streams."""
    command = ["sh", "-c", f'exec "$0" -c "$1" {shell}', sys.executable, _TOOL.format(body=body)]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=buffered)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("body", "code"),
    [("return None", 0), ("return 0", 0), ("return 3", 3), ("return 'text'", 0), ("raise KeyboardInterrupt", 130)],
)
def test_a_tool_ends_with_its_own_code(body: str, code: int) -> None:
    assert ended(f"print('said'); {body}") == (code, "said\n", "")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise OttlaError('no such thing')", "no such thing"),
        ("raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)", "this user is not authorized"),
        ("open('/no/such/file')", "/no/such/file: No such file or directory"),
        ("raise OSError('strange')", "strange"),
    ],
)
def test_what_a_user_can_mend_is_one_line_and_a_code(body: str, words: str) -> None:
    code, out, err = ended(f"print('said'); {body}")
    assert (code, out, err.count("\n")) == (1, "said\n", 1)
    assert words in err and "Traceback" not in err


def test_a_bug_is_told_with_its_place() -> None:
    code, _, err = ended("raise ZeroDivisionError")
    assert code == 1 and "Traceback" in err


def test_output_that_cannot_be_written_is_an_error_of_a_tool_that_went_well() -> None:
    code, _, err = ended("print('x' * 100)", "> /dev/full")
    assert code == 1 and "No space left on device" in err and err.count("\n") == 1
    code, _, err = ended("print('x' * 100); return 3", "> /dev/full")
    assert (code, err) == (3, ""), "another code matters more"


def test_a_reader_that_has_gone_is_no_error() -> None:
    body = "import os, signal; signal.signal(signal.SIGPIPE, signal.SIG_IGN); r, w = os.pipe(); os.dup2(w, 1); "
    body += "os.close(w); os.close(r); print('x'); sys.stdout.flush()"
    assert ended(body) == (0, "", "")
    body = body.removesuffix("; sys.stdout.flush()")
    assert ended(body) == (0, "", ""), "also when it is only noticed at the end"


@pytest.mark.parametrize("closed", [">&-", "<&-", ">&- 2>&-"])
def test_closed_streams_are_not_taken_for_files(closed: str) -> None:
    code, _, err = ended("print('x'); print('y', file=sys.stderr); return 5 if sys.stdin.read() else 0", closed)
    assert code == 0 and err in ("", "y\n")


def test_an_error_of_the_system_names_its_file() -> None:
    named = OSError(errno.EACCES, "Permission denied", "/etc/shadow")
    assert str(as_ottla_error(named)) == "/etc/shadow: Permission denied"
    assert str(as_ottla_error(OSError(errno.EIO, "broken"))) == "broken"
    assert str(as_ottla_error(OSError("words alone"))) == "words alone"


def test_a_window_adds_up_what_it_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000
    monkeypatch.setattr("ottla.cli.measure.now_ms", lambda: now)
    window = MeasuredWindow()
    assert (window.rate, window.latency_ms_mean) == (0, 0), "nothing is divided by no time and no records"
    window.add(30, 1 << 20)
    window.add(10, 3 << 20)
    now += 2_000
    assert (window.count, window.size, window.latency_ms_max, window.latency_ms_mean) == (2, 4 << 20, 30, 20)
    assert (window.seconds, window.rate, window.mebibytes_rate) == (2.0, 1.0, 2.0)


def test_percentiles_are_of_all_latencies_or_of_every_few() -> None:
    few = Latencies(100)
    for number in reversed(range(100)):
        few.add(number)
    assert few.percentiles(0, 0.5, 0.99, 1) == [0, 50, 99, 99]
    many = Latencies(1_000_000)
    for number in range(10):
        many.add(number)
    assert many.percentiles(0, 0.5, 1) == [0, 4, 8], "every second one"
    assert Latencies(0).percentiles(0.5) == [0]


@pytest.mark.parametrize(
    ("rate", "count", "passed", "sleeps"),
    [(100, 50, 0.2, [0.3]), (100, 50, 0.5, []), (100, 50, 0.4995, []), (0, 50, 0, []), (-1, 50, 0, [])],
)
def test_a_pace_waits_until_its_records_are_due(
    monkeypatch: pytest.MonkeyPatch, rate: float, count: int, passed: float, sleeps: list[float]
) -> None:
    now = 5.0
    slept: list[float] = []
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr("time.sleep", slept.append)
    pace = Pace(rate)
    now += passed
    pace.wait(count)
    assert slept == [pytest.approx(each) for each in sleeps]
