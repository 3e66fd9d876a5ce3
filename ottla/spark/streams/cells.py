"""A task's cells as the metadata of its committed offsets. Imports no Arrow, so that tools start quickly.

The commit of every source partition holds a copy, because a partition's commit is deleted with its topic. A partition
that was not among the task's sources for a while has an older copy, and a commit by another tool has none. So each copy
holds the number of its commit, and the whole newest copy is used.

A partition's time, which timestamp extractors make, is only in the commit of that partition: a pattern may match many
topics.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping

from ottla.flow.task.receive import partition_time
from ottla.kernel.ids import TopicPartition

_FORM = "ottla1:"
#: The key of the commit's number; no cell has this name. Older versions did not write it.
_COMMIT = ""


def pack(cells: Mapping[str, int], commit: int) -> str:
    """Encode cells as a commit's metadata. Brokers accept 4,096 characters by default (offset.metadata.max.bytes)."""
    text = json.dumps({**cells, _COMMIT: commit}, sort_keys=True)
    return _FORM + base64.b85encode(zlib.compress(text.encode())).decode()


def newest(copies: Mapping[TopicPartition, str]) -> tuple[dict[str, int], int]:
    """The cells and the number of the newest commit among the metadata of a task's partitions, with the time of each
    partition; no cells and 0 if no metadata is ours.
    """
    latest: tuple[dict[str, int], int] = {}, -1
    times: dict[str, int] = {}
    for partition, metadata in copies.items():
        if metadata.startswith(_FORM):
            cells: dict[str, int] = json.loads(zlib.decompress(base64.b85decode(metadata.removeprefix(_FORM))))
            commit = cells.pop(_COMMIT, 0)
            own = partition_time(*partition)
            if own in cells:
                times[own] = cells[own]
            if commit > latest[1]:
                latest = cells, commit
    return times | latest[0], max(0, latest[1])
