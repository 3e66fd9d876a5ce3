"""Rates over windows and token buckets, as Kafka's quotas measure them. Pure.

Rules:
- A rate is the sum of the last windows, divided by the time that they cover. A young rate is divided by all but one of
  its windows, so that a client's first request is no burst. A window expires by the time of its last sample.
- A rate above its bound is throttled until the average is down to the bound: the excess share times the measured time.
- A bucket holds the tokens of all windows, and one request may overdraw it.

KIPs: 13, 124 (rates), 599 (buckets).
"""

from __future__ import annotations

from collections import deque


class Rate:
    """Units per second over `windows` windows of `window_ms`."""

    __slots__ = ("_samples", "window_ms", "windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self.windows = windows
        self.window_ms = window_ms
        #: [start of the window, sum, time of the last sample], oldest first.
        self._samples: deque[list[float]] = deque()

    def record(self, value: float, now_ms: int) -> None:
        """Record a value at this time."""
        if not self._samples or now_ms - self._samples[-1][0] >= self.window_ms:
            self._samples.append([now_ms, 0.0, now_ms])
        self._samples[-1][1] += value
        self._samples[-1][2] = now_ms

    def per_second(self, now_ms: int) -> float:
        """Return the rate: the sum of the windows over the measured time."""
        self._forget(now_ms)
        return sum(value for _, value, _ in self._samples) * 1000 / self.measured_ms(now_ms)

    def measured_ms(self, now_ms: int) -> float:
        """Return the time that the windows cover, but at least all windows except one."""
        elapsed_ms = now_ms - self._samples[0][0] if self._samples else 0
        missing = self.windows - 1 - elapsed_ms // self.window_ms
        return max(elapsed_ms + max(0, missing) * self.window_ms, self.window_ms)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return how long to wait until the rate is down to `bound`; 0 if it is not above it."""
        rate = self.per_second(now_ms)
        return round((rate - bound) / bound * self.measured_ms(now_ms)) if rate > bound else 0

    def is_idle(self, now_ms: int) -> bool:
        """Return True if no window has a sample."""
        self._forget(now_ms)
        return not self._samples

    def _forget(self, now_ms: int) -> None:
        oldest_ms = now_ms - self.windows * self.window_ms
        while self._samples and self._samples[0][2] <= oldest_ms:
            self._samples.popleft()


class TokenBucket:
    """Tokens that accrue at a rate and are taken by operations. The bucket starts full."""

    __slots__ = ("_tokens", "_updated_ms", "burst_seconds")

    def __init__(self, burst_seconds: float) -> None:
        #: The bucket's capacity, as the time in which it fills.
        self.burst_seconds = burst_seconds
        self._tokens: float | None = None
        self._updated_ms = 0

    def tokens(self, per_second: float, now_ms: int) -> float:
        """Return the available tokens; negative if overdrawn."""
        burst = per_second * self.burst_seconds
        if self._tokens is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + per_second * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, per_second: float, now_ms: int) -> None:
        """Take tokens, even more than are available."""
        self._tokens = self.tokens(per_second, now_ms) - count

    def throttle_ms(self, per_second: float, now_ms: int) -> int:
        """Return how long until the bucket is no longer overdrawn."""
        tokens = self.tokens(per_second, now_ms)
        return round(-tokens / per_second * 1000) if tokens < 0 else 0

    def is_full(self, per_second: float, now_ms: int) -> bool:
        """Return True if the bucket is full, as it is at the start."""
        return self.tokens(per_second, now_ms) >= per_second * self.burst_seconds
