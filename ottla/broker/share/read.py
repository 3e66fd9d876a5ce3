"""The batches of a log that a share group may see: with read_committed, no aborted ones.

A member gets control batches with the records, as from Apache Kafka, and acknowledges them as gaps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ottla.kernel.ports import Buffer
from ottla.log.producer.marker import read_marker
from ottla.share.partition import LogBatch
from ottla.wire.batch import headers


def visible_batches(data: Buffer, aborted: Sequence[tuple[int, int]] | None) -> list[tuple[int, LogBatch]]:
    """(position, batch) of every whole batch; `aborted` has (producer id, first offset) of aborted transactions."""
    upcoming = deque(sorted(aborted or (), key=lambda each: each[1]))
    aborted_producers: set[int] = set()
    batches = []
    view = memoryview(data)
    for position, header in headers(view):
        while upcoming and upcoming[0][1] <= header.last_offset:
            aborted_producers.add(upcoming.popleft()[0])
        is_open = header.is_transactional and header.producer_id in aborted_producers
        if is_open and header.is_control:
            marker = read_marker(view[position : position + header.size], header)
            if marker is not None and marker.aborted:
                aborted_producers.discard(header.producer_id)
        visible = header.is_control or not is_open
        batches.append((position, LogBatch(header.base_offset, header.last_offset, visible)))
    return batches
