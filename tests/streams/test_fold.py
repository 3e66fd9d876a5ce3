"""The built-in aggregates: sum, min, max, avg and count of what a group holds, nulls left out."""

from typing import Any

import pytest

from ottla.streams import Materialized, SessionWindows, SlidingWindows, StreamsBuilder, TestDriver, TimeWindows
from ottla.streams.windowed import windowed_store

GIVEN = [("a", 3.0, 0), ("a", None, 1), ("b", None, 2), ("a", 1.0, 3), ("a", 5.0, 4), ("b", 2.0, 5), ("b", None, 6)]


def driver(windows: Any, how: str) -> TestDriver:
    builder = StreamsBuilder()
    group: Any = builder.stream("in", key_serde="string", value_serde="json").group_by_key()
    if windows is not None:
        group = group.windowed_by(windows)
    if how == "reduce":
        table = group.reduce(lambda first, second: {"n": first["n"] + second["n"]})
    elif how == "count":
        table = group.count()
    else:
        table = getattr(group, how)(lambda value: value["n"])
    keyed = table.to_stream(lambda key, value: key if windows is None else key.key)
    keyed.to("out", key_serde="string", value_serde="json")
    return TestDriver(builder.build(key_serde="string", value_serde="json"))


@pytest.mark.parametrize(("how", "found"), [("sum", 9.0), ("min", 1.0), ("max", 5.0), ("avg", 3.0)])
@pytest.mark.parametrize("windows", [None, SessionWindows(100), TimeWindows(100, 100)])
def test_a_built_in_aggregate_leaves_nulls_out(windows: Any, how: str, found: float) -> None:
    going = driver(windows, how)
    for key, number, time in GIVEN:
        going.input_topic("in").pipe(key, {"n": number}, time)
    given = [pair for pair in going.output_topic("out").read_key_values() if pair[1] is not None]
    assert {key: [number for name, number in given if name == key][-1] for key in "ab"} == {"a": found, "b": 2.0}


@pytest.mark.parametrize(
    ("how", "found"),
    [("sum", 9.0), ("min", 1.0), ("max", 5.0), ("avg", 3.0), ("count", 3), ("reduce", {"n": 9.0})],
)
def test_a_record_between_two_sessions_makes_them_one(how: str, found: Any) -> None:
    going = driver(SessionWindows(10, 100), how)
    for number, time in ((3.0, 0), (5.0, 20), (1.0, 10)):
        going.input_topic("in").pipe("a", {"n": number}, time)
    assert going.output_topic("out").read_key_values()[-1] == ("a", found)


@pytest.mark.parametrize("second", [None, 5.0])
@pytest.mark.parametrize("first", [None, 3.0])
def test_the_average_of_two_sessions_of_which_one_has_no_number_is_the_others(first: Any, second: Any) -> None:
    going = driver(SessionWindows(10, 100), "avg")
    for number, time in ((first, 0), (second, 20), (None, 10)):
        going.input_topic("in").pipe("a", {"n": number}, time)
    given = [each for each in (first, second) if each is not None]
    numbers = [each for _, each in going.output_topic("out").read_key_values() if each is not None]
    assert numbers[-1:] == ([sum(given) / len(given)] if given else [])


@pytest.mark.parametrize(
    ("windows", "kind", "retention", "size"),
    [
        (SessionWindows(10, 3), "session", 13, 0),
        (SlidingWindows(10, 3), "timestamped_window", 23, 10),
        (TimeWindows(10, 10, 3), "timestamped_window", 13, 10),
        (TimeWindows(10, 5, 3), "timestamped_window", 13, 10),
    ],
)
def test_a_store_keeps_windows_as_long_as_records_for_them_are_taken(
    windows: Any, kind: str, retention: int, size: int
) -> None:
    spec = windowed_store(Materialized(), "store", windows, None, None)
    assert (spec.kind, spec.retention_ms, spec.window_ms) == (kind, retention, size)
