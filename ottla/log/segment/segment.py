"""A segment: a file of batches, its indexes, and the state kept about them.

Rules:
- `size` is the position of the next batch. Bytes beyond it, left by a failed write, are not part of the log.
- The greatest timestamp and its offset cover every batch of the segment once `max_timestamp` has been read.
- Only the last segment of a log grows.

Not obvious: the positions of the last few hundred batches are kept in memory (`_tail_lasts`), because nearly all reads
are for those: a consumer at the end of the log needs no extra read to find its batch.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ports import Buffer, Disk, File
from ottla.log.path import LOG, OFFSET_INDEX, SEGMENT_SUFFIXES, TIME_INDEX, TRANSACTION_INDEX, offset_name
from ottla.log.segment import unsynced
from ottla.log.segment.aborted import TransactionIndex
from ottla.log.segment.index import RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex
from ottla.log.setting import LogSettings
from ottla.wire.batch import HEADER, HEADER_BYTES, LENGTH_END, MAGIC, BatchHeader

#: The positions of at least this many last batches are in memory; at twice as many the older half is dropped.
_TAIL_BATCHES = 256
#: The bytes per read of a scan: an index interval and a few headers more.
_SCAN_BYTES = 16 * 1024
#: Up to this size the indexes of an active segment are not synced on close; a clean start rebuilds them with one read.
#: A start trusts the index files of larger segments. A release that lowers this bound would trust files that were
#: never synced (decision 0612).
SMALL_BYTES = _SCAN_BYTES


class Slice:
    """A range of a segment's file, for sendfile or reading. It keeps the file open, even if the segment is deleted."""

    __slots__ = ("file", "first_offset", "position", "size")

    def __init__(self, file: File, position: int, size: int, first_offset: int) -> None:
        self.file = file
        self.position = position
        self.size = size
        #: The base offset of the first batch; it may be below the offset asked for.
        self.first_offset = first_offset

    def __len__(self) -> int:
        return self.size

    def bytes(self) -> bytes:
        """Read the range."""
        return self.file.read(self.size, self.position)


class Segment:
    """A segment of a log. `Log` creates it with `create` or `open`, and calls `close` or drops it."""

    __slots__ = (
        "_disk",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "_tail_bases",
        "_tail_lasts",
        "_tail_positions",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "damage",
        "directory",
        "file",
        "first_timestamp",
        "index_interval_bytes",
        "jitter_ms",
        "indexes_rebuilt",
        "modified_ms",
        "offset_index",
        "rebuild",
        "size",
        "suffix",
        "sync_failed",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        settings: LogSettings,
        now_ms: int,
        file: File,
        suffix: str = "",
    ):
        self._disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.file = file
        #: "", `.deleted` or `.cleaned`.
        self.suffix = suffix
        self.size = file.size()
        self.offset_index = OffsetIndex(disk, self.path(OFFSET_INDEX), base_offset, settings.segment_index_bytes)
        self.time_index = TimeIndex(disk, self.path(TIME_INDEX), base_offset, settings.segment_index_bytes)
        self.transaction_index = TransactionIndex(disk, self.path(TRANSACTION_INDEX))
        #: None until it is read from the time index.
        self._max_timestamp: int | None = None
        self._offset_of_max_timestamp = base_offset
        self.index_interval_bytes = settings.index_interval_bytes
        self.bytes_since_index = 0
        #: Rebuilds the indexes from the batches. Raises KafkaError if a batch is damaged.
        self.rebuild: Callable[[], None] = self.offset_index.reset
        #: Were the indexes rebuilt, so that their files may be stale? `damage`: why a rebuild failed.
        self.indexes_rebuilt = False
        self.damage: str | None = None
        #: Has a sync of the file failed? Later ones fail, too.
        self.sync_failed = False
        #: The greatest timestamp of the first batch, where time-based rolling begins to count; None until it is known.
        self.first_timestamp: int | None = None
        self.created_ms = now_ms
        #: When it was last written; None if that was before it was opened, and the file has not been asked.
        self.modified_ms: int | None = None
        self.jitter_ms = 0
        if settings.segment_jitter_ms > 0:
            # Derived from the name, not random: the same history rolls at the same offsets.
            spread = hash_text(self.path(LOG))
            self.jitter_ms = spread % min(settings.segment_jitter_ms, settings.segment_ms)
        #: The base offsets, last offsets and positions of the last batches; all three rise.
        self._tail_bases: array[int] = array("q")
        self._tail_lasts: array[int] = array("q")
        self._tail_positions: array[int] = array("q")

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: int, settings: LogSettings, now_ms: int, *, suffix: str = ""
    ) -> "Segment":
        """Create an empty, active segment. A file of that name, left over from a crash, is emptied.

        If the disk fails, no file is left behind: the log goes on in the old segment, and its offsets would pass the
        base offset of this one.
        """
        file = disk.open(f"{directory}/{offset_name(base_offset, LOG)}{suffix}", create=True, lasting=True)
        if file.size():
            file.truncate(0)
        segment = cls(disk, directory, base_offset, settings, now_ms, file, suffix)
        segment._max_timestamp, segment.modified_ms = -1, now_ms
        try:
            segment.offset_index.reset()
            segment.time_index.reset()
            segment.transaction_index.reset()
        except OSError:
            segment.close()
            segment.remove()
            raise
        return segment

    @classmethod
    def open(cls, disk: Disk, directory: str, base_offset: int, settings: LogSettings, now_ms: int) -> "Segment":
        file = disk.open(f"{directory}/{offset_name(base_offset, LOG)}", lasting=True)
        return cls(disk, directory, base_offset, settings, now_ms, file)

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{offset_name(self.base_offset, suffix)}{self.suffix}"

    # ---- the hot path

    def append(self, data: Buffer, size: int, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Write one whole batch at the end and index it."""
        position = self.size
        self.file.write(data, position)
        self.written(position, size, base_offset, last_offset, max_timestamp)

    def append_pieces(
        self, pieces: list[Buffer], size: int, base_offset: int, last_offset: int, max_timestamp: int
    ) -> None:
        """Write one batch given in pieces, like `append`."""
        position = self.size
        self.file.write_many(pieces, position)
        self.written(position, size, base_offset, last_offset, max_timestamp)

    def written(self, position: int, size: int, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Account for a batch written at `position`."""
        latest = self._max_timestamp
        if latest is None:
            latest = self.max_timestamp
        if max_timestamp > latest:
            self._max_timestamp = latest = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        self._tail_bases.append(base_offset)
        self._tail_lasts.append(last_offset)
        self._tail_positions.append(position)
        if len(self._tail_lasts) > 2 * _TAIL_BATCHES:
            self.forget_tail(_TAIL_BATCHES)
        if self.bytes_since_index > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(latest, self._offset_of_max_timestamp)
            self.bytes_since_index = 0
        self.bytes_since_index += size
        self.size = position + size

    def roll_due(self, size: int, last_offset: int, max_timestamp: int, now_ms: int, settings: LogSettings) -> bool:
        """Must a batch of `size` bytes go into a new segment?"""
        if self.size > settings.segment_bytes - size:
            return True
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if self.size:
            first = self.first_timestamp
            if first is None:
                first = self.first_batch_timestamp
            waited = max_timestamp - first if first >= 0 else now_ms - self.created_ms
            if waited > settings.segment_ms - self.jitter_ms:
                return True
        return self.bytes_since_index > self.index_interval_bytes and (
            self.offset_index.is_full or self.time_index.is_full
        )

    # ---- timestamps

    @property
    def max_timestamp(self) -> int:
        """The greatest timestamp of all batches, or -1."""
        return self.max_timestamp_and_offset[0]

    @property
    def max_timestamp_and_offset(self) -> tuple[int, int]:
        """(max timestamp, last offset of the first batch that carries it)."""
        if self._max_timestamp is None:
            self._max_timestamp, self._offset_of_max_timestamp = self.time_index.last
        return self._max_timestamp, self._offset_of_max_timestamp

    @max_timestamp_and_offset.setter
    def max_timestamp_and_offset(self, found: tuple[int, int]) -> None:
        self._max_timestamp, self._offset_of_max_timestamp = found

    @property
    def age_timestamp(self) -> int:
        """The timestamp by which it ages: the greatest one, or when it was last written if there is none."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self.written_ms

    @property
    def written_ms(self) -> int:
        """When it was last written; when it was opened on a disk without times."""
        if self.modified_ms is None:
            known = self.file.modified_ms()
            self.modified_ms = self.created_ms if known is None else known
        return self.modified_ms

    @property
    def first_batch_timestamp(self) -> int:
        """`first_timestamp`, read from the file if necessary; -1 in an empty segment."""
        if self.first_timestamp is None:
            for _, header in self.headers():
                self.first_timestamp = header.max_timestamp
                return header.max_timestamp
            return -1
        return self.first_timestamp

    # ---- lookup

    def locate(self, offset: int) -> tuple[int, int, int] | None:
        """(position, size, base offset) of the first batch whose last offset is at least `offset`, or None."""
        lasts = self._tail_lasts
        if lasts and offset >= self._tail_bases[0]:
            slot = bisect_left(lasts, offset)
            if slot == len(lasts):
                return None
            position = self._tail_positions[slot]
            end = self._tail_positions[slot + 1] if slot + 1 < len(lasts) else self.size
            return position, end - position, self._tail_bases[slot]
        for position, header in self.scan_from(offset):
            if header.base_offset + header.last_offset_delta >= offset:
                return position, header.length + LENGTH_END, header.base_offset
        return None

    def scan_from(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the batches from the index entry at or before `offset` on."""
        position = self.offset_index.lookup(offset)[1]
        batches = self.headers(position)
        if position:
            try:
                first = next(batches, None)
            except KafkaError:
                first = None
            if first is not None and self.base_offset <= first[1].base_offset <= offset:
                yield first
            else:
                # An index has no checksum, and a wrong entry would hide records: rebuild and look up again.
                self._rebuild_damaged_indexes()
                batches = self.headers(self.offset_index.lookup(offset)[1])
        yield from batches

    def _rebuild_damaged_indexes(self) -> None:
        """Rebuild the indexes, once. If a batch is damaged, they stay as they were, and KafkaError is raised."""
        if self.damage is None:
            indexes = self.offset_index, self.time_index
            kept = [index.contents for index in indexes]
            state = self.indexes_rebuilt, self.bytes_since_index, self.max_timestamp_and_offset
            try:
                return self.rebuild()
            except KafkaError as error:
                self.offset_index.contents, self.time_index.contents = kept
                self.indexes_rebuilt, self.bytes_since_index, self.max_timestamp_and_offset = state
                self.forget_tail()
                self.damage = error.message
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, self.damage)

    def _is_batch_at(self, position: int, offset: int) -> bool:
        """Does a batch of this segment begin at `position`, with a base offset of at most `offset`?"""
        head = self.file.read(HEADER_BYTES, position)
        if len(head) < HEADER_BYTES:
            return False
        header = BatchHeader._make(HEADER.unpack(head))
        return header.magic == MAGIC and self.base_offset <= header.base_offset <= offset

    def position_of(self, offset: int) -> int:
        """The position of the first batch whose last offset is at least `offset`; `size` if there is none."""
        located = self.locate(offset)
        return located[0] if located else self.size

    def end_before(self, end: int, start: int, first_offset: int) -> int:
        """The offset after the last batch that begins before position `end`; `start` is the position of a batch."""
        positions = self._tail_positions
        if positions and end > positions[0]:
            return self._tail_lasts[bisect_left(positions, end) - 1] + 1
        last = first_offset
        near, at = self.offset_index.lookup_position(end)
        for position, header in self.headers(max(start, at) if self._is_batch_at(at, near) else start):
            if position >= end:
                break
            last = header.last_offset + 1
        return last

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the batches from `position` on. Raises CORRUPT_MESSAGE if one is damaged."""
        end = self.size if end is None else end
        data = b""
        start = position
        while position < end:
            at = position - start
            if at < 0 or at + HEADER_BYTES > len(data):
                data = self.file.read(min(_SCAN_BYTES, end - position), position)
                start, at = position, 0
                if len(data) < HEADER_BYTES:
                    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.path(LOG)} ends within a header at {position}")
            header = BatchHeader._make(HEADER.unpack_from(data, at))
            size = header.length + LENGTH_END
            if header.magic != MAGIC or size < HEADER_BYTES or position + size > end:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.path(LOG)} has no batch at {position}")
            yield position, header
            position += size

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """The bytes of a whole batch."""
        return self.file.read(header.length + LENGTH_END, position)

    def next_offset(self) -> int:
        """The offset after the last batch."""
        last = self.base_offset
        if not self.size:
            return last
        for _, header in self.scan_from(self.offset_index.last_offset):
            last = header.last_offset + 1
        return last

    # ---- lifecycle

    def deactivate(self) -> None:
        """Finish the segment on roll or close: add the last time index entry and write the indexes."""
        self.time_index.append(*self.max_timestamp_and_offset)
        self.offset_index.finish()
        self.time_index.finish()
        self.transaction_index.finish()
        self._repair_end()

    def truncate(self, offset: int) -> int:
        """Drop the batches whose last offset is at least `offset`; the number of bytes dropped."""
        position = self.position_of(offset)
        dropped = self.size - position
        self.offset_index.truncate(offset)
        self.time_index.truncate(offset)
        self.transaction_index.truncate(offset)
        self.file.truncate(position)
        self.size = position
        self.bytes_since_index = 0
        self.forget_tail()
        if position == 0:
            self.first_timestamp = None
        # Batches after the last time index entry may have a greater timestamp.
        timestamp, at = self.time_index.last
        for _, header in self.headers(self.offset_index.lookup(at)[1]):
            if header.max_timestamp > timestamp:
                timestamp, at = header.max_timestamp, header.last_offset
        self._max_timestamp, self._offset_of_max_timestamp = timestamp, at
        return dropped

    def end_at(self, position: int) -> None:
        """End the segment at `position`, where recovery found no batch."""
        if self.file.size() != position:
            self.file.truncate(position)
            # Make it durable: a later crash must not bring old batches back behind new ones.
            self.sync()
        self.size = position
        self.forget_tail()

    def sync(self) -> None:
        """Make the file durable. Called on a thread; it uses only the descriptor."""
        unsynced.sync(self)

    @property
    def is_small(self) -> bool:
        """Would a clean start rebuild the indexes of this segment if it is the active one?"""
        return self.size <= SMALL_BYTES

    def rebuild_small_indexes(self) -> None:
        """Rebuild the indexes of a small active segment from its batches, without reading their files.

        If a batch is damaged, the files are used after all, and reading that batch raises the error.
        """
        kept = self.offset_index.contents, self.time_index.contents
        self.offset_index.reset()
        self.time_index.reset()
        self.max_timestamp_and_offset = (-1, self.base_offset)
        size, next_offset, offset_max = self.size, self.base_offset, self.base_offset + RELATIVE_OFFSET_MAX
        try:
            for position, header in self.headers():
                if not next_offset <= header.base_offset <= header.last_offset <= offset_max:
                    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.path(LOG)}: offsets do not rise at {position}")
                next_offset = header.last_offset + 1
                self.written(position, header.size, header.base_offset, header.last_offset, header.max_timestamp)
        except KafkaError:
            self.offset_index.contents, self.time_index.contents = kept
            self._max_timestamp, self.first_timestamp, self.bytes_since_index = None, None, 0
            self.forget_tail()
        self.size = size

    def sync_transactions(self) -> None:
        """Make the transaction index durable. Called on a thread."""
        self._sync_file(TRANSACTION_INDEX)

    def sync_indexes(self) -> None:
        """Make the index files of an inactive segment durable. Called on a thread."""
        # The offset index of a small segment is empty: only its name needs a sync.
        offsets = () if self.offset_index.never_had_content else (OFFSET_INDEX,)
        for suffix in (*offsets, TIME_INDEX, TRANSACTION_INDEX):
            self._sync_file(suffix)

    def _sync_file(self, suffix: str) -> None:
        try:
            file = self._disk.open(self.path(suffix))
        except FileNotFoundError:
            # No transaction was aborted, or retention deleted the segment meanwhile.
            return
        try:
            file.sync()
        finally:
            file.close()

    def rename(self, suffix: str) -> None:
        """Give all files another suffix: `.deleted` hides them from the next start but not from slices."""
        indexes = None, self.offset_index, self.time_index, self.transaction_index
        for kind, index in zip(SEGMENT_SUFFIXES, indexes, strict=True):
            source = self.path(kind) if index is None else index.path
            target = f"{self.directory}/{offset_name(self.base_offset, kind)}{suffix}"
            if self._disk.exists(source):
                self._disk.rename(source, target)
            if index is not None:
                # At once: the next rename may fail, and the index may still be read.
                index.path = target
            self.suffix = suffix

    def remove(self) -> None:
        """Delete the files. The descriptor is closed when the last slice drops it."""
        for path in (self.path(LOG), self.offset_index.path, self.time_index.path, self.transaction_index.path):
            if self._disk.exists(path):
                self._disk.remove(path)

    def close(self) -> None:
        """Close the file. The caller has deactivated an active segment before."""
        self.file.close()

    def _repair_end(self) -> None:
        # A failed write (a full disk) may have left bytes that are not part of the log.
        if self.file.size() != self.size:
            self.file.truncate(self.size)

    def forget_tail(self, count: int | None = None) -> None:
        del self._tail_bases[:count]
        del self._tail_lasts[:count]
        del self._tail_positions[:count]


def hash_text(text: str) -> int:
    """A hash that is the same in every process."""
    value = 0
    for byte in text.encode():
        value = (value * 31 + byte) & 0x7FFFFFFF
    return value
