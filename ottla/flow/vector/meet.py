"""Joins of two streams in a task: where regions meet, and runs of several partitions at once.

Records of two topics that are joined alternate, so each partition's next rows are few. A merged run takes the rows of
all partitions in the order in which they are processed, each through the steps of its source; a join then gets the
records of both sides.

Rules:
- What different sources and joins write must not be shared, because each of them processes all its records before the
  next one does (region.py).
- The two sides of a join must come from different sources: otherwise the order of two records that come from the same
  one would not be known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ottla.flow.column.batch import JoinBatch
from ottla.flow.column.function import JoinFunction
from ottla.flow.operator.stream_join import JoinWindow, StreamJoin
from ottla.flow.store.duplicates import DuplicatesStore, TimestampedDuplicatesStore
from ottla.flow.vector.encode import arrow_type
from ottla.flow.vector.evaluate import Frame
from ottla.flow.vector.step import KEYS, Kinds, RegionRun, Step
from ottla.flow.vector.stream_join import Side, joined

if TYPE_CHECKING:
    from ottla.flow.engine import Task
    from ottla.flow.task.receive import Receiver
    from ottla.flow.task.rows import Rows

#: Fewer records than this are joined cheaper one by one.
ROWS_MIN = 300


class Meeting:
    """A join of two streams on columns. `name` is the node that emits its results, `windowed` the nodes at which its
    sides arrive, left first.
    """

    def __init__(self, task: Task, name: str, windowed: Sequence[str], sides: Sequence[Side]) -> None:
        self._task = task
        self.name = name
        self.windowed = windowed
        self._sides = sides
        #: The types of both sides, set when a source's steps that arrive here are compiled.
        self.kinds: list[Kinds | None] = [None, None]
        self.following: Step | None = None

    @property
    def stores(self) -> set[str]:
        """The stores of the join."""
        left = self._sides[0].processor
        own = {side.store.name for side in self._sides}
        return own if left.candidates is None else own | {left.candidates.name}

    def arrive(self, windowed: str, kinds: Kinds) -> Step:
        """The step that gives the records of a side to the join."""
        number, name = self.windowed.index(windowed), self.name
        self.kinds[number] = kinds

        def step(frame: Frame, run: RegionRun) -> None:
            run.sides.setdefault(name, [None, None])[number] = frame

        return step

    def result(self) -> Kinds | None:
        """The types of the results, or None if the join does not work on columns of these types."""
        left, right = self.kinds
        join = self._sides[0].processor
        joiner, candidates = join.joiner, join.candidates
        if left is None or right is None or not isinstance(joiner, (JoinFunction, JoinBatch)):
            return None
        if left.windowed or left.changes or right.windowed or right.changes or left.key not in KEYS:
            return None
        if left.key != right.key or joiner.inputs != (left.key, left.value, right.value) or joiner.kind is None:
            return None
        for side, kinds in zip(self._sides, (left, right), strict=True):
            plain = isinstance(side.store, DuplicatesStore) and not isinstance(side.store, TimestampedDuplicatesStore)
            if not plain or (side.store.key_serde.column_type, side.store.value_serde.column_type) != kinds[:2]:
                return None
        if candidates is not None:
            # Without a pause between them, there may be more than one emission in a batch.
            stores = [side.store for side in self._sides]
            serdes = (stores[0].key_serde, stores[0].value_serde, stores[1].value_serde)
            if join.clock.interval <= 0 or candidates.serdes != serdes or stores[1].key_serde != serdes[0]:
                return None
        return Kinds(left.key, joiner.kind)

    def run(self, run: RegionRun) -> None:
        """Join the records that have arrived."""
        arrived = run.sides.get(self.name)
        if arrived is None or not any(arrived):
            return
        frames = [frame or _empty(kinds) for frame, kinds in zip(arrived, self.kinds, strict=True)]
        assert self.following is not None
        self.following(joined(self._task, self._sides, frames, run), run)


def _empty(kinds: Kinds | None) -> Frame:
    assert kinds is not None
    none = np.empty(0, dtype=np.int64)
    return Frame(pa.array([], arrow_type(kinds.key)), pa.array([], arrow_type(kinds.value)), none, none)


def meetings(task: Task) -> list[Meeting]:
    """The joins of streams of a task whose sides come from different sources, in the order of the program."""
    topology, names, found = task.topology, task.subtopology.nodes, dict[str, list[str]]()
    for name in names:
        if name in topology.processors and isinstance(task.node(name).processor, JoinWindow):
            (join,) = topology.children(name)
            if isinstance(task.node(join).processor, StreamJoin):
                found.setdefault(topology.children(join)[0], []).append(name)
    made = []
    for merge, windowed in found.items():
        by_side = sorted(windowed, key=lambda name: not task.node(topology.children(name)[0]).processor.left)
        if len(by_side) != 2 or _sources(task, by_side[0]) & _sources(task, by_side[1]):
            continue
        joins = [topology.children(name)[0] for name in by_side]
        processors = [task.node(join).processor for join in joins]
        stores = [processors[1].other, processors[0].other]
        made.append(
            Meeting(task, merge, by_side, [Side(*each) for each in zip(joins, processors, stores, strict=True)])
        )
    return sorted(made, key=lambda meeting: names.index(meeting.name))


def _sources(task: Task, name: str) -> set[str]:
    """The sources that a node's records come from."""
    parents = [node for node in task.subtopology.nodes if name in task.topology.children(node)]
    return {name} if not parents else set[str]().union(*(_sources(task, parent) for parent in parents))


def run_steps(task: Task, run: RegionRun, given: Iterable[tuple[Step, Frame]], joins: Sequence[Meeting]) -> bool:
    """Run the steps of sources and the joins that their records reach. False: nothing was done."""
    try:
        for step, frame in given:
            step(frame, run)
        for join in joins:
            join.run(run)
    except Exception:
        run.effects.clear()
        return False
    # The effects refer to the run: a cycle would keep its arrays until the collector runs.
    effects, run.effects = run.effects, []
    for effect in effects:
        effect()
    task.time.value = int(run.newest[-1])
    return True


class Merged:
    """Runs of several partitions at once: those of the sources that reach a join."""

    def __init__(self, task: Task, joins: Sequence[Meeting]) -> None:
        self._task = task
        self._joins = joins
        #: The sources that reach a join.
        self.sources = set[str]().union(*(_sources(task, name) for join in joins for name in join.windowed))

    def run(self, heads: Sequence[tuple[Receiver, Rows]], ends: Sequence[tuple[int, bool] | None]) -> int:
        """Process rows of several partitions, which have columns, until one has no more. On equal times, the partition
        that is given first goes first. `ends` bounds each partition: the rows must be before a time, or (True) not
        after it. Returns how many; 0 if nothing was done.
        """
        bound = next((end[0] for end in ends if end is not None), None)
        if bound is not None and sum(_count(rows, bound) for _, rows in heads) < ROWS_MIN:
            return 0
        of, at, times, parts = _in_turn([rows for _, rows in heads], ends)
        if len(of) < ROWS_MIN:
            return 0
        sources = [rows for _, rows in heads]
        newest = np.maximum.accumulate(np.maximum(times, self._task.time.value))
        run = RegionRun(sources, of, at, _headers(sources, of, at), newest)
        given = []
        for (receiver, rows), numbers in zip(heads, parts, strict=True):
            assert rows.columns is not None
            keys, values, _ = rows.columns
            columns = keys.slice(rows.at, len(numbers)), values.slice(rows.at, len(numbers))
            given.append((receiver.region.step, Frame(*columns, times[numbers], numbers)))
        if not run_steps(self._task, run, given, self._joins):
            for rows in sources:
                # The records go one by one, without another attempt for each of them.
                rows.columns = None
            return 0
        for rows, numbers in zip(sources, parts, strict=True):
            rows.at += len(numbers)
        return len(of)


def _count(rows: Rows, last: int) -> int:
    """The number of the next rows that are not after a time."""
    timestamps, row = rows.timestamps, rows.at
    while row < rows.end and timestamps[row] <= last:
        row += 1
    return row - rows.at


def _in_turn(sources: Sequence[Rows], ends: Sequence[tuple[int, bool] | None]) -> tuple[Any, Any, Any, list[Any]]:
    """The rows of several partitions in the order in which they are processed: the partition, row and time of each, and
    the numbers that each partition's rows have in it.
    """
    stamps, turns, last = [], [], []
    for rows, end in zip(sources, ends, strict=True):
        assert rows.columns is not None
        times = rows.columns[2][rows.at :]
        # A row goes after those before it in its partition.
        turn = np.maximum.accumulate(times)
        count = len(turn)
        if end is not None:
            count = int(np.searchsorted(turn, end[0], side="right" if end[1] else "left"))
        last.append(count == len(turn))
        stamps.append(times[:count])
        turns.append(turn[:count])
    order = np.argsort(np.concatenate(turns), kind="stable")
    sizes = np.array([len(each) for each in turns])
    ends_at = np.cumsum(sizes)
    begins = ends_at - sizes
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    # Nothing is known of a partition after its last row.
    exhausted = [number[end - 1] + 1 for end, is_last in zip(ends_at, last, strict=True) if is_last]
    order = order[: min(exhausted, default=len(order))]
    of = np.searchsorted(ends_at, order, side="right")
    firsts = np.array([rows.at for rows in sources])
    parts = [np.flatnonzero(of == source) for source in range(len(sources))]
    return of, order - begins[of] + firsts[of], np.concatenate(stamps)[order], parts


def _headers(sources: Sequence[Rows], of: Any, at: Any) -> Any:
    if all(rows.headers is None for rows in sources):
        return None
    columns = [rows.headers or [()] * rows.end for rows in sources]
    return [columns[source][row] for source, row in zip(of.tolist(), at.tolist(), strict=True)]
