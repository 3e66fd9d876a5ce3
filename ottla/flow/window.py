"""The windows of aggregates and joins. All times are in milliseconds; a duration is a timedelta or a number of ms.

Rules (Kafka Streams'):
- Time windows are aligned to 1970; the start is inclusive, the end exclusive. Sliding and session windows include both.
- Without a grace period a window closes when stream time reaches its end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from ottla.flow.error import TopologyError
from ottla.flow.record import TIME_MAX, Window
from ottla.flow.where import here

Duration = timedelta | int


def ms(duration: Duration, what: str = "duration") -> int:
    """A duration in whole milliseconds; TopologyError if it is negative or not a duration."""
    if isinstance(duration, timedelta):
        value = duration // timedelta(milliseconds=1)
    elif type(duration) is int:
        value = duration
    else:
        raise TopologyError(f"invalid {what}: {duration!r} (expected a timedelta or milliseconds as an int)", here())
    if value < 0:
        raise TopologyError(f"invalid {what}: {value} ms (expected 0 or more)", here())
    return value


def _positive(duration: Duration, what: str) -> int:
    value = ms(duration, what)
    if value == 0:
        raise TopologyError(f"invalid {what}: 0 ms (expected more than 0)", here())
    return value


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Tumbling windows of `size_ms`, or hopping ones that start every `advance_ms`."""

    size_ms: int
    advance_ms: int
    grace_ms: int = 0

    @classmethod
    def of(cls, size: Duration) -> TimeWindows:
        """Tumbling windows that close at their end, unless `.grace(...)` follows."""
        size_ms = _positive(size, "window size")
        return cls(size_ms, size_ms)

    @classmethod
    def of_size_with_no_grace(cls, size: Duration) -> TimeWindows:
        return cls.of(size)

    @classmethod
    def of_size_and_grace(cls, size: Duration, grace: Duration) -> TimeWindows:
        return cls.of(size).grace(grace)

    def advance_by(self, advance: Duration) -> TimeWindows:
        """Hopping windows: a record is in `size / advance` of them."""
        advance_ms = _positive(advance, "window advance")
        if advance_ms > self.size_ms:
            raise TopologyError(
                f"invalid window advance: {advance_ms} ms (expected at most the window size, {self.size_ms} ms)", here()
            )
        return replace(self, advance_ms=advance_ms)

    def grace(self, grace: Duration) -> TimeWindows:
        """Records that are late by up to so much still count."""
        return replace(self, grace_ms=ms(grace, "grace period"))

    def windows_for(self, timestamp: int) -> list[Window]:
        """The windows that a record is in, by ascending start."""
        size, advance = self.size_ms, self.advance_ms
        start = max(0, timestamp - size + advance) // advance * advance
        windows = []
        while start <= timestamp:
            windows.append(Window(start, min(start + size, TIME_MAX)))
            start += advance
        return windows


@dataclass(frozen=True, slots=True)
class UnlimitedWindows:
    """A window that never ends. Records before its start are ignored."""

    start_ms: int = 0
    grace_ms: int = 0

    @classmethod
    def of(cls) -> UnlimitedWindows:
        return cls()

    def start_on(self, start: int) -> UnlimitedWindows:
        """The window's start, in ms since 1970."""
        return replace(self, start_ms=ms(start, "window start"))

    @property
    def size_ms(self) -> int:
        return TIME_MAX

    def windows_for(self, timestamp: int) -> list[Window]:
        return [Window(self.start_ms, TIME_MAX)] if timestamp >= self.start_ms else []


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows that hold any two records of a key that are at most `difference_ms` apart (KIP-450)."""

    difference_ms: int
    grace_ms: int = 0

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: Duration) -> SlidingWindows:
        return cls(ms(difference, "time difference"))

    @classmethod
    def of_time_difference_and_grace(cls, difference: Duration, grace: Duration) -> SlidingWindows:
        return cls(ms(difference, "time difference"), ms(grace, "grace period"))


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Windows of activity: records of a key that are at most `gap_ms` apart are in one session."""

    gap_ms: int
    grace_ms: int = 0

    @classmethod
    def of_inactivity_gap_with_no_grace(cls, gap: Duration) -> SessionWindows:
        return cls(_positive(gap, "inactivity gap"))

    @classmethod
    def of_inactivity_gap_and_grace(cls, gap: Duration, grace: Duration) -> SessionWindows:
        return cls(_positive(gap, "inactivity gap"), ms(grace, "grace period"))


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """A right record joins a left one if its time is in [left - before, left + after]."""

    before_ms: int
    after_ms: int
    grace_ms: int = 0

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: Duration) -> JoinWindows:
        value = ms(difference, "time difference")
        return cls(value, value)

    @classmethod
    def of_time_difference_and_grace(cls, difference: Duration, grace: Duration) -> JoinWindows:
        return replace(cls.of_time_difference_with_no_grace(difference), grace_ms=ms(grace, "grace period"))

    def before(self, difference: Duration) -> JoinWindows:
        """Right records may be earlier than the left one by so much."""
        return replace(self, before_ms=ms(difference, "time difference"))

    def after(self, difference: Duration) -> JoinWindows:
        """Right records may be later than the left one by so much."""
        return replace(self, after_ms=ms(difference, "time difference"))

    @property
    def size_ms(self) -> int:
        return self.before_ms + self.after_ms
