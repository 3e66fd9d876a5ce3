"""Producer snapshots: the state of a log's producers at an offset, in `<offset>.snapshot`.

int16 version 1, uint32 CRC-32C of what follows it, int32 count, then per producer: int64 id, int16 epoch, int32 last
sequence, int64 last offset, int32 offset delta, int64 timestamp, int32 coordinator epoch, int64 first offset of the
transaction under way (-1).

Rules:
- A snapshot is taken on roll, and on close unless the one before still does (`ottla/log/durability.py`).
- Recovery starts from the last one at or below where it has to.
- One that does not read is deleted, and the one before it is taken: a snapshot only saves reading the log.
"""

import struct
from collections.abc import Iterable

from ottla.kernel.ports import Disk
from ottla.log.path import SNAPSHOT, offset_name
from ottla.log.producer.producer import Producers, ProducerStateEntry, Sent
from ottla.wire.checksum import crc32c

VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(ValueError):
    """A snapshot that does not read."""


def encode(producers: dict[int, ProducerStateEntry]) -> bytes:
    """The bytes of a snapshot; of a producer's batches only the last is kept."""
    parts = [_COUNT.pack(len(producers))]
    for producer_id, producer in producers.items():
        sent = producer.sent[-1] if producer.sent else Sent(-1, -1, 0, producer.last_timestamp)
        parts.append(
            _ENTRY.pack(
                producer_id,
                producer.epoch,
                sent.last_sequence,
                sent.last_offset,
                sent.offset_delta,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_start,
            )
        )
    body = b"".join(parts)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode(data: bytes) -> list[tuple[int, ProducerStateEntry]]:
    """(producer id, state) of each. CorruptSnapshot if the bytes are not those of a snapshot."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptSnapshot(f"{len(data)} bytes are no producer snapshot")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"version {version} of producer snapshots is not known")
    if crc32c(data[_HEAD.size :]) != crc:
        raise CorruptSnapshot("the CRC of a producer snapshot is wrong")
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    body = data[_HEAD.size + _COUNT.size :]
    if count < 0 or len(body) != count * _ENTRY.size:
        raise CorruptSnapshot(f"{count} producers do not take {len(body)} bytes")
    entries = []
    for fields in _ENTRY.iter_unpack(body):
        producer = ProducerStateEntry()
        producer_id, producer.epoch, last_sequence, last_offset, delta, timestamp = fields[:6]
        producer.last_timestamp = timestamp
        producer.coordinator_epoch, producer.transaction_start = fields[6:]
        if last_offset >= 0:
            producer.sent.append(Sent(last_sequence, last_offset, delta, timestamp))
        entries.append((producer_id, producer))
    return entries


class Snapshots:
    """The snapshot files of one log. `Log` makes it."""

    __slots__ = ("_disk", "_offsets", "_unsynced", "directory")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[int]) -> None:
        self._disk = disk
        self.directory = directory
        #: Offsets of the snapshots on disk, ascending.
        self._offsets = sorted(offsets)
        #: May the last snapshot be lost, with producers in it? Unknown for those that were found on disk.
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
        """Write the state as it is, under its end offset, unless there is one. Made durable with the segments."""
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
        # A snapshot without producers says nothing that the log does not.
        self._unsynced = bool(producers.by_id)

    def load(self, producers: Producers, now_ms: int, expiration_ms: int, log_start_offset: int) -> None:
        """Set `producers` to the last snapshot that reads, or to nothing at the log start offset."""
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
            # Behind the last one stands one that may never have been synced.
            self._unsynced = self._unsynced or offset == self._offsets[-1]
            self._offsets.remove(offset)
            self._disk.remove(self.path(offset))

    def keep_between(self, start: int, end: int) -> None:
        """Remove the snapshots that cannot be a basis any more: at or below `start`, or above `end`."""
        for offset in self.offsets:
            if offset <= start or offset > end:
                self.remove(offset)

    def keep_of_segments(self, base_offsets: list[int]) -> None:
        """Remove all that belong to no segment, but for the last one if it lies beyond the last segment's base."""
        strays = [offset for offset in self._offsets if offset not in base_offsets]
        kept = strays[-1:] if strays and base_offsets and strays[-1] > base_offsets[-1] else []
        for offset in strays:
            if offset not in kept:
                self.remove(offset)

    def needed(self) -> None:
        """The last one is to be durable: a clean start reads on from it, even if it holds no producers itself."""
        self._unsynced = True

    def synced(self) -> None:
        """All are durable: their volume was synced."""
        self._unsynced = False

    def sync(self) -> None:
        """Make the last one durable. Called on a thread."""
        if not self._unsynced:
            return
        # Before the look at which is the last: one that is taken meanwhile is synced the next time.
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
