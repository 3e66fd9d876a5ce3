"""The offset index and the time index of one segment.

An offset index entry is (int32 relative offset, int32 position): the last offset of a batch and the batch's position. A
time index entry is (int64 timestamp, int32 relative offset): the greatest timestamp so far and the last offset of its
batch. Offsets are relative to the segment's base offset.

Rules:
- Entries live in memory; the files are written when the segment is rolled or closed. After a crash the indexes of
  everything unflushed are rebuilt from the log, so an entry that was only in memory is not missed.
- The active segment has no index files, or stale ones.
- An inactive segment's entries are read on first use. A file that cannot be right is never used: `rebuild`, which the
  segment sets, fills the index from the batches.
"""

import struct
import sys
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import ClassVar

from ottla.kernel.ports import Disk

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
_TIME_ENTRY = struct.Struct(">qi")
#: The greatest relative offset: an index stores it as int32.
RELATIVE_OFFSET_MAX = (1 << 31) - 1
_SWAP = sys.byteorder == "little"
#: Up to this many entries of the time index are encoded one by one.
_FEW_ENTRIES = 32


#: Both columns of an index, and the number of entries in its file.
Contents = tuple["array[int] | None", "array[int]", int]


class _Corrupt(ValueError):
    """An index file that neither Ottla nor Kafka can have written."""


class _Index(ABC):
    """An index of two columns, the first strictly rising, and its file. `Segment` creates it."""

    __slots__ = ("_disk", "_first", "_second", "_written", "base_offset", "entries_max", "path", "rebuild")
    #: The bytes of an entry in the file, and the type of the first column; the second is int32.
    entry_bytes: ClassVar[int]
    first_type: ClassVar[str]

    def __init__(self, disk: Disk, path: str, base_offset: int, bytes_max: int) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self.entries_max = bytes_max // self.entry_bytes
        #: None until both columns are loaded.
        self._first: array[int] | None = None
        self._second: array[int] = array("i")
        #: The number of entries in the file.
        self._written = 0
        #: Called if the file is damaged, to fill the index from the batches.
        self.rebuild: Callable[[], None] = self.reset

    def __len__(self) -> int:
        return len(self._loaded())

    @property
    def contents(self) -> "Contents":
        """The entries, for the caller to restore if a rebuild fails."""
        return self._first, self._second, self._written

    @contents.setter
    def contents(self, kept: "Contents") -> None:
        self._first, self._second, self._written = kept

    @property
    def file_bytes(self) -> int:
        """The file's size once the segment is inactive."""
        return len(self._loaded()) * self.entry_bytes

    def reset(self) -> None:
        self._first = array(self.first_type)
        self._second = array("i")
        self._written = 0

    @abstractmethod
    def encoded(self, start: int) -> bytes:
        """The entries from number `start` on, encoded."""

    @abstractmethod
    def decoded(self, data: bytes) -> tuple["array[int]", "array[int]"]:
        """Both columns of a file. Raises `_Corrupt` if they cannot be right."""

    def finish(self) -> tuple[int, int] | None:
        """Write the file in full, when the segment stops growing, perhaps for a time.

        Returns (its size, its size before), or None if the index was never loaded.
        """
        if self._first is None:
            return None
        data, position = self.encoded(self._written), self._written * self.entry_bytes
        sizes = _write_and_truncate(self._disk, self.path, data, position)
        self._written = sizes[0] // self.entry_bytes
        return sizes

    def _keep(self, keep: int) -> None:
        """Drop all but the first `keep` entries."""
        del self._loaded()[keep:]
        del self._second[keep:]
        self._written = min(self._written, keep)

    def _loaded(self) -> "array[int]":
        """The first column, loaded on first use. Appends access `_first` directly, which is faster in CPython."""
        if self._first is None:
            try:
                self._first, self._second = self.decoded(_read(self._disk, self.path, self.entry_bytes))
                self._written = len(self._first)
            except _Corrupt:
                self.rebuild()
            assert self._first is not None
        return self._first


class OffsetIndex(_Index):
    """Offset (relative to the base) -> position, sparse."""

    __slots__ = ("_emptied",)
    entry_bytes = OFFSET_ENTRY_BYTES
    first_type = "i"

    def __init__(self, disk: Disk, path: str, base_offset: int, bytes_max: int) -> None:
        super().__init__(disk, path, base_offset, bytes_max)
        #: Was the file truncated to nothing? A crash could undo that until the file is synced.
        self._emptied = False

    @property
    def is_full(self) -> bool:
        return len(self._first if self._first is not None else self._loaded()) >= self.entries_max

    @property
    def never_had_content(self) -> bool:
        """Is the file known to be empty and never truncated? False also if only reading the file would tell."""
        return self._first is not None and not len(self._first) and not self._emptied

    @property
    def last_offset(self) -> int:
        """The offset of the last entry, or the base offset."""
        offsets = self._loaded()
        return self.base_offset + offsets[-1] if offsets else self.base_offset

    def entries(self) -> list[tuple[int, int]]:
        """(offset, position) of all entries."""
        base = self.base_offset
        return [(base + offset, position) for offset, position in zip(self._loaded(), self._second, strict=True)]

    def append(self, offset: int, position: int) -> None:
        offsets = self._first if self._first is not None else self._loaded()
        relative = offset - self.base_offset
        assert not offsets or relative > offsets[-1], "offsets in an index rise"
        offsets.append(relative)
        self._second.append(position)

    def lookup(self, offset: int) -> tuple[int, int]:
        """The last entry whose offset is at most `offset`; (base offset, 0) if there is none."""
        return self._at(bisect_right(self._loaded(), offset - self.base_offset) - 1)

    def lookup_position(self, position: int) -> tuple[int, int]:
        """The last entry whose batch begins before `position`; (base offset, 0) if there is none."""
        self._loaded()
        return self._at(bisect_left(self._second, position) - 1)

    def _at(self, slot: int) -> tuple[int, int]:
        if slot < 0:
            return self.base_offset, 0
        return self.base_offset + self._loaded()[slot], self._second[slot]

    def truncate(self, offset: int) -> None:
        """Drop the entries at and above `offset`."""
        self._keep(bisect_left(self._loaded(), offset - self.base_offset))

    def encoded(self, start: int) -> bytes:
        """The entries from number `start` on, encoded."""
        offsets = self._loaded()[start:]
        both = array("i", bytes(OFFSET_ENTRY_BYTES * len(offsets)))
        both[0::2] = offsets
        both[1::2] = self._second[start:]
        if _SWAP:
            both.byteswap()
        return both.tobytes()

    def decoded(self, data: bytes) -> tuple["array[int]", "array[int]"]:
        """Relative offsets and positions."""
        both = array("i", data)
        if _SWAP:
            both.byteswap()
        offsets, positions = both[0::2], both[1::2]
        if len(offsets) and (offsets[-1] < offsets[0] or positions[-1] < positions[0] or offsets[0] < 0):
            raise _Corrupt
        return offsets, positions

    def finish(self) -> tuple[int, int] | None:
        """Write the file like `_Index.finish`, and remember if that emptied it."""
        sizes = super().finish()
        if sizes is not None:
            size, was = sizes
            self._emptied = self._emptied or (not size and was > 0)
        return sizes


class TimeIndex(_Index):
    """Timestamp -> offset (relative to the base), sparse."""

    __slots__ = ()
    entry_bytes = TIME_ENTRY_BYTES
    first_type = "q"

    @property
    def is_full(self) -> bool:
        """Is there room only for the last entry, which is written on roll?"""
        return len(self._first if self._first is not None else self._loaded()) >= self.entries_max - 1

    @property
    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry, or (-1, base offset)."""
        return self._at(len(self._loaded()) - 1)

    def entries(self) -> list[tuple[int, int]]:
        """(timestamp, offset) of all entries."""
        base = self.base_offset
        return [(timestamp, base + offset) for timestamp, offset in zip(self._loaded(), self._second, strict=True)]

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry, unless the last one's timestamp is at least as great."""
        timestamps = self._first if self._first is not None else self._loaded()
        if timestamp > (timestamps[-1] if timestamps else -1):
            timestamps.append(timestamp)
            self._second.append(offset - self.base_offset)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry whose timestamp is at most `timestamp`; (-1, base offset) if there is none."""
        return self._at(bisect_right(self._loaded(), timestamp) - 1)

    def _at(self, slot: int) -> tuple[int, int]:
        if slot < 0:
            return -1, self.base_offset
        return self._loaded()[slot], self.base_offset + self._second[slot]

    def truncate(self, offset: int) -> None:
        """Drop the entries at and above `offset`."""
        self._loaded()
        self._keep(bisect_left(self._second, offset - self.base_offset))

    def encoded(self, start: int) -> bytes:
        """The entries from number `start` on, encoded.

        The bytes of many are copied in strides: packing the 800,000 entries of a full index one by one would block the
        loop. Packing is faster for the few of a small segment, and a stop closes thousands of those.
        """
        timestamps, offsets = self._loaded()[start:], self._second[start:]
        if len(timestamps) <= _FEW_ENTRIES:
            return b"".join(map(_TIME_ENTRY.pack, timestamps, offsets))
        if _SWAP:
            timestamps.byteswap()
            offsets.byteswap()
        first, second = timestamps.tobytes(), offsets.tobytes()
        entries = bytearray(TIME_ENTRY_BYTES * len(timestamps))
        for byte in range(8):
            entries[byte::TIME_ENTRY_BYTES] = first[byte::8]
        for byte in range(4):
            entries[8 + byte :: TIME_ENTRY_BYTES] = second[byte::4]
        return bytes(entries)

    def decoded(self, data: bytes) -> tuple["array[int]", "array[int]"]:
        """Timestamps and relative offsets."""
        timestamps = array("q")
        offsets = array("i")
        for timestamp, offset in _TIME_ENTRY.iter_unpack(data):
            timestamps.append(timestamp)
            offsets.append(offset)
        if timestamps and (timestamps[-1] < timestamps[0] or offsets[-1] < 0):
            raise _Corrupt
        return timestamps, offsets


def _read(disk: Disk, path: str, entry_bytes: int) -> bytes:
    file = disk.open(path)
    try:
        size = file.size()
        if size % entry_bytes:
            # Not a whole number of entries.
            raise _Corrupt
        return file.read(size, 0)
    finally:
        file.close()


def _write_and_truncate(disk: Disk, path: str, data: bytes, position: int) -> tuple[int, int]:
    """Write `data` at `position` and truncate the file after it, without a sync: (its size, its size before)."""
    file = disk.open(path, create=True)
    try:
        was, size = file.size(), position + len(data)
        if data:
            file.write(data, position)
        if max(was, size) != size:
            file.truncate(size)
        return size, was
    finally:
        file.close()
