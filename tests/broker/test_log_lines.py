"""Lines of the node's log: the world's faults are told in their words, our own with a traceback."""

from __future__ import annotations

import logging
import sys

import pytest

from ottla.broker.log_output import LineFormatter


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
