"""Find offsets by timestamp, and the end offset of a slice: the reads that look at headers and records.

ListOffsets (KIP-79, KIP-734): a lookup by timestamp finds the first record at or after it; the lookup of the maximum
finds the first record with the greatest timestamp of the log.

A batch may hold millions of records, so a lookup is a generator. It yields after about a millisecond of work, and the
log may change before it is resumed. If it yields an `Unpack`, run that on any thread before resuming. `finish` runs a
lookup to its end.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ports import Buffer
from ottla.log.segment.segment import Segment, Slice
from ottla.wire.batch import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader
from ottla.wire.codec import Codec, decompress_beside
from ottla.wire.walk import WALK_BYTES_MAX, Step, walk

if TYPE_CHECKING:
    from ottla.log.log import Log

_RECORDS_PER_STEP = 2000
_BATCHES_PER_STEP = 500
#: The most bytes that a step decompresses in place, in a millisecond. Larger batches are decompressed on a thread.
_PLAIN_BYTES_PER_STEP = 512 << 10

#: (timestamp, offset, leader epoch); None if there is no such record.
LookupResult = tuple[int, int, int] | None
Lookup = Generator["Unpack | None", None, LookupResult]


class Unpack:
    """A batch that a lookup needs decompressed. The bytes are released when the lookup resets `plain` to None."""

    __slots__ = ("_codec", "_error", "_packed", "plain")

    def __init__(self, header: BatchHeader, data: bytes) -> None:
        self._codec = header.codec
        self._packed = memoryview(data)[HEADER_BYTES : header.size]
        self._error: KafkaError | None = None
        self.plain: Buffer | None = None

    def run(self) -> None:
        """Decompress the batch; `result` raises the error, if any."""
        try:
            self.plain = decompress_beside(self._codec, self._packed, WALK_BYTES_MAX)
        except KafkaError as error:
            self._error = error

    def result(self) -> Buffer:
        """The bytes, after `run`. Raises KafkaError if they are malformed or too many."""
        if self._error is not None:
            raise self._error
        assert self.plain is not None, "it has not run"
        return self.plain


class _SegmentsChanged(Exception):
    """A segment went between two steps; the lookup must start over."""


def finish(lookup: Lookup) -> LookupResult:
    """Run a lookup to its end."""
    while True:
        try:
            unpack = next(lookup)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        if unpack is not None:
            unpack.run()


def offset_for_timestamp(log: "Log", timestamp: int, end_offset: int) -> Lookup:
    """The first record at or after `timestamp`, if it lies below `end_offset`."""
    while True:
        try:
            for segment in list(log.segments):
                if segment.max_timestamp < timestamp:
                    continue
                result = yield from _first_in_segment(log, segment, timestamp)
                if result is not None:
                    return result if result[1] < end_offset else None
            return None
        except _SegmentsChanged:
            if log.closed:
                # A move to another directory has replaced it, or it is deleted. The client asks again.
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from None
            continue


def max_timestamp(log: "Log") -> Lookup:
    """The first record with the greatest timestamp."""
    if log.closed:
        return None
    latest = max(log.segments, key=lambda segment: segment.max_timestamp)
    timestamp, last_offset = latest.max_timestamp_and_offset
    if timestamp < 0:
        return None
    for position, header in latest.scan_from(last_offset):
        if header.max_timestamp == timestamp:
            return (
                yield from _first_in_batch(header, latest.read_batch(position, header), timestamp, header.base_offset)
            )
    return None


def is_cut_off(log: "Log", offset: int, end_offset: int) -> bool:
    """Whether a read from `offset` ends with its segment, before `end_offset`: waiting brings it no more."""
    slot = bisect_right(log.bases, offset)
    return slot < len(log.bases) and log.bases[slot] < end_offset


def end_of(log: "Log", piece: Slice) -> int:
    """The offset after the last batch that is at least partly in the slice."""
    for segment in log.segments:
        if segment.file is piece.file:
            return segment.end_before(piece.position + piece.size, piece.position, piece.first_offset)
    # Retention deleted the segment after the read.
    return log.start_offset


def _first_in_segment(log: "Log", segment: Segment, timestamp: int) -> Lookup:
    generation = log.generation
    _, offset = segment.time_index.lookup(timestamp)
    for number, (position, header) in enumerate(segment.scan_from(max(offset, log.start_offset)), 1):
        if header.max_timestamp >= timestamp and header.last_offset >= log.start_offset:
            result = yield from _first_in_batch(
                header, segment.read_batch(position, header), timestamp, log.start_offset
            )
            if result is not None:
                return result
        elif number % _BATCHES_PER_STEP:
            continue
        else:
            yield None
        if log.generation != generation or segment not in log.segments:
            raise _SegmentsChanged
    return None


def _first_in_batch(header: BatchHeader, data: bytes, timestamp: int, start_offset: int) -> Lookup:
    """The first record of a batch that is at or after `timestamp` and not below `start_offset`."""
    try:
        bytes_max = WALK_BYTES_MAX if header.codec is Codec.NONE else _PLAIN_BYTES_PER_STEP
        return (yield from _first_record(walk(header, data, bytes_max=bytes_max), header, timestamp, start_offset))
    except KafkaError as error:
        if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
            raise
    unpack = Unpack(header, data)
    yield unpack
    try:
        return (yield from _first_record(walk(header, data, plain=unpack.result()), header, timestamp, start_offset))
    finally:
        unpack.plain = None


def _first_record(steps: Iterator[Step], header: BatchHeader, timestamp: int, start_offset: int) -> Lookup:
    fixed = header.attributes & LOG_APPEND_TIME
    delta_min, offset_min = timestamp - header.base_timestamp, start_offset - header.base_offset
    for number, (offset, delta, _) in enumerate(steps, 1):
        if (fixed or delta >= delta_min) and offset >= offset_min:
            record_timestamp = header.max_timestamp if fixed else header.base_timestamp + delta
            return record_timestamp, header.base_offset + offset, header.partition_leader_epoch
        if not number % _RECORDS_PER_STEP:
            yield None
    return None
