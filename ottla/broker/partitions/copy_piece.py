"""Copy a log into its future log in another directory, piece by piece."""

from __future__ import annotations

from ottla.log.epoch import UNDEFINED_EPOCH
from ottla.log.log import Log, Origin


def begin_again(source: Log, future: Log, now_ms: int) -> bool:
    """Empty a copy that cannot be continued: True if it was emptied.

    The move has just begun, retention has deleted the records that were next, or the log was truncated, even if it has
    grown again since.
    """
    if source.start_offset <= future.end_offset <= source.end_offset and not _has_diverged(source, future):
        return False
    future.restart_at(source.start_offset, now_ms)
    return True


def copy(source: Log, future: Log, leader_epoch: int, bytes_max: int, now_ms: int) -> int:
    """Copy up to `bytes_max`, or one batch, from the end of the future log on; the bytes copied."""
    try:
        data = source.read(future.end_offset, bytes_max, end_offset=source.end_offset).bytes()
    except OSError as error:
        # A read names no file, and an error without a name is taken for one of the future log's disk.
        error.filename = error.filename or source.path
        raise
    if data:
        future.append(data, leader_epoch=leader_epoch, now_ms=now_ms, origin=Origin.REPLICA)
    elif future.end_offset < source.end_offset:
        # The cleaner has left no records up to the end.
        future.roll(now_ms, source.end_offset)
        future.end_offset = source.end_offset
    return len(data)


def _has_diverged(source: Log, future: Log) -> bool:
    """Whether the copy has records that the log has replaced after a truncation, according to their leader epochs."""
    latest = future.epochs.latest
    if latest == UNDEFINED_EPOCH:
        return False
    epoch, end_offset = source.end_offset_for_epoch(latest)
    return epoch != latest or end_offset < future.end_offset
