"""A task with its producer: each step commits outputs, changelog entries and offsets together (`commit`).

Rules:
- The transactional id is `<application.id>-<task>`. Opening a task fences the id first: an earlier holder's transaction
  ends before offsets and changelogs are read, and the earlier holder can no longer commit.
- The engine runs before the transaction begins, so a slow function does not keep a transaction open.
- After an error the task and its state are discarded, and the task is reopened from the last commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from ottla.client.admin.client import Admin
from ottla.client.membership.commit import CommittedOffset
from ottla.flow.engine import GlobalTask, Task
from ottla.flow.store.ordered import MemoryBytes
from ottla.flow.task.receive import partition_time
from ottla.flow.vector.columns import Batch
from ottla.flow.vector.region import vectorize
from ottla.kernel.ids import TopicPartition
from ottla.spark.streams.cells import newest, pack
from ottla.spark.streams.commit import Committer
from ottla.spark.streams.error_log import with_log
from ottla.spark.streams.layout import Program, TaskPlan
from ottla.spark.streams.restore import restore
from ottla.spark.streams.write import AnyOutput

#: A task repeats its last commit after this time without one. Its group has no members, so brokers drop an offset
#: `offsets.retention.minutes` after its commit; the task would then restart from its initial offset.
KEEP_MS = 600_000


class HostedTask:
    """An open task. `committed` are the offsets of the last commit, or those found on opening."""

    def __init__(self, program: Program, plan: TaskPlan, admin: Admin, globals_: GlobalTask | None, now: int) -> None:
        self.plan = plan
        self.committer = Committer(program, plan, admin)
        try:
            self.committer.open()
            committed = admin.list_group_offsets(program.application_id, list(plan.sources), stable=True)
            self.committed = {partition: _without_metadata(offset) for partition, offset in committed.items()}
            self._cells, self._commits = newest({partition: offset.metadata for partition, offset in committed.items()})
            state = restore(program, plan, self._cells)
            settings = replace(
                program.settings,
                partitions=self.committer.count,
                handlers=with_log(program.settings.handlers),
            )
            self.task = Task(
                program.topology,
                plan.subtopology,
                plan.partition,
                settings,
                state=state,
                # The backend takes over the entries: a copy would double the memory of a large store.
                backend=lambda name: MemoryBytes.of(state.stores.pop(name, {})),
                globals_=globals_,
                now=now,
            )
            vectorize(self.task)
            # Cells of steps that the program no longer has would fill the metadata of commits.
            self._times = {partition_time(*partition) for partition in plan.sources}
            self._cells = {
                name: value for name, value in self._cells.items() if name in self._times or self.task.uses_cell(name)
            }
        except BaseException:
            self.committer.close()
            raise
        self._has_queued = False
        #: The time of its last commit in ms; 0 before the first since opening.
        self._committed_ms = 0
        self.processed = 0
        #: Seconds spent in the engine, and the age of the newest record when it was processed.
        self.process_s = 0.0
        self.latency_ms: int | None = None

    def add_batch(self, batch: Batch, now: int) -> None:
        """Queue records of one of the partitions, which were read at `now`."""
        self.task.add_columns(batch, now)
        self._has_queued = True

    @property
    def idle(self) -> bool:
        """Whether no record is queued."""
        return not self._has_queued

    def empty(self) -> list[TopicPartition]:
        """The partitions without a queued record."""
        return [partition for partition in self.plan.sources if self.task.queued(*partition)[0] == 0]

    def run(self, positions: Mapping[TopicPartition, CommittedOffset], lagging: list[TopicPartition], now: int) -> None:
        """Process queued records and commit. `positions` are the consumer's; `lagging` the partitions that the consumer
        has not read to the end.

        The engine stops when a partition in `lagging` has no queued record: its next record could be the next by time.
        The commit of a partition with queued records has no leader epoch, because columns of records have none.
        """
        task = self.task
        began = time.perf_counter()
        task.now = max(task.now, now)
        task.punctuate()
        done = task.drain(lagging)
        self.process_s += time.perf_counter() - began
        if done:
            self.processed += done
            self.latency_ms = max(0, time.time_ns() // 1_000_000 - task.stream_time)
        self._has_queued = any(task.queued(*partition)[0] for partition in self.plan.sources)
        offsets = {}
        for partition in self.plan.sources:
            waiting = task.queued(*partition)[1]
            offsets[partition] = positions[partition] if waiting is None else CommittedOffset(waiting)
        self._commit(task.take_outputs(), offsets, now)

    def settle(self, positions: Mapping[TopicPartition, CommittedOffset], now: int) -> None:
        """Commit the positions if no record is queued, and repeat the last commit if it is old."""
        offsets = {partition: positions[partition] for partition in self.plan.sources} if self.idle else self.committed
        if offsets:
            self._commit([], offsets, now, again=now - self._committed_ms >= KEEP_MS)

    def _commit(
        self,
        outputs: list[AnyOutput],
        offsets: Mapping[TopicPartition, CommittedOffset],
        now: int,
        *,
        again: bool = False,
    ) -> None:
        changes = self.task.take_changes()
        self._cells |= changes.cells
        if not again and not outputs and not changes.stores and not changes.cells and offsets == self.committed:
            return
        with_cells = {
            partition: CommittedOffset(offset.offset, metadata, offset.leader_epoch)
            for (partition, offset), metadata in zip(offsets.items(), self._metadata(offsets), strict=True)
        }
        self.committer.commit(self.task, outputs, changes, with_cells)
        self._commits += 1
        self.committed = dict(offsets)
        self._committed_ms = now

    def _metadata(self, partitions: Iterable[TopicPartition]) -> Iterator[str]:
        """The metadata of the next commit of each partition: the cells, and of the partitions' times its own."""
        common = {name: value for name, value in self._cells.items() if name not in self._times}
        copy = pack(common, self._commits + 1)
        for partition in partitions:
            name = partition_time(*partition)
            if name in self._cells:
                yield pack({**common, name: self._cells[name]}, self._commits + 1)
            else:
                yield copy

    def close(self, quietly: Callable[[Callable[[], None]], None]) -> None:
        """Close the task and its producer. `quietly` calls each and suppresses its errors."""
        quietly(self.task.close)
        quietly(self.committer.close)


def _without_metadata(committed: CommittedOffset) -> CommittedOffset:
    """A committed offset without its metadata, which holds the task's numbers."""
    return CommittedOffset(committed.offset, leader_epoch=committed.leader_epoch)
