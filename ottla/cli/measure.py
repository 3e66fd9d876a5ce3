"""Measurement for `ottla perf` and Kafka's perf tools: throughput, latencies, and a target rate."""

from __future__ import annotations

import time
from array import array

_SAMPLES_MAX = 500_000
MEBIBYTE = 1024 * 1024


def now_ms() -> int:
    """Return the monotonic clock for latencies, in whole milliseconds."""
    return time.monotonic_ns() // 1_000_000


class MeasuredWindow:
    """Records counted since the window was opened."""

    __slots__ = ("count", "latency_ms", "latency_ms_max", "size", "started_ms")

    def __init__(self) -> None:
        self.started_ms = now_ms()
        self.count = 0
        self.size = 0
        self.latency_ms = 0
        self.latency_ms_max = 0

    def add(self, latency_ms: int, size: int) -> None:
        """Count a record."""
        self.count += 1
        self.size += size
        self.latency_ms += latency_ms
        if latency_ms > self.latency_ms_max:
            self.latency_ms_max = latency_ms

    @property
    def seconds(self) -> float:
        """Seconds since the window was opened; never 0."""
        return max(now_ms() - self.started_ms, 1) / 1000

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.count / self.seconds

    @property
    def mebibytes_rate(self) -> float:
        """MiB a second."""
        return self.size / self.seconds / MEBIBYTE

    @property
    def latency_ms_mean(self) -> float:
        """The mean latency of the records in milliseconds."""
        return self.latency_ms / max(self.count, 1)


class Latencies:
    """A sample of latencies: every n-th of `expected` ones."""

    def __init__(self, expected: int) -> None:
        self._every = max(1, expected // _SAMPLES_MAX)
        self.seen = 0
        self._sample = array("q")

    def add(self, latency: int) -> None:
        """Add a latency, in the caller's unit."""
        if self.seen % self._every == 0:
            self._sample.append(latency)
        self.seen += 1

    def percentiles(self, *shares: float) -> list[int]:
        """Return the percentiles of the sample at these shares (0.99: 99 % of the sample lies below)."""
        ordered = sorted(self._sample)
        return [ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0 for share in shares]


class Pace:
    """A limit of `rate` records a second; 0 or less: no limit."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._began = time.monotonic()

    def wait(self, count: int) -> None:
        """Sleep until `count` records are due since the start."""
        if self._rate > 0:
            ahead_s = count / self._rate - (time.monotonic() - self._began)
            if ahead_s > 0.001:
                time.sleep(ahead_s)
