"""The current time on both clocks, and deadlines.

Rules:
- A deadline is monotonic: sessions, locks, delays. Setting the wall clock must not affect clients.
- A timestamp is wall-clock time: it is in records or shown to people. Durations from such a timestamp (the expiry of
  offsets and ids, a transaction's timeout as in Apache Kafka, retention) also use the wall clock.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Clock


class Now(NamedTuple):
    """A point in time, in whole milliseconds."""

    #: Since 1970-01-01 UTC. It may jump.
    wall_ms: int
    #: Never decreases; only differences are meaningful.
    monotonic_ms: int

    @classmethod
    def of(cls, clock: Clock) -> Now:
        """Read both clocks."""
        return cls(clock.now_ms(), clock.monotonic_ms())


def earliest(times: Iterable[int | None]) -> int | None:
    """Return the earliest time that is set; None if none is. Timers are planned after each event: a plain loop."""
    found = None
    for time in times:
        if time is not None and (found is None or time < found):
            found = time
    return found
