"""Making a log durable: its segments, its epochs, and the names of its files; and when there is no need to.

Rules:
- A file without content needs no sync but that of its name; nor does a snapshot of no producers, which saves reading
  only. The name of the log's own directory is synced once, for all logs beside it at a stop of the store.
- Segments below the recovery point are synced already; of the active one only the records are, as its indexes are
  rebuilt after a crash. At a clean end those of a small one are written and not synced: a clean start makes them again.
- A clean end takes a snapshot of the producers only where a start would not know them without, or would have to read
  more than a small active segment to know them.
- What is found dirty stays dirty when a sync fails.
- At a stop of many logs their volume is synced, not each file (`ottla/log/directory/closing.py`).
"""

from typing import TYPE_CHECKING

from ottla.log.checkpoint import write_text
from ottla.log.path import EPOCHS

if TYPE_CHECKING:
    from ottla.log.log import Log


def sync(log: "Log", *, closing: bool) -> int:
    """Sync everything that is in the log now; the generation of the log that it was."""
    generation = log.generation
    segments = list(log.segments)
    dirty, log.directory_dirty = log.directory_dirty, False
    text, log.epochs_text = log.epochs_text, None
    try:
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            if following is None and not closing:
                segment.sync()
            elif following is None and segment.is_small:
                segment.sync()
                segment.sync_transactions()
            elif following is None or following.base_offset >= log.recovery_point:
                segment.sync()
                segment.sync_indexes()
        if text is not None:
            write_text(log.disk, f"{log.path}/{EPOCHS}", text, sync_name=not dirty)
        if dirty:
            log.snapshots.sync()
            log.disk.sync_directory(log.path)
        if log.name_dirty:
            log.disk.sync_directory(log.path.rpartition("/")[0])
            log.name_dirty = False
    except OSError:
        log.directory_dirty = True
        if log.epochs_text is None:
            log.epochs_text = text
        raise
    return generation


def close(log: "Log") -> None:
    """Sync what is to be synced, leave the files as Kafka does on a clean shutdown, and let go of them."""
    if begin_close(log):
        sync_closed(log)
    let_go(log)


def begin_close(log: "Log") -> bool:
    """Write what a clean shutdown leaves behind. Is there something to sync?"""
    if _is_whole(log) or _never_held_anything(log):
        return False
    if snapshot_is_due(log):
        log.snapshots.take(log.producers)
    elif log.producers.by_id:
        log.snapshots.needed()
    log.active.deactivate()
    if log.producers.by_id or not log.active.is_small or log.active.transaction_index.exists:
        # A snapshot, or the names of indexes, that a start would miss.
        log.directory_dirty = True
    return True


def sync_closed(log: "Log") -> None:
    """Sync what `begin_close` has written, and all that was before it. It may run on a thread."""
    log.generation_synced = sync(log, closing=True)
    log.synced(log.end_offset)


def let_go(log: "Log") -> None:
    """Close the files: the last step."""
    for segment in log.segments:
        segment.close()
    log.due.clear()


def snapshot_is_due(log: "Log") -> bool:
    """Does a clean start need a snapshot at the end, or does it find out from what is there?

    It reads on from the last snapshot. Where there is none, it takes it that there are no producers, as Kafka does.
    """
    if log.end_offset <= log.start_offset:
        return False
    latest = log.snapshots.latest
    if latest is None or latest <= log.start_offset:
        # A basis at or below the start is none.
        return bool(log.producers.by_id) or len(log.segments) > 1 or not log.active.is_small
    return latest < log.active.base_offset or not log.active.is_small


def _is_whole(log: "Log") -> bool:
    """Does the directory hold all that there is, because nothing has happened since a clean end?"""
    same = log.end_offset == log.whole_at and not log.generation and not log.directory_dirty
    return same and log.epochs_text is None and not any(segment.mended for segment in log.segments)


def _never_held_anything(log: "Log") -> bool:
    """True when nothing has to be left of it: without a directory it is made again."""
    return not log.end_offset and log.bases == [0] and not log.generation and not log.epochs.entries()
