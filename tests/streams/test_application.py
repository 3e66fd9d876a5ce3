"""An application is started once, hands its calls on to what runs, and says what it refuses; Spark is a stand-in."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.flow.handler import State
from ottla.kernel.error import OttlaError
from ottla.streams import StreamsBuilder, TestDriver
from ottla.streams.application import Application, reading
from ottla.streams.driver import TestInputTopic, TestOutputTopic


class Running:
    """What `start` returns: it notes each call."""

    def __init__(self, mode: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.mode, self.arguments, self.options = mode, arguments, options
        self.calls: list[Any] = []
        self.over = False
        self.state = State.RUNNING
        self.http: Any = None
        self.error: Exception | None = None

    def await_termination(self, timeout: float | None = None) -> bool:
        self.calls.append(("await", timeout))
        if self.error is not None:
            raise self.error
        return self.over or timeout is None

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self.calls.append((name, *arguments))
            return f"{name} of {self.mode}"

        return call


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Running]:
    """All that was started, the newest last."""
    found: list[Running] = []

    def starter(mode: str) -> Any:
        def start(*arguments: Any, **options: Any) -> Running:
            found.append(Running(mode, arguments, options))
            return found[-1]

        return start

    monkeypatch.setattr("ottla.spark.streams.running.start", starter("batches"))
    monkeypatch.setattr("ottla.spark.streams.real_time.start", starter("real time"))
    return found


def program() -> Any:
    """An `Application`, whose parts here are stand-ins."""
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    made: Application = builder.build(application_id="app", key_serde="string", value_serde="string")
    return made


def test_a_program_is_started_with_what_it_was_given(started: list[Running]) -> None:
    app = program()
    states = [app.state]
    listener, handler = (lambda new, old: None), (lambda error: None)
    app.on_state_change(listener)
    app.on_error(handler)
    options: dict[str, Any] = {
        "master": "local[2]",
        "spark_settings": {"a": "b"},
        "spark": None,
        "py_files": ["one.py"],
        "workers": 1,
        "client": {"client.id": "me"},
        "accept_changes": True,
        "http": 8080,
    }
    running: Any = app.start("here:9092", **options)
    assert running is started[0]
    assert [*states, app.state] == [State.CREATED, State.RUNNING]
    assert running.mode == "batches"
    assert running.arguments == (app.topology, app.settings, "here:9092")
    assert running.options == options | {"on_state_change": [listener], "on_error": handler}


def test_a_program_starts_at_this_machine_by_default(started: list[Running]) -> None:
    app = program()
    app.start()
    assert started[0].arguments[2] == "127.0.0.1:9092"
    assert started[0].options == {
        **dict.fromkeys(("master", "spark_settings", "spark", "workers", "client", "on_error", "http")),
        "py_files": (),
        "on_state_change": [],
        "accept_changes": False,
    }


def test_real_time_mode_gets_the_plan_too(started: list[Running]) -> None:
    app = program()
    app.start("here:9092", real_time=True)
    assert started[0].mode == "real time"
    assert started[0].arguments == (app.plan, app.topology, app.settings, "here:9092")


def test_a_program_runs_once_at_a_time(started: list[Running]) -> None:
    app = program()
    first: Any = app.start()
    with pytest.raises(OttlaError, match=r"application app is already running; call stop\(\) first"):
        app.start()
    assert first.calls == [("await", 0)]
    first.over = True
    app.start()
    assert len(started) == 2


def test_calls_go_to_the_program_that_runs(started: list[Running]) -> None:
    app = program()
    app.start()
    running: Any = started[0]
    assert app.store("counts") == "store of batches"
    assert app.store("counts", 0) == "store of batches"
    assert app.metrics() == "metrics of batches"
    app.pause()
    app.resume()
    app.stop()
    assert app.await_termination(1.5) is False
    assert app.await_termination() is True
    assert running.calls == [
        *(("store", "counts", None), ("store", "counts", 0), ("metrics",), ("pause",), ("resume",), ("stop",)),
        *(("await", 1.5), ("await", None)),
    ]
    assert app.http is None
    running.http = SimpleNamespace(address="127.0.0.1:8080")
    assert app.http == "127.0.0.1:8080"


@pytest.mark.parametrize("name", ["store", "http", "metrics", "pause", "resume", "await_termination", "stop"])
def test_what_needs_a_program_that_runs_says_so(name: str) -> None:
    app = program()
    with pytest.raises(OttlaError, match=r"application app was not started; call start\(\) or run\(\) first"):
        app.store("counts") if name == "store" else app.http if name == "http" else getattr(app, name)()


def test_run_waits_for_the_end_and_then_stops_the_program(started: list[Running]) -> None:
    app = program()
    app.run("here:9092", workers=2)
    assert (started[0].arguments[2], started[0].options["workers"]) == ("here:9092", 2)
    assert started[0].calls == [("await", None), ("stop",)]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a worker failed")])
def test_run_stops_a_program_that_failed_or_was_interrupted(
    error: Any, started: list[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Running, timeout: float | None = None) -> bool:
        self.calls.append("failed")
        raise error

    monkeypatch.setattr(Running, "await_termination", fail)
    with pytest.raises(type(error)):
        program().run()
    assert started[0].calls == ["failed", ("stop",)]


def test_a_program_does_not_start_while_a_tool_reads_its_file(started: list[Running]) -> None:
    token = reading.set(True)
    try:
        with pytest.raises(OttlaError, match="application app must not start while its file is imported"):
            program().start()
    finally:
        reading.reset(token)
    assert started == []
    program().start()
    assert len(started) == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"workers": 0}, r"invalid number of workers: 0 \(expected at least 1\)"),
        ({"spark": object(), "master": "local[2]"}, "spark= cannot be combined with master= or spark_settings="),
        (
            {"spark": object(), "spark_settings": {"a": "b"}},
            "spark= cannot be combined with master= or spark_settings=",
        ),
    ],
)
def test_options_that_exclude_each_other_start_nothing(
    options: dict[str, Any], told: str, started: list[Running]
) -> None:
    with pytest.raises(OttlaError, match=told):
        program().start(**options)
    assert started == []
    program().start(spark=object())
    assert len(started) == 1


def test_an_answer_may_be_as_new_as_its_input_and_no_newer(started: list[Running]) -> None:
    app = program()
    app.start()
    with pytest.raises(OttlaError, match=r"invalid max_behind: -1 \(expected 0 or more\)"):
        app.store("counts", -1)


def test_pytest_takes_nothing_of_the_driver_for_a_test() -> None:
    assert not any(each.__test__ for each in (TestDriver, TestInputTopic, TestOutputTopic))
