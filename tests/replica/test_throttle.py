"""Throttles of replication, with a clock that the tests move."""

from __future__ import annotations

import pytest

from ottla.kernel.ids import TopicPartition
from ottla.kernel.validators import LONG_MAX
from ottla.replica.throttle import ALL, SimpleRate, Throttle, configured_rate, throttled_partitions

START_MS = 1_000_000
NAME = "leader.replication.throttled.rate"


def throttle(bound: int = 1000, windows: int = 11) -> Throttle:
    made = Throttle(windows, 1000)
    made.bound = bound
    return made


def test_the_first_window_is_measured_over_its_whole_length() -> None:
    # As Kafka's SimpleRate; its Rate would count ten windows.
    rate = SimpleRate(11, 1000)
    rate.record(500, START_MS)
    assert rate.per_second(START_MS) == 500
    assert rate.per_second(START_MS + 2000) == 250
    rate.record(500, START_MS + 4000)
    assert rate.per_second(START_MS + 4000) == 250


def test_without_a_bound_nothing_is_exceeded() -> None:
    one = Throttle(11, 1000)
    one.record(1 << 40, START_MS)
    assert not one.is_exceeded(START_MS)
    assert one.wait_ms(START_MS) == 0


def test_the_bound_itself_is_allowed_and_what_is_more_waits_until_the_rate_is_down() -> None:
    one = throttle()
    one.record(1000, START_MS)
    assert not one.is_exceeded(START_MS)
    one.record(3000, START_MS)
    assert one.is_exceeded(START_MS)
    assert one.wait_ms(START_MS) == 4000
    assert one.is_exceeded(START_MS + 3999)
    assert not one.is_exceeded(START_MS + 4000)
    assert one.wait_ms(START_MS + 4000) == 0


def test_a_copy_that_waits_as_told_keeps_its_rate() -> None:
    one, now_ms, copied = throttle(bound=50_000), START_MS, 0
    while now_ms < START_MS + 100_000:
        now_ms += one.wait_ms(now_ms)
        one.record(16_384, now_ms)
        copied += 16_384
        now_ms += 1
    assert 0.9 < copied / (100 * 50_000) < 1.05


def test_a_bound_of_nothing_lets_one_copy_through_when_all_windows_are_over() -> None:
    one = throttle(bound=0)
    assert not one.is_exceeded(START_MS)
    one.record(1, START_MS)
    assert one.wait_ms(START_MS) == 11_000
    assert one.is_exceeded(START_MS + 10_999)
    assert not one.is_exceeded(START_MS + 11_000)


def test_at_most_as_much_is_copied_at_once_as_the_windows_remember() -> None:
    assert throttle(bound=1000).bytes_max == 11_000
    assert throttle(bound=0).bytes_max == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", frozenset()),
        ("*", ALL),
        (" * ", ALL),
        ("0:1,1:2,2:1", frozenset({0, 2})),
        ("0:2", frozenset()),
        ("0:1, 3:1", frozenset({0, 3})),
        (f"{'9' * 5000}:1,0:{'9' * 5000},{1 << 31}:1,2:1", frozenset({2})),
    ],
)
def test_a_list_of_throttled_replicas_is_read_for_one_broker(text: str, found: frozenset[int] | None) -> None:
    assert throttled_partitions(text, 1) == found


def test_a_topic_s_list_takes_the_place_of_the_one_before() -> None:
    one = throttle()
    zero, five, other = TopicPartition("t", 0), TopicPartition("t", 5), TopicPartition("u", 0)
    assert not one.applies_to(zero)
    one.mark("t", frozenset({0}))
    assert [one.applies_to(each) for each in (zero, five, other)] == [True, False, False]
    one.mark("t", ALL)
    assert [one.applies_to(each) for each in (zero, five, other)] == [True, True, False]
    one.mark("t", frozenset())
    assert not one.applies_to(zero)


def test_a_broker_s_own_rate_goes_before_that_of_all_brokers() -> None:
    assert configured_rate(NAME, {}, {}) == LONG_MAX
    assert configured_rate(NAME, {}, {NAME: "5"}) == 5
    assert configured_rate(NAME, {NAME: "7"}, {NAME: "5"}) == 7
    assert configured_rate(NAME, {NAME: "abc"}, {NAME: "5"}) == LONG_MAX
