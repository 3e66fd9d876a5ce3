"""Open a log's directory: as it is after a clean shutdown, up to the first damage after a crash.

Rules:
- After a crash everything from the segment of the recovery point on is read. The log ends before the first batch that
  is cut off, has a wrong CRC or an offset that does not rise; later segments are removed.
- Before that, a file whose last sync did not succeed is written again: the kernel may show what is not on the disk.
- With `flush.messages`, the records that are found beyond the recovery point are synced before they are visible.
- Each byte is read once, a megabyte at a time. The indexes, epochs and producers of this part are rebuilt; before it,
  the files are trusted. An index that is missing or cannot be right is rebuilt from its segment.
- Files of unfinished work (`.deleted`, `.cleaned`) are removed. A `.swap` is complete and replaces the original, unless
  a `.cleaned` beside it shows that the renaming had only begun.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ottla.kernel.error import KafkaError
from ottla.kernel.ports import Disk
from ottla.log.append_replica import update_producers
from ottla.log.checkpoint import CorruptCheckpoint, read_epochs
from ottla.log.durability import snapshot_is_due
from ottla.log.epoch import LeaderEpochs
from ottla.log.path import (
    CLEANED,
    DELETED,
    EPOCHS,
    LOG,
    OFFSET_INDEX,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    offset_name,
    parse_offset_name,
)
from ottla.log.producer.snapshot import Snapshots
from ottla.log.segment.index import RELATIVE_OFFSET_MAX
from ottla.log.segment.segment import Segment
from ottla.log.segment.unsynced import write_again
from ottla.wire.batch import CRC_START, HEADER, HEADER_BYTES, MAGIC, BatchHeader
from ottla.wire.checksum import crc32c

if TYPE_CHECKING:
    from ottla.log.log import Log

#: Called with the progress of recovery: (bytes added to the work, bytes read).
RecoveryProgress = Callable[[int, int], None]
_READ_BYTES = 1 << 20


def load(
    log: "Log",
    names: list[str],
    now_ms: int,
    recovery_point: int,
    log_start_offset: int,
    clean: bool,
    on_progress: RecoveryProgress,
) -> None:
    """Load a log from its directory, which holds the files `names`."""
    disk, directory = log.disk, log.path
    files = _finish_cleaning(disk, directory, names)
    log.snapshots = Snapshots(disk, directory, [offset for offset, suffix, _ in files.values() if suffix == SNAPSHOT])
    epochs_read = EPOCHS in names and _load_epochs(log)
    if not epochs_read:
        log.epochs.dirty = True
        if not clean:
            # The node died before the checkpoint was written: only the batches still have the epochs.
            recovery_point = 0
    _open_segments(log, files, now_ms)
    if not clean:
        _write_unsynced_again(log)
    snapshots, was_there = log.snapshots.offsets, bool(log.segments)
    damaged = _rebuild_missing_indexes(log, files, recovery_point, clean)
    if damaged is not None:
        recovery_point, clean = min(recovery_point, damaged), False
    if clean and log.segments and log.segments[-1].is_small:
        log.segments[-1].rebuild_small_indexes()
    read_from = None if clean else _recover(log, now_ms, recovery_point, log_start_offset, on_progress)
    if log.segments and log.segments[-1].next_offset() < log_start_offset:
        # Segments were removed from outside: the rest lies below the log's start offset.
        _drop_segments(log, 0)
        log.epochs.clear()
    if not log.segments:
        log.segments.append(Segment.create(disk, directory, log_start_offset, log.settings, now_ms))
    log.bases = [segment.base_offset for segment in log.segments]
    log.active = log.segments[-1]
    log.end_offset = log.active.next_offset()
    log.start_offset = max(log_start_offset, log.bases[0])
    log.recovery_point = log.end_offset if clean else min(recovery_point, log.end_offset)
    if not clean and log.must_flush:
        _sync_records(log)
    log.epochs.truncate_end(log.end_offset)
    log.epochs.truncate_start(log.start_offset)
    log.stage_epoch_checkpoint()
    log.snapshots.keep_for_segments(log.bases)
    if read_from is not None and log.start_offset <= read_from and log.producers.end_offset == log.end_offset:
        # Recovery has read every batch, so the producers are up to date.
        log.snapshots.keep_between(log.start_offset, log.end_offset)
        _take_snapshot(log)
    else:
        rebuild_producers(log, log.end_offset, now_ms, clean=clean)
    if clean and was_there and not log.generation and set(log.snapshots.offsets) <= set(snapshots):
        log.clean_end_offset = log.end_offset
        log.directory_dirty = log.parent_dirty = False


def rebuild_producers(log: "Log", end_offset: int, now_ms: int, *, clean: bool = False) -> None:
    """Rebuild the producers' state at `end_offset` from the last snapshot below it and the batches since."""
    producers, snapshots = log.producers, log.snapshots
    if clean and snapshots.latest is None and end_offset > 0:
        # A clean close takes a snapshot if there are producers.
        producers.clear()
        producers.end_offset = end_offset
        if snapshot_is_due(log):
            snapshots.take(producers)
        return
    snapshots.keep_between(log.start_offset, end_offset)
    snapshots.load(producers, now_ms, log.settings.producer_expiration_ms, log.start_offset)
    slot = max(0, bisect_right(log.bases, producers.end_offset) - 1)
    for segment in log.segments[slot:]:
        start = max(segment.base_offset, producers.end_offset)
        position = 0 if start == segment.base_offset else segment.position_of(start)
        for at, header in segment.headers(position):
            if header.base_offset >= end_offset:
                break
            data = segment.read_batch(at, header) if header.is_control and header.producer_id >= 0 else None
            # The transaction index is complete: it is rebuilt together with its segment.
            update_producers(producers, None, header, data)
    producers.end_offset = end_offset
    if not clean or snapshot_is_due(log):
        _take_snapshot(log)


def _take_snapshot(log: "Log") -> None:
    if log.producers.end_offset > log.start_offset:
        log.snapshots.take(log.producers)


def _recover(
    log: "Log", now_ms: int, recovery_point: int, log_start_offset: int, on_progress: RecoveryProgress
) -> int | None:
    """Read and check the segments that may be damaged; the base offset of the first one, or None without segments."""
    bases = [segment.base_offset for segment in log.segments]
    slot = _first_unverified(bases, recovery_point)
    # The cleaner leaves gaps between segments. In other logs a gap means that the end of a segment was lost while the
    # next segment's file was not.
    gaps = "compact" in log.settings.cleanup_policy or log.cleaner_offset is not None
    if slot == len(bases):
        return None
    on_progress(sum(segment.size for segment in log.segments[slot:]), 0)
    read_from = next_offset = bases[slot]
    while slot < len(bases):
        segment = log.segments[slot]
        base = segment.base_offset
        log.bases = bases[: slot + 1]
        if base < next_offset or (base > next_offset and base > recovery_point and not gaps):
            _drop_segments(log, slot)
            break
        if base > read_from >= log_start_offset:
            # The segments read so far have brought the producers up to this base offset.
            log.start_offset = log_start_offset
            log.producers.end_offset = base
            _take_snapshot(log)
        else:
            _load_producers(log, slot, now_ms, log_start_offset)
        if not _recover_segment(log, segment, on_progress):
            _drop_segments(log, slot + 1)
            break
        next_offset = segment.next_offset()
        slot += 1
    return read_from


def _first_unverified(bases: list[int], recovery_point: int) -> int:
    """The position of the first segment whose files may be damaged.

    If the recovery point is a base offset, that is the segment before it: its records are durable, but it may have been
    the active segment when it was flushed, and then its indexes are not.
    """
    return max(0, bisect_right(bases, recovery_point - 1) - 1)


def _load_producers(log: "Log", slot: int, now_ms: int, log_start_offset: int) -> None:
    """Load the producers' state at the start of a segment to be recovered; later snapshots are removed."""
    base = log.segments[slot].base_offset
    log.start_offset = log_start_offset
    for offset in log.snapshots.offsets:
        if offset > base:
            log.snapshots.remove(offset)
    kept = log.segments
    log.segments = kept[:slot]
    rebuild_producers(log, base, now_ms)
    log.segments = kept


def _recover_segment(log: "Log", segment: Segment, on_progress: RecoveryProgress) -> bool:
    """Check a segment, rebuild its indexes, and truncate it at the first bad batch. True if every batch was good."""
    segment.offset_index.reset()
    segment.time_index.reset()
    segment.transaction_index.reset()
    segment.max_timestamp_and_offset = (-1, segment.base_offset)
    segment.bytes_since_index = 0
    size = segment.file.size()
    segment.size = 0
    for header, data in _whole_batches(segment, size, on_progress):
        if -1 < header.partition_leader_epoch != log.epochs.epoch_of(header.base_offset):
            # The checkpoint is older than this batch, or than a truncation before it: the batches count.
            log.epochs.truncate_end(header.base_offset)
            log.epochs.assign(header.partition_leader_epoch, header.base_offset)
        segment.written(segment.size, header.size, header.base_offset, header.last_offset, header.max_timestamp)
        update_producers(log.producers, segment, header, data)
    end = segment.size
    segment.end_at(end)
    segment.deactivate()
    return end == size


def _whole_batches(
    segment: Segment, size: int, on_progress: RecoveryProgress
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches before the first bad one."""
    position = start = 0
    next_offset = segment.base_offset
    data = memoryview(b"")
    while size - position >= HEADER_BYTES:
        at = position - start
        if at + HEADER_BYTES > len(data):
            on_progress(0, at)
            data, start, at = memoryview(segment.file.read(_READ_BYTES, position)), position, 0
        header = BatchHeader._make(HEADER.unpack_from(data, at))
        batch_bytes = header.size
        if header.magic != MAGIC or batch_bytes < HEADER_BYTES or position + batch_bytes > size:
            return
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            return
        if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return
        if at + batch_bytes > len(data):
            on_progress(0, at)
            data = memoryview(segment.file.read(max(_READ_BYTES, batch_bytes), position))
            start, at = position, 0
        batch = data[at : at + batch_bytes]
        if crc32c(batch[CRC_START:]) != header.crc:
            return
        yield header, batch
        next_offset = header.last_offset + 1
        position += batch_bytes
    on_progress(0, position - start)


def _open_segments(log: "Log", files: Mapping[str, tuple[int, str, str]], now_ms: int) -> None:
    disk, directory = log.disk, log.path
    bases = sorted(offset for offset, suffix, _ in files.values() if suffix == LOG)
    for name, (offset, suffix, _) in files.items():
        if suffix in SEGMENT_SUFFIXES and offset not in bases:
            disk.remove(f"{directory}/{name}")
    log.segments = [open_segment(log, base, now_ms) for base in bases]
    log.bases = bases


def open_segment(log: "Log", base_offset: int, now_ms: int) -> Segment:
    """Open a segment whose indexes are rebuilt from its batches if their files are damaged."""
    segment = Segment.open(log.disk, log.path, base_offset, log.settings, now_ms)
    segment.rebuild = partial(rebuild_indexes, segment)
    segment.offset_index.rebuild = segment.time_index.rebuild = partial(_fill_indexes, segment)
    return segment


def _write_unsynced_again(log: "Log") -> None:
    for segment in log.segments:
        if segment.file.is_marked():
            write_again(segment)


def _sync_records(log: "Log") -> None:
    """Make what recovery found durable, as `flush.messages` asks for: from now on it is visible.

    The recovery point stays: the epochs and indexes are not durable.
    """
    for segment in log.segments[max(0, bisect_right(log.bases, log.recovery_point) - 1) :]:
        segment.sync()
    log.disk.sync_directory(log.path)


def _rebuild_missing_indexes(
    log: "Log", files: Mapping[str, tuple[int, str, str]], recovery_point: int, clean: bool
) -> int | None:
    """Rebuild the missing indexes of segments that recovery will not read.

    Returns the base offset of the first segment with a damaged batch, where recovery must begin.
    """
    count = len(log.segments) if clean else _first_unverified(log.bases, recovery_point)
    for segment in log.segments[:count]:
        if not all(offset_name(segment.base_offset, kind) in files for kind in (OFFSET_INDEX, TIME_INDEX)):
            if not segment.size:
                # A log that was always empty keeps only its segment's file.
                segment.offset_index.reset()
                segment.time_index.reset()
                segment.max_timestamp_and_offset = (-1, segment.base_offset)
                continue
            try:
                rebuild_indexes(segment)
            except KafkaError:
                return segment.base_offset
    return None


def _fill_indexes(segment: Segment) -> None:
    """Rebuild a damaged index up to the first damaged batch; reading that batch raises the error."""
    with suppress(KafkaError):
        rebuild_indexes(segment)


def rebuild_indexes(segment: Segment) -> None:
    """Rebuild both indexes from the batch headers. CRCs are not checked."""
    segment.indexes_rebuilt = True
    segment.forget_tail()
    segment.offset_index.reset()
    segment.time_index.reset()
    segment.max_timestamp_and_offset = (-1, segment.base_offset)
    segment.bytes_since_index = 0
    size = segment.size
    try:
        for position, header in segment.headers():
            segment.written(position, header.size, header.base_offset, header.last_offset, header.max_timestamp)
    finally:
        # An unreadable batch ends the indexes, not the segment.
        segment.size = size
    segment.deactivate()


def _load_epochs(log: "Log") -> bool:
    """Load the epoch checkpoint; False if it is missing or corrupt."""
    try:
        entries = read_epochs(log.disk, f"{log.path}/{EPOCHS}")
    except CorruptCheckpoint:
        entries = None
    log.epochs = LeaderEpochs(entries or [])
    return entries is not None


def _drop_segments(log: "Log", slot: int) -> None:
    """Remove the segments from `slot` on, durably. The last goes first, so that no crash leaves a gap."""
    dropped = log.segments[slot:]
    for segment in reversed(dropped):
        segment.file.close()
        segment.remove()
        log.snapshots.remove(segment.base_offset)
    del log.segments[slot:]
    if dropped:
        log.truncated()
        log.disk.sync_directory(log.path)


def _finish_cleaning(disk: Disk, directory: str, names: list[str]) -> dict[str, tuple[int, str, str]]:
    """Finish or undo interrupted cleanings and deletions, as Kafka does; the log's files after that, by name."""
    files = {name: parts for name in names if (parts := parse_offset_name(name))}
    parsed = {name: parts for name, parts in files.items() if parts[2]}
    if not parsed:
        return files
    cleaned = [offset for offset, _, suffix in parsed.values() if suffix == CLEANED]
    swaps = {name: offset for name, (offset, _, temporary) in parsed.items() if temporary == SWAP}
    for name, offset in list(swaps.items()):
        if cleaned and offset >= min(cleaned):
            # An incomplete set of swaps. Remove it before the `.cleaned` file that shows this: we may crash, too.
            disk.remove(f"{directory}/{name}")
            del swaps[name]
    for name, (_, suffix, temporary) in parsed.items():
        if temporary in (DELETED, CLEANED) and suffix != ".checkpoint":
            disk.remove(f"{directory}/{name}")
    bases = sorted({offset for name, offset in swaps.items() if parsed[name][1] == LOG})
    if bases:
        end = _end_of_swap(disk, f"{directory}/{offset_name(bases[-1], LOG)}{SWAP}", bases[-1])
        for name in names:
            parts = parse_offset_name(name)
            # A cleaned segment without batches ends where it begins.
            replaced = parts is not None and (bases[0] <= parts[0] < end or parts[0] in bases)
            if parts and parts[1] in SEGMENT_SUFFIXES and not parts[2] and replaced:
                disk.remove(f"{directory}/{name}")
    # Rename the `.log` first: once its `.swap` is gone, the other swaps belong to the segment already in place.
    for name in sorted(swaps, key=lambda name: parsed[name][1] != LOG):
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
    remaining = ((name, parse_offset_name(name)) for name in disk.list(directory))
    return {name: parts for name, parts in remaining if parts and not parts[2]}


def _end_of_swap(disk: Disk, path: str, base_offset: int) -> int:
    """The end offset of a `.swap` file, read from its batch headers."""
    file = disk.open(path)
    try:
        size = file.size()
        position, end = 0, base_offset
        while position + HEADER_BYTES <= size:
            header = BatchHeader._make(HEADER.unpack(file.read(HEADER_BYTES, position)))
            if header.size < HEADER_BYTES or position + header.size > size:
                break
            end = header.last_offset + 1
            position += header.size
        return end
    finally:
        file.close()
