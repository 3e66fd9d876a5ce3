"""What waits until a partition is committed up to an offset, in the order of the offsets.

Rules:
- Every waiter is called once: without an error when the high watermark has reached its offset, with one when the
  partition is not led any more in this leader epoch.
- A waiter may give up (its request timed out); it is then not called.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from ottla.kernel.error import KafkaError

#: Called with None when the records are committed, else with why they may not be.
Done = Callable[[KafkaError | None], None]


class CommitWaiter:
    """A waiter; `offset` is the one that the high watermark has to reach."""

    __slots__ = ("_number", "done", "offset")

    def __init__(self, offset: int, number: int, done: Done) -> None:
        self.offset = offset
        self._number = number
        self.done: Done | None = done

    def __lt__(self, other: CommitWaiter) -> bool:
        return (self.offset, self._number) < (other.offset, other._number)

    def cancel(self) -> None:
        """Wait no longer, without being called."""
        self.done = None


class CommitQueue:
    """The waiters of one partition in one leader epoch."""

    __slots__ = ("_cancelled_at", "_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[CommitWaiter] = []
        self._count = 0
        #: The length at which the cancelled ones are dropped next: a partition that commits nothing keeps none of them.
        self._cancelled_at = 64

    def __len__(self) -> int:
        return sum(each.done is not None for each in self._heap)

    @property
    def first_offset(self) -> int | None:
        """The lowest offset that is waited for."""
        return self._heap[0].offset if self._heap else None

    def add(self, offset: int, done: Done) -> CommitWaiter:
        """Call `done` when the high watermark is `offset` or more. Callers with one offset are called as they came."""
        if len(self._heap) >= self._cancelled_at:
            self._heap = [each for each in self._heap if each.done is not None]
            heapify(self._heap)
            self._cancelled_at = max(64, 2 * len(self._heap))
        self._count += 1
        waiter = CommitWaiter(offset, self._count, done)
        heappush(self._heap, waiter)
        return waiter

    def reached(self, high_watermark: int, error: KafkaError | None = None) -> None:
        """The high watermark has moved: call all that it has reached, with `error` if the commit is worth less."""
        heap = self._heap
        while heap and heap[0].offset <= high_watermark:
            self._call(heappop(heap), error)

    def end(self, error: KafkaError) -> None:
        """The partition is not led any more: tell all."""
        heap, self._heap = self._heap, []
        while heap:
            self._call(heappop(heap), error)

    def _call(self, waiter: CommitWaiter, error: KafkaError | None) -> None:
        done, waiter.done = waiter.done, None
        if done is not None:
            done(error)
