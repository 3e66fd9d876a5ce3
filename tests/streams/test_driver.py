"""The driver: a program runs to its end for every record, on one thread."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from ottla.streams import (
    Application,
    Handlers,
    JoinWindows,
    Materialized,
    Response,
    StreamsBuilder,
    StreamsError,
    TestDriver,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
)


def word_count() -> Application:
    builder = StreamsBuilder()
    words = builder.stream("lines").flat_map_values(str.split).group_by(lambda _, word: word)
    words.count(materialized="counts").to_stream().to("counts")
    return builder.build(application_id="words", key_serde="string", value_serde="string")


def test_words_are_counted_through_a_repartition_topic() -> None:
    driver = TestDriver(word_count(), changelog=True)
    driver.input_topic("lines").pipe(None, "a b a", timestamp=5, headers=(("h", b"1"),))
    records = driver.output_topic("counts").read_records()
    assert [(record.key, record.value, record.timestamp) for record in records] == [
        ("a", 1, 5),
        ("b", 1, 5),
        ("a", 2, 5),
    ]
    assert {record.headers for record in records} == {(("h", b"1"),)}
    assert driver.state_store("counts").get("a") == (2, 5)
    assert driver.produced_topics() == ["words-counts-changelog", "words-counts-repartition"]


def test_records_of_one_time_take_turns_between_topics() -> None:
    """As in TopologyTestDriver, whose heap of topics compares times alone."""
    builder = StreamsBuilder()
    words = builder.stream("in").flat_map_values(str.split)
    for name in ("A", "B"):
        counts = words.group_by(lambda _, word: word).count(name=name)
        counts.to_stream().map_values(lambda count, name=name: f"{name}{count}").to("out", value_serde="string")
    driver = TestDriver(builder.build(key_serde="string", value_serde="string"))
    driver.input_topic("in").pipe(None, "x y x", 0)
    found = [f"{key} {value}" for key, value in driver.output_topic("out").read_key_values()]
    assert found == ["x A1", "x B1", "y A1", "y B1", "x A2", "x B2"]


@pytest.mark.parametrize("kept", [True, False])
def test_a_tables_record_without_key_is_dropped_and_counted(kept: bool) -> None:
    builder = StreamsBuilder()
    builder.table("in", materialized="kept" if kept else None).to_stream().to("out")
    driver = TestDriver(builder.build(key_serde="string", value_serde="string"))
    topic = driver.input_topic("in")
    topic.pipe(None, "v", 0)
    assert driver.dropped == 1
    topic.pipe("k", "v", 0)
    assert (driver.dropped, driver.output_topic("out").read_key_values()) == (1, [("k", "v")])


def test_a_version_behind_a_tables_history_is_dropped_and_counted() -> None:
    builder = StreamsBuilder()
    builder.table("in", materialized=Materialized("rows", versioned=10)).to_stream().to("out")
    driver = TestDriver(builder.build(key_serde="string", value_serde="string"))
    topic = driver.input_topic("in")
    for value, time in (("a", 100), ("b", 95), ("c", 89)):
        topic.pipe("k", value, time)
    assert (driver.dropped, driver.output_topic("out").read_key_values()) == (1, [("k", "a"), ("k", "b")])


def test_an_error_names_the_users_line_and_the_record() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key_serde="string", value_serde="string").map_values(int).to("out", value_serde="long")
    driver = TestDriver(builder.build())
    topic = driver.input_topic("in")
    topic.pipe("k", "1", 0)
    with pytest.raises(StreamsError, match=r"test_driver\.py:\d+\) failed on in-0 at offset 1: ValueError"):
        topic.pipe("k", "one", 0)
    assert driver.output_topic("out").read_key_values() == [("k", 1)]


def test_a_serde_that_is_missing_is_named_with_the_line_that_needs_it() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with pytest.raises(
        TopologyError, match=r"key of source KSTREAM-SOURCE-0000000000 \(.*test_driver\.py:\d+\) has no serde"
    ):
        TestDriver(builder.build())


def test_windows_are_counted_and_windowed_keys_are_written_in_kafkas_form() -> None:
    builder = StreamsBuilder()
    payments = builder.stream("payments", key_serde="string", value_serde="json")
    windows = TimeWindows.of(timedelta(minutes=5)).grace(timedelta(minutes=1))
    counts = payments.group_by_key().windowed_by(windows).count(name="payments-per-card")
    counts.to_stream().filter(lambda card, count: count > 1).to("suspicious")
    driver = TestDriver(builder.build(application_id="fraud"))
    topic = driver.input_topic("payments")
    for timestamp in (1_000, 2_000, 300_000):
        topic.pipe("card", {"amount": 5}, timestamp)
    ((key, count),) = driver.output_topic("suspicious").read_key_values()
    assert (key.key, key.window, count) == ("card", (0, 300_000), 2)


def test_both_sides_of_an_outer_join_are_kept_by_their_own_serdes() -> None:
    """What has no partner yet stands in one store, of either side."""
    builder = StreamsBuilder()
    left = builder.stream("left", value_serde="string")
    right = builder.stream("right", value_serde="long")
    windows = JoinWindows.of_time_difference_with_no_grace(10)
    left.outer_join(right, lambda ours, theirs: f"{ours} {theirs}", windows).to("out", value_serde="string")
    made = TestDriver(builder.build(key_serde="string"), changelog=True)
    for topic, value, timestamp in (("left", "alone", 0), ("right", 7, 100), ("left", "later", 200)):
        made.advance_wall_clock(2_000)
        made.input_topic(topic).pipe("k", value, timestamp)
    assert made.output_topic("out").read_values() == ["alone None", "None 7"]
    (kept,) = [topic for topic in made.produced_topics() if "OUTERSHARED" in topic]
    values = [each.value for each in made.take_produced()[kept] if each.value is not None]
    assert values == [b"alone", (7).to_bytes(8, "big"), b"later"]


_NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)
_NEW_YEAR_MS = 1_704_067_200_000


def copying(handlers: Handlers | None = None, **options: Any) -> Application:
    builder = StreamsBuilder()
    builder.stream("in", **options).to("out")
    return builder.build(key_serde="string", value_serde="string", handlers=handlers)


def test_times_are_datetimes_with_a_zone_or_milliseconds() -> None:
    driver = TestDriver(copying(), start=_NEW_YEAR)
    topic = driver.input_topic("in")
    topic.pipe("k", "v", _NEW_YEAR.astimezone(timezone(timedelta(hours=5))))
    topic.pipe("k", "v", 5)
    topic.pipe("k", "v")
    driver.pipe("in", b"k", b"v", datetime(1970, 1, 1, tzinfo=UTC))
    driver.input_topic("in", start=_NEW_YEAR + timedelta(milliseconds=7)).pipe("k", "v")
    times = [record.timestamp for record in driver.output_topic("out").read_records()]
    assert times == [_NEW_YEAR_MS, 5, _NEW_YEAR_MS, 0, _NEW_YEAR_MS + 7]
    assert driver.now == _NEW_YEAR_MS
    assert UnlimitedWindows.of().start_on(_NEW_YEAR).start_ms == _NEW_YEAR_MS


def test_an_extractor_returns_a_datetime_or_milliseconds() -> None:
    times: list[Any] = [_NEW_YEAR, 5, 5.0]
    driver = TestDriver(copying(timestamp_extractor=lambda record, newest: times.pop(0)))
    topic = driver.input_topic("in")
    pairs: list[Any] = [("k", "v"), ["k", "v"]]
    topic.pipe_all(pairs)
    assert [record.timestamp for record in driver.output_topic("out").read_records()] == [_NEW_YEAR_MS, 5]
    with pytest.raises(StreamsError, match=r"extractor of KSTREAM-SOURCE-0000000000 failed: .*invalid result: 5\.0 \("):
        topic.pipe("k", "v")


_WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "time without a zone": (
        lambda driver: driver.input_topic("in").pipe("k", "v", datetime(2024, 1, 1)),  # noqa: DTZ001
        "invalid timestamp: datetime.datetime(2024, 1, 1, 0, 0) (expected ms since 1970 as an int, or a datetime with",
    ),
    "seconds": (lambda driver: driver.input_topic("in").pipe("k", "v", 1.5), "invalid timestamp: 1.5 ("),
    "bool": (lambda driver: driver.input_topic("in").pipe("k", "v", True), "invalid timestamp: True ("),
    "text": (lambda driver: driver.pipe("in", b"k", b"v", "5"), "invalid timestamp: '5' ("),
    "start": (
        lambda driver: driver.input_topic("in", start=-1),
        "invalid start: -1 ms since 1970 (expected 0 or more)",
    ),
    "driver's start": (lambda driver: TestDriver(driver.application, start=-1), "invalid start: -1 ms since 1970"),
    "value": (lambda driver: driver.pipe("in", b"k", "v", 5), "invalid value: 'v' (expected bytes or None; "),
    "pair": (lambda driver: driver.input_topic("in").pipe_all(["ab"]), "invalid pair: 'ab' (expected (key, value))"),
    "headers": (
        lambda driver: driver.input_topic("in").pipe("k", "v", 5, {"h": b"1"}),
        "invalid headers: {'h': b'1'} (expected a tuple or list of pairs (name, bytes or None))",
    ),
    "header": (
        lambda driver: driver.input_topic("in").pipe("k", "v", 5, (("h", "1"),)),
        "invalid headers: (('h', '1'),)",
    ),
    "output": (lambda driver: driver.output_topic("outt"), "no sink writes topic outt (topics: out)"),
}


@pytest.mark.parametrize("name", _WRONG)
def test_a_wrong_argument_of_the_driver_is_refused_at_its_line(name: str) -> None:
    call, message = _WRONG[name]
    with pytest.raises(TopologyError) as refused:
        call(TestDriver(copying()))
    assert message in str(refused.value)
    where = refused.value.where
    assert where is not None
    assert (where.file, where.line - call.__code__.co_firstlineno in (0, 1)) == (__file__, True)


def test_topics_that_only_records_name_may_be_read_before() -> None:
    """Those of a topic extractor, of a handler of the program's own, and of dead letters."""
    builder = StreamsBuilder()
    builder.stream("in").to(lambda key, value, context: value)
    driver = TestDriver(builder.build(key_serde="string", value_serde="string"))
    assert driver.output_topic("any").is_empty
    own = Handlers(processing=lambda context, error: Response.resume())
    for handlers in (own, Handlers(dead_letter_topic="any")):
        assert TestDriver(copying(handlers)).output_topic("any").is_empty
