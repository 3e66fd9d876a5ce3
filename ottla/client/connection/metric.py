"""Client metrics under Kafka's names: totals, rates, means and maxima over the last 30 to 60 seconds.

Pure. A `Sampled` takes one number per event (a batch, a request, a poll), never one per record. A snapshot is a frozen
dataclass of `producer.metric` or `consumer.metric`; `named` gives it under Kafka's names (`record-send-rate`).

Rules:
- Rates are per second. The mean or maximum of no events is NaN, as in Kafka.
- A window is 30 s long (`metrics.sample.window.ms`); the current and the previous one count.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

WINDOW_MS = 30_000
#: Fields of a snapshot that hold further snapshots.
_GROUPS = ("topics", "partitions", "nodes")


class Sampled:
    """Values over the current and previous window; `total` and `count` cover all time."""

    __slots__ = ("_previous", "_window_start_ms", "_max", "_count", "_oldest_ms", "_sum", "count", "total")

    def __init__(self, now_ms: int) -> None:
        self.total = 0.0
        self.count = 0
        #: The current window; `_previous` is (count, sum, max) of the one before.
        self._count = 0
        self._sum = 0.0
        self._max = -math.inf
        self._previous = (0, 0.0, -math.inf)
        self._window_start_ms = now_ms
        self._oldest_ms = now_ms

    def record(self, value: float, now_ms: int) -> None:
        """Record an event with this value."""
        if now_ms - self._window_start_ms >= WINDOW_MS:
            self._roll_window(now_ms)
        self.count += 1
        self.total += value
        self._count += 1
        self._sum += value
        if value > self._max:
            self._max = value

    def _roll_window(self, now_ms: int) -> None:
        fresh = now_ms - self._window_start_ms < 2 * WINDOW_MS
        self._previous = (self._count, self._sum, self._max) if fresh else (0, 0.0, -math.inf)
        self._oldest_ms = self._window_start_ms if fresh else now_ms
        self._count, self._sum, self._max = 0, 0.0, -math.inf
        self._window_start_ms = now_ms

    def _window(self, now_ms: int) -> tuple[int, float, float, float]:
        """(count, sum, max, seconds) over both windows."""
        if now_ms - self._window_start_ms >= WINDOW_MS:
            self._roll_window(now_ms)
        count, total, greatest = self._previous
        seconds = max(1.0, (now_ms - self._oldest_ms) / 1000)
        return count + self._count, total + self._sum, max(greatest, self._max), seconds

    def rate(self, now_ms: int) -> float:
        """The sum per second."""
        _, total, _, seconds = self._window(now_ms)
        return total / seconds

    def frequency(self, now_ms: int) -> float:
        """The number of events per second."""
        count, _, _, seconds = self._window(now_ms)
        return count / seconds

    def mean(self, now_ms: int) -> float:
        """The mean value; NaN without events."""
        count, total, _, _ = self._window(now_ms)
        return total / count if count else math.nan

    def greatest(self, now_ms: int) -> float:
        """The largest value; NaN without events."""
        count, _, greatest, _ = self._window(now_ms)
        return greatest if count else math.nan


def named(metrics: Any) -> dict[str, Any]:
    """A snapshot as a dict with Kafka's names, without its nested snapshots by topic, partition or node."""
    return {
        field.name.replace("_", "-"): getattr(metrics, field.name)
        for field in fields(metrics)
        if field.name not in _GROUPS
    }
