"""The map that `python -m tests.mutants.hunt` needs: which tests run which line of `ottla`, the quickest first.

A pytest plug-in, for Python 3.12 and later (`sys.monitoring`):

    python -m pytest -p tests.mutants.lines --lines-to FILE tests/log tests/replica
    python -m tests.mutants.lines FILE FILE ... > MAP

The second line joins the files of several runs. A file has a line for each test, `{"test": name, "seconds": seconds,
"lines": {file: [line]}}`; the map is `{"lines": {file: {line: [test]}}, "seconds": {test: seconds}}`. Lines that run in
child processes, or while a test's module is imported, are not seen.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Generator, Iterable
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.limit import EARLIER

_ROOT = Path(__file__).parents[2]
_PRODUCT = f"{_ROOT / 'ottla'}/"


class Recorder:
    """Notes each line of the product that runs, once for each test. What is noted of a test is written when it ends."""

    def __init__(self, target: Path, *, goes_on: bool) -> None:
        """`goes_on`: this process runs the tests that are left after one that hung (`tests/limit.py`)."""
        self._out = target.open("a" if goes_on else "w")
        self._here: set[tuple[str, int]] = set()

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
        seconds = time.perf_counter() - began
        lines: dict[str, list[int]] = {}
        # A thread of the test may still run: the copy is one step.
        for name, line in list(self._here):
            lines.setdefault(name.removeprefix(f"{_ROOT}/"), []).append(line)
        print(json.dumps({"test": item.nodeid, "seconds": seconds, "lines": lines}), file=self._out, flush=True)
        self._here = set()
        return outcome

    def pytest_sessionfinish(self) -> None:
        self._monitoring.set_events(self._monitoring.COVERAGE_ID, 0)
        self._out.close()


def joined(tests: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The map of these tests, the quickest of each line first. The last record of a test counts."""
    known = {each["test"]: each for each in tests}
    lines: dict[str, dict[str, list[str]]] = {}
    for name, each in sorted(known.items(), key=lambda item: (item[1]["seconds"], item[0])):
        for file, here in each["lines"].items():
            for line in here:
                lines.setdefault(file, {}).setdefault(str(line), []).append(name)
    return {"lines": lines, "seconds": {name: each["seconds"] for name, each in known.items()}}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lines-to", type=Path, help="write which tests run which line of ottla to this file")


def pytest_configure(config: pytest.Config) -> None:
    if target := config.getoption("--lines-to"):
        recorder = Recorder(target, goes_on=EARLIER in os.environ)
        recorder.start()
        config.pluginmanager.register(recorder, "ottla-lines")


if __name__ == "__main__":
    print(json.dumps(joined(json.loads(line) for name in sys.argv[1:] for line in Path(name).read_text().splitlines())))
