"""Append as a follower: the leader's batches unchanged, offsets and epochs included.

Rules:
- The leader has stamped the batches and checked their sequences. The follower checks CRCs, since the network may
  corrupt a batch.
- Batches of a newer epoch than the fetch's are skipped: this replica may have to truncate first (KAFKA-18723).
- Offsets rise but may have gaps, which the leader's cleaner left.
"""

from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ports import Buffer
from ottla.log.append_result import Appended
from ottla.log.producer.marker import apply_marker, read_marker
from ottla.log.producer.producer import Producers
from ottla.log.segment.segment import Segment
from ottla.wire.batch import BatchHeader, check, headers

if TYPE_CHECKING:
    from ottla.log.log import Log


def append_as_follower(log: "Log", data: Buffer, leader_epoch: int, now_ms: int) -> Appended:
    """Write the whole batches in `data`; a partial batch at its end is skipped."""
    view = memoryview(data)
    batches: list[tuple[int, BatchHeader]] = []
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
    if not batches:
        return Appended(log.end_offset, log.end_offset - 1, -1, -1, False)
    first, last = batches[0][1], batches[-1][1]
    size = batches[-1][0] + last.size
    max_timestamp = max(header.max_timestamp for _, header in batches)
    if size > log.settings.segment_bytes and len(batches) > 1:
        # A single batch is as the leader has it: the segments of the topic may have been larger.
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes do not fit into a segment of {log.settings.segment_bytes}"
        )
    segment = log.active
    if segment.roll_due(size, last.last_offset, max_timestamp, now_ms, log.settings):
        segment = log.roll(now_ms, first.base_offset)
    if any(header.is_control for _, header in batches):
        # Nothing may fail once a marker is in the log, so read the file now.
        segment.transaction_index.entries()
    start = segment.size
    segment.file.write(view[:size], start)
    segment.modified_ms = now_ms
    for position, header in batches:
        log.assign_epoch(header.partition_leader_epoch, header.base_offset)
        segment.written(start + position, header.size, header.base_offset, header.last_offset, header.max_timestamp)
        log.end_offset = header.last_offset + 1
        update_producers(log.producers, segment, header, view[position : position + header.size])
    return Appended(first.base_offset, last.last_offset, -1, max_timestamp, False)


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
