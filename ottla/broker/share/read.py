"""The batches of a log that a share group may see: no control batches and, with read_committed, no aborted ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ottla.kernel.ports import Buffer
from ottla.log.producer.marker import read_marker
from ottla.share.partition import LogBatch
from ottla.wire.batch import headers


def visible_batches(data: Buffer, aborted: Sequence[tuple[int, int]] | None) -> list[tuple[int, LogBatch]]:
    """(position, batch) of every whole batch; `aborted` has (producer id, first offset) of aborted transactions."""
    coming = deque(sorted(aborted or (), key=lambda each: each[1]))
    gone: set[int] = set()
    found = []
    view = memoryview(data)
    for position, header in headers(view):
        while coming and coming[0][1] <= header.last_offset:
            gone.add(coming.popleft()[0])
        visible = not header.is_control
        if header.is_control:
            marker = read_marker(view[position : position + header.size], header) if gone else None
            if marker is not None and marker.aborted:
                gone.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in gone:
            visible = False
        found.append((position, LogBatch(header.base_offset, header.last_offset, visible)))
    return found
