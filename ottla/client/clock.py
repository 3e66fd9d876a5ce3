"""The client's clocks, and the pauses between tries."""

from __future__ import annotations

import random
import time


def now_ms() -> int:
    """The client's monotonic clock in whole milliseconds."""
    return time.monotonic_ns() // 1_000_000


class MachineClock:
    """The machine's clock, as the port has it."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class Backoff:
    """Pauses that grow from `first_ms` to `last_ms`, doubling, each up to a fifth shorter or longer (KIP-580)."""

    __slots__ = ("_first_ms", "_last_ms", "attempts")

    def __init__(self, first_ms: int, last_ms: int) -> None:
        self._first_ms = first_ms
        self._last_ms = last_ms
        self.attempts = 0

    def next_ms(self) -> int:
        """The next pause."""
        pause = min(self._first_ms << min(self.attempts, 20), self._last_ms)
        self.attempts += 1
        return int(pause * random.uniform(0.8, 1.2))
