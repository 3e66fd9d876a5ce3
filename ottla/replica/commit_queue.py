"""The callbacks that wait until a partition is committed up to an offset, ordered by offset.

Rules:
- Every waiter is called once: without an error when the high watermark reaches its offset, or with an error when this
  node stops leading the partition in this leader epoch.
- A waiter that `stays` goes on waiting if this node leads the next epoch, too: it has kept its records.
- A waiter that is cancelled (its request timed out) is not called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from ottla.kernel.callbacks import raise_all
from ottla.kernel.error import KafkaError

#: Called with None when the records are committed, otherwise with the reason why they may not be.
Done = Callable[[KafkaError | None], None]


class CommitWaiter:
    """A callback and the `offset` that the high watermark must reach."""

    __slots__ = ("done", "number", "offset", "stays")

    def __init__(self, offset: int, number: int, done: Done, stays: bool) -> None:
        self.offset = offset
        self.number = number
        self.done: Done | None = done
        self.stays = stays

    def __lt__(self, other: CommitWaiter) -> bool:
        return (self.offset, self.number) < (other.offset, other.number)

    def cancel(self) -> None:
        """Stop waiting; `done` is not called."""
        self.done = None


class CommitQueue:
    """The waiters of one partition in one leader epoch."""

    __slots__ = ("_sweep_length", "_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[CommitWaiter] = []
        self._count = 0
        #: The length at which cancelled waiters are dropped next, so that a partition that commits nothing keeps few.
        self._sweep_length = 64

    def __len__(self) -> int:
        return sum(waiter.done is not None for waiter in self._heap)

    @property
    def first_offset(self) -> int | None:
        """The lowest offset that a waiter, perhaps a cancelled one, waits for."""
        return self._heap[0].offset if self._heap else None

    def add(self, offset: int, done: Done, stays: bool = False) -> CommitWaiter:
        """Call `done` when the high watermark is `offset` or more. Waiters for the same offset are called in order."""
        if len(self._heap) >= self._sweep_length:
            self._heap = [waiter for waiter in self._heap if waiter.done is not None]
            heapify(self._heap)
            self._sweep_length = max(64, 2 * len(self._heap))
        self._count += 1
        waiter = CommitWaiter(offset, self._count, done, stays)
        heappush(self._heap, waiter)
        return waiter

    def take_staying(self) -> list[CommitWaiter]:
        """Take the waiters out that go on waiting in the next epoch."""
        staying = [waiter for waiter in self._heap if waiter.stays and waiter.done is not None]
        self._heap = [waiter for waiter in self._heap if not waiter.stays]
        heapify(self._heap)
        return staying

    def adopt(self, waiters: Iterable[CommitWaiter]) -> None:
        """Queue the waiters of the epoch before, before any of this epoch."""
        for waiter in sorted(waiters):
            self._count += 1
            waiter.number = self._count
            heappush(self._heap, waiter)

    def complete(self, high_watermark: int, error: KafkaError | None = None) -> None:
        """Call every waiter up to `high_watermark`; with `error` if the records were committed by too few replicas."""
        _call(self._heap, high_watermark, error)

    def fail(self, error: KafkaError) -> None:
        """Call every waiter with `error`: this node no longer leads the partition."""
        heap, self._heap = self._heap, []
        _call(heap, None, error)


def _call(heap: list[CommitWaiter], high_watermark: int | None, error: KafkaError | None) -> None:
    """Call the waiters up to `high_watermark` (None: all), each taken out of the queue before; like `call_each`.

    It runs for every commit that a producer waits for, so it makes no closures.
    """
    errors: list[Exception] = []
    while heap and (high_watermark is None or heap[0].offset <= high_watermark):
        waiter = heappop(heap)
        done, waiter.done = waiter.done, None
        if done is not None:
            try:
                done(error)
            except Exception as failure:
                errors.append(failure)
    raise_all(errors)
