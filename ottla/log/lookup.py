"""Find offsets by timestamp, and where a slice ends: the reads that look at headers and records.

ListOffsets (KIP-79, KIP-734): by timestamp it is the first record whose timestamp is not below the one asked for; the
maximum is the first record that has the greatest timestamp of the log.
"""

from typing import TYPE_CHECKING

from ottla.log.segment import Segment, Slice
from ottla.wire.batch import Batch, Record

if TYPE_CHECKING:
    from ottla.log.log import Log


def offset_for_timestamp(log: "Log", timestamp: int, end_offset: int) -> tuple[int, int, int] | None:
    """(timestamp, offset, leader epoch), or None if no record below `end_offset` is that late."""
    for segment in log.segments:
        if segment.max_timestamp < timestamp:
            continue
        found = _search(segment, timestamp, log.start_offset)
        if found is not None:
            return found if found[1] < end_offset else None
    return None


def max_timestamp(log: "Log") -> tuple[int, int, int] | None:
    """(timestamp, offset, leader epoch) of the first record with the greatest timestamp."""
    latest = max(log.segments, key=lambda segment: segment.max_timestamp)
    timestamp, last_offset = latest.max_timestamp_and_offset
    if timestamp < 0:
        return None
    for position, header in latest.near(last_offset):
        if header.max_timestamp == timestamp:
            for record in Batch(header, memoryview(latest.read_batch(position, header))).records():
                if record.timestamp == timestamp:
                    return timestamp, record.offset, header.partition_leader_epoch
            return None
    return None


def end_of(log: "Log", found: Slice) -> int:
    """The offset after the last batch that the slice has a part of."""
    for segment in log.segments:
        if segment.file is found.file:
            return segment.end_before(found.position + found.size, found.position, found.first_offset)
    # Retention took the segment between the read and this question.
    return log.start_offset


def _search(segment: Segment, timestamp: int, start_offset: int) -> tuple[int, int, int] | None:
    _, offset = segment.time_index.lookup(timestamp)
    for position, header in segment.near(max(offset, start_offset)):
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        records: list[Record] = Batch(header, memoryview(segment.read_batch(position, header))).records()
        for record in records:
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return record.timestamp, record.offset, header.partition_leader_epoch
    return None
