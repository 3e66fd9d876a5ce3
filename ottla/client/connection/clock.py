"""The client's clocks and randomness, and retry backoff.

All client code gets the time and randomness here, so that a simulation can supply them instead (`replace`).
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Sequence
from typing import Any, Protocol

from ottla.kernel.ports import Clock


class MachineClock:
    """The machine's clock, as a `Clock`."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class Randomness(Protocol):
    """The functions of the module `random` that clients use."""

    def random(self) -> float: ...
    def randrange(self, stop: int, /) -> int: ...
    def randbytes(self, n: int, /) -> bytes: ...
    def uniform(self, a: float, b: float, /) -> float: ...
    def shuffle(self, x: Any, /) -> None: ...
    def choice(self, seq: Sequence[Any], /) -> Any: ...


_clock: Clock = MachineClock()
_random: Randomness = random


def replace(clock: Clock | None, randomness: Randomness | None) -> None:
    """Use this clock and randomness for every client of this process from now on; None: the machine's."""
    global _clock, _random
    _clock = clock or MachineClock()
    _random = randomness or random


def now_ms() -> int:
    """The client's monotonic clock in whole milliseconds."""
    return _clock.monotonic_ms()


def wall_ms() -> int:
    """Milliseconds since 1970-01-01 UTC, for timestamps."""
    return _clock.now_ms()


def current_clock() -> Clock:
    """The clock that the client uses now."""
    return _clock


def randomness() -> Randomness:
    """The source of randomness that the client uses now."""
    return _random


def random_uuid() -> bytes:
    """The 16 bytes of a new random UUID (RFC 9562, version 4)."""
    return uuid.UUID(bytes=_random.randbytes(16), version=4).bytes


class Backoff:
    """Exponential backoff from `first_ms`, doubling up to `last_ms`, with 20 % jitter either way (KIP-580)."""

    __slots__ = ("_first_ms", "_last_ms", "attempts")

    def __init__(self, first_ms: int, last_ms: int) -> None:
        self._first_ms = first_ms
        self._last_ms = last_ms
        self.attempts = 0

    def next_ms(self) -> int:
        """The next pause."""
        pause = min(self._first_ms << min(self.attempts, 20), self._last_ms)
        self.attempts += 1
        return int(pause * _random.uniform(0.8, 1.2))
