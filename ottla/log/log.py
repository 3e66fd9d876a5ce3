"""A partition's log: batches in segments, appended at the end, read from any offset. Read this file first.

Rules:
- Offsets rise, and an acknowledged record keeps its offset. Neither recovery point nor high watermark passes the end.
- A batch is checked, written in one write, and then accounted for: a failed write leaves the log as it was.
- All methods run on one thread, the loop's, except `sync`, which may run on another.
- Everything below `recovery_point` survives a power failure; everything below `end_offset` survives this process.

Not obvious: a CLIENT append has one batch with base offset 0. The log stamps offset and epoch in place, outside the
CRC, if the buffer is writable, and writes the batch in two pieces if not.

KIPs: 98 (producers, transactions), 101 and 320 (epochs), 107 (start offset), 516 (topic ids), 734 (max timestamp).
"""

import struct
from bisect import bisect_right
from collections.abc import Callable

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import NO_UUID, Uuid
from ottla.kernel.ports import Buffer, Disk
from ottla.log import durability, lookup, recovery, retention
from ottla.log.append_replica import append_as_follower
from ottla.log.append_result import Appended, Origin
from ottla.log.checkpoint import encode_epochs, read_topic_id, write_topic_id
from ottla.log.epoch import LeaderEpochs
from ottla.log.path import PARTITION_METADATA
from ottla.log.producer.marker import Marker, apply_marker, check_marker
from ottla.log.producer.producer import Producers
from ottla.log.producer.snapshot import Snapshots
from ottla.log.rewrite import rewrite_batch, rewrites_every_batch
from ottla.log.segment.aborted import AbortedTransaction
from ottla.log.segment.segment import Segment, Slice
from ottla.log.setting import LogSettings
from ottla.log.validate import (
    HEADER_AND_FIRST,
    Fields,
    append_several,
    check_header,
    only_batch,
    resent,
    unpack_padded,
)
from ottla.wire.batch import CONTROL, HEADER_BYTES, LENGTH_END, LOG_APPEND_TIME, NO_SEQUENCE, PREFIX, TRANSACTIONAL

__all__ = ["Appended", "Log", "LogSettings", "Origin", "Slice"]

_SEQUENCE_MASK = 0x7FFFFFFF


class Log:
    """An open log. `Store` opens and closes it; the quorum does so for the metadata log."""

    __slots__ = (
        "_rewrites_every_batch",
        "_flush_messages",
        "_visible_end",
        "_high_watermark",
        "_settings",
        "active",
        "bases",
        "being_cleaned",
        "cleaner_offset",
        "closed",
        "directory_dirty",
        "disk",
        "pending_removals",
        "end_offset",
        "epochs",
        "epoch_checkpoint_text",
        "generation",
        "generation_synced",
        "last_flush_ms",
        "parent_dirty",
        "on_change",
        "on_recovery_point_lowered",
        "path",
        "producers",
        "recovery_point",
        "segments",
        "snapshots",
        "start_offset",
        "topic_id",
        "clean_end_offset",
    )

    def __init__(self, disk: Disk, path: str, settings: LogSettings) -> None:
        self.disk = disk
        self.path = path
        #: Ordered by base offset, never empty once the log is open. `bases` holds their base offsets, for bisect.
        self.segments: list[Segment] = []
        self.bases: list[int] = []
        #: The last of `segments`.
        self.active: Segment
        #: The first readable offset.
        self.start_offset = 0
        #: The offset of the next record.
        self.end_offset = 0
        #: Everything below is durable.
        self.recovery_point = 0
        self.epochs = LeaderEpochs([])
        self.producers = Producers()
        self.snapshots: Snapshots
        self.topic_id: Uuid = NO_UUID
        #: The offset up to which the cleaner has cleaned; None before its first run. Retention waits while it runs.
        self.cleaner_offset: int | None = None
        self.being_cleaned = False
        #: Was a file created or renamed since the directory was last synced?
        self.directory_dirty = True
        #: Was the log's directory created since its parent was last synced?
        self.parent_dirty = True
        self.last_flush_ms = 0
        #: Called before a truncation below the recovery point or the cleaner's offset; the store checkpoints both.
        self.on_recovery_point_lowered: Callable[[], None] | None = None
        #: Called before records are appended, truncated or deleted; an OSError from it is that of the change.
        self.on_change: Callable[[], None] | None = None
        self.closed = False
        #: The end offset at which the log was opened after a clean close that left nothing to do, or -1.
        self.clean_end_offset = -1
        #: None for a sole replica, whose high watermark is the visible end.
        self._high_watermark: int | None = None
        #: While a flush for `flush.messages` is due: the offset below which records are visible. None otherwise.
        self._visible_end: int | None = None
        #: Raised by every truncation: a sync that began before one says nothing about later records.
        self.generation = 0
        #: The generation at the start of the last sync.
        self.generation_synced = -1
        #: The text of the epoch checkpoint if the next sync must write it, else None.
        self.epoch_checkpoint_text: str | None = None
        #: (due time in ms, segment) of the deleted segments whose files are still to be removed.
        self.pending_removals: list[tuple[int, Segment]] = []
        self.settings = settings

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        settings: LogSettings,
        *,
        now_ms: int,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean: bool = False,
        topic_id: Uuid = NO_UUID,
        cleaner_offset: int | None = None,
        on_progress: recovery.RecoveryProgress = lambda more, done: None,
    ) -> "Log":
        """Open the log in the directory, or create a new one there.

        After an unclean shutdown everything from `recovery_point` on is read and checked, and truncated at the first
        bad batch; `on_progress` is called with the progress. `topic_id` is written if the directory has none.
        """
        log = cls(disk, path, settings)
        log.cleaner_offset = cleaner_offset
        try:
            names = disk.list(path)
        except FileNotFoundError:
            disk.make_directory(path)
            names = []
        if PARTITION_METADATA in names:
            log.topic_id = read_topic_id(disk, path)
        if log.topic_id == NO_UUID and topic_id != NO_UUID:
            log.topic_id = topic_id
            write_topic_id(disk, path, topic_id)
        recovery.load(log, names, now_ms, recovery_point, log_start_offset, clean, on_progress)
        log.last_flush_ms = now_ms
        return log

    @property
    def settings(self) -> LogSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: LogSettings) -> None:
        self._settings = settings
        self._rewrites_every_batch = rewrites_every_batch(settings)
        self._flush_messages = settings.flush_messages
        for segment in self.segments:
            segment.index_interval_bytes = settings.index_interval_bytes

    @property
    def size(self) -> int:
        """The bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def high_watermark(self) -> int:
        """The first offset that is not on all in-sync replicas. The replica layer sets it; None is the visible end."""
        if self._high_watermark is not None:
            return self._high_watermark
        return self.end_offset if self._visible_end is None else self._visible_end

    @high_watermark.setter
    def high_watermark(self, offset: int | None) -> None:
        self._high_watermark = offset
        self.producers.replicated(self.high_watermark if offset is None else offset)

    @property
    def is_replicated(self) -> bool:
        """Has the partition other replicas, so that the high watermark is not the visible end?"""
        return self._high_watermark is not None

    @property
    def visible_end_offset(self) -> int:
        """The end of the log, or its flushed end while a flush for `flush.messages` is due."""
        return self.end_offset if self._visible_end is None else self._visible_end

    def limit_visible_end(self, offset: int) -> None:
        """Hide records from `offset` on until they are flushed: a record that was read must survive a power failure."""
        if self._visible_end is None:
            self._visible_end = offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided; `read_committed` reads no further."""
        high_watermark = self.high_watermark
        unstable = self.producers.first_unstable_offset(high_watermark)
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, self.start_offset)

    # ---- append

    def append(
        self,
        data: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
    ) -> Appended:
        """Check, stamp and write. Raises KafkaError with the code for the producer, OSError if the disk fails.

        CLIENT takes one batch, COORDINATOR one or more, REPLICA the content of a fetch response.
        """
        if origin is Origin.REPLICA:
            return append_as_follower(self, data, leader_epoch, now_ms)
        try:
            fields = HEADER_AND_FIRST.unpack_from(data)
        except struct.error:
            fields = unpack_padded(data)
        size = fields[1] + LENGTH_END
        if size != len(data):
            if origin is Origin.COORDINATOR and HEADER_BYTES <= size < len(data):
                return append_several(self, data, leader_epoch, now_ms, transaction_version)
            size = len(data := only_batch(data))
        settings = self._settings
        from_client = origin is Origin.CLIENT
        check_header(data, size, fields, settings, from_client)
        attributes, max_timestamp, producer_id = fields[5], fields[8], fields[9]
        if (
            self._rewrites_every_batch
            or attributes & LOG_APPEND_TIME
            or max_timestamp - now_ms > settings.timestamp_after_max_ms
        ):
            data = rewrite_batch(data, settings, now_ms, from_client=from_client)
            size = len(data)
            if settings.log_append_time:
                max_timestamp = now_ms
        if size > settings.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes do not fit into a segment of {settings.segment_bytes}"
            )
        marker = None
        if producer_id >= 0:
            if attributes & CONTROL:
                marker = check_marker(self.producers, self.active, data, producer_id, fields[10], transaction_version)
            else:
                duplicate = resent(self.producers, fields, settings, from_client)
                if duplicate is not None:
                    return duplicate
        return self._write(data, size, fields, max_timestamp, marker, leader_epoch, now_ms)

    def _write(
        self,
        data: Buffer,
        size: int,
        fields: Fields,
        max_timestamp: int,
        marker: Marker | None,
        leader_epoch: int,
        now_ms: int,
    ) -> Appended:
        """Stamp and write a checked batch, and account for it."""
        if self.on_change is not None:
            self.on_change()
        settings = self._settings
        base_offset = self.end_offset
        last_offset = base_offset + fields[6]
        segment = self.active
        if segment.roll_due(size, last_offset, max_timestamp, now_ms, settings):
            segment = self.roll(now_ms)
        if leader_epoch != self.epochs.latest:
            self.assign_epoch(leader_epoch, base_offset)
        # Bytes are immutable and so is a read-only view; a bytearray is not.
        if type(data) is bytes or (type(data) is memoryview and data.readonly):
            prefix = PREFIX.pack(base_offset, size - LENGTH_END, leader_epoch)
            rest = memoryview(data)[PREFIX.size :]
            segment.append_pieces([prefix, rest], size, base_offset, last_offset, max_timestamp)
        else:
            PREFIX.pack_into(data, 0, base_offset, size - LENGTH_END, leader_epoch)
            segment.append(data, size, base_offset, last_offset, max_timestamp)
        segment.modified_ms = now_ms
        if marker is not None:
            # Not this marker: it may become visible only when it is flushed (`hold`).
            self.producers.replicated(self.high_watermark)
        self.end_offset = last_offset + 1
        producer_id = fields[9]
        if producer_id >= 0:
            attributes, epoch, sequence = fields[5], fields[10], fields[11]
            if marker is not None:
                apply_marker(self.producers, segment, marker, producer_id, epoch, base_offset)
            elif not attributes & CONTROL:
                last_sequence = (sequence + fields[6]) & _SEQUENCE_MASK if sequence >= 0 else NO_SEQUENCE
                transactional = bool(attributes & TRANSACTIONAL)
                self.producers.add(
                    producer_id, epoch, last_sequence, base_offset, last_offset, max_timestamp, transactional
                )
        self.producers.end_offset = last_offset + 1
        time_ms = now_ms if settings.log_append_time else -1
        # The same as `Appended(...)` at a third of its cost.
        return tuple.__new__(Appended, (base_offset, last_offset, time_ms, max_timestamp, False))

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Begin a new segment at the end, or at `base_offset` beyond it. An empty active segment is kept."""
        base_offset = self.end_offset if base_offset is None else base_offset
        if self.active.base_offset == base_offset and self.active.size == 0:
            return self.active
        self.active.deactivate()
        self.producers.end_offset = base_offset
        self.snapshots.take(self.producers)
        return self.begin_segment(base_offset, now_ms)

    def begin_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Create an empty segment and make it the active one."""
        segment = Segment.create(self.disk, self.path, base_offset, self._settings, now_ms)
        self.directory_dirty = True
        self.segments.append(segment)
        self.bases.append(base_offset)
        self.active = segment
        return segment

    # ---- read

    def read(self, offset: int, max_bytes: int, *, end_offset: int, min_one_batch: bool = True) -> Slice:
        """Batches of one segment, from the batch that contains `offset` on, all below `end_offset`.

        The slice may end within a batch, as Kafka's does, but not within the first: without `min_one_batch` it is empty
        if the first batch does not fit. It is empty at `end_offset`. Raises OFFSET_OUT_OF_RANGE outside the log.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside of [{self.start_offset}, {self.end_offset}]",
            )
        if end_offset > self.end_offset:
            end_offset = self.end_offset
        slot = bisect_right(self.bases, offset) - 1
        while offset < end_offset and slot < len(self.segments):
            segment = self.segments[slot]
            located = segment.locate(offset)
            if located is None:
                # The cleaner removed the end of this segment; the next batch is in the following segment.
                slot += 1
                continue
            position, first_size, first_offset = located
            last_slot = slot + 1 == len(self.segments)
            if end_offset >= (self.end_offset if last_slot else self.bases[slot + 1]):
                end = segment.size
            else:
                end = segment.position_of(end_offset)
            size = end - position
            bound = max_bytes if max_bytes >= first_size else first_size if min_one_batch else 0
            return Slice(segment.file, position, bound if bound < size else max(0, size), first_offset)
        return Slice(self.active.file, self.active.size, 0, offset)

    def end_of(self, piece: Slice) -> int:
        """The offset after the last batch that is at least partly in the slice."""
        return lookup.end_of(self, piece)

    def offset_for_timestamp(self, timestamp: int, end_offset: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record at or after `timestamp` and below `end_offset`."""
        return lookup.finish(lookup.offset_for_timestamp(self, timestamp, end_offset))

    def max_timestamp(self) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record with the greatest timestamp; None in an empty log."""
        return lookup.finish(lookup.max_timestamp(self))

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in offsets [start, end), as a fetch response needs them."""
        transactions: list[AbortedTransaction] = []
        for slot in range(max(0, bisect_right(self.bases, start) - 1), len(self.segments)):
            if self.segments[slot].transaction_index.collect(start, end, transactions):
                break
        return transactions

    # ---- epochs

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Record that a leader of this epoch writes from `start_offset` on."""
        self.epochs.assign(epoch, start_offset)
        self.stage_epoch_checkpoint()

    def stage_epoch_checkpoint(self) -> None:
        """If the epochs changed, have the next sync write their checkpoint."""
        if self.epochs.dirty:
            self.epoch_checkpoint_text = encode_epochs(self.epochs.entries())
            self.epochs.dirty = False

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the greatest known epoch that is at most `epoch`, its end offset); (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote `offset`, or -1."""
        return self.epochs.epoch_of(offset)

    # ---- durability

    @property
    def must_flush(self) -> bool:
        """Has `flush.messages` been reached?"""
        return self.end_offset - self.recovery_point >= self._flush_messages

    @property
    def wants_flush(self) -> bool:
        """Has `flush.messages` been reached, or a segment been rolled since the last flush?"""
        synced = self.recovery_point
        return synced < self.active.base_offset or self.end_offset - synced >= self._flush_messages

    def flush_is_overdue(self, now_ms: int) -> bool:
        """Is there something to flush, and has `flush.ms` passed since the last flush?"""
        return self.end_offset > self.recovery_point and now_ms - self.last_flush_ms >= self._settings.flush_ms

    def sync(self) -> None:
        """Make everything that is in the log now durable. May run on a thread; the loop then calls `synced`.

        Never run two at a time: each would assume that the other has synced the directory.
        """
        self.generation_synced = durability.sync(self, closing=False)

    def synced(self, end_offset: int, now_ms: int | None = None) -> None:
        """Record the end of a `sync` that began when the log ended at `end_offset`."""
        if self.generation_synced == self.generation:
            self.recovery_point = max(self.recovery_point, min(end_offset, self.end_offset))
            if self._visible_end is not None:
                self._visible_end = max(self._visible_end, self.recovery_point) if self.must_flush else None
            if now_ms is not None:
                self.last_flush_ms = now_ms

    def flush(self, now_ms: int | None = None) -> None:
        """Sync on the calling thread."""
        end_offset = self.end_offset
        self.sync()
        self.synced(end_offset, now_ms)

    # ---- truncation and deletion

    def truncate(self, offset: int, now_ms: int = 0) -> bool:
        """Drop everything at and above `offset`, durably. False if there was nothing to drop."""
        return retention.truncate(self, offset, now_ms)

    def truncated(self) -> None:
        """Record that records were dropped: a running sync no longer counts."""
        self.generation += 1
        self.directory_dirty = True
        self._visible_end = None

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Drop everything and begin at `offset`: the follower is behind its leader's start, or took a snapshot."""
        retention.restart_at(self, offset, now_ms)

    def advance_start_offset(self, offset: int) -> bool:
        """Raise the start offset (DeleteRecords). Raises OFFSET_OUT_OF_RANGE above the high watermark."""
        return retention.advance_start_offset(self, offset)

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply retention by start offset, size and time; the number of deleted segments."""
        return retention.delete_old_segments(self, now_ms)

    def remove_deleted(self, now_ms: int, most: int | None = None) -> list[Segment]:
        """Unlink up to `most` deleted segments that are due; dropping the last reference may take 40 ms."""
        return retention.remove_deleted(self, now_ms, most)

    # ---- close

    def close(self) -> None:
        """Flush, leave the files as Kafka does on a clean shutdown, and close them. A second call does nothing."""
        if not self.closed:
            self.closed = True
            durability.close(self)

    def discard(self) -> None:
        """Close without flushing: the log is deleted, or the node died. Slices in flight stay readable."""
        self.closed = True
        self.segments = []
        self.bases = []
