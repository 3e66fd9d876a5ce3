"""Producer snapshots: the state of a log's producers at an offset, in `<offset>.snapshot`.

Format: int16 version 1, uint32 CRC-32C of the rest, int32 count, then per producer: int64 id, int16 epoch, int32 last
sequence, int64 last offset, int32 offset delta, int64 timestamp, int32 coordinator epoch, int64 first offset of the
ongoing transaction (-1 for none).

Rules:
- A snapshot is taken on roll, and on close unless the last one suffices (`ottla/log/durability.py`).
- Recovery starts from the last snapshot at or below the offset that it needs.
- A roll encodes only the producers that have changed since the last snapshot: a log may have 100,000.
- A corrupt snapshot is deleted and the one before it is used: a snapshot only saves reading the log.
"""

import struct
from collections.abc import Iterable

from ottla.kernel.ports import Disk
from ottla.log.path import SNAPSHOT, offset_name
from ottla.log.producer.producer import Producers, ProducerStateEntry, SentBatch
from ottla.wire.checksum import crc32c

VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(ValueError):
    """A snapshot that cannot be parsed."""


def encode(producers: dict[int, ProducerStateEntry]) -> bytes:
    """The bytes of a snapshot, which has only the last batch of each producer."""
    entries = [each.in_snapshot or _entry(producer_id, each) for producer_id, each in producers.items()]
    body = b"".join([_COUNT.pack(len(entries)), *entries])
    return _HEAD.pack(VERSION, crc32c(body)) + body


def _entry(producer_id: int, producer: ProducerStateEntry) -> bytes:
    """The bytes of one producer, which are kept until it changes."""
    sent = producer.sent[-1] if producer.sent else SentBatch(-1, -1, 0, producer.last_timestamp)
    packed = producer.in_snapshot = _ENTRY.pack(
        producer_id,
        producer.epoch,
        sent.last_sequence,
        sent.last_offset,
        sent.offset_delta,
        producer.last_timestamp,
        producer.coordinator_epoch,
        producer.transaction_start,
    )
    return packed


def decode(data: bytes) -> list[tuple[int, ProducerStateEntry]]:
    """(producer id, state) of each producer. Raises CorruptSnapshot if the bytes are not a snapshot."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptSnapshot(f"a producer snapshot of {len(data)} bytes is too short")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"unknown producer snapshot version {version} (expected {VERSION})")
    if crc32c(data[_HEAD.size :]) != crc:
        raise CorruptSnapshot("the CRC of a producer snapshot is wrong")
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    body = data[_HEAD.size + _COUNT.size :]
    if len(body) != count * _ENTRY.size:
        raise CorruptSnapshot(f"a producer snapshot of {count} producers cannot have {len(body)} bytes")
    entries = []
    for fields in _ENTRY.iter_unpack(body):
        producer = ProducerStateEntry()
        producer_id, producer.epoch, last_sequence, last_offset, delta, timestamp = fields[:6]
        producer.last_timestamp = timestamp
        producer.coordinator_epoch, producer.transaction_start = fields[6:]
        if last_offset >= 0:
            producer.sent.append(SentBatch(last_sequence, last_offset, delta, timestamp))
        entries.append((producer_id, producer))
    return entries


class Snapshots:
    """The snapshot files of one log. `Log` creates it."""

    __slots__ = ("_disk", "_offsets", "_unsynced", "directory")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[int]) -> None:
        self._disk = disk
        self.directory = directory
        #: Offsets of the snapshots on disk, ascending.
        self._offsets = sorted(offsets)
        #: May the last snapshot not be durable, and does it matter? Assumed for snapshots found at startup.
        self._unsynced = bool(self._offsets)

    @property
    def latest(self) -> int | None:
        return self._offsets[-1] if self._offsets else None

    @property
    def offsets(self) -> list[int]:
        return list(self._offsets)

    def path(self, offset: int) -> str:
        return f"{self.directory}/{offset_name(offset, SNAPSHOT)}"

    def take(self, producers: Producers) -> None:
        """Write a snapshot at the state's end offset, unless there is one. `sync` makes it durable."""
        offset = producers.end_offset
        if self._offsets and self._offsets[-1] == offset:
            return
        data = encode(producers.by_id)
        file = self._disk.open(self.path(offset), create=True)
        try:
            file.write(data, 0)
            file.truncate(len(data))
        finally:
            file.close()
        self._offsets = sorted({*self._offsets, offset})
        # A snapshot without producers may be lost: the log shows the same.
        self._unsynced = bool(producers.by_id)

    def load(self, producers: Producers, now_ms: int, expiration_ms: int, log_start_offset: int) -> None:
        """Load the last snapshot that can be read, or an empty state at the log start offset."""
        while self._offsets:
            offset = self._offsets[-1]
            try:
                entries = self._read(offset)
            except CorruptSnapshot:
                self.remove(offset)
                continue
            producers.load(entries, offset)
            producers.expire(now_ms, expiration_ms)
            return
        producers.clear()
        producers.end_offset = log_start_offset

    def remove(self, offset: int) -> None:
        if offset in self._offsets:
            # The one before it, now the last, may never have been synced.
            self._unsynced = self._unsynced or offset == self._offsets[-1]
            self._offsets.remove(offset)
            self._disk.remove(self.path(offset))

    def keep_between(self, start: int, end: int) -> None:
        """Remove the snapshots that recovery cannot use: at or below `start`, or above `end`."""
        for offset in self.offsets:
            if offset <= start or offset > end:
                self.remove(offset)

    def keep_for_segments(self, base_offsets: list[int]) -> None:
        """Remove the snapshots at no segment's base offset, except the last one if it lies in the last segment."""
        strays = [offset for offset in self._offsets if offset not in base_offsets]
        kept = strays[-1:] if strays and base_offsets and strays[-1] > base_offsets[-1] else []
        for offset in strays:
            if offset not in kept:
                self.remove(offset)

    def require_sync(self) -> None:
        """Have the last snapshot synced: a clean start reads on from it, even if it has no producers."""
        self._unsynced = True

    def sync(self) -> None:
        """Make the last snapshot durable. Called on a thread."""
        if not self._unsynced:
            return
        # Reset before the last snapshot is looked up: one taken meanwhile is synced the next time.
        self._unsynced = False
        offsets = self.offsets
        if not offsets:
            return
        try:
            file = self._disk.open(self.path(offsets[-1]))
            try:
                file.sync()
            finally:
                file.close()
        except FileNotFoundError:
            return
        except OSError:
            self._unsynced = True
            raise

    def _read(self, offset: int) -> list[tuple[int, ProducerStateEntry]]:
        file = self._disk.open(self.path(offset))
        try:
            return decode(file.read(file.size(), 0))
        finally:
            file.close()
