"""What time it is, by both clocks.

Rules:
- A deadline is a monotonic time: a session, a lock, a delay. The wall clock may be set, and no client may be hurt by
  that.
- A timestamp is a wall time: it stands in a record or is shown to people. What is counted from such a timestamp (the
  expiry of offsets and ids, a transaction's timeout as in Apache Kafka, retention) goes by the wall clock, too.
"""

from __future__ import annotations

from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Clock


class Now(NamedTuple):
    """A moment, in whole milliseconds."""

    #: Since 1970-01-01 UTC. It may jump.
    wall_ms: int
    #: Never goes back; only differences mean something.
    monotonic_ms: int

    @classmethod
    def of(cls, clock: Clock) -> Now:
        """The clock's."""
        return cls(clock.now_ms(), clock.monotonic_ms())
