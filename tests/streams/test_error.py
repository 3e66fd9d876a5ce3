"""Records that cannot be read, processed or written: fail, go on, or a dead letter (Kafka Streams 4.3, tried)."""

from typing import Any

import pytest

from ottla.streams import (
    ErrorContext,
    Handlers,
    Response,
    StreamsBuilder,
    StreamsError,
    TestDriver,
    log_and_continue,
    log_and_skip_on_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
    wallclock_timestamp,
)


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
    assert (told.pop("stacktrace") or b"").endswith(b"ZeroDivisionError: integer division or modulo by zero\n")
    assert told == {
        "mine": b"1",
        "exception": b"builtins.ZeroDivisionError",
        "message": b"integer division or modulo by zero",
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
    with pytest.raises(StreamsError, match=r"has the invalid timestamp -1"):
        made.input_topic("in").pipe("k", 9, -1)


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
