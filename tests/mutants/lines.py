"""The map that `python -m tests.mutants.hunt` needs: which tests run which line of `ottla`, the quickest first.

A pytest plug-in, for Python 3.12 and later (`sys.monitoring`):

    python -m pytest -p tests.mutants.lines --lines-to FILE tests/log tests/replica
    python -m tests.mutants.lines FILE FILE ... > MAP

The second line joins the files of several runs. Each file is JSON, `{"lines": {file: {line: [test]}}, "seconds": {test:
seconds}}`. Lines that run in child processes, or while a test's module is imported, are not seen.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]
_PRODUCT = f"{_ROOT / 'ottla'}/"


class Recorder:
    """Notes each line of the product that runs, once for each test."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._here: set[tuple[str, int]] = set()
        self._lines: dict[str, dict[str, list[str]]] = {}
        self._seconds: dict[str, float] = {}

    def start(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        monitoring.use_tool_id(monitoring.COVERAGE_ID, "lines")
        disable = monitoring.DISABLE

        def on_line(code: CodeType, line: int) -> object:
            if code.co_filename.startswith(_PRODUCT):
                self._here.add((code.co_filename, line))
            return disable

        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, on_line)
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)
        self._monitoring = monitoring

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._here = set()
        self._monitoring.restart_events()
        began = time.perf_counter()
        outcome = yield
        self._seconds[item.nodeid] = time.perf_counter() - began
        # A thread of the test may still run: the copy is one step.
        for name, line in list(self._here):
            self._lines.setdefault(name.removeprefix(f"{_ROOT}/"), {}).setdefault(str(line), []).append(item.nodeid)
        self._here = set()
        return outcome

    def pytest_sessionfinish(self) -> None:
        self._monitoring.set_events(self._monitoring.COVERAGE_ID, 0)
        self._target.write_text(json.dumps(joined([{"lines": self._lines, "seconds": self._seconds}])))


def joined(maps: list[dict[str, Any]]) -> dict[str, Any]:
    """One map of several, the quickest tests of each line first."""
    seconds: dict[str, float] = {}
    lines: dict[str, dict[str, list[str]]] = {}
    for each in maps:
        seconds |= each["seconds"]
        for file, here in each["lines"].items():
            for line, tests in here.items():
                lines.setdefault(file, {}).setdefault(line, []).extend(tests)
    for here in lines.values():
        for tests in here.values():
            tests.sort(key=lambda test: (seconds[test], test))
    return {"lines": lines, "seconds": seconds}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lines-to", type=Path, help="write which tests run which line of ottla to this file")


def pytest_configure(config: pytest.Config) -> None:
    if target := config.getoption("--lines-to"):
        recorder = Recorder(target)
        recorder.start()
        config.pluginmanager.register(recorder, "ottla-lines")


if __name__ == "__main__":
    print(json.dumps(joined([json.loads(Path(name).read_text()) for name in sys.argv[1:]])))
