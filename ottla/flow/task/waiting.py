"""A task's queues of unprocessed records, and the choice of the next record.

Rules (Kafka Streams):
- The partition whose first record has the lowest timestamp goes first; ties go to the source that was added first, then
  to the lower topic name. Records of a partition keep their order.
- Many records of one partition may come as `Rows`. They are processed together up to the point where another
  partition's record must go first.
"""

from __future__ import annotations

import re
import sys
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

Partition = tuple[str, int]
#: The head of a queue: (sort key, receiver, the deserialized record if it is a single one, the record or rows as read)
_Head = tuple[tuple[Any, ...], Receiver, Record | None, Input | Rows]

#: The most rows of two partitions that are processed in turns before a region gets another chance.
TURNS = 1000


class Waiting:
    """The queues of a task, one for each partition."""

    def __init__(self, task: Task, *, ties_by_heap: bool) -> None:
        self._task = task
        self._ties_by_heap = ties_by_heap
        self.receivers: dict[str, Receiver] = {}
        self.patterns: list[tuple[re.Pattern[str], Receiver]] = []
        self._queues: dict[Partition, deque[Input | Rows]] = {}
        self._heads: dict[Partition, _Head] = {}
        self._first: Heap[Partition] = Heap(lambda partition: self._heads[partition][0])

    def add(self, partition: Partition, item: Input | Rows) -> None:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = deque()
        queue.append(item)
        if partition not in self._heads:
            self._next_head(partition, queue)

    def queued(self, partition: Partition) -> tuple[int, int | None]:
        """The number of queued records of a partition, and the offset of the first one."""
        head = self._heads.get(partition)
        queue: Iterable[Input | Rows] = self._queues.get(partition, ())
        if head is not None:
            queue = [head[3], *queue]
        count, first = 0, None
        for item in queue:
            if first is None:
                first = item.next_offset if isinstance(item, Rows) else item.offset
            count += len(item) if isinstance(item, Rows) else 1
        return count, first

    def step(self) -> bool:
        """Process the next record. False if there is none."""
        if not self._heads:
            return False
        partition = self._first.poll()
        _, receiver, record, received = self._heads.pop(partition)
        assert record is not None and isinstance(received, Input)
        receiver.advance(received, record.timestamp)
        self._next_head(partition, self._queues[partition])
        self._task.process(receiver, record, received)
        return True

    def drain(self, lagging: Sequence[Partition]) -> int:
        """Process records until all queues, or the queue of a partition in `lagging`, are empty. Returns how many."""
        count = 0
        heads = self._heads
        while heads and all(partition in heads for partition in lagging):
            partition = self._first.poll()
            head = heads.pop(partition)
            _, receiver, record, received = head
            if isinstance(received, Rows):
                count += (
                    self._process_merged(partition, head)
                    or self._process_two(partition, head)
                    or self._process_rows(partition, head)
                )
                continue
            assert record is not None
            receiver.advance(received, record.timestamp)
            self._next_head(partition, self._queues[partition])
            self._task.process(receiver, record, received)
            count += 1
        return count

    def _process_rows(self, partition: Partition, head: _Head) -> int:
        """Process the rows that go before any record of another partition. Returns how many."""
        order, receiver, _, rows = head
        assert isinstance(rows, Rows)
        limit = min((head[0] for head in self._heads.values()), default=None)
        start, end = rows.at, rows.end_before(limit, order[1:])
        rows.at = end
        feed(self._task, receiver, rows, start, end)
        self._restore_head(partition, receiver, rows)
        return end - start

    def _process_merged(self, partition: Partition, head: _Head) -> int:
        """Process rows of the partitions whose streams are joined at once, until one has no more or another partition's
        record must go first. Returns how many; 0 if nothing was done.
        """
        merged = self._task.merged
        if merged is None or self._ties_by_heap or self._task.by_stream_time:
            return 0
        if not self._heads or head[1].context.name not in merged.sources:
            return 0
        every = sorted({partition: head, **self._heads}.items(), key=lambda item: item[1][0][1:])
        taken = [each for each in every if each[1][1].context.name in merged.sources]
        if len({receiver.context.name for _, (_, receiver, _, _) in taken}) < len(taken) or not all(
            isinstance(rows, Rows) and rows.columns is not None and receiver.region is not None
            for _, (_, receiver, _, rows) in taken
        ):
            return 0  # two topics of one source, or records that cannot be read as columns
        bound = min((each[0] for _, each in every if each[1].context.name not in merged.sources), default=None)
        ends = [None if bound is None else (bound[0], each[0][1:] < bound[1:]) for _, each in taken]
        count: int = merged.run([(each[1], each[3]) for _, each in taken], ends)
        if not count:
            return 0
        kept = {name: each for name, each in every if each[1].context.name not in merged.sources}
        while self._first:
            self._first.poll()
        self._heads.clear()
        for name, each in kept.items():
            self._heads[name] = each
            self._first.offer(name)
        for name, (_, receiver, _, rows) in taken:
            assert isinstance(rows, Rows)
            self._restore_head(name, receiver, rows)
        return count

    def _process_two(self, partition: Partition, head: _Head) -> int:
        """Process rows of two partitions until one has no more. Returns how many; 0 if other partitions have queued
        records too, or if the next rows are enough for a region.
        """
        if len(self._heads) != 1 or self._ties_by_heap:
            return 0
        ((other, (order, second, _, others)),) = self._heads.items()
        first_order, first, _, rows = head
        if not isinstance(rows, Rows) or not isinstance(others, Rows):
            return 0
        limit = sys.maxsize
        region = first.region or second.region
        if region is not None and not self._task.by_stream_time:
            if region.takes(rows.end_before(order, first_order[1:]) - rows.at):
                return 0
            limit = TURNS
        del self._heads[self._first.poll()]
        wins = first_order[1:] < order[1:]
        count = feed_two(self._task, (first, rows), (second, others), first_wins=wins, limit=limit)
        self._restore_head(partition, first, rows)
        self._restore_head(other, second, others)
        return count

    def _restore_head(self, partition: Partition, receiver: Receiver, rows: Rows) -> None:
        """Set the head of a partition after some of its rows were processed."""
        if rows.at < rows.end:
            self._set_head(partition, receiver, None, rows, rows.timestamps[rows.at])
        else:
            self._next_head(partition, self._queues[partition])

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

    def _next_head(self, partition: Partition, queue: deque[Input | Rows]) -> None:
        receiver = self.receiver(partition[0])
        while queue:
            received = queue.popleft()
            if isinstance(received, Rows):
                self._set_head(partition, receiver, None, received, received.timestamps[received.at])
                return
            record = receiver.receive(received)
            if record is not None:
                self._set_head(partition, receiver, record, received, record.timestamp)
                return

    def _set_head(
        self, partition: Partition, receiver: Receiver, record: Record | None, received: Input | Rows, timestamp: int
    ) -> None:
        order = (timestamp,) if self._ties_by_heap else (timestamp, receiver.rank, *partition)
        self._heads[partition] = (order, receiver, record, received)
        self._first.offer(partition)
