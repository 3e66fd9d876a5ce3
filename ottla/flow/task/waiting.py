"""A task's queues of unprocessed records, and the choice of the next record.

Rules (Kafka Streams):
- The partition whose first record has the lowest timestamp goes first; ties go to the source that was added first, then
  to the lower topic name. Records of a partition keep their order.
- Many records of one partition may come as `Rows`. They are processed together up to the point where another
  partition's record must go first.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.flow.error import TopologyError
from ottla.flow.record import Input, Record
from ottla.flow.task.feed import feed, feed_two
from ottla.flow.task.heap import Heap
from ottla.flow.task.receive import Receiver
from ottla.flow.task.rows import Rows

if TYPE_CHECKING:
    from ottla.flow.engine import Task

Place = tuple[str, int]
#: The head of a queue: (sort key, receiver, the deserialized record if it is a single one, the record or rows as read)
_Head = tuple[tuple[Any, ...], Receiver, Record | None, Input | Rows]


class Waiting:
    """The queues of a task, one for each partition."""

    def __init__(self, task: Task, *, ties_by_heap: bool) -> None:
        self._task = task
        self._ties_by_heap = ties_by_heap
        self.receivers: dict[str, Receiver] = {}
        self.patterns: list[tuple[re.Pattern[str], Receiver]] = []
        self._queues: dict[Place, deque[Input | Rows]] = {}
        self._heads: dict[Place, _Head] = {}
        self._first: Heap[Place] = Heap(lambda place: self._heads[place][0])

    def add(self, place: Place, what: Input | Rows) -> None:
        queue = self._queues.get(place)
        if queue is None:
            queue = self._queues[place] = deque()
        queue.append(what)
        if place not in self._heads:
            self._next_head(place, queue)

    def queued(self, place: Place) -> tuple[int, int | None]:
        """The number of queued records of a partition, and the offset of the first one."""
        head = self._heads.get(place)
        queue: Iterable[Input | Rows] = self._queues.get(place, ())
        if head is not None:
            queue = [head[3], *queue]
        count, first = 0, None
        for each in queue:
            if first is None:
                first = each.next_offset if isinstance(each, Rows) else each.offset
            count += len(each) if isinstance(each, Rows) else 1
        return count, first

    def step(self) -> bool:
        """Process the next record. False if there is none."""
        if not self._heads:
            return False
        place = self._first.poll()
        _, receiver, record, received = self._heads.pop(place)
        self._next_head(place, self._queues[place])
        assert record is not None and isinstance(received, Input)
        self._task.process(receiver, record, received)
        return True

    def drain(self, behind: Sequence[Place]) -> int:
        """Process records until all queues, or the queue of a partition in `behind`, are empty. Returns how many."""
        count = 0
        heads = self._heads
        while heads and all(place in heads for place in behind):
            place = self._first.poll()
            head = heads.pop(place)
            _, receiver, record, received = head
            if isinstance(received, Rows):
                count += self._together(place, head) or self._alone(place, head)
                continue
            self._next_head(place, self._queues[place])
            assert record is not None
            self._task.process(receiver, record, received)
            count += 1
        return count

    def _alone(self, place: Place, head: _Head) -> int:
        """Process the rows that go before any record of another partition. Returns how many."""
        order, receiver, _, rows = head
        assert isinstance(rows, Rows)
        limit = min((head[0] for head in self._heads.values()), default=None)
        start, end = rows.at, rows.end_before(limit, order[1:])
        rows.at = end
        feed(self._task, receiver, rows, start, end)
        self._rest(place, receiver, rows)
        return end - start

    def _together(self, place: Place, head: _Head) -> int:
        """Process rows of two partitions until one has no more. Returns how many; 0 if other partitions have queued
        records too, or if one of the two has a region.
        """
        if len(self._heads) != 1 or self._ties_by_heap:
            return 0
        ((other, (order, second, _, others)),) = self._heads.items()
        first_order, first, _, rows = head
        if first.region or second.region or not isinstance(rows, Rows) or not isinstance(others, Rows):
            return 0
        del self._heads[self._first.poll()]
        wins = first_order[1:] < order[1:]
        count = feed_two(self._task, (first, rows), (second, others), first_wins=wins)
        self._rest(place, first, rows)
        self._rest(other, second, others)
        return count

    def _rest(self, place: Place, receiver: Receiver, rows: Rows) -> None:
        """Set the head of a partition after some of its rows were processed."""
        if rows.at < rows.end:
            self._lead(place, receiver, None, rows, rows.timestamps[rows.at])
        else:
            self._next_head(place, self._queues[place])

    def receiver(self, topic: str) -> Receiver:
        """The receiver of a topic. TopologyError if no source reads it."""
        receiver = self.receivers.get(topic)
        if receiver is not None:
            return receiver
        for pattern, receiver in self.patterns:
            if pattern.fullmatch(topic):
                self.receivers[topic] = receiver
                return receiver
        names = ", ".join(self.receivers) or "none"
        raise TopologyError(f"task {self._task.id} reads no topic {topic} (it reads: {names})")

    def all(self) -> list[Receiver]:
        """All receivers."""
        return [*self.receivers.values(), *(receiver for _, receiver in self.patterns)]

    def _next_head(self, place: Place, queue: deque[Input | Rows]) -> None:
        receiver = self.receiver(place[0])
        while queue:
            received = queue.popleft()
            if isinstance(received, Rows):
                self._lead(place, receiver, None, received, received.timestamps[received.at])
                return
            record = receiver.receive(received)
            if record is not None:
                self._lead(place, receiver, record, received, record.timestamp)
                return

    def _lead(
        self, place: Place, receiver: Receiver, record: Record | None, received: Input | Rows, timestamp: int
    ) -> None:
        order = (timestamp,) if self._ties_by_heap else (timestamp, receiver.rank, *place)
        self._heads[place] = (order, receiver, record, received)
        self._first.offer(place)
