"""Make a log durable: its segments, epochs and file names, and only those that need it.

Rules:
- An empty file needs only its name synced; so does a snapshot without producers, which only saves reading. The parent
  directory is synced once for the log's own directory; when the store stops, once for all logs in it.
- Segments below the recovery point are synced already, unless their indexes were rebuilt since. Of the active segment
  only the records are synced, since its indexes are rebuilt after a crash. A clean close writes the indexes of a small
  active segment without a sync: a clean start rebuilds them.
- A clean close takes a producer snapshot only if the next start could not know the producers without it, or would have
  to read more than a small active segment.
- What was dirty stays dirty when a sync fails. `OutOfResources`: no fsync has failed, so nothing is lost, and the sync
  may be tried again.
- When many logs are closed, their volume is synced instead of each file (`ottla/log/directory/closing.py`).
"""

import errno
from typing import TYPE_CHECKING

from ottla.log.checkpoint import write_beside
from ottla.log.path import EPOCHS

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.segment.segment import Segment

#: Errors of a full disk, a file size limit or a lack of descriptors: the directory is not broken.
HARMLESS_ERRORS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EINTR,
        errno.EAGAIN,
    }
)
#: No fsync fails with them.
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})


class OutOfResources(OSError):
    """A sync could not create or open a file."""

    @classmethod
    def of(cls, error: OSError) -> "OutOfResources":
        """The same error, with its file's name."""
        return cls(error.errno, error.strerror, error.filename)


def sync(log: "Log", *, closing: bool) -> int:
    """Sync everything that is in the log now; the log's generation at the start."""
    generation = log.generation
    segments = list(log.segments)
    dirty, log.directory_dirty = log.directory_dirty, False
    text, log.epoch_checkpoint_text = log.epoch_checkpoint_text, None
    try:
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            if following is None and not closing:
                segment.sync()
            elif following is None and segment.is_small:
                segment.sync()
                segment.sync_transactions()
            elif following is None or following.base_offset >= log.recovery_point or segment.indexes_rebuilt:
                _sync_with_indexes(segment)
        if text is not None and log.segments:
            # A log that was deleted meanwhile has no segments: another may have its path.
            _replace_epochs(log, text)
            dirty = True
        if dirty:
            log.snapshots.sync()
            log.disk.sync_directory(log.path)
        if log.parent_dirty:
            log.disk.sync_directory(log.path.rpartition("/")[0])
            log.parent_dirty = False
    except OSError as error:
        log.directory_dirty = True
        if log.epoch_checkpoint_text is None:
            log.epoch_checkpoint_text = text
        if error.errno in _NO_DESCRIPTOR:
            raise OutOfResources.of(error) from error
        raise
    return generation


def _sync_with_indexes(segment: "Segment") -> None:
    # Reset first: the loop may rebuild the indexes meanwhile.
    rebuilt, segment.indexes_rebuilt = segment.indexes_rebuilt, False
    try:
        segment.sync()
        segment.sync_indexes()
    except OSError:
        segment.indexes_rebuilt = segment.indexes_rebuilt or rebuilt
        raise


def _replace_epochs(log: "Log", text: str) -> None:
    """Replace the epoch checkpoint; the caller syncs the directory."""
    path = f"{log.path}/{EPOCHS}"
    try:
        log.disk.rename(write_beside(log.disk, path, text, sync=True), path)
    except OSError as error:
        if error.errno in HARMLESS_ERRORS:
            # Only the replacement is incomplete; the log's own files are synced.
            raise OutOfResources.of(error) from error
        raise


def close(log: "Log") -> None:
    """Sync the log, leave the files as Kafka does on a clean shutdown, and close them."""
    if begin_close(log):
        sync_closed(log)
    close_files(log)


def begin_close(log: "Log") -> bool:
    """Write the files of a clean shutdown; True if there is something to sync."""
    if _is_unchanged(log) or _was_always_empty(log):
        return False
    if snapshot_is_due(log):
        log.snapshots.take(log.producers)
    elif log.producers.by_id:
        log.snapshots.require_sync()
    log.active.deactivate()
    if log.producers.by_id or not log.active.is_small or log.active.transaction_index.exists:
        # A snapshot or index files whose names the next start needs.
        log.directory_dirty = True
    return True


def sync_closed(log: "Log") -> None:
    """Sync the log and what `begin_close` wrote. May run on a thread."""
    log.generation_synced = sync(log, closing=True)
    log.synced(log.end_offset)


def close_files(log: "Log") -> None:
    """Close the files: the last step."""
    for segment in log.segments:
        segment.close()
    log.pending_removals.clear()


def snapshot_is_due(log: "Log") -> bool:
    """Would the next clean start need a producer snapshot at the log's end?

    A clean start reads on from the last snapshot. Without one it assumes that there are no producers, as Kafka does.
    """
    if log.end_offset <= log.start_offset:
        return False
    latest = log.snapshots.latest
    if latest is None or latest <= log.start_offset:
        # A snapshot at or below the log's start is not usable.
        return bool(log.producers.by_id) or len(log.segments) > 1 or not log.active.is_small
    return latest < log.active.base_offset or not log.active.is_small


def _is_unchanged(log: "Log") -> bool:
    """Has nothing changed since a clean close, so that the directory is complete?"""
    same = log.end_offset == log.clean_end_offset and not log.generation and not log.directory_dirty
    return same and log.epoch_checkpoint_text is None and not any(segment.indexes_rebuilt for segment in log.segments)


def _was_always_empty(log: "Log") -> bool:
    """Is the log empty since its creation? Its directory may be lost then: the next start creates it again."""
    return not log.end_offset and not log.generation and not log.epochs.entries()
