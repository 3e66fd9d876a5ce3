"""Moments, spans and sizes as people write them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.amount import byte_count, counted, duration, instant, moment_ms, setting_value, size, span_ms


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


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (-1, "-"),
        (0, "0 B"),
        (1_023, "1,023 B"),
        (1_024, "1.0 KiB"),
        (3_355_443, "3.2 MiB"),
        (1 << 30, "1.0 GiB"),
        (1 << 40, "1.0 TiB"),
        (5_000 << 40, "5,000.0 TiB"),
    ],
)
def test_a_size_is_shown_in_the_unit_that_fits(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (90_500, "1 min 30 s"),
        (3_600_000, "1 h"),
        (5_400_000, "1 h 30 min"),
        (86_400_000, "1 d"),
        (90_061_000, "1 d 1 h"),
        (86_401_000, "1 d 1 s"),
        (604_800_000, "7 d"),
    ],
)
def test_a_span_is_shown_in_its_two_largest_units(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 records"), (1, "1 record"), (2, "2 records"), (1_000, "1,000 records")]
)
def test_a_number_agrees_with_its_noun(count: int, text: str) -> None:
    assert counted(count, "record") == text


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        (None, None),
        (-1, None),
        (0, "1970-01-01T00:00:00.000Z"),
        (1_795_304_325_059, "2026-11-21T23:38:45.059Z"),
        (1 << 62, f"@{1 << 62}"),
    ],
)
def test_a_moment_is_shown_in_utc(timestamp: int | None, text: str | None) -> None:
    assert instant(timestamp) == text


@pytest.mark.parametrize(("text", "milliseconds"), [("@", None), ("@-5", None), ("@1.5", None), (" @7 ", 7)])
def test_milliseconds_since_1970_are_a_moment(text: str, milliseconds: int | None) -> None:
    assert moment_ms(text) == milliseconds


def test_now_is_a_moment() -> None:
    before = time.time_ns() // 1_000_000
    now = moment_ms("now")
    assert now is not None and before <= now <= time.time_ns() // 1_000_000


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("linger.seconds", "5s", "5"),
        ("linger.seconds", "1500ms", "1500ms"),
        ("log.retention.minutes", "2h", "120"),
        ("socket.buffer.size", "1KiB", "1024"),
        ("leader.replication.throttled.rate", "1MB/s", "1000000"),
        ("retention.bytes", " -1 ", " -1 "),
        ("retention.bytes", "plenty", "plenty"),
    ],
)
def test_amounts_are_read_in_the_unit_that_the_setting_names(name: str, text: str, value: str) -> None:
    assert setting_value(name, text) == value
