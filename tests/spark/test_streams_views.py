"""What a driver answers about a program without Spark: stores of real tasks, HTTP, metrics, states, addresses."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.flow.engine import GlobalTask, Settings, Task
from ottla.flow.handler import ErrorResponse, State
from ottla.flow.record import TIME_MAX, Input, ValueAndTimestamp
from ottla.flow.serde import STRING, Serde, serde
from ottla.kernel.error import OttlaError
from ottla.spark.streams import http, place, query
from ottla.spark.streams.handle import Handle
from ottla.spark.streams.http import HttpServer, HttpSources, parse
from ottla.spark.streams.metric import prometheus
from ottla.spark.streams.query import NotReadable, Staleness, StoreView, answer
from ottla.spark.streams.setting import topic_configs
from ottla.streams import Materialized, SessionWindows, StreamsBuilder, TimeWindows, Window, Windowed, stores

SETTINGS = Settings("app", STRING, STRING)
MINUTE = 60_000


class Cluster:
    """Two workers with a task each, and views of their stores."""

    def __init__(self) -> None:
        builder = StreamsBuilder()
        grouped = builder.stream("in").group_by_key()
        grouped.count(materialized="counts")
        grouped.windowed_by(TimeWindows.of(10).grace(100)).count(
            materialized=Materialized("windows").with_retention(200)
        )
        grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(5, 100)).count(materialized="sessions")
        builder.table("rows", materialized=Materialized.as_(stores.versioned("versions", 1_000)))
        builder.global_table("names", materialized="names")
        self.app = builder.build(application_id="app", key_serde="string", value_serde="string")
        topology = self.app.topology
        self.globals_ = GlobalTask(topology, SETTINGS)
        self.globals_.run([Input("names", 0, 0, 1, b"n", b"name")])
        numbers = [stage.number for stage in topology.subtopologies() if not stage.is_global]
        self.tasks = {
            f"{number}_{partition}": Task(topology, number, partition, SETTINGS, globals_=self.globals_)
            for number in numbers
            for partition in (0, 1)
        }
        self.lag, self.asked, self.broken = 3, 0, ""

    def ask(self, question: Any) -> dict[int, Any]:
        """Each worker has the tasks of one partition."""
        self.asked += 1
        if self.broken:
            return {0: {"tasks": {}}, 1: {"error": self.broken}}
        workers: dict[int, dict[str, Any]] = {0: {}, 1: {}}
        for name, task in self.tasks.items():
            workers[task.partition][name] = (task, self.lag + task.partition, 0.0)
        # As it goes over the wire.
        return {worker: json.loads(json.dumps(answer(tasks, question))) for worker, tasks in workers.items()}

    def view(self, name: str) -> StoreView:
        spec = self.app.topology.stores[name]
        return StoreView(spec, (STRING, STRING), self.ask, is_global=name == "names")

    def feed(self, topic: str, partition: int, *records: tuple[str, str | None, int]) -> None:
        for task in self.tasks.values():
            if task.partition == partition and topic in task._waiting.receivers:
                task.run(
                    Input(topic, partition, at, time, key.encode(), None if value is None else value.encode())
                    for at, (key, value, time) in enumerate(records)
                )


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.feed("in", 0, ("a", "x", 1), ("ab", "x", 2), ("a", "x", 4), ("a", "x", 12), ("a", "x", 30))
    made.feed("in", 1, ("b", "x", 5), ("c", "x", 9))
    made.feed("rows", 0, ("k", "one", 10), ("k", "two", 20), ("k", None, 30), ("kk", "other", 10))
    made.feed("rows", 1, ("m", "three", 10), ("m", "four", 40))
    return made


def test_a_key_is_found_in_the_task_that_has_it(cluster: Cluster) -> None:
    counts = cluster.view("counts")
    assert [counts.get(key) for key in ("a", "ab", "b", "c", "")] == [4, 1, 1, 1, None]
    assert [counts.locate(key) for key in ("a", "b", "z")] == ["0_0", "0_1", None]
    assert counts.staleness is not None and counts.staleness.records == 7
    with pytest.raises(OttlaError, match="invalid key for store counts: None"):
        counts.get(None)


@pytest.mark.parametrize("page", [1, 2, 3, 1_000])
def test_ranges_are_the_same_in_pages_of_any_size(cluster: Cluster, page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "PAGE", page)
    counts = cluster.view("counts")
    assert sorted(counts.all()) == [("a", 4), ("ab", 1), ("b", 1), ("c", 1)]
    assert cluster.asked == {1: 2, 2: 1}.get(page, 1)
    assert sorted(counts.range("ab", "b")) == [("ab", 1), ("b", 1)]
    assert sorted(counts.range("b")) == [("b", 1), ("c", 1)]
    assert sorted(counts.range(high="ab")) == [("a", 4), ("ab", 1)]
    assert list(counts.range("x", "z")) == []


def test_windows_of_a_key_are_those_that_start_in_time(cluster: Cluster) -> None:
    windows = cluster.view("windows")
    found = [(Window(0, 10), 2), (Window(10, 20), 1), (Window(30, 40), 1)]
    assert list(windows.fetch("a")) == found
    assert list(windows.fetch("ab")) == [(Window(0, 10), 1)]
    for earliest, latest, some in ((0, 0, found[:1]), (1, 10, found[1:2]), (10, 30, found[1:]), (31, TIME_MAX, [])):
        assert list(windows.fetch("a", earliest, latest)) == some
    assert list(windows.fetch("a", datetime(1970, 1, 1, 0, 0, 0, 10_000, UTC))) == found[1:]
    assert sorted(windows.fetch_all(0, 5)) == sorted(
        [(Windowed("a", Window(0, 10)), 2), (Windowed("ab", Window(0, 10)), 1), (Windowed("b", Window(0, 10)), 1),
         (Windowed("c", Window(0, 10)), 1)]
    )  # fmt: skip
    assert len(list(windows.all())) == 6


def test_windows_that_are_older_than_their_retention_are_not_shown(cluster: Cluster) -> None:
    cluster.feed("in", 0, ("a", "x", 210))
    assert [window.start for window, _ in cluster.view("windows").fetch("a")] == [30, 210]


def test_sessions_of_a_key_are_those_that_overlap(cluster: Cluster) -> None:
    sessions = cluster.view("sessions")
    found = [(Window(1, 4), 2), (Window(12, 12), 1), (Window(30, 30), 1)]
    assert list(sessions.fetch("a")) == found
    spans: list[tuple[int, int, Any]] = [(4, 4, found[:1]), (5, 11, []), (4, 12, found[:2]), (0, 0, [])]
    for earliest, latest, some in (*spans, (13, TIME_MAX, found[2:])):
        assert list(sessions.fetch("a", earliest, latest)) == some
    assert sorted(sessions.fetch_all(9, 12)) == [(Windowed("a", Window(12, 12)), 1), (Windowed("c", Window(9, 9)), 1)]


@pytest.mark.parametrize(
    ("key", "as_of", "value"),
    [
        ("k", None, None), ("k", 9, None), ("k", 10, "one"), ("k", 19, "one"), ("k", 20, "two"), ("k", 29, "two"),
        ("k", 30, None), ("kk", None, "other"), ("m", None, "four"), ("m", 39, "three"), ("z", None, None),
        ("m", datetime(1970, 1, 1, 0, 0, 0, 39_000, UTC), "three"),
    ],
)  # fmt: skip
def test_a_version_is_the_one_of_its_time(cluster: Cluster, key: str, as_of: Any, value: str | None) -> None:
    assert cluster.view("versions").get(key, as_of) == value


def test_a_global_store_is_read_from_one_task(cluster: Cluster) -> None:
    names = cluster.view("names")
    assert list(names.all()) == [("n", "name")]
    assert (names.get("n"), names.locate("n")) == ("name", "0_0")
    assert names.staleness is not None and names.staleness.records == 3


def test_a_store_that_cannot_be_read_now_says_why(cluster: Cluster) -> None:
    counts = cluster.view("counts")
    for bound, readable in ((7, True), (6, False), (None, True)):
        counts.max_behind = bound
        if readable:
            assert counts.get("a") == 4
            continue
        with pytest.raises(NotReadable, match=r"store counts is 7 input records behind \(max_behind: 6\); try again"):
            counts.get("a")
    cluster.broken = "it opens"
    with pytest.raises(NotReadable, match="store counts cannot be read now: it opens; try again"):
        counts.get("a")
    lost = StoreView(stores.key_value("lost"), (STRING, STRING), cluster.ask)
    cluster.broken = ""
    with pytest.raises(NotReadable, match="store lost cannot be read now: no task has it open; try again"):
        list(lost.all())


@pytest.mark.parametrize(
    ("name", "method", "arguments"),
    [
        ("counts", "fetch", ("a",)),
        ("counts", "fetch_all", ()),
        ("windows", "range", ()),
        ("windows", "get", ("a",)),
        ("sessions", "get", ("a",)),
        ("versions", "range", ()),
        ("versions", "fetch", ("k",)),
    ],
)
def test_a_method_of_another_kind_of_store_is_refused(
    cluster: Cluster, name: str, method: str, arguments: tuple[Any, ...]
) -> None:
    view = cluster.view(name)
    with pytest.raises(OttlaError, match=f"store {name} is a {view.spec.kind} store, which has no {method}"):
        list(getattr(view, method)(*arguments))


# ---- over HTTP


@pytest.fixture
def served(cluster: Cluster) -> Iterator[str]:
    state = {"state": "RUNNING"}
    server = HttpServer(0, HttpSources(lambda: "one 1\n", lambda: state, lambda: ["counts", "windows"], cluster.view))
    yield f"http://{server.address}"
    server.close()


def got(url: str) -> tuple[int, str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=30) as reply:
            status, kind, body = reply.status, reply.headers["Content-Type"], reply.read().decode()
    except urllib.error.HTTPError as error:
        status, kind, body = error.code, error.headers["Content-Type"], error.read().decode()
    return status, kind, json.loads(body) if kind == "application/json" else body


def test_each_path_has_its_answer(served: str) -> None:
    status, kind, body = got(served + "/metrics")
    assert (status, body) == (200, "one 1\n") and kind.startswith("text/plain")
    for path in ("", "/", "/state"):
        assert got(served + path) == (200, "application/json", {"state": "RUNNING"})
    assert got(served + "/stores")[2] == ["counts", "windows"]
    for path in ("/stores/counts/key", "/nowhere", "/stores/counts/range/more", "/metrics/"):
        status, _, body = got(served + path)
        assert (status, body) == (404, {"error": f"unknown path: {path} (expected /stores, /state or /metrics)"})


def test_entries_are_answered_up_to_a_limit(served: str) -> None:
    def entries(path: str) -> Any:
        status, _, body = got(served + path)
        assert status == 200 and body["staleness"]["records"] == 7
        return [(each["key"], each["value"]) for each in body["entries"]], body["more"]

    everything = [("a", 4), ("ab", 1), ("b", 1), ("c", 1)]
    assert entries("/stores/counts") == (everything, False)
    assert entries("/stores/counts?limit=4") == (everything, False)
    assert entries("/stores/counts?limit=3") == (everything[:3], True)
    assert entries("/stores/counts?limit=1&limit=2") == (everything[:2], True)
    assert entries("/stores/counts/range?from=ab&to=b") == (everything[1:3], False)
    assert entries("/stores/counts/range?from=b") == (everything[2:], False)
    assert entries("/stores/counts/range?to=a") == (everything[:1], False)
    first = {"start": 0, "end": 10}
    assert entries("/stores/windows/fetch/a?to=9") == ([(first, 2)], False)
    assert entries("/stores/windows/fetch/a?from=31") == ([], False)
    assert entries("/stores/windows?limit=1") == ([({"key": "a", **first}, 2)], True)


def test_a_key_is_answered_or_is_not_there(served: str) -> None:
    status, _, body = got(served + "/stores/counts/key/a")
    assert (status, body["key"], body["value"]) == (200, "a", 4)
    status, _, body = got(served + "/stores/counts/key/z%2Fz")
    assert (status, body["key"], body["value"]) == (404, "z/z", None)


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/stores/counts?limit=0", 400, "invalid limit: 0 (expected 1 to 10000)"),
        ("/stores/counts?limit=10001", 400, "invalid limit: 10001 (expected 1 to 10000)"),
        ("/stores/counts?max_behind=6", 503, "store counts is 7 input records behind (max_behind: 6); try again"),
        ("/stores/counts/fetch/a", 400, "store counts is a timestamped_key_value store, which has no fetch"),
        ("/stores/windows/key/a", 400, "store windows is a timestamped_window store, which has no get"),
        ("/stores/lost", 500, "KeyError: 'lost'"),
    ],
)
def test_a_wrong_question_is_answered_with_its_error(served: str, path: str, status: int, told: str) -> None:
    assert got(served + path) == (status, "application/json", {"error": told})


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        *(("long", "-5", -5), ("integer", "5", 5), ("short", "5", 5), ("double", "1.5", 1.5), ("float", "2", 2.0)),
        *(("bytes", "é", "é".encode()), ("json", '{"a":1}', {"a": 1}), ("json", "a", "a"), ("string", "5", "5")),
    ],
)
def test_a_key_in_a_path_is_read_as_its_serde_would(name: str, text: str, key: Any) -> None:
    made = serde(name)
    assert made is not None
    found = http._key(made, text)
    assert (type(found), found) == (type(key), key)


def test_a_number_in_a_path_that_is_none_is_refused() -> None:
    for name in ("long", "double"):
        with pytest.raises(ValueError, match="x"):
            http._key(cast(Serde, serde(name)), "x")


def test_values_that_json_cannot_hold_are_shown() -> None:
    class Place:
        def __init__(self) -> None:
            self.city = "Bern"

    assert json.loads(http._json([b"a\xff", Place(), {1, 2}, ValueAndTimestamp(1, 2)])) == [
        "a\\xff", {"city": "Bern"}, "{1, 2}", [1, 2],
    ]  # fmt: skip
    assert http._shape(Window(1, 2)) == {"start": 1, "end": 2}
    assert http._shape("k") == "k"


@pytest.mark.parametrize(
    ("where", "parsed"),
    [
        *((0, ("127.0.0.1", 0)), (8080, ("127.0.0.1", 8080)), ("8080", ("127.0.0.1", 8080))),
        *(("0.0.0.0:65535", ("0.0.0.0", 65_535)), (":80", ("127.0.0.1", 80)), ("::1:80", ("::1", 80))),
        *((65_536, None), (-1, None), (True, None), ("here", None), ("here:", None), ("", None), ("h:٣", None)),
    ],
)
def test_an_address_to_listen_on_is_a_port_with_or_without_a_host(where: Any, parsed: Any) -> None:
    if parsed is not None:
        assert parse(where) == parsed
        return
    with pytest.raises(OttlaError, match=r"invalid value for http: .* \(expected a port, or HOST:PORT\)"):
        parse(where)


def test_a_port_that_is_taken_is_an_error_of_the_start(served: str) -> None:
    sources = HttpSources(str, dict, list, lambda name: cast(StoreView, None))
    with pytest.raises(OttlaError, match=r"http=127.0.0.1:\d+: cannot listen on 127.0.0.1:\d+: "):
        HttpServer(served.removeprefix("http://"), sources)


# ---- metrics, settings, states


def test_metrics_have_a_line_for_each_task_that_reports_them() -> None:
    tasks: dict[str, dict[str, Any]] = {
        "0_1": {"processed": 5, "dropped": 0, "stores": {"b": 2, "a": 1}},
        "0_0": {"processed": 7, "dropped": None, "lag": 3, "stores": {}},
    }
    lines = prometheus('my "app"', "RUNNING", tasks).splitlines()
    named = 'application_id="my \\"app\\""'
    assert [line for line in lines if not line.startswith("#")] == [
        f"ottla_streams_running{{{named}}} 1",
        f'ottla_streams_records_processed_total{{{named},task="0_0"}} 7',
        f'ottla_streams_records_processed_total{{{named},task="0_1"}} 5',
        f'ottla_streams_records_dropped_total{{{named},task="0_1"}} 0',
        f'ottla_streams_lag_records{{{named},task="0_0"}} 3',
        f'ottla_streams_store_entries{{{named},task="0_1",store="a"}} 1',
        f'ottla_streams_store_entries{{{named},task="0_1",store="b"}} 2',
    ]
    assert "# TYPE ottla_streams_records_processed_total counter" in lines
    assert "# TYPE ottla_streams_lag_records gauge" in lines
    assert prometheus("app", "REBALANCING", {}).endswith('ottla_streams_running{application_id="app"} 0\n')


def test_settings_of_topics_are_those_with_their_prefix() -> None:
    assert topic_configs({"topic.segment.ms": 5, "topic": 1, "my.topic.x": 2, "topic.topic.y": 3}) == {
        "segment.ms": 5,
        "topic.y": 3,
    }


class Idle(Handle):
    """A program whose states are set by hand."""

    def __init__(self, listeners: Any = (), on_error: Any = None) -> None:
        super().__init__(cast(Any, SimpleNamespace(application_id="app")), 1, listeners, on_error)
        self.woken = 0
        self._heartbeat = cast(Any, SimpleNamespace(wake=self._wake))

    def _wake(self) -> None:
        self.woken += 1

    def store(self, name: str, max_behind: int | None = None) -> Any:
        raise KeyError(name)

    def stop(self) -> None:
        self._over.set()


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        ("REBALANCING RUNNING RUNNING REBALANCING", "REBALANCING RUNNING REBALANCING"),
        ("PENDING_SHUTDOWN RUNNING REBALANCING NOT_RUNNING", "PENDING_SHUTDOWN NOT_RUNNING"),
        ("PENDING_ERROR RUNNING ERROR NOT_RUNNING RUNNING", "PENDING_ERROR ERROR"),
        ("NOT_RUNNING ERROR REBALANCING", "NOT_RUNNING"),
        ("RUNNING PENDING_SHUTDOWN PENDING_ERROR ERROR", "RUNNING PENDING_SHUTDOWN PENDING_ERROR ERROR"),
    ],
)
def test_a_program_that_ends_does_not_run_again(wanted: str, seen: str) -> None:
    told: list[tuple[State, State]] = []

    def listen(new: State, old: State) -> None:
        told.append((new, old))
        raise ValueError("a listener that fails keeps no other from being told")

    handle = Idle([listen, lambda new, old: told.append((new, old))])
    for name in wanted.split():
        handle._set_state(State[name])
    states = [State.CREATED, *(State[name] for name in seen.split())]
    assert told == [pair for pair in zip(states[1:], states[:-1], strict=True) for _ in range(2)]
    assert (handle.state, handle.woken) == (states[-1], len(states) - 1)
    assert handle._caller is None


def test_the_error_handler_of_a_program_answers_for_a_worker() -> None:
    assert Idle()._respond(ValueError()) is None
    for answer_ in (ErrorResponse.REPLACE_THREAD, ErrorResponse.SHUTDOWN_APPLICATION, None):
        seen: list[BaseException] = []
        handle = Idle(on_error=lambda error, seen=seen, answer_=answer_: (seen.append(error), answer_)[1])
        error = ValueError()
        assert handle._respond(error) is answer_
        assert seen == [error] and handle._caller is None

    def fail(error: BaseException) -> ErrorResponse:
        raise KeyError("no answer")

    assert Idle(on_error=fail)._respond(ValueError()) is None


def test_a_block_ends_with_the_error_of_the_program_or_its_own() -> None:
    with Idle() as handle:
        assert handle.await_termination(0) is False
    assert handle.await_termination(0) is True
    with pytest.raises(RuntimeError, match="the program"), Idle() as handle:
        handle.error = RuntimeError("the program")
    failed = Idle()
    failed.error = RuntimeError("the program")
    with pytest.raises(KeyError, match="the block"), failed:
        raise KeyError("the block")


# ---- where workers run


def session(conf: dict[str, str] | None = None, master: str = "local[3]", cores: int = 3) -> Any:
    asked = (conf or {}).get
    made = SimpleNamespace(
        conf=SimpleNamespace(get=lambda name, default=None: asked(name, default)),
        sparkContext=SimpleNamespace(master=master, defaultParallelism=cores),
        range=lambda *_: SimpleNamespace(collect=list),
    )
    return made


@pytest.mark.parametrize(
    ("conf", "address"),
    [
        ({}, ("127.0.0.1", None)),
        ({"spark.driver.host": ""}, ("127.0.0.1", None)),
        ({"spark.driver.host": "box"}, ("box", None)),
        ({"spark.driver.host": "box", "spark.driver.bindAddress": "box"}, ("box", None)),
        ({"spark.driver.host": "box", "spark.driver.bindAddress": "0.0.0.0"}, ("box", "0.0.0.0")),
    ],
)
def test_workers_reach_the_driver_at_its_host(conf: dict[str, str], address: Any) -> None:
    assert place.driver_address(session(conf)) == address


def test_a_cluster_has_the_cores_that_it_says() -> None:
    assert place.slots_of(session(), 9) == 3
    assert place.slots_of(session(master="spark://box:7077", cores=4), 4) == 4
    connect = type("Session", (), {"__module__": "pyspark.sql.connect.session"})()
    assert place.is_connect(connect) and not place.is_connect(session())
    with pytest.raises(OttlaError, match="Spark Connect does not report the number of cores; pass workers="):
        place.slots_of(connect, 2)


def test_the_modules_beside_a_program_go_with_it() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    names = place.own_modules(builder.build().topology)
    assert __name__ in names
    assert not [name for name in names if name.partition(".")[0] in ("ottla", "pyspark", "json", "pytest")]


def test_an_answer_is_as_old_as_the_count_of_its_lag(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1.25)
    counts = cluster.view("counts")
    counts.get("a")
    assert counts.staleness == Staleness(7, 1_250)
