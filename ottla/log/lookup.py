"""Find offsets by timestamp, and where a slice ends: the reads that look at headers and records.

ListOffsets (KIP-79, KIP-734): by timestamp it is the first record whose timestamp is not below the one asked for; the
maximum is the first record that has the greatest timestamp of the log.

A batch may hold millions of records, so a look-up is a generator: each `yield` is a step of about a millisecond, after
which others may have changed the log. `finish` takes all steps at once.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

from ottla.log.segment.segment import Segment, Slice
from ottla.wire.batch import LOG_APPEND_TIME, BatchHeader
from ottla.wire.walk import walk

if TYPE_CHECKING:
    from ottla.log.log import Log

_RECORDS_A_STEP = 2000
_BATCHES_A_STEP = 500

#: (timestamp, offset, leader epoch); None if there is no such record.
Found = tuple[int, int, int] | None
Lookup = Generator[None, None, Found]


class _Changed(Exception):
    """A segment went between two steps: look again."""


def finish(lookup: Lookup) -> Found:
    """Take all the steps now."""
    while True:
        try:
            next(lookup)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def offset_for_timestamp(log: "Log", timestamp: int, end_offset: int) -> Lookup:
    """The first record at or after `timestamp`, if it lies below `end_offset`."""
    while True:
        try:
            for segment in list(log.segments):
                if segment.max_timestamp < timestamp:
                    continue
                found = yield from _search(log, segment, timestamp)
                if found is not None:
                    return found if found[1] < end_offset else None
            return None
        except _Changed:
            continue


def max_timestamp(log: "Log") -> Lookup:
    """The first record with the greatest timestamp."""
    if log.closed:
        return None
    latest = max(log.segments, key=lambda segment: segment.max_timestamp)
    timestamp, last_offset = latest.max_timestamp_and_offset
    if timestamp < 0:
        return None
    for position, header in latest.near(last_offset):
        if header.max_timestamp == timestamp:
            return (yield from _first(header, latest.read_batch(position, header), timestamp, header.base_offset))
    return None


def end_of(log: "Log", found: Slice) -> int:
    """The offset after the last batch that the slice has a part of."""
    for segment in log.segments:
        if segment.file is found.file:
            return segment.end_before(found.position + found.size, found.position, found.first_offset)
    # Retention took the segment between the read and this question.
    return log.start_offset


def _search(log: "Log", segment: Segment, timestamp: int) -> Lookup:
    generation = log.generation
    _, offset = segment.time_index.lookup(timestamp)
    for number, (position, header) in enumerate(segment.near(max(offset, log.start_offset)), 1):
        if header.max_timestamp >= timestamp and header.last_offset >= log.start_offset:
            found = yield from _first(header, segment.read_batch(position, header), timestamp, log.start_offset)
            if found is not None:
                return found
        elif number % _BATCHES_A_STEP:
            continue
        else:
            yield
        if log.generation != generation or segment not in log.segments:
            raise _Changed
    return None


def _first(header: BatchHeader, data: bytes, timestamp: int, start_offset: int) -> Lookup:
    """The first record of a batch that is at or after `timestamp` and not below `start_offset`."""
    fixed = header.attributes & LOG_APPEND_TIME
    wanted, first = timestamp - header.base_timestamp, start_offset - header.base_offset
    for number, (offset, delta, _) in enumerate(walk(header, data), 1):
        if (fixed or delta >= wanted) and offset >= first:
            found = header.max_timestamp if fixed else header.base_timestamp + delta
            return found, header.base_offset + offset, header.partition_leader_epoch
        if not number % _RECORDS_A_STEP:
            yield
    return None
