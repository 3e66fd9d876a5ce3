"""The windows of aggregates and joins. All times are in milliseconds. A duration is a timedelta or a number of ms, a
time a datetime with a time zone or the ms since 1970.

Rules (Kafka Streams):
- Time windows are aligned to 1970; the start is inclusive, the end exclusive. Sliding and session windows include both.
- Without a grace period a window closes when stream time reaches its end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Any

from ottla.flow.error import TopologyError
from ottla.flow.record import TIME_MAX, Window
from ottla.flow.where import here

Duration = timedelta | int
Time = datetime | int
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def time_ms(time: Time, what: str = "timestamp", least: int | None = None) -> int:
    """The time in ms since 1970. TopologyError if it is less than `least` or not a time."""
    if isinstance(time, datetime) and time.tzinfo is not None:
        value = (time - _EPOCH) // timedelta(milliseconds=1)
    elif hasattr(time, "__index__") and not isinstance(time, bool):
        value = index(time)
    else:
        raise TopologyError(
            f"invalid {what}: {time!r} (expected ms since 1970 as an int, or a datetime with a time zone)", here()
        )
    if least is not None and value < least:
        raise TopologyError(f"invalid {what}: {value} ms since 1970 (expected {least} or more)", here())
    return value


def _field_ms(value: Any, what: str, least: int = 0) -> int:
    """A field of windows, which must be in ms."""
    if isinstance(value, timedelta):
        raise TopologyError(f"invalid {what}: {value!r} (expected milliseconds as an int)", here())
    return ms(value, what, least)


def _check(value: Any, what: str, least: int = 0) -> None:
    """Check a field of windows."""
    if _field_ms(value, what) < least:
        raise TopologyError(f"invalid {what}: {value} ms (expected more than 0)", here())


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Tumbling windows of `size_ms`, or hopping windows that start every `advance_ms` (Kafka Streams: TimeWindows)."""

    size_ms: int
    advance_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        _check(self.size_ms, "window size", 1)
        _check(self.advance_ms, "window advance", 1)
        _check(self.grace_ms, "grace period")
        if self.advance_ms > self.size_ms:
            raise TopologyError(
                f"invalid window advance: {self.advance_ms} ms (expected at most the window size, {self.size_ms} ms)",
                here(),
            )

    @classmethod
    def of(cls, size: Duration) -> TimeWindows:
        """Tumbling windows that close at their end; `.grace(...)` sets a grace period. TopologyError if size is 0."""
        size_ms = ms(size, "window size")
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
        return replace(self, advance_ms=ms(advance, "window advance"))

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

    def __post_init__(self) -> None:
        _check(self.start_ms, "window start")
        _check(self.grace_ms, "grace period")

    @classmethod
    def of(cls) -> UnlimitedWindows:
        """A window that starts at 0 (1970)."""
        return cls()

    def start_on(self, start: Time) -> UnlimitedWindows:
        """Set the window's start: a datetime with a time zone, or ms since 1970."""
        return replace(self, start_ms=time_ms(start, "window start", 0))

    @property
    def size_ms(self) -> int:
        return TIME_MAX

    def windows_for(self, timestamp: int) -> list[Window]:
        return [Window(self.start_ms, TIME_MAX)] if timestamp >= self.start_ms else []


class Windows(ABC):
    """Windows of the program's own, for aggregates (Kafka Streams: Windows): calendar days, shifts, opening hours.

        class Days(Windows):
            size_ms = 25 * 3_600_000  # the longest day
            grace_ms = 60_000

            def windows_for(self, timestamp: int) -> list[Window]: ...

    A subclass is sent to Spark's workers by cloudpickle. The start of a window must determine its end: stores and
    written keys hold the start alone, and a reader takes `size_ms` for the size.
    """

    #: The size of the longest window.
    size_ms: int
    #: How long after its end a window accepts records.
    grace_ms: int = 0

    @abstractmethod
    def windows_for(self, timestamp: int) -> Iterable[Window]:
        """The windows of a record with this timestamp (ms since 1970), in the order of their results."""

    def check(self) -> None:
        """TopologyError if the size or the grace period is invalid."""
        _check(getattr(self, "size_ms", None), f"size_ms of {type(self).__name__}", 1)
        _check(self.grace_ms, f"grace_ms of {type(self).__name__}")

    def checked_windows(self, timestamp: int) -> list[Window]:
        """The result of `windows_for`, each start once. ValueError if a window is invalid."""
        found = {}
        for start, end in self.windows_for(timestamp):
            if not 0 <= start < end <= start + self.size_ms:
                raise ValueError(
                    f"{type(self).__name__}.windows_for({timestamp}) returned a window from {start} to {end} (expected "
                    f"a start of 0 or more, and an end 1 to {self.size_ms} ms, its size_ms, after that)"
                )
            found[start] = Window(start, end)
        return list(found.values())


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows for every set of a key's records that are at most `difference_ms` apart (KIP-450)."""

    difference_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        _check(self.difference_ms, "time difference")
        _check(self.grace_ms, "grace period")

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

    def __post_init__(self) -> None:
        _check(self.gap_ms, "inactivity gap")
        _check(self.grace_ms, "grace period")

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

    def __post_init__(self) -> None:
        what = "time difference"
        _field_ms(self.before_ms, what, -_field_ms(self.after_ms, what, -TIME_MAX))
        _check(self.grace_ms, "grace period")

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
