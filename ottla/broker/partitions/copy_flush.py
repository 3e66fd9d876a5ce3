"""The flushes of a copy beside the loop, before the loop flushes the rest and swaps the logs.

Rules:
- The loop flushes a rest of a few megabytes, or one that takes it little time, by the time of the last flush: a disk
  with a slow seek would never have less left of a busy log.
- A log that grows faster than its copy's disk flushes is moved once it grows more slowly.
"""

from __future__ import annotations

#: A rest that the loop flushes whatever the disk; the most that it flushes, and for how long.
_REST_BYTES = 4 << 20
_REST_BYTES_MAX = 64 << 20
_REST_MS_MAX = 250
#: The flushes after which a move is late.
_LATE = 10


class CopyFlush:
    """What is flushed of one copy."""

    __slots__ = ("_began_ms", "_count", "_flushed", "_new", "_took_ms")

    def __init__(self) -> None:
        #: The size of the copy at the last flush, and how much of it was new.
        self._flushed = self._new = 0
        self._began_ms = self._took_ms = 0
        self._count = 0

    def is_far(self, size: int) -> bool:
        """Whether a copy of this size is to be flushed beside the loop first."""
        rest = size - self._flushed
        if rest <= _REST_BYTES:
            return False
        if not self._count or rest > _REST_BYTES_MAX:
            return True
        return self._took_ms * max(1.0, rest / self._new) > _REST_MS_MAX

    @property
    def is_late(self) -> bool:
        """Whether so many flushes, and no fewer, have brought the move no end."""
        return self._count == _LATE

    def begin(self, size: int, now_ms: int) -> None:
        """Note that a flush of a copy of this size begins."""
        self._flushed, self._new = size, size - self._flushed
        self._began_ms = now_ms
        self._count += 1

    def end(self, now_ms: int) -> None:
        """Note that the flush has ended."""
        self._took_ms = now_ms - self._began_ms
