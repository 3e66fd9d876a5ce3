"""Records that cannot be read, processed or written: fail, go on, or a dead letter (Kafka Streams 4.3, tried)."""

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ottla.streams import (
    Context,
    ErrorContext,
    Handlers,
    JoinWindows,
    KStream,
    Materialized,
    Processor,
    Record,
    Response,
    SessionWindows,
    StreamsBuilder,
    StreamsError,
    TestDriver,
    TimeWindows,
    log_and_continue,
    log_and_skip_on_invalid_timestamp,
    stores,
    use_partition_time_on_invalid_timestamp,
    value,
    wallclock_timestamp,
)

#: Python 3.14 says "division by zero".
DIVIDED = b"division by zero" if sys.version_info >= (3, 14) else b"integer division or modulo by zero"


def driver(handlers: Handlers, **options: Any) -> TestDriver:
    """Two branches: numbers as they are, and their inverse."""
    builder = StreamsBuilder()
    numbers = builder.stream("in", key_serde="string", value_serde="long", **options)
    numbers.map_values(lambda value: 10 // value).to("inverse")
    numbers.to("out")
    return TestDriver(builder.build(key_serde="string", value_serde="long", handlers=handlers))


def test_a_record_that_cannot_be_read_is_skipped_or_stops_the_task() -> None:
    going = driver(Handlers(deserialization=log_and_continue))
    going.pipe("in", b"k", b"short", 1)
    going.input_topic("in").pipe("k", 5, 2)
    assert going.output_topic("out").read_key_values() == [("k", 5)]
    assert going.dropped == 1
    with pytest.raises(
        StreamsError, match=r"KSTREAM-SOURCE-0000000000 \(.*test_error\.py:\d+\) failed on in-0 at offset 0"
    ):
        driver(Handlers()).pipe("in", b"k", b"short", 1)


def test_only_the_branch_that_failed_stops() -> None:
    going = driver(Handlers(processing=log_and_continue))
    going.input_topic("in").pipe("k", 0, 1)
    assert (len(going.output_topic("inverse")), len(going.output_topic("out"))) == (0, 1)
    failing = driver(Handlers())
    with pytest.raises(StreamsError, match="ZeroDivisionError"):
        failing.input_topic("in").pipe("k", 0, 1)
    assert len(failing.output_topic("out")) == 0
    failing.input_topic("in").pipe("k", 2, 2)
    assert failing.output_topic("inverse").read_values() == [5]


@pytest.mark.parametrize("processing", [log_and_continue, Handlers().processing])
def test_a_dead_letter_is_the_source_record_with_the_error_in_headers(processing: Any) -> None:
    letters = driver(Handlers(processing=processing, dead_letter_topic="dead"))
    try:
        letters.input_topic("in").pipe("k", 0, 7, (("mine", b"1"),))
    except StreamsError:
        assert processing is Handlers().processing
    ((key, value, timestamp, headers),) = [
        (each.key, each.value, each.timestamp, dict(each.headers)) for each in letters.take_produced()["dead"]
    ]
    assert (key, value, timestamp) == (b"k", bytes(8), 7)
    told = {name.removeprefix("__streams.errors."): content for name, content in headers.items()}
    assert (told.pop("stacktrace") or b"").endswith(b"ZeroDivisionError: " + DIVIDED + b"\n")
    assert told == {
        "mine": b"1",
        "exception": b"builtins.ZeroDivisionError",
        "message": DIVIDED,
        "topic": b"in",
        "partition": b"0",
        "offset": b"0",
    }


def test_a_handler_of_the_programs_own_sees_the_record_and_answers() -> None:
    seen: list[ErrorContext] = []

    def handle(context: ErrorContext, error: BaseException) -> Response:
        seen.append(context)
        return Response.resume()

    going = driver(Handlers(processing=handle, production=handle))
    going.input_topic("in").pipe("k", 0, 7)
    assert (seen[0].node, seen[0].topic, seen[0].offset, seen[0].record.value) == (
        "KSTREAM-MAPVALUES-0000000001",
        "in",
        0,
        0,
    )


def broken(context: ErrorContext, error: BaseException) -> Response:
    raise KeyError("no such table")


@pytest.mark.parametrize(
    ("handler", "told"),
    [(broken, "KeyError: 'no such table'"), (lambda *_: None, r"TypeError: it returned None \(expected a Response\)")],
    ids=["fails", "returns none"],
)
@pytest.mark.parametrize("kind", ["deserialization", "processing", "production"])
def test_an_error_handler_that_fails_stops_the_task(kind: str, handler: Any, told: str) -> None:
    """It is called once, and not again for each step upstream."""
    calls: list[str] = []

    def handle(context: ErrorContext, error: BaseException) -> Response:
        calls.append(context.node)
        response: Response = handler(context, error)
        return response

    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().windowed_by(TimeWindows.of(10)).count()
    mapped = counts.to_stream(lambda key, value: key.key).map_values(
        lambda value: 1 // 0 if kind == "processing" else ""
    )
    mapped.to("out", key_serde="string", value_serde="long")
    chosen: dict[str, Any] = {kind: handle}
    app = builder.build(key_serde="string", value_serde="long", handlers=Handlers(**chosen))
    driver = TestDriver(app)
    topic = driver.input_topic("in", value_serde="string" if kind == "deserialization" else "long")
    with pytest.raises(StreamsError, match=f"failed on in-0 at offset 0: .*; the error handler failed too: {told}"):
        topic.pipe("k", "x" if kind == "deserialization" else 1)
    assert len(calls) == 1


@pytest.mark.parametrize("where", ["supplier", "init"])
def test_a_processor_that_cannot_be_opened_stops_the_task_and_names_its_line(where: str) -> None:
    class Model(Processor):
        def __init__(self) -> None:
            if where == "supplier":
                raise FileNotFoundError("no model")

        def init(self, context: Context) -> None:
            raise FileNotFoundError("no model")

        def process(self, record: Record) -> None: ...

    builder = StreamsBuilder()
    builder.stream("in").process(Model).to("out")
    told = r"KSTREAM-PROCESSOR-0000000001 \(.*test_error.py:\d+.*\) could not be opened: FileNotFoundError: no model"
    with pytest.raises(StreamsError, match=told):
        TestDriver(builder.build(key_serde="string", value_serde="string"))


def test_a_value_that_its_serde_cannot_write_is_a_production_error() -> None:
    def program(handlers: Handlers) -> TestDriver:
        builder = StreamsBuilder()
        builder.stream("in").map_values(len).to("out")
        return TestDriver(builder.build(key_serde="string", value_serde="string", handlers=handlers))

    with pytest.raises(StreamsError, match=r"the string serde cannot write 2 \(int\)"):
        program(Handlers()).input_topic("in").pipe("k", "ab")
    going = program(Handlers(production=log_and_continue))
    going.input_topic("in").pipe("k", "ab")
    assert (going.produced_topics(), going.dropped) == ([], 1)


def inverse(*words: Any) -> int:
    """Of the last of them: a value, or the newer one."""
    return int(10 // words[-1])


_MINUTE = timedelta(minutes=1)
_Steps = Callable[[KStream[Any, Any], StreamsBuilder], object]
_STEPS: dict[str, _Steps] = {
    "filter": lambda stream, _: stream.filter(inverse),
    "filter by columns": lambda stream, _: stream.filter(10 // value > 1),
    "filter_not": lambda stream, _: stream.filter_not(inverse),
    "map": lambda stream, _: stream.map(lambda key, value: (key, inverse(value))),
    "map_values": lambda stream, _: stream.map_values(inverse),
    "map_values with the key": lambda stream, _: stream.map_values(lambda key, value: inverse(value)),
    "map_values by columns": lambda stream, _: stream.map_values(10 // value),
    "flat_map": lambda stream, _: stream.flat_map(lambda key, value: [(key, inverse(value))]),
    "flat_map_values": lambda stream, _: stream.flat_map_values(lambda value: [inverse(value)]),
    "select_key": lambda stream, _: stream.select_key(inverse),
    "peek": lambda stream, _: stream.peek(inverse),
    "foreach": lambda stream, _: stream.foreach(inverse),
    "split": lambda stream, _: stream.split().branch(inverse).default_branch(),
    "reduce": lambda stream, _: stream.group_by_key().reduce(inverse),
    "aggregate": lambda stream, _: stream.group_by_key().aggregate(int, lambda key, value, old: inverse(value)),
    "windowed": lambda stream, _: stream.group_by_key().windowed_by(TimeWindows.of(_MINUTE)).reduce(inverse),
    "stream join": lambda stream, builder: stream.join(
        builder.stream("two"), lambda ours, theirs: inverse(ours), JoinWindows.of_time_difference_with_no_grace(_MINUTE)
    ),
    "join's store": lambda stream, builder: stream.map_values(lambda value: value or "no number").join(
        builder.stream("two"), lambda ours, theirs: theirs, JoinWindows.of_time_difference_with_no_grace(_MINUTE)
    ),
    "table join": lambda stream, builder: stream.join(builder.table("two"), lambda ours, theirs: inverse(ours)),
}


@pytest.mark.parametrize("name", _STEPS)
def test_an_error_in_any_step_stops_the_task_or_is_a_dead_letter(name: str) -> None:
    """The steps in which a function of the program's or a serde may fail."""

    def program(handlers: Handlers) -> TestDriver:
        builder = StreamsBuilder()
        _STEPS[name](builder.stream("in"), builder)
        made = TestDriver(builder.build(key_serde="string", value_serde="long", handlers=handlers))
        if any("two" in each.topics for each in made.application.topology.sources.values()):
            made.input_topic("two").pipe("k", 5, 1)
        made.input_topic("in").pipe("k", 1, 2)
        return made

    failing = program(Handlers())
    with pytest.raises(StreamsError, match=r"ZeroDivisionError|cannot write 'no number'"):
        failing.input_topic("in").pipe("k", 0, 3)
    going = program(Handlers(processing=log_and_continue, dead_letter_topic="dead"))
    going.input_topic("in").pipe("k", 0, 3)
    going.input_topic("in").pipe("k", 2, 4)
    assert [each.value for each in going.take_produced()["dead"]] == [bytes(8)]


@pytest.mark.parametrize(
    ("extractor", "times"),
    [
        (log_and_skip_on_invalid_timestamp, [5]),
        (use_partition_time_on_invalid_timestamp, [5, 5]),
        (wallclock_timestamp, [100, 100]),
        (lambda record, newest: record.value, [9, 3]),
    ],
)
def test_extractors_decide_about_timestamps(extractor: Any, times: list[int]) -> None:
    builder = StreamsBuilder()
    builder.stream("in", timestamp_extractor=extractor).to("out")
    made = TestDriver(builder.build(key_serde="string", value_serde="long"), start=100)
    topic = made.input_topic("in")
    topic.pipe("k", 9, 5)
    topic.pipe("k", 3, -1)
    assert [each.timestamp for each in made.output_topic("out").read_records()] == times


def test_a_record_without_a_timestamp_fails_by_default() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    made = TestDriver(builder.build(key_serde="string", value_serde="long"))
    with pytest.raises(StreamsError, match=r"invalid timestamp of the record at .*: -1 \(expected 0 or more\)"):
        made.input_topic("in").pipe("k", 9, -1)


def test_an_extractor_beyond_the_last_timestamp_fails() -> None:
    builder = StreamsBuilder()
    builder.stream("in", timestamp_extractor=lambda record, newest: 1 << 63).to("out")
    made = TestDriver(builder.build(key_serde="string", value_serde="long"))
    with pytest.raises(StreamsError, match=r"the timestamp extractor of .* failed: ValueError: .* 9223372036854775808"):
        made.input_topic("in").pipe("k", 9, 1)


def test_what_was_written_before_an_error_is_kept() -> None:
    """Also what had gone through a repartition topic already."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.to("first")
    stream.repartition().map_values(int).to("second", value_serde="long")
    made = TestDriver(builder.build(key_serde="string", value_serde="string"))
    with pytest.raises(StreamsError, match="ValueError"):
        made.input_topic("in").pipe("k", "one")
    assert made.output_topic("first").read_values() == ["one"]


def _explode(left: str | None, right: str | None) -> str:
    if left == "bad":
        raise ValueError("no")
    return f"{left}|{right}"


def _going(builder: StreamsBuilder) -> TestDriver:
    handlers = Handlers(processing=log_and_continue, dead_letter_topic="dead")
    return TestDriver(builder.build(key_serde="string", value_serde="string", handlers=handlers))


def test_a_record_without_a_match_on_which_the_joiner_fails_holds_up_no_other() -> None:
    """In Kafka Streams it stays, and fails a record that arrives each second."""
    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference_with_no_grace(10)
    builder.stream("in").left_join(builder.stream("other"), _explode, windows).to("out")
    made = _going(builder)
    topic = made.input_topic("in")
    for number, text in enumerate(["bad", "a", "b", "c"]):
        made.advance_wall_clock(1000)
        topic.pipe(text, text, number * 100)
    assert made.output_topic("out").read_values() == ["a|None", "b|None"]
    assert made.dropped == 1
    (letter,) = made.take_produced()["dead"]
    assert (letter.key, letter.value, letter.timestamp) == (b"bad", b"bad", 0), "not the record that arrived"
    assert dict(letter.headers)["__streams.errors.offset"] == b"-1"


def test_the_error_of_a_joiner_names_the_record_without_a_match() -> None:
    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference_with_no_grace(10)
    builder.stream("in").left_join(builder.stream("other"), _explode, windows).to("out")
    made = TestDriver(builder.build(key_serde="string", value_serde="string"))
    topic = made.input_topic("in")
    topic.pipe("bad", "bad", 0)
    made.advance_wall_clock(1000)
    with pytest.raises(StreamsError, match=r"failed on a record of time 0 that waited for a match: ValueError: no"):
        topic.pipe("a", "a", 100)


def test_a_record_that_waited_for_its_grace_period_has_its_own_dead_letter() -> None:
    builder = StreamsBuilder()
    table = builder.table("rows", materialized=Materialized.as_(stores.versioned("rows", 1000)))
    builder.stream("in").join(table, _explode, grace=10).to("out")
    made = _going(builder)
    made.input_topic("rows").pipe("k", "row", 0)
    topic = made.input_topic("in")
    for number, text in enumerate(["bad", "a", "b", "c"]):
        topic.pipe("k", text, number * 100)
    assert made.output_topic("out").read_values() == ["a|row", "b|row"]
    (letter,) = made.take_produced()["dead"]
    assert dict(letter.headers)["__streams.errors.offset"] == b"0"


def test_a_session_stays_if_the_aggregator_fails() -> None:
    """Kafka Streams removes it before it calls the aggregator."""
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(10))
    table = grouped.aggregate(lambda: "", lambda key, value, text: text + value[0], lambda key, one, other: one + other)
    table.to_stream(lambda key, value: key.key).to("out")
    made = _going(builder)
    topic = made.input_topic("in")
    for text in ("a", "", "b"):
        topic.pipe("k", text, len(made.output_topic("out")))
    assert made.output_topic("out").read_values() == ["a", None, "ab"]
