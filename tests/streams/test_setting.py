"""Kafka Streams' settings of a program, and its durations and times, at their bounds."""

from datetime import timedelta
from typing import Any

import pytest

from ottla.flow import setting
from ottla.flow.window import ms, time_ms
from ottla.streams import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, TopologyError, UnlimitedWindows

_BOTH = frozenset({"reuse.ktable.source.topics", "single.store.self.join"})


@pytest.mark.parametrize(
    ("read", "name", "taken", "refused"),
    [
        (setting.guarantee, "processing.guarantee",
         {"at_least_once": "at_least_once", "exactly_once_v2": "exactly_once_v2"}, ["exactly_once", None, 1]),
        (setting.replication_factor, "replication.factor",
         {-1: -1, 1: 1, 32_767: 32_767, "3": 3}, [0, -2, 32_768, 1.0, True, "x", None]),
        (setting.purge_interval_ms, "repartition.purge.interval.ms", {0: 0, "5": 5}, [-1, 0.5, False, None]),
        (setting.explicit_names, "ensure.explicit.internal.resource.naming",
         {True: True, False: False, "TRUE": True, "false": False}, ["yes", 1, None]),
        (setting.optimizations, "topology.optimization",
         {"none": frozenset(), "": frozenset(), "all": _BOTH,
          "single.store.self.join": frozenset({"single.store.self.join"}),
          " single.store.self.join , reuse.ktable.source.topics":
              _BOTH},
         ["some", "merge.repartition.topics", "all,none"]),
    ],
)  # fmt: skip
def test_a_setting_is_read_at_its_bounds(read: Any, name: str, taken: dict[Any, Any], refused: list[Any]) -> None:
    default = {
        "processing.guarantee": "exactly_once_v2",
        "replication.factor": -1,
        "repartition.purge.interval.ms": 30_000,
        "ensure.explicit.internal.resource.naming": False,
        "topology.optimization": frozenset(),
    }[name]
    assert read({}) == default
    for given, value in taken.items():
        assert read({name: given}) == value
    for given in refused:
        with pytest.raises(TopologyError, match=rf"invalid (value for )?{name}: "):
            read({name: given})


@pytest.mark.parametrize(("given", "without"), [(0, True), ("0", True), (1, False), (None, False), ("x", False)])
def test_a_cache_of_no_bytes_is_none(given: Any, without: bool) -> None:
    assert setting.without_cache({"statestore.cache.max.bytes": given}) is without
    assert setting.without_cache({}) is False


def test_durations_and_times_are_whole_milliseconds() -> None:
    assert [ms(each) for each in (0, 5, timedelta(milliseconds=5, microseconds=999))] == [0, 5, 5]
    assert (ms(-5, least=-5), time_ms(-5), time_ms(0, least=0)) == (-5, -5, 0)
    for wrong in (True, 1.5, "5", None):
        with pytest.raises(TopologyError, match="expected a timedelta or milliseconds as an int"):
            ms(wrong)  # type: ignore[arg-type]
        with pytest.raises(TopologyError, match="expected ms since 1970 as an int, or a datetime with a time zone"):
            time_ms(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: TimeWindows(10, 10, -1), "invalid grace period: -1 ms"),
        (lambda: TimeWindows(10, 0), "invalid window advance: 0 ms"),
        (lambda: TimeWindows(-1, 1), "invalid window size: -1 ms"),
        (lambda: UnlimitedWindows(-1), "invalid window start: -1 ms"),
        (lambda: UnlimitedWindows(0, -1), "invalid grace period: -1 ms"),
        (lambda: SlidingWindows(-1), "invalid time difference: -1 ms"),
        (lambda: SlidingWindows(0, -1), "invalid grace period: -1 ms"),
        (lambda: SessionWindows(-1), "invalid inactivity gap: -1 ms"),
        (lambda: SessionWindows(0, -1), "invalid grace period: -1 ms"),
        (lambda: JoinWindows(0, 0, -1), "invalid grace period: -1 ms"),
        (lambda: JoinWindows(1, -2), "invalid time difference: 1 ms"),
    ],
)
def test_a_field_of_windows_is_checked_also_without_their_methods(make: Any, told: str) -> None:
    with pytest.raises(TopologyError, match=told):
        make()


def test_fields_of_windows_may_be_as_small_as_they_say() -> None:
    assert TimeWindows(1, 1, 0).size_ms == 1
    assert (UnlimitedWindows(0, 0).start_ms, SlidingWindows(0, 0).difference_ms, SessionWindows(0, 0).gap_ms) == (
        0,
        0,
        0,
    )
    assert (JoinWindows(0, 0, 0).size_ms, JoinWindows(-2, 2).size_ms) == (0, 0)
