"""The driver: a program runs to its end for every record, on one thread."""

from datetime import timedelta

import pytest

from ottla.streams import Application, JoinWindows, StreamsBuilder, StreamsError, TestDriver, TimeWindows, TopologyError


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
