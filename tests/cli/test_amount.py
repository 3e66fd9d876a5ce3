"""Moments, spans and sizes as people write them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.amount import byte_count, instant, moment_ms, setting_value, span_ms


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("15min", 900_000),
        ("15m", 900_000),
        ("1.5h", 5_400_000),
        ("7d", 604_800_000),
        ("2w", 1_209_600_000),
        ("1h30min", 5_400_000),
        ("1 h 30 min", 5_400_000),
        ("h", None),
        ("5", None),
        ("5y", None),
    ],
)
def test_a_span_is_read_as_people_write_it(text: str, milliseconds: int | None) -> None:
    assert span_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("10", 10),
        ("10B", 10),
        ("10k", 10_240),
        ("10KiB", 10_240),
        ("10kB", 10_000),
        ("1GiB", 1 << 30),
        ("1.5 MB", 1_500_000),
        ("1T", 1 << 40),
        ("GiB", None),
        ("1PiB", None),
    ],
)
def test_a_size_is_read_as_people_write_it(text: str, count: int | None) -> None:
    assert byte_count(text) == count


@given(st.integers(0, 253_402_300_799_999))
def test_a_moment_that_is_shown_can_be_given_back(milliseconds: int) -> None:
    shown = instant(milliseconds)
    assert shown is not None
    assert moment_ms(shown) == milliseconds


@given(st.integers(253_402_300_800_000, (1 << 63) - 1))
def test_a_moment_beyond_all_calendars_too(milliseconds: int) -> None:
    assert moment_ms(instant(milliseconds) or "") == milliseconds


def test_moments_have_zones_or_are_this_machines() -> None:
    assert moment_ms("2026-11-21T06:00Z") == moment_ms("2026-11-21T08:00+02:00") == 1_795_240_800_000
    assert moment_ms("@1795304325959") == 1_795_304_325_959
    assert abs((moment_ms("2h") or 0) - (time.time() - 7200) * 1000) < 60_000
    assert moment_ms("yesterday") is None


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "soon", "soon"),
        ("segment.bytes", "1GiB", "1073741824"),
        ("log.roll.hours", "7d", "168"),
        ("log.roll.hours", "90min", "90min"),
        ("cleanup.policy", "7d", "7d"),
        ("producer_byte_rate", "5MiB/s", "5MiB/s"),
        ("max.message.bytes", "2M", "2097152"),
    ],
)
def test_amounts_in_settings_become_kafkas_numbers(name: str, text: str, value: str) -> None:
    assert setting_value(name, text) == value
