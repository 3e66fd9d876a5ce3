"""Windows of the program's own. The scenes compare them with Kafka Streams'."""

import pickle
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

from ottla.flow.record import TIME_MAX
from ottla.streams import (
    Application,
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    Produced,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StreamsError,
    Suppressed,
    TestDriver,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
    Window,
    Windowed,
    Windows,
)

#: Three days: one of 23 hours, one of 24, one of 25.
_STARTS = (0, 23, 47, 72)
_LONGEST = 25


class Days(Windows):
    """Days in which clocks are set."""

    size_ms = _LONGEST
    grace_ms = 2

    def windows_for(self, timestamp: int) -> list[Window]:
        return [Window(start, end) for start, end in pairwise(_STARTS) if start <= timestamp < end]


class Given(Windows):
    """What a test says."""

    size_ms = 10

    def __init__(self, *found: Any, **fields: Any) -> None:
        self._found = found
        vars(self).update(fields)

    def windows_for(self, timestamp: int) -> Iterable[Window]:
        return self._found


def counting(windows: Any, suppressed: Suppressed | None = None) -> Application:
    builder = StreamsBuilder()
    table = builder.stream("in").group_by_key().windowed_by(windows).count(materialized="counts")
    (table if suppressed is None else table.suppress(suppressed)).to_stream().to("out")
    return builder.build("app", key_serde="string", value_serde="string")


def test_windows_may_have_different_sizes() -> None:
    app = counting(Days())
    driver = TestDriver(app)
    topic = driver.input_topic("in")
    for time in (22, 23, 48, 71, 24, 72):
        topic.pipe("k", "v", time)
    counts = [(key.window.start, count) for key, count in driver.output_topic("out").read_key_values()]
    assert counts == [(0, 1), (23, 1), (47, 1), (47, 2)]
    assert driver.dropped == 1  # its day had closed, and the last record has no window
    assert "windows: Days, up to 25 ms, grace 2 ms\n" in app.explain()


def test_the_final_result_of_a_window_comes_after_its_own_end() -> None:
    driver = TestDriver(counting(Days(), Suppressed.until_window_closes(BufferConfig.unbounded())))
    topic, out = driver.input_topic("in"), driver.output_topic("out")
    topic.pipe("k", "v", 22)
    topic.pipe("k", "v", 24)
    assert out.is_empty
    topic.pipe("k", "v", 25)
    assert [(key.window.start, count) for key, count in out.read_key_values()] == [(0, 1)]


@pytest.mark.parametrize(
    ("windows", "closes"),
    [
        (TimeWindows.of(10), 10),
        (TimeWindows.of(10).grace(5), 15),
        (TimeWindows.of(10).advance_by(10).grace(0), 10),
        (SlidingWindows.of_time_difference_with_no_grace(10), 10),
        (SlidingWindows.of_time_difference_and_grace(10, 5), 15),
        # A session of one record goes on for its gap: until then, a record may join it.
        (SessionWindows.of_inactivity_gap_with_no_grace(10), 10),
        (SessionWindows.of_inactivity_gap_and_grace(10, 5), 15),
        (SessionWindows.of_inactivity_gap_and_grace(1, 5), 6),
    ],
)
def test_a_final_result_comes_when_no_record_can_change_it_any_more(windows: Any, closes: int) -> None:
    driver = TestDriver(counting(windows, Suppressed.until_window_closes(BufferConfig.unbounded())))
    topic, out = driver.input_topic("in"), driver.output_topic("out")
    topic.pipe("k", "v", 0)
    topic.pipe("other", "v", closes - 1)
    assert out.is_empty
    topic.pipe("another", "v", closes)
    found = [(key.window.start, count) for key, count in out.read_key_values() if key.key == "k"]
    assert found == [(0, 1)]


@pytest.mark.parametrize(
    ("windows", "timestamp", "starts"),
    [
        # Of Apache's TimeWindowsTest, and around the starts of windows.
        (TimeWindows.of(12).advance_by(5), 21, [10, 15, 20]),
        (TimeWindows.of(12).advance_by(5), 22, [15, 20]),
        (TimeWindows.of(12).advance_by(5), 20, [10, 15, 20]),
        (TimeWindows.of(12).advance_by(5), 19, [10, 15]),
        (TimeWindows.of(12).advance_by(5), 0, [0]),
        (TimeWindows.of(12).advance_by(5), 11, [0, 5, 10]),
        (TimeWindows.of(12).advance_by(5), 12, [5, 10]),
        (TimeWindows.of(12), 11, [0]),
        (TimeWindows.of(12), 12, [12]),
        (TimeWindows.of(1), 7, [7]),
        (TimeWindows.of(10), TIME_MAX - 1, [(TIME_MAX - 1) // 10 * 10]),
        (UnlimitedWindows.of().start_on(5), 4, []),
        (UnlimitedWindows.of().start_on(5), 5, [5]),
        (UnlimitedWindows.of(), 0, [0]),
    ],
)
def test_a_record_is_in_the_windows_that_have_its_time(windows: Any, timestamp: int, starts: list[int]) -> None:
    found = windows.windows_for(timestamp)
    assert [window.start for window in found] == starts
    for start, end in found:
        assert end == min(start + windows.size_ms, TIME_MAX)


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "can_be"), [(-5, 5, True), (-5, 4, False), (5, -5, True), (4, -5, False)]
)
def test_a_window_of_a_join_does_not_end_before_it_begins(before_ms: int, after_ms: int, can_be: bool) -> None:
    if can_be:
        assert JoinWindows(before_ms, after_ms).size_ms == 0
        return
    with pytest.raises(TopologyError, match="invalid time difference"):
        JoinWindows(before_ms, after_ms)


def test_each_start_counts_once() -> None:
    driver = TestDriver(counting(Given((0, 5), (3, 6), (0, 5))))
    driver.input_topic("in").pipe("k", "v", 4)
    assert driver.output_topic("out").read_key_values() == [
        (Windowed("k", Window(0, 10)), 1),  # written keys hold the start alone
        (Windowed("k", Window(3, 13)), 1),
    ]


def test_windows_reach_the_workers() -> None:
    windows = pickle.loads(pickle.dumps(Days()))
    assert windows.checked_windows(24) == [Window(23, 47)]


@pytest.mark.parametrize("window", [(-1, 5), (5, 5), (5, 4), (0, 11)])
def test_a_window_that_cannot_be_is_an_error_of_its_record(window: tuple[int, int]) -> None:
    told = rf"Given\.windows_for\(4\) returned a window from {window[0]} to {window[1]} \(expected .* 1 to 10 ms"
    with pytest.raises(StreamsError, match=told):
        TestDriver(counting(Given(window))).input_topic("in").pipe("k", "v", 4)


@pytest.mark.parametrize(
    ("windows", "told"),
    [
        (Days, "invalid windows: <class .*Days'> .* an instance of a subclass of Windows"),
        (Given(size_ms=0), r"invalid size_ms of Given: 0 ms \(expected more than 0\)"),
        (Given(size_ms="day"), "invalid size_ms of Given: 'day'"),
        (Given(grace_ms=-1), r"invalid grace_ms of Given: -1 ms \(expected 0 or more\)"),
    ],
)
def test_windows_without_a_valid_size_are_refused(windows: Any, told: str) -> None:
    builder = StreamsBuilder()
    for grouped in (builder.stream("a").group_by_key(), builder.stream("b").group_by_key().cogroup(max)):
        with pytest.raises(TopologyError, match=told):
            grouped.windowed_by(windows)


def test_windows_without_a_size_are_refused() -> None:
    class Sizeless(Windows):
        def windows_for(self, timestamp: int) -> list[Window]:
            return []

    with pytest.raises(TopologyError, match="invalid size_ms of Sizeless: None"):
        counting(Sizeless())


def test_they_are_not_emitted_on_close() -> None:
    """As in Kafka Streams."""
    windowed = StreamsBuilder().stream("in").group_by_key().windowed_by(Days())
    with pytest.raises(TopologyError, match=r"use suppress\(Suppressed\.until_window_closes.*test_windows"):
        windowed.emit_strategy(EmitStrategy.on_window_close())


def test_windowed_tables_are_joined_by_key_and_window() -> None:
    builder = StreamsBuilder()
    counts, others = (
        builder.stream(topic).group_by_key().windowed_by(TimeWindows.of(10)).count() for topic in ("one", "two")
    )
    joined = counts.join(others, lambda count, other: count * 10 + other).to_stream()
    joined = joined.map(lambda key, value: (f"{key.key}@{key.window.start}", value))
    joined.to("out", Produced(key_serde="string", value_serde="long"))
    made = TestDriver(builder.build(key_serde="string", value_serde="string"))
    for topic, timestamp in (("one", 5), ("two", 7), ("one", 8), ("one", 12), ("two", 13)):
        made.input_topic(topic).pipe("k", "x", timestamp)
    assert made.output_topic("out").read_key_values() == [("k@0", 11), ("k@0", 21), ("k@10", 11)]
