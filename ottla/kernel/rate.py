"""How fast something goes: rates over windows and buckets of tokens, as Kafka's quotas measure them. Pure.

Rules:
- A rate is what came in the last windows, by the time that they cover; a young rate counts as if it had nearly all of
  its windows behind it, so that the first request of a client is no burst. A window is forgotten by the last that came
  in it.
- What is over its bound waits as long as it takes for the average to come down: the share that is too much, times the
  time that was measured over.
- A bucket has room for all windows at once, and may be overdrawn by one request.

KIPs: 13, 124 (rates), 599 (buckets).
"""

from __future__ import annotations

from collections import deque


class Rate:
    """Units a second over `windows` windows of `window_ms`."""

    __slots__ = ("_samples", "window_ms", "windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self.windows = windows
        self.window_ms = window_ms
        #: [when the window began, what came in it, when the last of it came], the oldest first.
        self._samples: deque[list[float]] = deque()

    def record(self, value: float, now_ms: int) -> None:
        """So much came now."""
        if not self._samples or now_ms - self._samples[-1][0] >= self.window_ms:
            self._samples.append([now_ms, 0.0, now_ms])
        self._samples[-1][1] += value
        self._samples[-1][2] = now_ms

    def per_second(self, now_ms: int) -> float:
        """What came, by the time that it is measured over."""
        self._forget(now_ms)
        return sum(value for _, value, _ in self._samples) * 1000 / self.measured_ms(now_ms)

    def measured_ms(self, now_ms: int) -> float:
        """The time that the windows cover, at least all but one of them."""
        elapsed_ms = now_ms - self._samples[0][0] if self._samples else 0
        missing = self.windows - 1 - elapsed_ms // self.window_ms
        return max(elapsed_ms + max(0, missing) * self.window_ms, self.window_ms)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long to wait until the rate is down at `bound`; 0 where it is not above it."""
        rate = self.per_second(now_ms)
        return round((rate - bound) / bound * self.measured_ms(now_ms)) if rate > bound else 0

    def is_idle(self, now_ms: int) -> bool:
        """Did nothing come in any window?"""
        self._forget(now_ms)
        return not self._samples

    def _forget(self, now_ms: int) -> None:
        oldest_ms = now_ms - self.windows * self.window_ms
        while self._samples and self._samples[0][2] <= oldest_ms:
            self._samples.popleft()


class TokenBucket:
    """Tokens that come at a rate and are taken by what is done. It begins full."""

    __slots__ = ("_tokens", "_updated_ms", "burst_seconds")

    def __init__(self, burst_seconds: float) -> None:
        #: The bucket holds what comes in this time.
        self.burst_seconds = burst_seconds
        self._tokens: float | None = None
        self._updated_ms = 0

    def tokens(self, per_second: float, now_ms: int) -> float:
        """What is there, below 0 when it is overdrawn."""
        burst = per_second * self.burst_seconds
        if self._tokens is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + per_second * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, per_second: float, now_ms: int) -> None:
        """Take tokens, also those that are not there yet."""
        self._tokens = self.tokens(per_second, now_ms) - count

    def throttle_ms(self, per_second: float, now_ms: int) -> int:
        """How long until nothing is overdrawn any more."""
        tokens = self.tokens(per_second, now_ms)
        return round(-tokens / per_second * 1000) if tokens < 0 else 0

    def is_full(self, per_second: float, now_ms: int) -> bool:
        """Is it as it was in the beginning?"""
        return self.tokens(per_second, now_ms) >= per_second * self.burst_seconds
