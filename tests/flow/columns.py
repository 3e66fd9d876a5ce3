"""A runner that gives its tasks columns, as a worker on Spark does."""

from collections.abc import Iterable
from itertools import groupby
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.flow.engine import Settings, Task
from ottla.flow.record import Input, Output
from ottla.flow.runner import Runner
from ottla.flow.task.rows import Rows
from ottla.flow.topology import Topology
from ottla.flow.vector.columns import Batch, OutputColumns
from ottla.flow.vector.meet import Merged
from ottla.flow.vector.region import Region, vectorize


def batch(topic: str, partition: int, inputs: list[Input]) -> Batch:
    """Records of one partition as columns."""
    return Batch(
        topic,
        partition,
        np.array([each.offset for each in inputs], dtype=np.int64),
        np.array([each.timestamp for each in inputs], dtype=np.int64),
        pa.array([each.key for each in inputs], pa.binary()),
        pa.array([each.value for each in inputs], pa.binary()),
        [each.headers for each in inputs] if any(each.headers for each in inputs) else None,
    )


class ColumnRunner(Runner):
    """`drain="batch"` with columns; `cut` is the most records of a batch. `columns` counts what came out as such,
    `failed` the batches that raised and were taken one by one.
    """

    cut = 1 << 30
    columns = 0
    failed = 0

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords, drain="batch")
        for task in self.tasks.values():
            vectorize(task)
            for receiver in task.receivers():
                if receiver.region is not None:
                    self._watch(receiver.region)
            if task.merged is not None:
                self._watch_merged(task.merged)

    def _watch_merged(self, merged: Merged) -> None:
        run = merged.run

        def watched(heads: Any, ends: Any) -> int:
            count = run(heads, ends)
            self.failed += any(rows.columns is None for _, rows in heads)
            return count

        merged.run = watched  # type: ignore[method-assign]

    def _watch(self, region: Region) -> None:
        run = region.run

        def watched(rows: Rows, start: int, end: int) -> bool:
            done = run(rows, start, end)
            self.failed += not done and rows.columns is not None and region.takes(end - start)
            return done

        region.run = watched  # type: ignore[method-assign]

    def _run_task(self, task: Task, inputs: list[Input]) -> list[Output]:
        inputs.sort(key=lambda each: (each.topic, each.partition))
        for (topic, partition), some in groupby(inputs, lambda each: (each.topic, each.partition)):
            rows = list(some)
            for at in range(0, len(rows), self.cut):
                task.add_columns(batch(topic, partition, rows[at : at + self.cut]))
        found: list[Output] = []
        made: list[Any] = task.run((), self.now)
        for each in made:
            if isinstance(each, OutputColumns):
                self.columns += len(each.keys)
                found += each.outputs()
            else:
                found.append(each)
        return found


def by_topic(outputs: Iterable[Output]) -> dict[str, list[Output]]:
    """The outputs of each topic in their order: nothing else is seen from outside."""
    found: dict[str, list[Output]] = {}
    for output in outputs:
        found.setdefault(output.topic, []).append(output)
    return found


def newest(outputs: dict[str, list[Output]]) -> dict[tuple[str, bytes | None], Output]:
    """Take the changelogs out: the last entry of each key. A batch of columns logs no other."""
    logs = [outputs.pop(topic) for topic in list(outputs) if topic.endswith("-changelog")]
    return {(each.topic, each.key): each for log in logs for each in log}


def compare_lanes(
    rng: Random, topology: Topology, settings: Settings, given: list[Input], told: str
) -> tuple[int, int]:
    """Run a program record by record and in columns, with generated cuts and clocks, and with restarts in which the
    lanes change: both give the same. Returns how many outputs came as columns, and how many there were.
    """
    columns = records = now = 0
    clock = Random(len(given))
    cut, size = rng.choice((3, 1000)), rng.choice((9, 40, 1000))
    one, many = Runner(topology, settings, drain="batch"), ColumnRunner(topology, settings)
    for at in range(0, len(given), size):
        many.cut = cut
        now += clock.choice((0, 100, 1001))
        some = given[at : at + size]
        expected, found = by_topic(one.run(list(some), now)), by_topic(many.run(some, now))
        columns, many.columns = columns + many.columns, 0
        records += sum(map(len, expected.values()))
        letters = [sorted(side.pop("dead", []), key=repr) for side in (found, expected)]
        assert letters[0] == letters[1], told
        # Only batches with a record that fails are taken one by one.
        assert letters[1] or not many.failed, told
        many.failed = 0
        assert newest(found) == newest(expected), told
        assert found == expected, told
        changes = [[each.take_changes() for each in side.tasks.values()] for side in (one, many)]
        assert changes[0] == changes[1], told
        assert many.state() == one.state(), told
        dropped = [[(each.dropped, each.dropped_at) for each in side.tasks.values()] for side in (one, many)]
        assert dropped[0] == dropped[1], told
        if rng.random() < 0.2:
            states = one.state(), many.state()
            one = Runner(topology, settings, drain="batch", state=states[1])
            many = ColumnRunner(topology, settings, state=states[0])
    return columns, records
