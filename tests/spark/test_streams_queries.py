"""Queries of a running program's stores, from Python and over HTTP, and its metrics."""

import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ottla.client import Producer
from ottla.kernel.error import OttlaError
from ottla.spark.streams import query
from ottla.streams import Application, SessionWindows, State, StreamsBuilder, TimeWindows, Window, Windowed
from tests.spark.test_streams import WAIT_S, create, read

pytestmark = pytest.mark.timeout(300)

#: (key, value, ms)
EVENTS = [("a", "1", 0), ("b", "1", 10), ("a", "1", 5_000), ("ab", "1", 7_000), ("a", "1", 12_000), ("c", "1", 12_500)]


def program(events: str, counts: str, application_id: str) -> Application:
    builder = StreamsBuilder()
    stream = builder.stream(events, key_serde="string", value_serde="string")
    grouped = stream.group_by_key()
    grouped.count(materialized="counts").to_stream().to(counts, value_serde="long")
    grouped.windowed_by(TimeWindows.of(10_000).grace(60_000)).count(materialized="windows")
    grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(6_000, 60_000)).count(materialized="sessions")
    builder.global_table(f"{events}-names", materialized="names", key_serde="long", value_serde="string")
    return builder.build(application_id, key_serde="string", value_serde="string")


@pytest.fixture(scope="module")
def app(spark: SparkSession, bootstrap_servers: str, topics: Iterator[int]) -> Iterator[Application]:
    """A program that has counted EVENTS on two workers."""
    events, counts = f"events-{next(topics)}", f"counts-{next(topics)}"
    create(bootstrap_servers, events, counts, f"{events}-names")
    with Producer(bootstrap_servers) as producer:
        for key, value, timestamp in EVENTS:
            producer.send(events, value.encode(), key.encode(), timestamp=timestamp)
        for number in range(5):
            producer.send(f"{events}-names", f"name {number}".encode(), number.to_bytes(8, "big"))
    started = program(events, counts, f"app-{events}")
    running = threading.Event()
    started.on_state_change(lambda new, old: running.set() if new is State.RUNNING else None)
    with pytest.raises(OttlaError, match="was not started"):
        started.store("counts")
    started.start(bootstrap_servers, spark=spark, http=0)
    try:
        assert running.wait(WAIT_S)
        read(bootstrap_servers, counts, len(EVENTS))
        yield started
    finally:
        started.stop()
    with pytest.raises(query.NotReadable, match="is NOT_RUNNING, not RUNNING"):
        started.store("counts").get("a")


def test_keys_are_found_whichever_worker_has_them(app: Application) -> None:
    counts = app.store("counts")
    assert [counts.get(key) for key in ("a", "b", "ab", "c", "d")] == [3, 1, 1, 1, None]
    tasks = {counts.locate(key) for key in ("a", "b", "ab", "c")}
    assert len(tasks) > 1
    assert counts.locate("d") is None
    assert counts.staleness is not None and counts.staleness.records == 0


@pytest.mark.parametrize("page", [1, 1_000])
def test_ranges_come_in_pages(app: Application, page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "PAGE", page)
    counts = app.store("counts")
    assert dict(counts.all()) == {"a": 3, "b": 1, "ab": 1, "c": 1}
    assert sorted(counts.range("ab", "b")) == [("ab", 1), ("b", 1)]
    assert sorted(counts.range(None, "ab")) == [("a", 3), ("ab", 1)]


def test_windows_and_sessions_are_found_by_key_and_time(app: Application) -> None:
    windows = app.store("windows")
    assert list(windows.fetch("a")) == [(Window(0, 10_000), 2), (Window(10_000, 20_000), 1)]
    assert list(windows.fetch("a", 1, 10_000)) == [(Window(10_000, 20_000), 1)]
    at_10_s = datetime.fromtimestamp(10, UTC)
    assert list(windows.fetch("a", at_10_s)) == [(Window(10_000, 20_000), 1)]
    assert [key.key for key, _ in windows.fetch_all(at_10_s, at_10_s)] == ["a", "c"]
    assert dict(windows.fetch_all(0, 0)) == {
        Windowed("a", Window(0, 10_000)): 2,
        Windowed("ab", Window(0, 10_000)): 1,
        Windowed("b", Window(0, 10_000)): 1,
    }
    sessions = app.store("sessions")
    assert list(sessions.fetch("a")) == [(Window(0, 5_000), 2), (Window(12_000, 12_000), 1)]
    assert list(sessions.fetch("a", 5_001)) == [(Window(12_000, 12_000), 1)]
    assert (Windowed("c", Window(12_500, 12_500)), 1) in list(sessions.all())


def test_a_global_store_is_read_once(app: Application) -> None:
    names = app.store("names")
    assert names.get(3) == "name 3"
    assert sorted(names.all()) == [(number, f"name {number}") for number in range(5)]


def test_wrong_questions_are_told(app: Application) -> None:
    with pytest.raises(OttlaError, match=r"no store totals to query \(queryable: counts, names, sessions, windows\)"):
        app.store("totals")
    with pytest.raises(OttlaError, match="store windows is a timestamped_window store, which has no range"):
        next(app.store("windows").range())
    with pytest.raises(OttlaError, match=r"invalid earliest: 1\.5 \(expected ms since 1970"):
        next(app.store("windows").fetch("a", 1.5))  # type: ignore[arg-type]
    with pytest.raises(OttlaError, match="the string serde cannot write 3"):
        app.store("counts").get(3)


def get(app: Application, path: str) -> tuple[int, Any]:
    assert app.http is not None
    try:
        with urllib.request.urlopen(f"http://{app.http}{path}", timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_stores_answer_over_http(app: Application) -> None:
    def found(path: str) -> tuple[int, Any]:
        status, text = get(app, path)
        return status, json.loads(text)

    assert found("/stores") == (200, ["counts", "names", "sessions", "windows"])
    status, one = found("/stores/counts/key/a")
    assert (status, one["value"], one["staleness"]["records"]) == (200, 3, 0)
    assert found("/stores/counts/key/nobody")[0] == 404
    assert found("/stores/names/key/4")[1]["value"] == "name 4"
    assert found("/stores/names/key/four")[0] == 400
    entries = found("/stores/counts/range?from=ab&to=b")[1]["entries"]
    assert sorted(each["key"] for each in entries) == ["ab", "b"]
    short = found("/stores/counts?limit=2")[1]
    assert (len(short["entries"]), short["more"]) == (2, True)
    assert found("/stores/counts?limit=0")[0] == 400
    assert found("/stores/windows/fetch/a?from=10000")[1]["entries"] == [
        {"key": {"start": 10_000, "end": 20_000}, "value": 1}
    ]
    assert found("/stores/totals")[0] == 400
    assert found("/nothing")[0] == 404
    assert found("/state")[1]["state"] == "RUNNING"


def test_prometheus_reads_what_tasks_measure(app: Application) -> None:
    deadline = time.monotonic() + WAIT_S
    processed: list[int] = []
    lines: list[str] = []
    while sum(processed) < len(EVENTS) and time.monotonic() < deadline:  # workers report every second
        status, text = get(app, "/metrics")
        assert status == 200
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        processed = [int(line.rpartition(" ")[2]) for line in lines if "records_processed_total" in line]
    assert all(re.fullmatch(r'ottla_streams_\w+\{(\w+="[^"]*",?)+\} [-+.e\d]+', line) for line in lines), lines
    assert sum(processed) == len(EVENTS)
    entries = [int(line.rpartition(" ")[2]) for line in lines if 'store="counts"' in line]
    assert sum(entries) == 4
