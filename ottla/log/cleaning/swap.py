"""Replace segments by their cleaned segment, on the loop, in a few renames.

Rules:
- First the files of the cleaned segment are renamed to `.swap`. Recovery from a crash before the last of these renames
  undoes the swap, from a later crash completes it. Then the old segments become `.deleted`, and the new segment loses
  its suffix.
- Groups are swapped in rising order, one at a time, each durable before the next: a `.cleaned` file below a `.swap`
  would make recovery drop the swap.
- Slices of the old segments stay readable, like those of deleted segments.
"""

from typing import TYPE_CHECKING

from ottla.kernel.ports import Disk
from ottla.log.cleaning.job import Job
from ottla.log.path import CLEANED, DELETED, SEGMENT_SUFFIXES, SWAP, offset_name, parse_offset_name
from ottla.log.recovery import open_segment

if TYPE_CHECKING:
    from ottla.log.log import Log


def swap(log: "Log", job: Job, bases: list[int], now_ms: int) -> bool:
    """Replace the segments at `bases` by their cleaned segment.

    False if since the plan the log was closed or truncated, or its topic is no longer compacted.
    """
    if log.closed or log.generation != job.generation or "compact" not in log.settings.cleanup_policy:
        return False
    slot = log.bases.index(bases[0])
    old = log.segments[slot : slot + len(bases)]
    assert log.bases[slot : slot + len(bases)] == bases
    assert log.active not in old
    base_offset = bases[0]
    _rename(log.disk, log.path, base_offset, CLEANED, SWAP)
    for segment in old:
        segment.rename(DELETED)
    _rename(log.disk, log.path, base_offset, SWAP, "")
    cleaned = open_segment(log, base_offset, now_ms)
    cleaned.created_ms, cleaned.modified_ms = old[0].created_ms, old[-1].written_ms
    # As in Apache Kafka: a cleaning makes no record younger.
    cleaned.file.set_modified_ms(cleaned.modified_ms)
    log.segments[slot : slot + len(old)] = [cleaned]
    log.bases[slot : slot + len(old)] = [base_offset]
    log.directory_dirty = True
    for segment in old:
        log.pending_removals.append((now_ms + log.settings.file_delete_delay_ms, segment))
        if segment is not old[0]:
            log.snapshots.remove(segment.base_offset)
    return True


def discard(disk: Disk, directory: str) -> None:
    """Remove the files of a cleaning that failed."""
    if disk.is_directory(directory):
        for name in disk.list(directory):
            parts = parse_offset_name(name)
            if parts and parts[2] == CLEANED:
                disk.remove(f"{directory}/{name}")


def _rename(disk: Disk, directory: str, base_offset: int, source: str, target: str) -> None:
    for kind in SEGMENT_SUFFIXES:
        name = f"{directory}/{offset_name(base_offset, kind)}"
        if disk.exists(name + source):
            disk.rename(name + source, name + target)
