"""A test that takes too long fails alone, and the run still ends with its summary.

pytest-timeout interrupts the test by a signal, which Python answers between two steps. A C call that never comes back
(a lock inside a library) does not see it: some seconds later the process starts again with the tests that are left, and
takes the reports of the earlier ones along, so that the last summary covers all of them.
"""

import faulthandler
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

EARLIER = "OTTLA_TESTS_EARLIER"


class Limit:
    """The plugin: a watch over each test from a thread of its own, and the reports of the process before this one."""

    def __init__(self, config: pytest.Config, *, cleanup_seconds: float = 10) -> None:
        """`cleanup_seconds` are left to a test that the signal interrupts."""
        self._config = config
        self._cleanup_seconds = cleanup_seconds
        self._seconds = float(config.getoption("timeout", None) or config.getini("timeout") or 0)
        self._reports: list[pytest.TestReport | pytest.CollectReport] = []

    @pytest.hookimpl
    def pytest_sessionstart(self) -> None:
        """Take over what ran before this process began again."""
        path = os.environ.pop(EARLIER, None)
        if path is None:
            return
        hook = self._config.hook
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        for data in json.loads(Path(path).read_text()):
            report = hook.pytest_report_from_serializable(config=self._config, data=data)
            self._reports.append(report)
            if terminal is not None:
                category = hook.pytest_report_teststatus(report=report, config=self._config)[0]
                terminal.stats.setdefault(category, []).append(report)
        Path(path).unlink()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        done = {report.nodeid for report in self._reports}
        items[:] = [item for item in items if item.nodeid not in done]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, Any]:
        earlier = sum(report.failed for report in self._reports)
        try:
            return (yield)
        finally:
            session.testsfailed += earlier

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        marker = item.get_closest_marker("timeout")
        seconds = float(marker.args[0] if marker and marker.args else self._seconds)
        if not seconds:
            return (yield)
        watch = threading.Timer(seconds + self._cleanup_seconds, self._go_on_without, (item, seconds))
        watch.daemon = True
        watch.start()
        try:
            return (yield)
        finally:
            watch.cancel()
            # The next test may count threads.
            watch.join()

    def _go_on_without(self, item: pytest.Item, seconds: float) -> None:
        """From the watch's thread: a failed report for the test, and the rest of the run in a new process."""
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        if capture is not None:
            capture.suspend_global_capture(in_=True)
        with tempfile.TemporaryFile("w+") as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            stacks = file.read()
        why = f"still running {seconds:g} s after its start, in a call that no signal interrupts\n\n{stacks}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call", duration=seconds)
        hook = self._config.hook
        data = [
            hook.pytest_report_to_serializable(config=self._config, report=each) for each in [*self._reports, report]
        ]
        handle, path = tempfile.mkstemp(suffix=".json", prefix="ottla-tests-")
        with open(handle, "w") as out:
            json.dump(data, out)
        print(f"\n{item.nodeid} {why.splitlines()[0]}; going on with the tests after it", flush=True)
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.execve(sys.executable, sys.orig_argv, os.environ | {EARLIER: path})
