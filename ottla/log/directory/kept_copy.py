"""The complete copy of a move, which a start takes for the log if the log's own disk is away.

Rules:
- A copy is marked when it is durable and has all that the log has. The first change of the log removes the mark,
  durably, before it is made. So a marked copy lacks no acknowledged record and has none that was truncated.
- A start takes a marked copy only if it finds no log of the partition, and the metadata names the copy's directory.
"""

import logging
from collections.abc import Callable
from contextlib import suppress

from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.ids import NO_UUID, TopicPartition, Uuid
from ottla.kernel.ports import Disk
from ottla.log import checkpoint
from ottla.log.directory.directory import Directory
from ottla.log.durability import HARMLESS_ERRORS
from ottla.log.log import Log
from ottla.log.path import COMPLETE_COPY
from ottla.log.setting import LogSettings

_log = logging.getLogger("ottla.log")


def mark(source: Log, copy: Log, failed: Callable[[OSError], None]) -> None:
    """Mark a copy that has all that its log has, until the log changes. Flushes the copy.

    `failed` is called with the error of a disk that does not let the mark be removed, and may change nothing itself.
    """
    disk, path = copy.disk, copy.path
    assert copy.end_offset == source.end_offset
    copy.flush()
    ends = {"start.offset": str(source.start_offset), "end.offset": str(source.end_offset)}
    checkpoint.write_properties(disk, f"{path}/{COMPLETE_COPY}", ends)

    def on_change() -> None:
        try:
            unmark(disk, path)
        except OSError as error:
            if error.errno in HARMLESS_ERRORS:
                # The change may be tried again.
                raise
            # The copy's disk has failed, and not the log's. The mark may still be there, so the move must end.
            _log.error("cannot change the copy %s: %s", path, error)
            failed(error)
        source.on_change = None

    source.on_change = on_change


def unmark(disk: Disk, path: str) -> None:
    """Have no start take this copy for the log; the copy may be gone."""
    with suppress(FileNotFoundError):
        disk.remove(f"{path}/{COMPLETE_COPY}")
    # Also when an attempt before removed it, and could not sync that.
    with suppress(FileNotFoundError):
        disk.sync_directory(path)


def is_marked(disk: Disk, path: str) -> bool:
    """Whether a start may take this copy for the log."""
    return disk.exists(f"{path}/{COMPLETE_COPY}")


def topic_id(disk: Disk, path: str) -> Uuid:
    """The topic id of a copy, or NO_UUID if it is not known."""
    try:
        return checkpoint.read_topic_id(disk, path)
    except checkpoint.CorruptCheckpoint:
        return NO_UUID


def take(
    disk: Disk, tp: TopicPartition, path: str, directory: Directory, settings: LogSettings, now_ms: int
) -> Log | None:
    """Check all of a marked copy, make it the partition's log, and open it. None if the copy is damaged."""
    log_path = f"{directory.path}/{tp}"
    try:
        ends = checkpoint.read_properties(disk, f"{path}/{COMPLETE_COPY}") or {}
        start, end = int(ends["start.offset"]), int(ends["end.offset"])
        log = Log.open(disk, path, settings, now_ms=now_ms, log_start_offset=start)
        log.close()
        if log.end_offset != end:
            raise OttlaError(f"it ends at offset {log.end_offset}, not at {end}")
    except (KafkaError, OttlaError, ValueError, KeyError) as error:
        _log.error("cannot take the copy %s for the log of %s: %s", path, tp, error)
        return None
    # After a crash right after the rename, recovery needs the start offset.
    directory.starts[tp] = start
    checkpoint.write_offsets(disk, f"{directory.path}/{checkpoint.START_OFFSETS}", directory.starts)
    disk.rename(path, log_path)
    disk.sync_directory(directory.path)
    unmark(disk, log_path)
    return Log.open(disk, log_path, settings, now_ms=now_ms, recovery_point=end, log_start_offset=start, clean=True)
