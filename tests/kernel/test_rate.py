"""Rates over windows and buckets of tokens, with a clock that the tests move."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.kernel.rate import Rate, TokenBucket

START_MS = 1_000_000


def test_a_young_rate_counts_as_if_nearly_all_windows_were_behind_it() -> None:
    rate = Rate(11, 1000)
    rate.record(1000, START_MS)
    assert rate.per_second(START_MS) == 100


def test_what_is_too_fast_waits_until_the_average_is_down() -> None:
    rate = Rate(11, 1000)
    rate.record(3000, START_MS)
    wait_ms = rate.throttle_ms(100, START_MS)
    assert wait_ms == 20_000
    assert rate.throttle_ms(100, START_MS + wait_ms) == 0


def test_a_rate_at_its_bound_does_not_wait() -> None:
    rate = Rate(11, 1000)
    rate.record(1000, START_MS)
    assert rate.throttle_ms(100, START_MS) == 0
    rate.record(1, START_MS)
    assert rate.throttle_ms(100, START_MS) > 0


def test_old_windows_are_forgotten() -> None:
    rate = Rate(3, 1000)
    rate.record(500, START_MS)
    assert not rate.is_idle(START_MS + 2999)
    assert rate.is_idle(START_MS + 3000)
    assert rate.per_second(START_MS + 3000) == 0


@given(
    bound=st.integers(1, 10_000),
    percents=st.lists(st.integers(0, 100), min_size=1, max_size=200),
    gap_ms=st.integers(0, 300),
)
@example(bound=10, percents=[90] * 192, gap_ms=111)
def test_who_waits_as_told_is_no_faster_than_the_bound_in_the_long_run(
    bound: int, percents: list[int], gap_ms: int
) -> None:
    """Each request is up to a second's worth. What is more than all windows at once is forgotten with its window."""
    rate = Rate(11, 1000)
    now_ms = START_MS
    sizes = [bound * percent / 100 for percent in percents]
    for size in sizes:
        rate.record(size, now_ms)
        now_ms += gap_ms + rate.throttle_ms(bound, now_ms)
    # All windows may be filled at once, and the last request is not waited for; rounding is half a ms each.
    allowed = bound * (now_ms - START_MS) / 1000 + 11 * bound + max(sizes) + len(sizes) * bound / 1000
    assert sum(sizes) <= allowed


def test_a_bucket_begins_full_and_may_be_overdrawn_once() -> None:
    bucket = TokenBucket(burst_seconds=10)
    bucket.take(25, 2, START_MS)
    assert bucket.tokens(2, START_MS) == -5
    assert bucket.throttle_ms(2, START_MS) == 2500
    assert bucket.throttle_ms(2, START_MS + 2500) == 0


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    bucket = TokenBucket(burst_seconds=10)
    bucket.take(1, 2, START_MS)
    assert bucket.tokens(2, START_MS + 3_600_000) == 20
    assert bucket.is_full(2, START_MS + 3_600_000)


@pytest.mark.parametrize("per_second", [0.25, 3.0])
def test_who_waits_as_told_takes_no_more_than_burst_and_rate_give(per_second: float) -> None:
    bucket = TokenBucket(burst_seconds=11)
    now_ms, taken = START_MS, 0
    for count in (1, 5, 2, 40, 3, 3, 3, 9) * 5:
        now_ms += bucket.throttle_ms(per_second, now_ms)
        bucket.take(count, per_second, now_ms)
        taken += count
    now_ms += bucket.throttle_ms(per_second, now_ms)
    assert taken <= per_second * (now_ms - START_MS) / 1000 + per_second * 11 + 1


def test_a_window_ends_where_the_next_one_begins() -> None:
    rate = Rate(3, 1000)
    rate.record(500, START_MS)
    rate.record(700, START_MS + 999)
    rate.record(900, START_MS + 1000)
    # The first window was last added to at 999, the second at 1000.
    assert rate.per_second(START_MS + 3998) * rate.measured_ms(START_MS + 3998) == 2100 * 1000
    assert rate.per_second(START_MS + 3999) * rate.measured_ms(START_MS + 3999) == 900 * 1000
    assert rate.is_idle(START_MS + 4000)
