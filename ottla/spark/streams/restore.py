"""Restoring a task's stores from their changelogs. The cells are restored from commits (cells.py).

A changelog holds the entries of the engine's store unchanged (key bytes to value bytes, a tombstone for a delete), one
record for each entry that a transaction changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.consumer.sync import Consumer
from ottla.flow.engine import State
from ottla.flow.vector.columns import Batch, objects
from ottla.kernel.ids import TopicPartition
from ottla.spark.streams.layout import Program, TaskPlan


def restore(program: Program, plan: TaskPlan, cells: Mapping[str, int]) -> State:
    """Read the state as of the last committed transaction. Call this after fencing the transactional id."""
    state = State({}, dict(cells))
    settings = program.connection(isolation_level="read_committed", auto_offset_reset="none")
    stores = {TopicPartition(program.changelog(store), plan.partition): store for store in plan.stores}
    if not stores:
        return state
    with Consumer(settings) as consumer:
        consumer.assign(stores)
        ends = consumer.end_offsets(stores)
        for partition, begin in consumer.beginning_offsets(stores).items():
            state.stores[stores[partition]] = {}
            consumer.seek(partition, begin)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for batch in consumer.poll_table(0.1, max_records=100_000).to_batches():
                if batch.num_rows:
                    rows = Batch.of(batch)
                    apply(state.stores[stores[TopicPartition(rows.topic, rows.partition)]], rows)
    return state


def apply(entries: dict[bytes, bytes], rows: Batch) -> None:
    """Apply records of a changelog to a store's entries."""
    pairs = zip(objects(rows.keys), objects(rows.values), strict=True)
    if not rows.values.null_count:
        entries.update(pairs)
        return
    for key, value in pairs:
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value
