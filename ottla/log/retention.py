"""Make a log shorter: retention of whole segments, DeleteRecords, truncation.

Rules:
- Retention deletes only segments wholly below the high watermark, oldest first; one segment always remains. If all are
  due, a new one is begun; on a full disk the last one stays until the others have made room for it.
- A deleted segment's files are renamed to `.deleted` at once and removed after `file.delete.delay.ms`, so that readers
  can finish.
- Truncation is durable before it returns. Otherwise a crash could bring back old batches behind new ones.

KIPs: 107 (DeleteRecords).
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.log.durability import HARMLESS_ERRORS
from ottla.log.path import DELETED
from ottla.log.recovery import rebuild_producers
from ottla.log.segment.segment import Segment

if TYPE_CHECKING:
    from ottla.log.log import Log


def delete_old_segments(log: "Log", now_ms: int) -> int:
    """Apply retention; the number of deleted segments."""
    if log.being_cleaned:
        # The cleaner's job reads these segments by file name.
        return 0
    count = _delete(log, now_ms, _before_start(log))
    if "delete" in log.settings.cleanup_policy:
        count += _delete(log, now_ms, _beyond_size(log))
        count += _delete(log, now_ms, _beyond_time(log, now_ms))
    return count


def remove_deleted(log: "Log", now_ms: int, most: int | None = None) -> list[Segment]:
    """Unlink deleted segments whose delay has passed; the caller drops them where that may take a while."""
    due = [entry for entry in log.pending_removals if entry[0] <= now_ms][:most]
    for entry in due:
        entry[1].remove()
        log.pending_removals.remove(entry)
    return [segment for _, segment in due]


def advance_start_offset(log: "Log", offset: int) -> bool:
    """Raise the start offset to `offset`; False if it is there or above already."""
    if offset > log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is above the high watermark {log.high_watermark}"
        )
    if offset <= log.start_offset:
        return False
    if log.on_change is not None:
        log.on_change()
    log.start_offset = offset
    log.epochs.truncate_start(offset)
    log.stage_epoch_checkpoint()
    return True


def truncate(log: "Log", offset: int, now_ms: int) -> bool:
    """Drop everything at and above `offset`."""
    if offset >= log.end_offset:
        # A leader that wrote nothing may have left an epoch entry.
        log.epochs.truncate_end(log.end_offset)
        log.stage_epoch_checkpoint()
        return False
    if offset < log.bases[0]:
        restart_at(log, offset, now_ms)
        return True
    _before_truncation(log, offset)
    log.truncated()
    slot = bisect_right(log.bases, offset) - 1
    # Remove the last segment first, so that no crash leaves a gap.
    for segment in reversed(log.segments[slot + 1 :]):
        log.snapshots.remove(segment.base_offset)
        segment.remove()
    del log.segments[slot + 1 :]
    del log.bases[slot + 1 :]
    log.active = log.segments[-1]
    log.active.truncate(offset)
    log.active.sync()
    log.end_offset = offset
    log.start_offset = min(log.start_offset, offset)
    if log.high_watermark > offset:
        log.high_watermark = offset
    log.epochs.truncate_end(offset)
    log.stage_epoch_checkpoint()
    rebuild_producers(log, offset, now_ms)
    log.disk.sync_directory(log.path)
    return True


def restart_at(log: "Log", offset: int, now_ms: int) -> None:
    """Drop everything and begin again at `offset`. OSError if the disk is full; the log is then unchanged."""
    for _, deleted in log.pending_removals:
        if deleted.base_offset == offset:
            # Slices still read from this file, so its name must not be used again for the new one.
            deleted.remove()
    # Until the old segments are gone, the new one has the suffix of a deleted one: after a crash it is not read.
    segment = Segment.create(log.disk, log.path, offset, log.settings, now_ms, suffix=DELETED)
    try:
        _before_truncation(log, offset)
    except OSError:
        segment.remove()
        raise
    log.truncated()
    for old in reversed(log.segments):
        old.remove()
    segment.rename("")
    log.segments, log.bases, log.active = [segment], [offset], segment
    for snapshot in log.snapshots.offsets:
        log.snapshots.remove(snapshot)
    log.producers.clear()
    log.producers.end_offset = offset
    log.epochs.clear()
    log.stage_epoch_checkpoint()
    log.start_offset = log.end_offset = log.recovery_point = offset
    if log.high_watermark != offset:
        log.high_watermark = offset
    log.disk.sync_directory(log.path)


def _before_truncation(log: "Log", offset: int) -> None:
    # Lower the checkpoints on the disk first. Otherwise records appended after the truncation would lie below the old
    # recovery point, and not be checked after a crash, or below the cleaner's old offset, and never be cleaned.
    if log.on_change is not None:
        log.on_change()
    before = log.cleaner_offset, log.recovery_point
    cleaned = log.cleaner_offset is not None and offset < log.cleaner_offset
    if cleaned:
        log.cleaner_offset = offset
    if cleaned or offset < log.recovery_point:
        log.recovery_point = min(offset, log.recovery_point)
        if log.on_recovery_point_lowered is not None:
            try:
                log.on_recovery_point_lowered()
            except OSError:
                # Nothing is truncated yet; the next attempt must lower them again.
                log.cleaner_offset, log.recovery_point = before
                raise


def _delete(log: "Log", now_ms: int, deletable: Callable[[Segment, Segment | None], bool]) -> int:
    """Delete the oldest segments for as long as the predicate holds."""
    count = 0
    for slot, segment in enumerate(log.segments):
        following = log.segments[slot + 1] if slot + 1 < len(log.segments) else None
        end = following.base_offset if following else log.end_offset
        if log.high_watermark < end or not deletable(segment, following) or (following is None and not segment.size):
            break
        count += 1
    if not count:
        return 0
    if count == len(log.segments):
        try:
            log.roll(now_ms)
        except OSError as error:
            if count == 1 or error.errno not in HARMLESS_ERRORS:
                raise
            count -= 1
    advance_start_offset(log, max(log.start_offset, log.segments[count].base_offset))
    for segment in log.segments[:count]:
        log.directory_dirty = True
        # A segment that a full disk does not let be renamed stays the log's, below its start: the next time deletes it.
        try:
            segment.rename(DELETED)
        finally:
            if segment.suffix:
                # Also without those of its indexes: the cleaner would miss the file.
                del log.segments[0], log.bases[0]
                log.pending_removals.append((now_ms + log.settings.file_delete_delay_ms, segment))
                log.snapshots.remove(segment.base_offset)
    return count


def _before_start(log: "Log") -> Callable[[Segment, Segment | None], bool]:
    return lambda _, following: following is not None and following.base_offset <= log.start_offset


def _beyond_size(log: "Log") -> Callable[[Segment, Segment | None], bool]:
    spare = log.size - log.settings.retention_bytes if log.settings.retention_bytes >= 0 else -1

    def deletable(segment: Segment, following: Segment | None) -> bool:
        nonlocal spare
        if spare < segment.size:
            return False
        spare -= segment.size
        return True

    return deletable


def _beyond_time(log: "Log", now_ms: int) -> Callable[[Segment, Segment | None], bool]:
    retention_ms = log.settings.retention_ms

    def deletable(segment: Segment, following: Segment | None) -> bool:
        if retention_ms < 0:
            return False
        return now_ms - segment.age_timestamp > retention_ms

    return deletable
