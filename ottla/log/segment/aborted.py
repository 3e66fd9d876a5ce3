"""The transaction index of one segment: the transactions whose abort marker is in the segment.

An entry is 34 bytes: int16 version 0, int64 producer id, first offset, last offset (the marker's), last stable offset.

Rules:
- The file exists only if there was an entry.
- Entries are in the order of their markers, so their last offsets rise.
- Entries live in memory, like those of the other indexes; the file is written when the segment is rolled or closed. An
  append cannot fail: its marker is in the log already, so the transaction has ended. After a crash recovery rebuilds
  the index.
"""

import struct

from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Disk

_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = 34


class AbortedTransaction(NamedTuple):
    """An aborted transaction; `last_offset` is its marker's offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The index and its file. `Segment` creates it."""

    __slots__ = ("_disk", "_entries", "_written", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._entries: list[AbortedTransaction] | None = None
        #: The number of entries in the file.
        self._written = 0

    @property
    def exists(self) -> bool:
        return bool(self.entries()) or self._disk.exists(self.path)

    def entries(self) -> list[AbortedTransaction]:
        if self._entries is None:
            self._entries = read_entries(self._disk, self.path)
            self._written = len(self._entries)
        return self._entries

    def append(self, transaction: AbortedTransaction) -> None:
        self.entries().append(transaction)

    def finish(self) -> None:
        """Write the entries that the file lacks, when the segment stops growing, perhaps for a time."""
        entries = self._entries or []
        if len(entries) == self._written:
            return
        file = self._disk.open(self.path, create=True)
        try:
            data = b"".join(_ENTRY.pack(0, *entry) for entry in entries[self._written :])
            file.write(data, self._written * ENTRY_BYTES)
        finally:
            file.close()
        self._written = len(entries)

    def collect(self, start: int, end: int, transactions: list[AbortedTransaction]) -> bool:
        """Add the transactions that overlap [start, end) to `found`. True if later segments have none."""
        for entry in self.entries():
            if entry.last_offset >= start and entry.first_offset < end:
                transactions.append(entry)
            if entry.last_stable_offset >= end:
                return True
        return False

    def truncate(self, offset: int) -> None:
        """Drop the transactions whose marker is at or above `offset`."""
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < len(entries):
            self._entries = kept
            if self._written > len(kept):
                self._written = len(kept)
                file = self._disk.open(self.path)
                try:
                    file.truncate(len(kept) * ENTRY_BYTES)
                finally:
                    file.close()

    def reset(self) -> None:
        self._written = 0
        self._entries = []
        if self._disk.exists(self.path):
            file = self._disk.open(self.path)
            try:
                file.truncate(0)
            finally:
                file.close()


def read_entries(disk: Disk, path: str) -> list[AbortedTransaction]:
    """All entries of a file; none if there is no file. Raises ValueError for an unknown version."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return []
    try:
        data = file.read(file.size(), 0)
    finally:
        file.close()
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES]):
        if version != 0:
            raise ValueError(f"{path}: unknown entry version {version} (expected 0)")
        entries.append(AbortedTransaction(*fields))
    return entries
