"""A task with its producer: every step commits the outputs, the changelog and the offsets together (`commit`).

Rules:
- The transactional id is `<application.id>-<task>`. `open` fences it first: an earlier holder's transaction is over
  before offsets and changelogs are read, and the earlier holder cannot commit any more.
- The engine runs before the transaction is opened, so a slow function holds no transaction open.
- After an error the task is thrown away with its state and opened again from what was committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from ottla.client.admin.client import Admin
from ottla.client.membership.commit import CommittedOffset
from ottla.flow.engine import GlobalTask, Task
from ottla.flow.store.ordered import MemoryBytes
from ottla.flow.vector.columns import Batch
from ottla.flow.vector.region import vectorize
from ottla.kernel.ids import TopicPartition
from ottla.spark.streams.cells import newest, pack
from ottla.spark.streams.commit import Committer
from ottla.spark.streams.layout import Program, TaskPlan
from ottla.spark.streams.restore import restore
from ottla.spark.streams.write import Made

#: A task commits its offsets again after so long without a commit. Its group has no members: brokers forget an offset
#: `offsets.retention.minutes` after its commit, and the task would begin again where its source begins.
KEEP_MS = 600_000


class HostedTask:
    """`committed` are the group's offsets, of the last commit or from when the task was opened."""

    def __init__(self, program: Program, plan: TaskPlan, admin: Admin, globals_: GlobalTask | None, now: int) -> None:
        self.plan = plan
        self.committer = Committer(program, plan, admin)
        try:
            self.committer.open()
            found = admin.list_group_offsets(program.application_id, list(plan.sources), stable=True)
            self.committed = {place: _alone(one) for place, one in found.items()}
            self._cells, self._commits = newest(one.metadata for one in found.values())
            state = restore(program, plan, self._cells)
            settings = replace(program.settings, partitions=self.committer.count)
            self.task = Task(
                program.topology,
                plan.subtopology,
                plan.partition,
                settings,
                state=state,
                # The entries are taken over: a copy would double the memory of a large store.
                backend=lambda name: MemoryBytes.of(state.stores.pop(name, {})),
                globals_=globals_,
                now=now,
            )
            vectorize(self.task)
        except BaseException:
            self.committer.close()
            raise
        self._given = False
        #: When it last committed, in ms; of earlier commits that is not known.
        self._committed_ms = 0
        self.processed = 0
        #: Seconds in the engine, and how old the newest record was when it was processed.
        self.process_s = 0.0
        self.latency_ms: int | None = None

    def give(self, batch: Batch) -> None:
        """Queue records of one of the partitions."""
        self.task.add_columns(batch)
        self._given = True

    @property
    def idle(self) -> bool:
        """No record waits."""
        return not self._given

    def empty(self) -> list[TopicPartition]:
        """The partitions of which no record waits."""
        return [place for place in self.plan.sources if self.task.queued(*place)[0] == 0]

    def run(self, positions: Mapping[TopicPartition, CommittedOffset], behind: list[TopicPartition], now: int) -> None:
        """Process what waits and commit. `positions`: the consumer's; `behind`: the partitions with more in the log.

        A commit before a record that waits has no leader epoch: tables of records name none.
        The engine stops when no record of one of those waits, as that record could be the next by time.
        """
        task = self.task
        began = time.perf_counter()
        task.now = max(task.now, now)
        task.punctuate()
        # A partition without a waiting record may not be overtaken while its log has more.
        done = task.drain(behind)
        self.process_s += time.perf_counter() - began
        if done:
            self.processed += done
            self.latency_ms = max(0, time.time_ns() // 1_000_000 - task.stream_time)
        self._given = any(task.queued(*place)[0] for place in self.plan.sources)
        offsets = {}
        for place in self.plan.sources:
            waiting = task.queued(*place)[1]
            offsets[place] = positions[place] if waiting is None else CommittedOffset(waiting)
        self._commit(task.take_outputs(), offsets, now)

    def settle(self, positions: Mapping[TopicPartition, CommittedOffset], now: int) -> None:
        """Commit the positions if no record waits, and old commits again."""
        offsets = {place: positions[place] for place in self.plan.sources} if self.idle else self.committed
        if offsets:
            self._commit([], offsets, now, again=now - self._committed_ms >= KEEP_MS)

    def _commit(
        self, outputs: list[Made], offsets: Mapping[TopicPartition, CommittedOffset], now: int, *, again: bool = False
    ) -> None:
        changes = self.task.take_changes()
        self._cells |= changes.cells
        if not again and not outputs and not changes.stores and not changes.cells and offsets == self.committed:
            return
        cells = pack(self._cells, self._commits + 1)
        told = {place: CommittedOffset(one.offset, cells, one.leader_epoch) for place, one in offsets.items()}
        self.committer.commit(self.task, outputs, changes, told)
        self._commits += 1
        self.committed = dict(offsets)
        self._committed_ms = now

    def close(self, quietly: Callable[[Callable[[], None]], None]) -> None:
        """`quietly` calls what may fail after an error."""
        quietly(self.task.close)
        quietly(self.committer.close)


def _alone(committed: CommittedOffset) -> CommittedOffset:
    """Without its metadata, which are the task's numbers."""
    return CommittedOffset(committed.offset, leader_epoch=committed.leader_epoch)
