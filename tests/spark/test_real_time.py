"""Stream programs in Spark's real-time mode: the engine's results, at least once, and a clear refusal of all others."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ottla.client import Admin, Consumer, Producer, TopicPartition
from ottla.flow.error import StreamsError, TopologyError
from ottla.kernel.error import OttlaError
from ottla.spark.streams.real_time import start_offsets
from ottla.spark.streams.running import prepare
from ottla.streams import Handlers, State, StreamsBuilder, TestDriver, key, log_and_continue, timestamp, value
from ottla.streams.application import Application
from tests.spark.standalone import WAIT_S, until

pytestmark = pytest.mark.timeout(600)

AT_LEAST_ONCE = {"processing.guarantee": "at_least_once", "commit.interval.ms": 5_000}
Row = tuple[str, bytes | None, bytes | None, Any]


@pytest.fixture
def names(topics: Iterator[int]) -> tuple[str, ...]:
    own = f"{next(topics)}-{os.getpid()}"
    return tuple(f"{name}-{own}" for name in ("texts", "numbers", "loud", "sums", "app"))


def program(names: tuple[str, ...], **config: Any) -> Application:
    """Two sources, a split, a merge, and three sinks, two of them to the same topic."""
    texts, numbers, loud, sums, application_id = names
    builder = StreamsBuilder()
    words = builder.stream(texts, key_serde="string", value_serde="string").filter_not(value.is_null())
    split = words.split("by-").branch(value.starts_with("no"), "no").branch(value.length() > 8, "long")
    arms = split.default_branch("rest")
    arms["by-long"].map_values(value.upper() + "!").merge(arms["by-rest"]).to(loud)
    totals = builder.stream(numbers, key_serde="long", value_serde="long").filter((value % 3 != 0) | value.is_null())
    totals.map_values(value * 2 + key).to(sums, key_serde="long", value_serde="long")
    halves = totals.select_key(key.cast("string") + ":" + (timestamp // 1000).cast("string")).map_values(value / 4)
    halves.to(sums, key_serde="string", value_serde="double")
    settings = AT_LEAST_ONCE | config
    return builder.build(application_id=application_id, key_serde="string", value_serde="string", config=settings)


def inputs(names: tuple[str, ...], count: int) -> list[tuple[str, bytes | None, bytes | None, int, Any]]:
    rows: list[tuple[str, bytes | None, bytes | None, int, Any]] = []
    for number in range(count):
        word = [b"notes", b"a long text \xc3\xa4", b"short", b"", None][number % 5]
        rows.append((names[0], b"k%d" % (number % 7), word, number * 10, (("n", b"%d" % number), ("empty", None))))
        long = None if number % 11 == 10 else number.to_bytes(8, "big")
        rows.append((names[1], (-number).to_bytes(8, "big", signed=True), long, number * 500, ()))
    return rows


def create(servers: str, names: tuple[str, ...], partitions: int = 3) -> None:
    with Admin(servers) as admin:
        for topic in names[:-1]:
            admin.create_topic(topic, partitions, 1, {"retention.ms": -1})


def send(servers: str, rows: list[Any]) -> None:
    with Producer(servers) as producer:
        for topic, name, content, at, headers in rows:
            producer.send(topic, content, name, timestamp=at, headers=headers)


def expected(app: Application, rows: list[Any], outputs: tuple[str, ...]) -> list[Row]:
    with TestDriver(app) as engine:
        for topic, name, content, at, headers in rows:
            engine.input_topic(topic, key_serde="bytes", value_serde="bytes").pipe(name, content, at, headers)
        found = []
        for topic in outputs:
            reader = engine.output_topic(topic, key_serde="bytes", value_serde="bytes")
            found += [(topic, one.key, one.value, one.headers) for one in reader.read_records()]
        return found


def read(servers: str, outputs: tuple[str, ...], count: int) -> list[Row]:
    """At least `count` records of the topics, and what comes in the next moment."""
    with Consumer(servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, each) for topic in outputs for each in consumer.partitions_for(topic)])
        found: list[Row] = []
        deadline = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < deadline:
            found += [(one.topic, one.key, one.value, one.headers) for one in consumer.poll(1)]
        return found + [(one.topic, one.key, one.value, one.headers) for one in consumer.poll(0.5)]


def committed(servers: str, application_id: str) -> int:
    with Admin(servers) as admin:
        return sum(one.offset for one in admin.list_group_offsets(application_id).values())


def test_the_engines_results_and_a_restart_that_loses_nothing(
    spark: SparkSession, bootstrap_servers: str, names: tuple[str, ...]
) -> None:
    create(bootstrap_servers, names)
    app, rows, outputs = program(names), inputs(names, 60), names[2:4]
    states: list[State] = []
    app.on_state_change(lambda new, old: states.append(new))
    send(bootstrap_servers, rows[:60])
    with app.start(bootstrap_servers, spark=spark, real_time=True) as running:
        wanted = expected(program(names), rows[:60], outputs)
        assert sorted(map(repr, read(bootstrap_servers, outputs, len(wanted)))) == sorted(map(repr, wanted))
        # The group shows that all is read.
        until(lambda: committed(bootstrap_servers, app.application_id) == 60)
        with pytest.raises(OttlaError, match="already running"):
            app.start(bootstrap_servers, real_time=True)
        with pytest.raises(OttlaError, match="cannot pause"):
            app.pause()
        assert app.state is State.RUNNING
        # These are processed, but maybe not committed.
        send(bootstrap_servers, rows[60:90])
        wanted = expected(program(names), rows[:90], outputs)
        read(bootstrap_servers, outputs, len(wanted))
    assert running.state is State.NOT_RUNNING
    send(bootstrap_servers, rows[90:])
    wanted = expected(program(names), rows, outputs)
    with app.start(bootstrap_servers, spark=spark, real_time=True):
        until(lambda: committed(bootstrap_servers, app.application_id) == 120)
        found = read(bootstrap_servers, outputs, len(wanted))
    # At least once: all, and again only some of those without a commit.
    assert set(map(repr, found)) == set(map(repr, wanted))
    assert len(wanted) <= len(found) <= len(wanted) + len(expected(program(names), rows[60:90], outputs))
    ended = [State.REBALANCING, State.RUNNING, State.PENDING_SHUTDOWN, State.NOT_RUNNING]
    assert states == ended * 2


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (
            (b"\0" * 7, b"\0" * 8),
            r"KSTREAM-SOURCE-\d+ .* failed on numbers-.*: SerdeError: the long serde cannot read the key",
        ),
        ((b"\0" * 8, b"\x7f" + b"\xff" * 7), r"KSTREAM-MAPVALUES-\d+ .*: \(\(value \* 2\) \+ key\) has no result"),
    ],
    ids=["bytes", "overflow"],
)
def test_a_record_that_cannot_be_processed_ends_the_program(
    spark: SparkSession, bootstrap_servers: str, names: tuple[str, ...], bad: tuple[bytes, bytes], told: str
) -> None:
    create(bootstrap_servers, names, partitions=1)
    app = program(names)
    with Producer(bootstrap_servers) as producer:
        producer.send(names[1], (1).to_bytes(8, "big"), b"\0" * 8)
        producer.send(names[1], bad[1], bad[0])
    app.start(bootstrap_servers, spark=spark, real_time=True)
    with pytest.raises(StreamsError, match=told) as failed:
        app.await_termination(WAIT_S)
    assert "test_real_time.py:" in str(failed.value)
    assert f"failed on {names[1]}-0 at offset 1" in str(failed.value)
    assert app.state is State.ERROR
    assert committed(bootstrap_servers, app.application_id) <= 1


def test_a_query_that_fails_starts_again_after_progress(
    spark: SparkSession, bootstrap_servers: str, names: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    create(bootstrap_servers, names, partitions=1)
    app, rows, outputs = program(names), inputs(names, 10), names[2:4]
    with app.start(bootstrap_servers, spark=spark, real_time=True):
        send(bootstrap_servers, rows[:10])
        until(lambda: committed(bootstrap_servers, app.application_id) == 10)

        def failed() -> bool:
            spark.sparkContext.cancelAllJobs()  # none runs between two batches
            return f"the query of {app.application_id} failed and starts again" in caplog.text

        until(failed)
        send(bootstrap_servers, rows[10:])
        until(lambda: committed(bootstrap_servers, app.application_id) == 20)
        wanted = expected(program(names), rows, outputs)
        assert set(map(repr, read(bootstrap_servers, outputs, len(wanted)))) == set(map(repr, wanted))
    # It has an effect in this mode, so no warning says otherwise.
    assert "commit.interval.ms" not in caplog.text


def test_a_start_without_a_usable_offset_follows_offset_reset(
    bootstrap_servers: str, names: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    create(bootstrap_servers, names, partitions=1)
    now = time.time_ns() // 1_000_000
    with Producer(bootstrap_servers) as producer:
        for at in (0, now - 7_200_000, now - 60_000, now):
            producer.send(names[0], b"v", timestamp=at)
    place = TopicPartition(names[0], 0)

    def starts(reset: str, application_id: str) -> dict[TopicPartition, int]:
        builder = StreamsBuilder()
        builder.stream(names[0], key_serde="string", value_serde="string", offset_reset=reset).to(names[2])
        app = builder.build(application_id=application_id, config=AT_LEAST_ONCE)
        return start_offsets(prepare(app.topology, app.settings, bootstrap_servers, {}, accept_changes=False))

    resets = {"earliest": 0, "latest": 4, "by_duration:PT1H": 2, "by_duration:PT0.001S": 4}
    for number, (reset, offset) in enumerate(resets.items()):
        own = f"{names[4]}-{number}"
        # It is committed: the next start goes on there whatever offset_reset says.
        assert [starts(reset, own), starts("earliest", own)] == [{place: offset}] * 2
    with pytest.raises(TopologyError, match="no offset is committed, and offset_reset is none"):
        starts("none", names[4])
    with Admin(bootstrap_servers) as admin:
        admin.alter_group_offsets(names[4], {place: 9}).check()
    assert starts("latest", names[4]) == {place: 4}
    assert (
        "the committed offset 9 is beyond the end, 4: the topic lost records or is another one; offset_reset applies"
        in caplog.text
    )


def test_another_run_takes_over(spark: SparkSession, bootstrap_servers: str, names: tuple[str, ...]) -> None:
    create(bootstrap_servers, names, partitions=1)
    first, second = program(names), program(names)
    first.start(bootstrap_servers, spark=spark, real_time=True)
    with second.start(bootstrap_servers, spark=spark, real_time=True):
        with pytest.raises(StreamsError, match=r"another instance of application .* has taken over"):
            first.await_termination(WAIT_S)
        assert second.state is State.RUNNING


def test_too_few_task_slots_are_refused(spark: SparkSession, bootstrap_servers: str, names: tuple[str, ...]) -> None:
    create(bootstrap_servers, names, partitions=4)
    told = r'a task slot for each of the 8 source partitions, but there are 6; start with master="local\[8\]"'
    with pytest.raises(OttlaError, match=told):
        program(names).start(bootstrap_servers, spark=spark, real_time=True)


def of_integers(expression: Any) -> Application:
    """A program whose types the plan does not know."""
    builder = StreamsBuilder()
    builder.stream("in", key_serde="string", value_serde="integer").filter(expression).to("out")
    return builder.build(application_id="app", config=AT_LEAST_ONCE)


def stateless(
    make: Callable[[Any], Any], config: dict[str, Any] | None = None, handlers: Handlers | None = None
) -> Application:
    builder = StreamsBuilder()
    made = make(builder.stream("in", key_serde="string", value_serde="string"))
    if made is not None:
        made.to("out")
    settings = AT_LEAST_ONCE | (config or {})
    return builder.build(
        application_id="app", key_serde="string", value_serde="string", handlers=handlers, config=settings
    )


LINE = r" \(.*test_real_time.py:\d+\)$"
REFUSED: dict[str, tuple[Callable[[], Application], str]] = {
    "callable": (
        lambda: stateless(lambda words: words.map_values(str.upper)),
        r"^KSTREAM-MAPVALUES-0000000001 cannot run in real-time mode, because it calls a Python function; "
        "write it as a column expression or leave out real_time" + LINE,
    ),
    "map": (
        lambda: stateless(lambda words: words.map(lambda k, v: (k, v))),
        "calls a Python function; use filter, map_values",
    ),
    "state": (
        lambda: stateless(lambda words: words.group_by_key().count().to_stream().map_values(value.cast("string"))),
        "^KSTREAM-AGGREGATE-.* because it keeps state; leave out real_time",
    ),
    "partitioner": (
        lambda: stateless(lambda words: words.to("other", partitioner=lambda *_: 0)), "its partitioner is a Python",
    ),
    "serde": (
        lambda: stateless(lambda words: words.to("other", value_serde="json")),
        "its value serde is json; use one of bytes, string, long, integer, double",
    ),
    "type": (
        lambda: stateless(lambda words: words.map_values(value.length()).to("other", value_serde="string")),
        "^KSTREAM-SINK-.* because its value serde writes a string, not a long; pass another value_serde or leave",
    ),
    "operand": (
        lambda: of_integers(value.length() > 3),
        r"^invalid types in length\(value\): long \(expected string\)" + LINE,
    ),
    "test": (
        lambda: of_integers(value),
        "^KSTREAM-FILTER-.* cannot run in real-time mode, because value is a long; compare it or leave out",
    ),
    "cast": (
        lambda: stateless(lambda words: words.map_values((value.length() / 3).cast("string"))),
        "a cast of a double to a string has other results in Spark",
    ),
    "guarantee": (
        lambda: stateless(lambda words: words, {"processing.guarantee": "exactly_once_v2"}),
        r"at least once; pass config=\{\"processing.guarantee\": \"at_least_once\"\}",
    ),
    "interval": (lambda: stateless(lambda words: words, {"commit.interval.ms": 100}), "commit.interval.ms: 100"),
    "handlers": (
        lambda: stateless(lambda words: words, handlers=Handlers(processing=log_and_continue)),
        "handlers do not run in real-time",
    ),
    "outputs": (lambda: stateless(lambda words: None), "a program without outputs"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_program_that_cannot_run_is_refused_before_anything_starts(name: str) -> None:
    make, told = REFUSED[name]
    # No broker listens there, and no Spark is started.
    with pytest.raises(OttlaError, match=told):
        make().start("127.0.0.1:1", real_time=True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"real_time": "yes"}, r"invalid real_time for Application.start: 'yes' \(expected bool\)"),
        ({"real_time": True, "workers": 2}, "workers does not apply in real-time mode"),
        ({"real_time": True, "http": 8080}, "http does not apply in real-time mode"),
        ({"real_time": True, "client": {"sasl.username": "u"}}, "client setting sasl.username is not known to Java"),
        ({"real_time": True, "master": "sc://somewhere"}, "does not run through Spark Connect"),
    ],
)
def test_an_option_that_does_not_apply_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(OttlaError, match=told):
        stateless(lambda words: words).start("127.0.0.1:1", **options)
