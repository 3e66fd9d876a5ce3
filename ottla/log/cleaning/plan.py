"""Compaction, what and when: which part of a log can be cleaned, whether it is due, which segments become one.

A record goes when a later one has its key, if both lie in what is cleaned. The log falls into the clean section, below
`Log.cleaner_offset`, where every key is unique; the dirty one; and what must not be touched.

Rules:
- Never touched: the active segment, what lies above the last stable offset, segments younger than
  `min.compaction.lag.ms`. `max.compaction.lag.ms` makes a log due whatever its ratio is.
- A cleaned segment takes the place of one segment or of several that follow one another, and never becomes larger
  than a segment, its indexes or its range of offsets may be.

`job` does the work, in a process of its own; `swap` puts a result in place. The broker's cleaner drives.

KIPs: 58 (min.compaction.lag.ms), 354 (max.compaction.lag.ms), 534 (delete horizon).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.kernel.named import NamedTuple
from ottla.log.segment.index import RELATIVE_OFFSET_MAX
from ottla.log.setting import UNLIMITED

if TYPE_CHECKING:
    from ottla.log.log import Log


class Cleanable(NamedTuple):
    """What of a log can be cleaned now."""

    #: Below, every key is unique already.
    first_dirty_offset: int
    #: The base offset of the first segment that must not be touched.
    end_offset: int
    dirty_bytes: int
    #: Part of the bytes below `end_offset` that is dirty.
    ratio: float
    #: Has a dirty record waited for `max.compaction.lag.ms`?
    overdue: bool


class CleaningSource(NamedTuple):
    """A segment that is to be cleaned."""

    base_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int


def cleanable(log: "Log", now_ms: int) -> Cleanable | None:
    """What can be cleaned, or None if there is nothing."""
    if len(log.segments) < 2:
        return None
    first_dirty = log.cleaner_offset
    if first_dirty is None or not log.start_offset <= first_dirty <= log.end_offset:
        # Never cleaned; or retention, a truncation or a crash moved the log from under the checkpoint.
        first_dirty = log.start_offset
    first_slot = max(0, bisect_right(log.bases, first_dirty) - 1)
    end_offset = max(first_dirty, _first_uncleanable(log, first_slot, now_ms))
    # A segment is cleaned as a whole: the one that holds the bound stays out.
    end_slot = min(max(0, bisect_right(log.bases, end_offset) - 1), len(log.segments) - 1)
    dirty_bytes = sum(segment.size for segment in log.segments[first_slot:end_slot])
    clean_bytes = sum(segment.size for segment in log.segments[: bisect_left(log.bases, first_dirty)])
    if not dirty_bytes:
        return None
    return Cleanable(
        first_dirty,
        log.bases[end_slot],
        dirty_bytes,
        dirty_bytes / (clean_bytes + dirty_bytes),
        _overdue(log, first_slot, now_ms),
    )


def is_due(found: Cleanable, log: "Log") -> bool:
    """Is it worth the work, or past its time?"""
    return found.overdue or found.ratio > log.settings.min_cleanable_dirty_ratio


def _first_uncleanable(log: "Log", first_slot: int, now_ms: int) -> int:
    bound = min(log.last_stable_offset, log.active.base_offset)
    lag_ms = log.settings.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in log.segments[first_slot:-1]:
            timestamp = segment.max_timestamp
            if (timestamp if timestamp >= 0 else segment.modified_ms) > now_ms - lag_ms:
                return min(bound, segment.base_offset)
    return bound


def _overdue(log: "Log", first_slot: int, now_ms: int) -> bool:
    lag_ms = log.settings.max_compaction_lag_ms
    if lag_ms == UNLIMITED:
        return False
    timestamps = (segment.first_batch_timestamp for segment in log.segments[first_slot:-1])
    return any(0 < timestamp < now_ms - lag_ms for timestamp in timestamps)


def group(
    sources: Sequence[CleaningSource], end_offset: int, *, segment_bytes: int, segment_index_bytes: int
) -> list[list[CleaningSource]]:
    """The segments that become one, group by group; none is left out."""
    groups: list[list[CleaningSource]] = []
    size = index_bytes = time_index_bytes = 0
    for slot, source in enumerate(sources):
        following = sources[slot + 1].base_offset if slot + 1 < len(sources) else end_offset
        fits = (
            bool(groups)
            and size + source.size <= segment_bytes
            and index_bytes + source.index_bytes <= segment_index_bytes
            and time_index_bytes + source.time_index_bytes <= segment_index_bytes
            and (source.size == 0 or following - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX)
        )
        if fits:
            groups[-1].append(source)
            size, index_bytes = size + source.size, index_bytes + source.index_bytes
            time_index_bytes += source.time_index_bytes
        else:
            groups.append([source])
            size, index_bytes, time_index_bytes = source.size, source.index_bytes, source.time_index_bytes
    return groups
