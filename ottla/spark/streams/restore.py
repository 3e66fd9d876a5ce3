"""Restoring a task's stores from their changelogs. The cells are restored from commits (cells.py).

A changelog holds the entries of the engine's store unchanged (key bytes to value bytes, a tombstone for a delete), one
record for each entry that a transaction changed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ottla.client.consumer.sync import Consumer
from ottla.flow.engine import State
from ottla.flow.vector.columns import Batch, objects
from ottla.kernel.ids import TopicPartition
from ottla.spark.streams.layout import Program, TaskPlan

log = logging.getLogger(__name__)
#: Seconds without a record until a warning.
SILENCE_S = 30


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
        for rows in read_to(consumer, ends):
            apply(state.stores[stores[TopicPartition(rows.topic, rows.partition)]], rows)
    return state


def read_to(consumer: Consumer[Any, Any], ends: Mapping[TopicPartition, int]) -> Iterator[Batch]:
    """Yield the records of all partitions up to their `ends`. Logs a warning about partitions that give none."""
    warn_at = time.monotonic() + SILENCE_S
    while missing := [partition for partition, end in ends.items() if consumer.position(partition) < end]:
        for batch in consumer.poll_table(0.1, max_records=100_000).to_batches():
            if batch.num_rows:
                yield Batch.of(batch)
                warn_at = time.monotonic() + SILENCE_S
        if time.monotonic() > warn_at:
            warn_at = time.monotonic() + SILENCE_S
            partition = missing[0]
            log.warning(
                "waiting for %s-%d: no record for %d s, at offset %d of %d; check that its leader is reachable",
                *(*partition, SILENCE_S, consumer.position(partition), ends[partition]),
            )


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
