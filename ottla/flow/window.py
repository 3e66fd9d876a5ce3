"""The windows of aggregates and joins. All times are in milliseconds; a duration is a timedelta or a number of ms.

Rules (Kafka Streams):
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


def ms(duration: Duration, what: str = "duration", least: int = 0) -> int:
    """The duration in whole milliseconds. TopologyError if it is less than `least` or not a duration."""
    if isinstance(duration, timedelta):
        value = duration // timedelta(milliseconds=1)
    elif type(duration) is int:
        value = duration
    else:
        raise TopologyError(f"invalid {what}: {duration!r} (expected a timedelta or milliseconds as an int)", here())
    if value < least:
        raise TopologyError(f"invalid {what}: {value} ms (expected {least} or more)", here())
    return value


def _positive(duration: Duration, what: str) -> int:
    value = ms(duration, what)
    if value == 0:
        raise TopologyError(f"invalid {what}: 0 ms (expected more than 0)", here())
    return value


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Tumbling windows of `size_ms`, or hopping windows that start every `advance_ms` (Kafka Streams: TimeWindows)."""

    size_ms: int
    advance_ms: int
    grace_ms: int = 0

    @classmethod
    def of(cls, size: Duration) -> TimeWindows:
        """Tumbling windows that close at their end; `.grace(...)` sets a grace period. TopologyError if size is 0."""
        size_ms = _positive(size, "window size")
        return cls(size_ms, size_ms)

    @classmethod
    def of_size_with_no_grace(cls, size: Duration) -> TimeWindows:
        """Tumbling windows that close at their end."""
        return cls.of(size)

    @classmethod
    def of_size_and_grace(cls, size: Duration, grace: Duration) -> TimeWindows:
        """Tumbling windows that close `grace` after their end."""
        return cls.of(size).grace(grace)

    def advance_by(self, advance: Duration) -> TimeWindows:
        """Hopping windows: each record is in about `size / advance` of them. TopologyError if `advance` is larger."""
        advance_ms = _positive(advance, "window advance")
        if advance_ms > self.size_ms:
            raise TopologyError(
                f"invalid window advance: {advance_ms} ms (expected at most the window size, {self.size_ms} ms)", here()
            )
        return replace(self, advance_ms=advance_ms)

    def grace(self, grace: Duration) -> TimeWindows:
        """Accept records until `grace` after a window's end."""
        return replace(self, grace_ms=ms(grace, "grace period"))

    def windows_for(self, timestamp: int) -> list[Window]:
        """The windows of a record with this timestamp, by ascending start."""
        size, advance = self.size_ms, self.advance_ms
        start = max(0, timestamp - size + advance) // advance * advance
        windows = []
        while start <= timestamp:
            windows.append(Window(start, min(start + size, TIME_MAX)))
            start += advance
        return windows


@dataclass(frozen=True, slots=True)
class UnlimitedWindows:
    """A single window that never ends (Kafka Streams: UnlimitedWindows). Records before its start are ignored."""

    start_ms: int = 0
    grace_ms: int = 0

    @classmethod
    def of(cls) -> UnlimitedWindows:
        """A window that starts at 0 (1970)."""
        return cls()

    def start_on(self, start: int) -> UnlimitedWindows:
        """Set the window's start, in ms since 1970."""
        return replace(self, start_ms=ms(start, "window start"))

    @property
    def size_ms(self) -> int:
        return TIME_MAX

    def windows_for(self, timestamp: int) -> list[Window]:
        return [Window(self.start_ms, TIME_MAX)] if timestamp >= self.start_ms else []


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows for every set of a key's records that are at most `difference_ms` apart (KIP-450)."""

    difference_ms: int
    grace_ms: int = 0

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: Duration) -> SlidingWindows:
        """Sliding windows that close at their end."""
        return cls(ms(difference, "time difference"))

    @classmethod
    def of_time_difference_and_grace(cls, difference: Duration, grace: Duration) -> SlidingWindows:
        """Sliding windows that close `grace` after their end."""
        return cls(ms(difference, "time difference"), ms(grace, "grace period"))


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Sessions: records of a key that are at most `gap_ms` apart are in one session (Kafka Streams: SessionWindows)."""

    gap_ms: int
    grace_ms: int = 0

    @classmethod
    def of_inactivity_gap_with_no_grace(cls, gap: Duration) -> SessionWindows:
        """Sessions that close after the inactivity gap. With a gap of 0 they hold records of the same time."""
        return cls(ms(gap, "inactivity gap"))

    @classmethod
    def of_inactivity_gap_and_grace(cls, gap: Duration, grace: Duration) -> SessionWindows:
        """Sessions that close `grace` after the inactivity gap."""
        return cls(ms(gap, "inactivity gap"), ms(grace, "grace period"))


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """The window of a join of streams: a right record joins a left record at time t if its time is in
    [t - before_ms, t + after_ms] (Kafka Streams: JoinWindows).
    """

    before_ms: int
    after_ms: int
    grace_ms: int = 0

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: Duration) -> JoinWindows:
        """Join records that are at most `difference` apart."""
        value = ms(difference, "time difference")
        return cls(value, value)

    @classmethod
    def of_time_difference_and_grace(cls, difference: Duration, grace: Duration) -> JoinWindows:
        """Join records that are at most `difference` apart, and accept records up to `grace` late."""
        return replace(cls.of_time_difference_with_no_grace(difference), grace_ms=ms(grace, "grace period"))

    def before(self, difference: Duration) -> JoinWindows:
        """Set how much earlier than the left record a right record may be. A negative difference: it must be that much
        later. TopologyError if the window would end before it starts.
        """
        return replace(self, before_ms=ms(difference, "time difference", -self.after_ms))

    def after(self, difference: Duration) -> JoinWindows:
        """Set how much later than the left record a right record may be. A negative difference: it must be that much
        earlier. TopologyError if the window would end before it starts.
        """
        return replace(self, after_ms=ms(difference, "time difference", -self.before_ms))

    @property
    def size_ms(self) -> int:
        return self.before_ms + self.after_ms
