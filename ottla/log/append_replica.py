"""Append as a follower: the leader's batches unchanged, offsets and epochs included.

Rules:
- The leader has stamped the batches and checked their sequences. The follower checks CRCs, since the network may
  corrupt a batch.
- Batches of a newer epoch than the fetch's are skipped: this replica may have to truncate first (KAFKA-18723).
- Offsets rise but may have gaps, which the leader's cleaner left.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ports import Buffer
from ottla.log.append_result import Appended
from ottla.log.producer.marker import apply_marker, read_marker
from ottla.log.producer.producer import Producers
from ottla.log.segment.index import RELATIVE_OFFSET_MAX
from ottla.log.segment.segment import Segment
from ottla.wire.batch import BatchHeader, check, headers

if TYPE_CHECKING:
    from ottla.log.log import Log

#: (position in the data, header)
Batches = list[tuple[int, BatchHeader]]


def append_as_follower(log: "Log", data: Buffer, leader_epoch: int, now_ms: int) -> Appended:
    """Write the whole batches in `data`; a partial batch at its end is skipped."""
    view = memoryview(data)
    batches = _checked(log, view, leader_epoch, now_ms)
    if not batches:
        return Appended(log.end_offset, log.end_offset - 1, -1, -1, False)
    if log.on_change is not None:
        log.on_change()
    parts = _parts(batches, log.settings.segment_bytes)
    max_timestamp = max([_append(log, view, part, now_ms) for part in parts])
    return Appended(batches[0][1].base_offset, batches[-1][1].last_offset, -1, max_timestamp, False)


def _checked(log: "Log", view: memoryview, leader_epoch: int, now_ms: int) -> Batches:
    """The batches to append. An empty log may be restarted at the first one's offset."""
    batches: Batches = []
    next_offset = log.end_offset
    for position, header in headers(view):
        if header.partition_leader_epoch > leader_epoch:
            break
        check(view, position)
        if header.base_offset < next_offset <= header.last_offset and not batches and not log.size:
            # The leader's start offset lies within this batch (DeleteRecords): keep the batch, and hide what is below.
            start_offset = log.start_offset
            log.restart_at(header.base_offset, now_ms)
            log.start_offset = start_offset
        elif header.base_offset < next_offset:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"fetched a batch at offset {header.base_offset}, expected offset {next_offset} or higher",
            )
        next_offset = header.last_offset + 1
        batches.append((position, header))
    return batches


def _parts(batches: Batches, segment_bytes: int) -> Iterator[Batches]:
    """The batches, in parts that each fit into a segment: the leader's segments may be larger than this topic's now.

    A single batch that is larger is a part, as it is a segment of the leader's.
    """
    part: Batches = []
    size = 0
    for position, header in batches:
        is_far = bool(part) and header.last_offset - part[0][1].base_offset > RELATIVE_OFFSET_MAX
        if part and (size + header.size > segment_bytes or is_far):
            yield part
            part, size = [], 0
        part.append((position, header))
        size += header.size
    yield part


def _append(log: "Log", view: memoryview, batches: Batches, now_ms: int) -> int:
    """Write batches that fit into a segment in one write, and account for them; their greatest timestamp."""
    (begin, first), (position, last) = batches[0], batches[-1]
    end = position + last.size
    max_timestamp = max(header.max_timestamp for _, header in batches)
    segment = log.active
    if segment.roll_due(end - begin, last.last_offset, max_timestamp, now_ms, log.settings):
        # Not after a gap of the offsets: recovery would take it for a lost segment.
        reaches = last.last_offset - log.end_offset <= RELATIVE_OFFSET_MAX
        segment = log.roll(now_ms, log.end_offset if reaches else first.base_offset)
    if any(header.is_control for _, header in batches):
        # Nothing may fail once a marker is in the log, so read the file now.
        segment.transaction_index.entries()
    start = segment.size - begin
    segment.file.write(view[begin:end], segment.size)
    segment.modified_ms = now_ms
    for position, header in batches:
        log.assign_epoch(header.partition_leader_epoch, header.base_offset)
        segment.written(start + position, header.size, header.base_offset, header.last_offset, header.max_timestamp)
        log.end_offset = header.last_offset + 1
        update_producers(log.producers, segment, header, view[position : position + header.size])
    return max_timestamp


def update_producers(producers: Producers, segment: Segment | None, header: BatchHeader, data: Buffer | None) -> None:
    """Apply a batch of the log to the producers' state. `data` may be None except for control batches."""
    if header.producer_id >= 0:
        if header.is_control:
            assert data is not None
            marker = read_marker(data, header)
            if marker is not None:
                apply_marker(producers, segment, marker, header.producer_id, header.producer_epoch, header.base_offset)
        else:
            producers.add(
                header.producer_id,
                header.producer_epoch,
                header.last_sequence,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                header.is_transactional,
            )
    producers.end_offset = header.last_offset + 1
