"""Plan compaction: which part of a log can be cleaned, whether it is due, and which segments are merged.

A cleaning drops a record if a later record of the cleaned part has the same key. A log has three sections: the clean
one below `Log.cleaner_offset`, where every key is unique; the dirty one; and the uncleanable one.

Rules:
- Uncleanable are the active segment, everything above the last stable offset, and segments younger than
  `min.compaction.lag.ms`. `max.compaction.lag.ms` makes a log due whatever its dirty ratio is.
- A cleaned segment replaces one segment or several adjacent ones, and stays within the limits for a segment's size,
  indexes and offset range.

`job` does the work in a process of its own; `swap` puts the result in place. The broker's cleaner drives both.

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
    """The part of a log that can be cleaned now."""

    #: The offset below which every key is unique already.
    first_dirty_offset: int
    #: The base offset of the first uncleanable segment.
    end_offset: int
    dirty_bytes: int
    #: The share of dirty bytes below `end_offset`.
    ratio: float
    #: Has a dirty record waited for `max.compaction.lag.ms`?
    overdue: bool


class CleaningSource(NamedTuple):
    """A segment to be cleaned."""

    base_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int


def cleanable(log: "Log", now_ms: int) -> Cleanable | None:
    """The cleanable part of a log, or None."""
    if len(log.segments) < 2:
        return None
    first_dirty = log.cleaner_offset
    if first_dirty is None or not log.start_offset <= first_dirty <= log.end_offset:
        # The log was never cleaned, or retention, a truncation or a crash left the checkpoint outside it.
        first_dirty = log.start_offset
    first_slot = max(0, bisect_right(log.bases, first_dirty) - 1)
    end_offset = max(first_dirty, _first_uncleanable(log, first_slot, now_ms))
    # Only whole segments are cleaned: leave out the one that contains `end_offset`.
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


def is_due(cleanable_part: Cleanable, log: "Log") -> bool:
    """Is a cleaning worth the work or overdue?"""
    return cleanable_part.overdue or cleanable_part.ratio > log.settings.min_cleanable_dirty_ratio


def _first_uncleanable(log: "Log", first_slot: int, now_ms: int) -> int:
    bound = min(log.last_stable_offset, log.active.base_offset)
    lag_ms = log.settings.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in log.segments[first_slot:-1]:
            if segment.age_timestamp > now_ms - lag_ms:
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
    """All segments, in groups that are each merged into one segment."""
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
