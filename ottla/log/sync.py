"""Making a log durable: its segments, its epochs, and the names of its files.

Rules:
- Segments below the recovery point are synced already; of the active one only the records are, as its indexes are
  rebuilt after a crash.
- What is found dirty stays dirty when a sync fails.
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
            elif following is None or following.base_offset >= log.recovery_point:
                segment.sync()
                segment.sync_indexes()
        if text is not None:
            write_text(log.disk, f"{log.path}/{EPOCHS}", text)
        if dirty:
            log.snapshots.sync()
            log.disk.sync_directory(log.path)
            log.disk.sync_directory(log.path.rpartition("/")[0])
    except OSError:
        log.directory_dirty = True
        if log.epochs_text is None:
            log.epochs_text = text
        raise
    return generation
