"""Print offset and time indexes, check them against their log as kafka-dump-log does, and collect complaints."""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from enum import Enum

from ottla.kernel.error import OttlaError
from ottla.kernel.ports import Disk, File
from ottla.log.path import LOG, OFFSET_INDEX, TIME_INDEX
from ottla.wire.batch import HEADER, HEADER_BYTES, LENGTH_END, BatchHeader

_MAX = (1 << 31) - 1
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class IndexCheck(Enum):
    """The purpose of an index dump."""

    #: Print the entries, and complain about those that do not fit the log.
    SHOW = "show"
    #: Only complain.
    AGAINST_LOG = "against the log"
    #: Check what a start checks.
    SANITY = "sanity"


class CorruptIndex(OttlaError):
    """An index that does not fit its log."""


class Complaints:
    """The complaints by kind and file; kafka-dump-log prints them on stderr after all files."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, list[tuple[int, int]]]] = {head: {} for head in _COMPLAINTS}
        self._lines: list[str] = []

    def add_line(self, line: str) -> None:
        """Add a line that belongs to no kind."""
        self._lines.append(line)

    def add(self, kind: str, path: str, *pairs: tuple[int, int]) -> None:
        """Add findings of one of the kinds below."""
        if pairs:
            self._found[kind].setdefault(path, []).extend(pairs)

    def lines(self) -> list[str]:
        """The lines to print."""
        lines = list(self._lines)
        for head, files in self._found.items():
            for path, pairs in files.items():
                lines.append(f"{head}{path}")
                lines += [_COMPLAINTS[head].format(*pair) for pair in pairs]
        return lines


_MISMATCH = "Mismatches in :"
_WRONG_TIME = "Found timestamp mismatch in :"
_UNORDERED = "Found out of order timestamp in :"
_MISSING = "The following indexed offsets are not found in :"
GAP = "Non-consecutive offsets in "
#: The text of each kind, in Kafka's order.
_COMPLAINTS = {
    _MISMATCH: "  Index offset: {}, log offset: {}",
    _WRONG_TIME: "  Index timestamp: {}, log timestamp: {}",
    _UNORDERED: "  Index timestamp: {}, Previously indexed timestamp: {}",
    _MISSING: "Indexed offset: {}, found log offset: {}",
    GAP: "  {} is followed by {}",
}


def base_offset(path: str) -> int:
    """The first offset of a segment, from the name of one of its files. OttlaError if the name has none."""
    number, _, ending = path.rpartition("/")[2].partition(".")
    if not number.isdecimal():
        raise no_offset(path, f"{0:020}.{ending}")
    return int(number)


def no_offset(path: str, example: str) -> OttlaError:
    """The error for a file whose name says no offset."""
    return OttlaError(f"{path}: the name has no offset (expected a name such as {example}; rename the file)")


def dump_offset_index(disk: Disk, path: str, check: IndexCheck, complaints: Complaints) -> Iterator[str]:
    """The lines for one index."""
    base = base_offset(path)
    entries = [(base + offset, position) for offset, position in _entries(disk, path, _OFFSET_ENTRY)]
    if not entries:
        yield f"{path} is empty."
        return
    if check is IndexCheck.SANITY:
        _check_offset_index(disk, path, base, entries[-1][0])
        yield f"{path} passed sanity check."
        return
    log = disk.open(path.removesuffix(OFFSET_INDEX) + LOG)
    wrong = {}
    try:
        for offset, position in _before_padding(entries, base, 0):
            batch = next(iter(_batches_from(log, position)), None)
            if batch is None:
                raise CorruptIndex(f"{path} has an entry at position {position}, where the log has no batch")
            if batch.last_offset != offset:
                wrong[offset] = batch.last_offset
            if check is IndexCheck.SHOW:
                yield f"offset: {offset} position: {position}"
    finally:
        log.close()
    complaints.add(_MISMATCH, path, *sorted(wrong.items(), reverse=True))


def _check_offset_index(disk: Disk, path: str, base: int, last: int) -> None:
    size = len(content(disk, path))
    if last < base:
        raise CorruptIndex(
            f"Corrupt index found, index file {path} has non-zero size but the last offset is {last} which is less "
            f"than the base offset {base}"
        )
    if size % _OFFSET_ENTRY.size:
        raise CorruptIndex(
            f"Index file {path} is corrupt, found {size} bytes which is neither positive nor a multiple of "
            f"{_OFFSET_ENTRY.size}"
        )


def dump_time_index(disk: Disk, path: str, check: IndexCheck, complaints: Complaints) -> Iterator[str]:
    """The lines for one index."""
    base = base_offset(path)
    entries = [(timestamp, base + offset) for timestamp, offset in _entries(disk, path, _TIME_ENTRY)]
    if check is IndexCheck.SANITY:
        _check_time_index(disk, path, base, entries)
        yield f"{path} passed sanity check."
        return
    index_path = path.removesuffix(TIME_INDEX) + OFFSET_INDEX
    positions = [(base + offset, position) for offset, position in _entries(disk, index_path, _OFFSET_ENTRY)]
    positions = list(_before_padding(positions, base, 0))
    log = disk.open(path.removesuffix(TIME_INDEX) + LOG)
    before = -1
    try:
        for timestamp, offset in _before_padding(entries, base, 1):
            slot = bisect_right(positions, (offset, _MAX)) - 1
            start = positions[slot][1] if slot >= 0 else 0
            batch = next((header for header in _batches_from(log, start) if header.last_offset >= offset), None)
            if batch is None or batch.last_offset != offset:
                complaints.add(_MISSING, path, (offset, -1 if batch is None else batch.last_offset))
            else:
                if batch.max_timestamp != timestamp:
                    complaints.add(_WRONG_TIME, path, (timestamp, batch.max_timestamp))
                if before >= timestamp:
                    complaints.add(_UNORDERED, path, (timestamp, before))
            if check is IndexCheck.SHOW:
                yield f"timestamp: {timestamp} offset: {offset}"
            before = timestamp
    finally:
        log.close()


def _check_time_index(disk: Disk, path: str, base: int, entries: list[tuple[int, int]]) -> None:
    size = len(content(disk, path))
    head = f"Corrupt time index found, time index file ({path}) has non-zero size but the last"
    if entries and entries[-1][0] < entries[0][0]:
        last, first = entries[-1][0], entries[0][0]
        raise CorruptIndex(f"{head} timestamp is {last} which is less than the first timestamp {first}")
    if entries and entries[-1][1] < base:
        raise CorruptIndex(f"{head} offset is {entries[-1][1]} which is less than the first offset {base}")
    if size % _TIME_ENTRY.size:
        raise CorruptIndex(
            f"Time index file {path} is corrupt, found {size} bytes which is neither positive nor a multiple of "
            f"{_TIME_ENTRY.size}"
        )


def _entries(disk: Disk, path: str, entry: struct.Struct) -> list[tuple[int, int]]:
    """All whole entries of the file."""
    data = content(disk, path)
    return list(entry.iter_unpack(data[: len(data) // entry.size * entry.size]))


def _before_padding(entries: list[tuple[int, int]], base: int, place: int) -> Iterator[tuple[int, int]]:
    """The entries before the zeros of an active segment's preallocated file. `place`: the index of the offset."""
    for number, entry in enumerate(entries):
        if number and entry[place] == base:
            return
        yield entry


def _batches_from(log: File, position: int) -> Iterator[BatchHeader]:
    size = log.size()
    while position + HEADER_BYTES <= size:
        header = BatchHeader._make(HEADER.unpack(log.read(HEADER_BYTES, position)))
        if header.length < HEADER_BYTES - LENGTH_END:
            return
        yield header
        position += header.size


def content(disk: Disk, path: str) -> bytes:
    """A whole file."""
    file = disk.open(path)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()
