"""The offset index and the time index of one segment.

An offset index entry is (int32 relative offset, int32 position): the last offset of a batch and where that batch
begins. A time index entry is (int64 timestamp, int32 relative offset): the greatest timestamp so far and the last
offset of the batch that has it. Relative to the segment's base offset.

Rules:
- Entries live in memory; the files are written behind, when the segment is flushed, rolled or closed. After a crash
  the indexes of all that was not flushed are rebuilt from the log, so an entry that was only in memory costs nothing.
- The active segment has no index files, or stale ones: they are written on roll and on close.
- An inactive segment's entries are read on first use. A file that cannot be right is never used: `rebuild`, which the
  segment sets, fills the index again.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from ottla.kernel.ports import Disk

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
_TIME_ENTRY = struct.Struct(">qi")
#: Offsets in an index are int32 relative to the base offset.
RELATIVE_OFFSET_MAX = (1 << 31) - 1
_SWAP = sys.byteorder == "little"


#: Both columns of an index, and how many entries its file has.
Contents = tuple["array[int] | None", "array[int]", int]


class _Corrupt(ValueError):
    """An index file that cannot be what we or Kafka wrote."""


class OffsetIndex:
    """Offset -> position, sparse. `Segment` makes and ends it."""

    __slots__ = (
        "_disk",
        "_emptied",
        "_offsets",
        "_positions",
        "_written",
        "base_offset",
        "entries_max",
        "path",
        "rebuild",
    )

    def __init__(self, disk: Disk, path: str, base_offset: int, bytes_max: int) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self.entries_max = bytes_max // OFFSET_ENTRY_BYTES
        #: The file had entries and was cut to nothing, which a crash could undo until the file is synced.
        self._emptied = False
        #: Relative offsets, strictly rising, or None while not loaded; `_positions` goes with it.
        self._offsets: array[int] | None = None
        self._positions: array[int] = array("i")
        #: How many entries the file has.
        self._written = 0
        #: Called when the file is damaged; fills this index again.
        self.rebuild: Callable[[], None] = self.reset

    def __len__(self) -> int:
        return len(self._loaded())

    @property
    def contents(self) -> "Contents":
        """The entries, to be put back when the index cannot be filled again."""
        return self._offsets, self._positions, self._written

    @contents.setter
    def contents(self, kept: "Contents") -> None:
        self._offsets, self._positions, self._written = kept

    @property
    def is_full(self) -> bool:
        return len(self._loaded()) >= self.entries_max

    @property
    def never_had_content(self) -> bool:
        """True if its file is empty and was never cut; False also when that is not known without reading the file."""
        return self._offsets is not None and not len(self._offsets) and not self._emptied

    @property
    def file_bytes(self) -> int:
        """What the file of an inactive segment takes."""
        return len(self._loaded()) * OFFSET_ENTRY_BYTES

    @property
    def last_offset(self) -> int:
        """The offset of the last entry, or the base offset."""
        offsets = self._loaded()
        return self.base_offset + offsets[-1] if offsets else self.base_offset

    def entries(self) -> list[tuple[int, int]]:
        """(offset, position) of all."""
        base = self.base_offset
        return [(base + offset, position) for offset, position in zip(self._loaded(), self._positions, strict=True)]

    def append(self, offset: int, position: int) -> None:
        offsets = self._loaded()
        relative = offset - self.base_offset
        assert not offsets or relative > offsets[-1], "offsets in an index rise"
        offsets.append(relative)
        self._positions.append(position)

    def lookup(self, offset: int) -> tuple[int, int]:
        """The last entry whose offset is not above `offset`; (base offset, 0) if there is none."""
        slot = bisect_right(self._loaded(), offset - self.base_offset) - 1
        if slot < 0:
            return self.base_offset, 0
        return self.base_offset + self._loaded()[slot], self._positions[slot]

    def lookup_position(self, position: int) -> tuple[int, int]:
        """The last entry whose batch begins before `position`; (base offset, 0) if there is none."""
        slot = bisect_left(self._loaded_positions(), position) - 1
        if slot < 0:
            return self.base_offset, 0
        return self.base_offset + self._loaded()[slot], self._positions[slot]

    def truncate(self, offset: int) -> None:
        """Drop the entries at and above `offset`."""
        offsets = self._loaded()
        keep = bisect_left(offsets, offset - self.base_offset)
        del offsets[keep:]
        del self._positions[keep:]
        self._written = min(self._written, keep)

    def reset(self) -> None:
        self._offsets = array("i")
        self._positions = array("i")
        self._written = 0

    def encoded(self, start: int = 0) -> bytes:
        """The entries from number `start` as the file has them."""
        offsets = self._loaded()[start:]
        both = array("i", bytes(OFFSET_ENTRY_BYTES * len(offsets)))
        both[0::2] = offsets
        both[1::2] = self._positions[start:]
        if _SWAP:
            both.byteswap()
        return both.tobytes()

    def finish(self) -> None:
        """Write the file as it is to be: the segment will not grow any more, for now."""
        if self._offsets is not None:
            data, position = self.encoded(self._written), self._written * OFFSET_ENTRY_BYTES
            size, was = _bring_up_to_date(self._disk, self.path, data, position)
            self._written = size // OFFSET_ENTRY_BYTES
            self._emptied = self._emptied or (not size and was > 0)

    def _loaded_positions(self) -> "array[int]":
        self._loaded()
        return self._positions

    def _loaded(self) -> "array[int]":
        if self._offsets is None:
            try:
                self._load()
            except _Corrupt:
                self.rebuild()
            assert self._offsets is not None
        return self._offsets

    def _load(self) -> None:
        both = array("i", _read(self._disk, self.path, OFFSET_ENTRY_BYTES))
        if _SWAP:
            both.byteswap()
        offsets = both[0::2]
        positions = both[1::2]
        if len(offsets) and (offsets[-1] < offsets[0] or positions[-1] < positions[0] or offsets[0] < 0):
            raise _Corrupt
        self._offsets = offsets
        self._positions = positions
        self._written = len(offsets)


class TimeIndex:
    """Timestamp -> offset, sparse. `Segment` makes and ends it."""

    __slots__ = ("_disk", "_offsets", "_timestamps", "_written", "base_offset", "entries_max", "path", "rebuild")

    def __init__(self, disk: Disk, path: str, base_offset: int, bytes_max: int) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self.entries_max = bytes_max // TIME_ENTRY_BYTES
        #: Strictly rising, or None while not loaded; `_offsets` (relative) goes with it.
        self._timestamps: array[int] | None = None
        self._offsets: array[int] = array("i")
        self._written = 0
        #: Called when the file is damaged; fills this index again.
        self.rebuild: Callable[[], None] = self.reset

    def __len__(self) -> int:
        return len(self._loaded())

    @property
    def contents(self) -> "Contents":
        """The entries, to be put back when the index cannot be filled again."""
        return self._timestamps, self._offsets, self._written

    @contents.setter
    def contents(self, kept: "Contents") -> None:
        self._timestamps, self._offsets, self._written = kept

    @property
    def is_full(self) -> bool:
        """A place is kept for the last entry of all, written on roll."""
        return len(self._loaded()) >= self.entries_max - 1

    @property
    def file_bytes(self) -> int:
        """What the file of an inactive segment takes."""
        return len(self._loaded()) * TIME_ENTRY_BYTES

    @property
    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry, or (-1, base offset)."""
        timestamps = self._loaded()
        return (timestamps[-1], self.base_offset + self._offsets[-1]) if timestamps else (-1, self.base_offset)

    def entries(self) -> list[tuple[int, int]]:
        """(timestamp, offset) of all."""
        base = self.base_offset
        return [(timestamp, base + offset) for timestamp, offset in zip(self._loaded(), self._offsets, strict=True)]

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry, unless the last one has as great a timestamp."""
        timestamps = self._loaded()
        if timestamp > (timestamps[-1] if timestamps else -1):
            timestamps.append(timestamp)
            self._offsets.append(offset - self.base_offset)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry whose timestamp is not above `timestamp`; (-1, base offset) if there is none."""
        slot = bisect_right(self._loaded(), timestamp) - 1
        if slot < 0:
            return -1, self.base_offset
        return self._loaded()[slot], self.base_offset + self._offsets[slot]

    def truncate(self, offset: int) -> None:
        """Drop the entries at and above `offset`."""
        timestamps = self._loaded()
        keep = bisect_left(self._offsets, offset - self.base_offset)
        del timestamps[keep:]
        del self._offsets[keep:]
        self._written = min(self._written, keep)

    def reset(self) -> None:
        self._timestamps = array("q")
        self._offsets = array("i")
        self._written = 0

    def encoded(self, start: int = 0) -> bytes:
        """The entries from number `start` as the file has them.

        Byte by byte in strides: a full index has 800,000 entries, and packing them singly holds the loop up for long.
        """
        timestamps, offsets = self._loaded()[start:], self._offsets[start:]
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

    def finish(self) -> None:
        if self._timestamps is not None:
            data, position = self.encoded(self._written), self._written * TIME_ENTRY_BYTES
            self._written = _bring_up_to_date(self._disk, self.path, data, position)[0] // TIME_ENTRY_BYTES

    def _loaded(self) -> "array[int]":
        if self._timestamps is None:
            try:
                self._load()
            except _Corrupt:
                self.rebuild()
            assert self._timestamps is not None
        return self._timestamps

    def _load(self) -> None:
        data = _read(self._disk, self.path, TIME_ENTRY_BYTES)
        timestamps = array("q")
        offsets = array("i")
        for timestamp, offset in _TIME_ENTRY.iter_unpack(data):
            timestamps.append(timestamp)
            offsets.append(offset)
        if timestamps and (timestamps[-1] < timestamps[0] or offsets[-1] < 0):
            raise _Corrupt
        self._timestamps = timestamps
        self._offsets = offsets
        self._written = len(timestamps)


def _read(disk: Disk, path: str, entry_bytes: int) -> bytes:
    file = disk.open(path)
    try:
        size = file.size()
        if size % entry_bytes:
            # No whole number of entries.
            raise _Corrupt
        return file.read(size, 0)
    finally:
        file.close()


def _bring_up_to_date(disk: Disk, path: str, data: bytes, position: int) -> tuple[int, int]:
    """Write `data` at `position` and end the file there: (its size, the size it had). Not durable yet."""
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
