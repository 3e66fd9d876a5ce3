"""Streams programs on Spark against a node: equal to the engine on the same inputs, and exactly once."""

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import ottla
from examples import fraud
from ottla.client import Admin, Consumer, OffsetSpec, Producer, TopicPartition
from ottla.flow.error import StreamsError, TopologyError
from ottla.kernel.error import OttlaError
from ottla.spark import driver
from ottla.streams import (
    ErrorResponse,
    Handlers,
    State,
    StreamsBuilder,
    TestDriver,
    TimeWindows,
    col,
    log_and_continue,
    serdes,
)
from ottla.streams.application import Application

pytestmark = pytest.mark.timeout(300)

WAIT_S = 60
LINES = [
    ("a", "the quick brown fox", 10),
    ("b", "jumps over the lazy dog", 2_000),
    ("a", "the dog sleeps", 900),
    ("c", "a fox is a fox", 70_000),
    ("b", "the end", 130_000),
    ("a", "late fox", 61_000),
]
Pair = tuple[Any, Any]


def word_count(lines: str, counts: str, application_id: str, **config: str) -> Application:
    builder = StreamsBuilder()
    (
        builder.stream(lines, key_serde="string", value_serde="string")
        .flat_map_values(str.split)
        .group_by(lambda _, word: word)
        .count(materialized="counts")
        .to_stream()
        .to(counts, value_serde="long")
    )
    return builder.build(application_id=application_id, key_serde="string", value_serde="string", config=config)


def windowed_count(lines: str, counts: str, application_id: str) -> Application:
    builder = StreamsBuilder()
    (
        builder.stream(lines, key_serde="string", value_serde="string")
        .group_by_key()
        .windowed_by(TimeWindows.of(60_000).grace(30_000))
        .count(materialized="counts")
        .to_stream(lambda key, count: f"{key.key}@{key.window.start}")
        .to(counts, key_serde="string", value_serde="long")
    )
    return builder.build(application_id=application_id, key_serde="string", value_serde="string")


@pytest.fixture
def names(topics: Iterator[int]) -> tuple[str, str, str]:
    own = f"{next(topics)}-{os.getpid()}"
    return f"lines-{own}", f"counts-{own}", f"app-{own}"


def create(servers: str, *topics: str, partitions: int = 3) -> None:
    with Admin(servers) as admin:
        for topic in topics:
            admin.create_topic(topic, partitions, 1, {"retention.ms": -1})


def send(servers: str, topic: str) -> None:
    with Producer(servers) as producer:
        for key, value, timestamp in LINES:
            producer.send(topic, value.encode(), key.encode(), timestamp=timestamp)


def read(servers: str, topic: str, count: int) -> list[Pair]:
    """The first `count` committed records, and that there are no more."""
    with Consumer(servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        consumer.assign(places)
        found: list[Pair] = []
        deadline = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < deadline:
            found += [(one.key.decode(), int.from_bytes(one.value, "big")) for one in consumer.poll(1)]
        return found + [(one.key.decode(), int.from_bytes(one.value, "big")) for one in consumer.poll(0.3)]


def wait_until_empty(servers: str, topic: str) -> None:
    """Until all that was written to the topic is deleted; something was."""
    with Admin(servers) as admin:
        places = [
            TopicPartition(topic, number) for number in range(len(admin.describe_topics([topic])[topic].partitions))
        ]
        deadline = time.monotonic() + WAIT_S
        while True:
            starts, ends = (
                {place: found.offset for place, found in admin.list_offsets(dict.fromkeys(places, at)).check().items()}
                for at in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
            )
            if starts == ends and any(ends.values()):
                return
            assert time.monotonic() < deadline, (starts, ends)


def expected(app: Application, lines: str, counts: str) -> list[Pair]:
    with TestDriver(app) as driver:
        topic = driver.input_topic(lines)
        for key, value, timestamp in LINES:
            topic.pipe(key, value, timestamp)
        return driver.output_topic(counts, key_serde="string", value_serde="long").read_key_values()


def by_key(pairs: list[Pair]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize(
    ("program", "partitions"),
    [(partial(word_count, **{"repartition.purge.interval.ms": "0"}), 3), (windowed_count, 1)],
    ids=["words", "windows"],
)
def test_a_program_on_spark_gives_what_the_engine_gives(
    spark: SparkSession,
    bootstrap_servers: str,
    names: tuple[str, str, str],
    program: Callable[..., Application],
    partitions: int,
) -> None:
    lines, counts, application_id = names
    create(bootstrap_servers, lines, counts, partitions=partitions)
    send(bootstrap_servers, lines)
    app = program(*names)
    wanted = expected(program(*names), lines, counts)
    with app.start(bootstrap_servers, spark=spark):
        found = read(bootstrap_servers, counts, len(wanted))
        if program is not windowed_count:
            # What was counted is not needed any more: the restart below goes on without it.
            wait_until_empty(bootstrap_servers, f"{application_id}-counts-repartition")
    assert app.await_termination(0)
    assert by_key(found) == by_key(wanted)
    with Admin(bootstrap_servers) as admin:
        committed = admin.list_group_offsets(application_id)
        # Tools see how far the program is: the lag of the source topic is none.
        assert sum(one.offset for place, one in committed.items() if place.topic == lines) >= len(LINES)
    # A second start goes on from the first: nothing is counted again, the counts are restored.
    send(bootstrap_servers, lines)
    again = program(*names)
    with TestDriver(program(*names)) as driver:
        topic = driver.input_topic(lines)
        for key, value, timestamp in LINES * 2:
            topic.pipe(key, value, timestamp)
        wanted = driver.output_topic(counts, key_serde="string", value_serde="long").read_key_values()
    again.start(bootstrap_servers, spark=spark)
    try:
        found = read(bootstrap_servers, counts, len(wanted))
    finally:
        again.stop()
    assert by_key(found) == by_key(wanted)


def test_a_trace_goes_through_a_program(
    spark: SparkSession, bootstrap_servers: str, names: tuple[str, str, str]
) -> None:
    """The writer's traceparent stands beside what the program writes, through its internal topic."""
    lines, words, application_id = names
    create(bootstrap_servers, lines, words, partitions=1)
    with Producer(bootstrap_servers, tracing_enable=True) as producer:
        parents = {}
        for number in range(3):
            given = f"00-{number + 1:032x}-00f067aa0ba902b7-01"
            producer.send(lines, f"w{number} again".encode(), b"k", headers={"traceparent": given})
            parents[f"w{number}".encode()] = given.split("-")[1]
    builder = StreamsBuilder()
    source = builder.stream(lines, key_serde="string", value_serde="string")
    source.flat_map_values(str.split).select_key(lambda _, word: word).repartition().to(words)
    app = builder.build(application_id=application_id, key_serde="string", value_serde="string")
    app.start(bootstrap_servers, spark=spark)
    try:
        with Consumer(bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(words, 0)])
            found: list[Any] = []
            deadline = time.monotonic() + WAIT_S
            while len(found) < 2 * len(parents) and time.monotonic() < deadline:
                found += consumer.poll(1)
    finally:
        app.stop()
    traces = {one.value: dict(one.headers)["traceparent"].decode().split("-")[1] for one in found}
    assert {value: trace for value, trace in traces.items() if value != b"again"} == parents


def test_column_expressions_on_spark_give_what_the_engine_gives(
    spark: SparkSession, bootstrap_servers: str, names: tuple[str, str, str]
) -> None:
    """Columns from the source through a repartition topic into windows and out again."""
    lines, counts, application_id = names
    create(bootstrap_servers, lines, counts)
    orders = [(f"k{number % 5}", {"card": f"c{number % 7}", "n": number}, number * 100) for number in range(600)]

    def program() -> Application:
        builder = StreamsBuilder()
        stream = builder.stream(lines, key_serde="string", value_serde=serdes.columns(card="string", n="long"))
        windows = stream.filter(col("n") % 10 != 3).group_by(col("card")).windowed_by(TimeWindows.of(10_000))
        windows.sum(col("n"), materialized="sums").to_stream().to(counts)
        return builder.build(application_id=application_id)

    with TestDriver(program()) as driver:
        topic = driver.input_topic(lines)
        for key, order, time_ in orders:
            topic.pipe(key, order, time_)
        wanted = {(one.key, one.window.start): total for (one, total) in driver.output_topic(counts).read_key_values()}
    with Producer(bootstrap_servers) as producer:
        for _, order, time_ in orders:
            # One partition: windows close by the time of their task, and here by that of one for all.
            producer.send(lines, json.dumps(order).encode(), b"k", partition=0, timestamp=time_)
    app = program()
    app.start(bootstrap_servers, spark=spark)
    try:
        found = read_newest(bootstrap_servers, counts, len(wanted))
    finally:
        app.stop()
    # Tasks of the windows see only their own records: none is late for one that is not late for all.
    assert {(key[:-8].decode(), int.from_bytes(key[-8:], "big")): total for key, total in found.items()} == wanted


def read_newest(servers: str, topic: str, count: int) -> dict[bytes, int]:
    """The newest value of each key, when there are so many of them and nothing has come for a while."""
    with Consumer(servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, number) for number in consumer.partitions_for(topic)])
        found: dict[bytes, int] = {}
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            records = consumer.poll(2)
            found |= {one.key: int.from_bytes(one.value, "big") for one in records}
            if not records and len(found) >= count:
                break
        return found


def test_an_error_in_a_function_ends_the_program_with_the_line_of_the_user(
    spark: SparkSession, bootstrap_servers: str, names: tuple[str, str, str]
) -> None:
    lines, counts, application_id = names
    create(bootstrap_servers, lines, counts)
    send(bootstrap_servers, lines)
    builder = StreamsBuilder()
    stream = builder.stream(lines, key_serde="string", value_serde="string")
    stream.map_values(lambda value: value[100]).to(counts)
    app = builder.build(application_id=application_id, key_serde="string", value_serde="string")
    failed = threading.Event()
    app.on_state_change(lambda new, old: failed.set() if new is State.PENDING_ERROR else None)
    with (
        pytest.raises(StreamsError, match=r"test_streams.py:\d+.*IndexError: string index out of range"),
        app.start(bootstrap_servers, spark=spark),
    ):
        assert failed.wait(WAIT_S)


def test_a_missing_source_topic_is_refused_at_the_start(
    spark: SparkSession, bootstrap_servers: str, names: tuple[str, str, str]
) -> None:
    with pytest.raises(TopologyError, match=r"does not exist: create it first \(.*test_streams.py:\d+"):
        word_count(*names).start(bootstrap_servers, spark=spark)


def test_the_example_finds_the_stolen_cards(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    with ottla.Node() as node:
        fraud.main(node.bootstrap_servers)
    first, *found, measure = capsys.readouterr().out.splitlines()
    assert first == "the payments are sent; the program starts"
    told = [re.fullmatch(r"suspicious: (card-\d+) at second \d+", line) for line in found]
    assert {each.group(1) for each in told if each} == {"card-13", "card-29", "card-57", "card-88"}
    assert None not in told
    assert measure == "precision 0.75, recall 0.75"


def test_real_time_mode_is_refused_in_one_line() -> None:
    app = word_count("lines", "counts", "app")
    told = r"^unsupported setting spark\.sql\.streaming\.realTimeMode\.minBatchDuration: [^\n]+$"
    with pytest.raises(OttlaError, match=told):
        app.start(spark_settings={"spark.sql.streaming.realTimeMode.minBatchDuration": "5s"})


def test_states_pauses_and_a_worker_that_starts_again(
    spark: SparkSession, bootstrap_servers: str, names: tuple[str, str, str], tmp_path: Path
) -> None:
    lines, counts, application_id = names
    create(bootstrap_servers, lines, counts, partitions=1)
    mended = str(tmp_path / "mended")

    def fail_once(key: str, word: str) -> str:
        if word == "fox" and not os.path.exists(mended):
            with open(mended, "w"):
                raise ValueError("the first fox")
        return word

    builder = StreamsBuilder()
    words = builder.stream(lines, key_serde="string", value_serde="string").flat_map_values(str.split)
    words.group_by(fail_once).count(materialized="counts").to_stream().to(counts, value_serde="long")
    app = builder.build(application_id=application_id, key_serde="string", value_serde="string")
    states: list[State] = []
    errors: list[str] = []

    def replace(error: BaseException) -> ErrorResponse:
        errors.append(str(error))
        return ErrorResponse.REPLACE_THREAD

    running = threading.Event()

    def changed(new: State, old: State) -> None:
        states.append(new)
        if new is State.RUNNING:
            running.set()

    app.on_state_change(changed)
    app.on_error(replace)
    assert app.state.value == "CREATED"
    app.start(bootstrap_servers, spark=spark)
    try:
        assert running.wait(WAIT_S)
        assert app.state.value == "RUNNING"
        app.pause()
        send(bootstrap_servers, lines)
        # Nothing is committed while nothing is processed.
        assert not read(bootstrap_servers, counts, 0)
        app.resume()
        wanted = expected(word_count(*names), lines, counts)
        assert by_key(read(bootstrap_servers, counts, len(wanted))) == by_key(wanted)
    finally:
        app.stop()
    assert len(errors) == 1 and "ValueError: the first fox" in errors[0]
    # The repartition topic has tasks of its own: one worker fails, and all are open again.
    assert states[:2] == [State.REBALANCING, State.RUNNING]
    assert states[-3:] == [State.RUNNING, State.PENDING_SHUTDOWN, State.NOT_RUNNING]
    assert states.count(State.RUNNING) == 2


def test_a_session_of_one_master_is_not_taken_for_another(spark: SparkSession, bootstrap_servers: str) -> None:
    with pytest.raises(OttlaError, match=r"this process already has a Spark session at local\[6,4\]; stop it"):
        ottla.spark.session(master="spark://127.0.0.1:7077")
    with pytest.raises(OttlaError, match="invalid master: lokal"):
        driver.check_master("lokal")
    with pytest.raises(OttlaError, match=r"invalid master: spark://there \(expected spark://HOST:PORT\)"):
        driver.check_master("spark://there")
    with pytest.raises(OttlaError, match=r"no Spark master answers at spark://127\.0\.0\.1:1; check the address"):
        driver.check_master("spark://127.0.0.1:1")
    driver.check_master("yarn")


def test_at_least_once_commits_without_transactions_and_goes_on_where_it_was(
    spark: SparkSession, bootstrap_servers: str, names: tuple[str, str, str]
) -> None:
    lines, counts, application_id = names
    create(bootstrap_servers, lines, counts, partitions=1)
    for round_ in (1, 2):
        send(bootstrap_servers, lines)
        app = word_count(*names, **{"processing.guarantee": "at_least_once"})
        with TestDriver(word_count(*names)) as test:
            topic = test.input_topic(lines)
            for key, value, timestamp in LINES * round_:
                topic.pipe(key, value, timestamp)
            wanted = test.output_topic(counts, key_serde="string", value_serde="long").read_key_values()
        app.start(bootstrap_servers, spark=spark)
        try:
            assert by_key(read(bootstrap_servers, counts, len(wanted))) == by_key(wanted)
        finally:
            app.stop()
    with Admin(bootstrap_servers) as admin:
        assert not [one for one in admin.list_transactions() if one.transactional_id.startswith(application_id)]
    with pytest.raises(OttlaError, match=r"invalid value for processing\.guarantee: twice"):
        word_count(*names, **{"processing.guarantee": "twice"}).start(bootstrap_servers, spark=spark)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_record_that_is_too_large_goes_to_the_dead_letters_and_the_others_are_written(
    spark: SparkSession, bootstrap_servers: str, names: tuple[str, str, str], guarantee: str
) -> None:
    lines, long_lines, application_id = names
    dead = f"{lines}-dead"
    create(bootstrap_servers, lines, long_lines, dead, partitions=1)
    send(bootstrap_servers, lines)
    builder = StreamsBuilder()
    stream = builder.stream(lines, key_serde="string", value_serde="string")
    stream.map_values(lambda line: line * (500_000 if "jumps" in line else 1)).to(long_lines)
    app = builder.build(
        application_id,
        key_serde="string",
        value_serde="string",
        handlers=Handlers(production=log_and_continue, dead_letter_topic=dead),
        config={"processing.guarantee": guarantee},
    )
    whole = {(long_lines, line.encode()) for _, line, _ in LINES if "jumps" not in line} | {(dead, None)}
    app.start(bootstrap_servers, spark=spark)
    try:
        with Consumer(bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(long_lines, 0), TopicPartition(dead, 0)])
            found: list[Any] = []
            deadline = time.monotonic() + WAIT_S
            while {(one.topic, one.value) for one in found} < whole and time.monotonic() < deadline:
                found += consumer.poll(1)
            found += consumer.poll(0.3)
    finally:
        app.stop()
    kept = [one.value.decode() for one in found if one.topic == long_lines]
    others = [line for _, line, _ in LINES if "jumps" not in line]
    # At least once: what was written before the refusal comes again.
    assert kept == others if guarantee == "exactly_once_v2" else set(kept) == set(others)
    (letter,) = (one for one in found if one.topic == dead)
    assert (letter.key, letter.value) == (b"b", None)
    told = dict(letter.headers)
    assert b"KafkaError" in told["__streams.errors.exception"] and told["__streams.errors.offset"] == b"-1"


def test_a_plan_that_would_lose_state_or_read_it_wrong_is_refused(
    spark: SparkSession, bootstrap_servers: str, names: tuple[str, str, str]
) -> None:
    lines, counts, application_id = names
    create(bootstrap_servers, lines, counts, partitions=1)

    def app(store: str, window_ms: int | None = None) -> Application:
        builder = StreamsBuilder()
        grouped = builder.stream(lines, key_serde="string", value_serde="string").group_by_key()
        if window_ms:
            grouped.windowed_by(TimeWindows.of(window_ms)).count(materialized=store)
        else:
            grouped.count(materialized=store)
        return builder.build(application_id=application_id, key_serde="string")

    def start(one: Application, **options: Any) -> None:
        one.start(bootstrap_servers, spark=spark, **options)
        one.stop()

    start(app("counts"))
    start(app("counts"))
    with pytest.raises(OttlaError, match=r"lose state .* store counts is gone \(was it renamed to totals\?\)"):
        start(app("totals"))
    with pytest.raises(
        OttlaError, match=r"kind of store counts changed from timestamped_key_value to timestamped_window"
    ):
        start(app("counts", 1000), accept_changes=True)
    start(app("totals", 1000), accept_changes=True)
    with pytest.raises(OttlaError, match=r"window size of store totals changed from 1000 to 2000; give the changed"):
        start(app("totals", 2000))
