"""`ottla streams run`: what it hands to the application, and how it ends. The application is played."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli.streams import command, view
from ottla.streams import State
from tests.cli.shown_scene import run
from tests.cli.test_live import STREAMS, offsets, played


class Application:
    """Notes its calls; its state goes to RUNNING at the start."""

    application_id = "app"

    def __init__(self, start: BaseException | None = None, wait: BaseException | None = None) -> None:
        self._start, self._wait = start, wait
        self.calls: list[Any] = []
        self.given: dict[str, Any] = {}
        self._tell: Any = None

    def on_state_change(self, tell: Any) -> None:
        self._tell = tell

    def start(self, servers: str, **given: Any) -> Any:
        self.calls.append(("start", servers))
        self.given = given
        if self._start is not None:
            raise self._start
        self._tell(State.RUNNING, State.CREATED)
        return SimpleNamespace(program=SimpleNamespace(tasks=[1, 2, 3]), slots=1)

    def await_termination(self) -> None:
        self.calls.append("wait")
        if self._wait is not None:
            raise self._wait

    def stop(self) -> None:
        self.calls.append("stop")


def play(monkeypatch: pytest.MonkeyPatch, app: Application, *words: str, terminal: bool = False) -> Any:
    monkeypatch.setattr("ottla.cli.streams.load.load", lambda program: app if program == "p.py:a" else None)
    monkeypatch.setattr("ottla.cli.reach.reach", lambda servers, settings: app.calls.append(("reach", servers)))
    monkeypatch.setenv("NO_COLOR", "1")
    return run("ottla", ["streams", "run", "p.py:a", "-b", "b:1", *words], "", terminal=terminal)


def test_an_application_runs_until_it_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Application()
    said = play(monkeypatch, app, terminal=True)
    hint = "\x1b[2m3 tasks on 1 worker; `ottla streams describe app` shows its lag\x1b[0m\n"
    assert said == (0, "", "\x1b[1mottla:\x1b[0m app is RUNNING\n" + hint)
    assert app.calls == [("reach", "b:1"), ("start", "b:1"), "wait", "stop"]
    assert app.given == {
        "master": None,
        "spark_settings": {},
        "py_files": [],
        "workers": None,
        "client": {"client.id": "ottla-cli"},
        "accept_changes": False,
        "http": None,
        "real_time": False,
    }


def test_each_option_reaches_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Application()
    words = ["--master", "local[2]", "-S", "a=b", "-S", "c=d", "--py-files", "x.py,,y.zip", "--workers", "4"]
    words += ["--http", "8080", "--accept-changes", "--real-time", "-X", "client.id=c"]
    assert play(monkeypatch, app, *words)[0] == 0
    assert app.given == {
        "master": "local[2]",
        "spark_settings": {"a": "b", "c": "d"},
        "py_files": ["x.py", "y.zip"],
        "workers": 4,
        "client": {"client.id": "c"},
        "accept_changes": True,
        "http": "8080",
        "real_time": True,
    }


@pytest.mark.parametrize(
    ("start", "wait", "code", "calls"),
    [
        (KeyboardInterrupt(), None, 130, []),
        (None, KeyboardInterrupt(), 130, ["wait", "stop"]),
        (None, SystemExit(0), 0, ["wait", "stop"]),
    ],
)
def test_an_application_that_is_interrupted_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
    start: BaseException | None,
    wait: BaseException | None,
    code: int,
    calls: list[str],
) -> None:
    app = Application(start, wait)
    assert play(monkeypatch, app)[0] == code
    assert app.calls[2:] == calls


def test_sigterm_ends_a_run_well(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Application()
    monkeypatch.setattr(app, "await_termination", lambda: signal.raise_signal(signal.SIGTERM))
    assert play(monkeypatch, app)[0] == 0
    assert app.calls[-1] == "stop"


def test_watching_in_a_pipe_prints_a_table_at_each_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "last_run_of", lambda *_: (STREAMS, None))
    monkeypatch.setattr(command, "admin", lambda *_: nullcontext())
    for json in ((), ("--json",)):
        waits = played(monkeypatch, command, [offsets(10, 100, 60), offsets(12, 100, 90), offsets(14, 100, 100)])
        words = ["streams", "describe", "app", "-b", "b:1", "--watch", "--interval", "3", *json]
        code, out, _ = run("ottla", words, "", terminal=False)
        assert (code, waits) == (130, [3.0, 3.0, 3.0])
        lines = out.splitlines()
        if json:
            assert len(lines) == 2
            assert '"lag": 10' in lines[0].replace('":1', '": 1')
        else:
            rows = [line.split("\t") for line in lines]
            assert len(rows) == 40
            assert [rows[at][:4] for at in (1, 21)] == [["0_1", "in-1", "10", "15.0"], ["0_1", "in-1", "0", "5.0"]]
