"""Transaction markers: the control batches that commit or abort (KIP-98).

Key: int16 version, int16 type (0 abort, 1 commit). Value: int16 version, int32 coordinator epoch.
"""

import struct

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Buffer
from ottla.log.producer.producer import Producers
from ottla.log.segment.aborted import AbortedTransaction
from ottla.log.segment.segment import Segment
from ottla.wire.batch import HEADER_BYTES, BatchHeader, decode_records, header_at
from ottla.wire.codec import decompress

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ABORT = 0
_COMMIT = 1


class Marker(NamedTuple):
    """A decoded marker."""

    aborted: bool
    coordinator_epoch: int
    timestamp: int


def read_marker(data: Buffer, header: BatchHeader) -> Marker | None:
    """The marker of a control batch; None if the cleaner emptied the batch or it has another kind of control record."""
    body = decompress(header.codec, memoryview(data)[HEADER_BYTES : header.size])
    fixed = header.max_timestamp if header.is_log_append_time else None
    records = decode_records(body, header.count, header.base_offset, header.base_timestamp, fixed)
    if not records:
        return None
    record = records[0]
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in (_ABORT, _COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except struct.error:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a transaction marker is cut off") from None
    return Marker(kind == _ABORT, coordinator_epoch, record.timestamp)


def check_marker(
    producers: Producers, segment: Segment, data: Buffer, producer_id: int, epoch: int, transaction_version: int
) -> Marker | None:
    """The marker in `data`. Raises KafkaError if it may not be appended."""
    marker = read_marker(data, header_at(data))
    if marker is not None:
        # Nothing may fail once the marker is in the log, so read the file now.
        segment.transaction_index.entries()
        producers.check_marker(producer_id, epoch, marker.coordinator_epoch, transaction_version)
    return marker


def apply_marker(
    producers: Producers, segment: Segment | None, marker: Marker, producer_id: int, epoch: int, offset: int
) -> None:
    """Apply a marker in the log at `offset`: end its transaction, and index it in `segment` if it was aborted.

    `segment` is None if the transaction index has the entry already.
    """
    ended = producers.end(producer_id, epoch, marker.coordinator_epoch, offset, marker.timestamp, marker.aborted)
    if ended is None:
        return
    if ended.aborted and segment is not None:
        stable = producers.stable_offset_of(ended)
        segment.transaction_index.append(AbortedTransaction(producer_id, ended.first_offset, offset, stable))
    producers.complete(ended)
