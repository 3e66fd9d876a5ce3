"""Clean one batch: keep it unchanged, keep some of its records, empty it, or drop it.

Rules:
- The offsets, sequences, producer and epochs of a batch never change; nor does its codec, except that an empty batch
  has none.
- A batch that keeps all its records is passed on as bytes. Kept records of other batches are copied as bytes too,
  unless the batch gets a delete horizon: that is stored in the base timestamp, which all timestamp deltas are relative
  to (KIP-534).
- The first pass over a tombstone gives its batch a delete horizon, `delete.retention.ms` from now. The first pass after
  the horizon drops the tombstone.
- A batch whose CRC is wrong is never cleaned: its new CRC would make it look right.
"""

from collections.abc import Iterator

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Buffer
from ottla.log.cleaning.offset_map import OffsetMap
from ottla.wire.batch import (
    CHECKED,
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    assemble,
)
from ottla.wire.codec import Codec, compress, decompress
from ottla.wire.varint import decode_varint, encode_varint


class RawRecord(NamedTuple):
    """A record's place in its batch's body, and the fields that the cleaner reads."""

    start: int
    end: int
    #: Where the bytes after the timestamp begin: offset, key, value, headers.
    rest: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


class BatchRetention(NamedTuple):
    """The decisions about a batch that do not depend on its records."""

    #: Drop all its records.
    discards: bool
    #: Keep the header when no record is left: it has a producer's last sequence, or the end of the cleaned section.
    keeps_empty: bool
    #: The batch is the marker of a transaction that has no records left.
    is_empty_marker: bool = False


def raw_records(body: bytes, count: int) -> Iterator[RawRecord]:
    """The records of an uncompressed body, undecoded. Raises INVALID_RECORD unless they are `count` whole records."""
    position = 0
    end = len(body)
    new = tuple.__new__
    try:
        for _ in range(count):
            start = position
            length, position = decode_varint(body, position)
            record_end = position + length
            if length < 0 or record_end > end:
                raise ValueError(f"a record of {length} bytes with {end - position} left")
            timestamp_delta, rest = decode_varint(body, position + 1)
            offset_delta, position = decode_varint(body, rest)
            size, position = decode_varint(body, position)
            key = None
            if size >= 0:
                key = body[position : position + size]
                position += size
            value_bytes, position = decode_varint(body, position)
            if position + max(0, value_bytes) > record_end:
                raise ValueError("a record's fields do not fit into its length")
            position = record_end
            yield new(RawRecord, (start, record_end, rest, timestamp_delta, offset_delta, key, value_bytes >= 0))
    except (IndexError, ValueError) as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"a record is cut off or malformed: {error}") from error
    if position != end:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{end - position} bytes after the last of {count} records")


def body_of(header: BatchHeader, data: Buffer) -> bytes:
    """The uncompressed records of a batch."""
    return decompress(header.codec, memoryview(data)[HEADER_BYTES : header.size])


def clean_batch(
    header: BatchHeader,
    data: Buffer,
    latest: OffsetMap,
    retention: BatchRetention,
    now_ms: int,
    delete_retention_ms: int,
) -> Buffer | None:
    """The cleaned batch: `data` itself, a new batch, or None to drop it."""
    if retention.discards or not header.count:
        return empty_batch(header, data) if retention.keeps_empty else None
    horizon_ms = header.base_timestamp if header.attributes & DELETE_HORIZON else None
    body = body_of(header, data)
    if header.is_control:
        kept = list(raw_records(body, header.count))
    else:
        keeps_deletes = horizon_ms is None or now_ms < horizon_ms
        kept = [record for record in raw_records(body, header.count) if _is_kept(header, record, latest, keeps_deletes)]
    if not kept:
        return empty_batch(header, data) if retention.keeps_empty else None
    wants_horizon = retention.is_empty_marker or not all(record.has_value for record in kept)
    if horizon_ms is None and wants_horizon:
        return _rebuild(header, body, kept, now_ms + delete_retention_ms)
    if len(kept) == header.count:
        return data
    return _rebuild(header, body, kept, None)


def _is_kept(header: BatchHeader, record: RawRecord, latest: OffsetMap, keeps_deletes: bool) -> bool:
    offset = header.base_offset + record.offset_delta
    if offset > latest.latest_offset:
        return True
    if record.key is None:
        # Written before the topic was compacted; drop it, since no later record could replace it.
        return False
    return offset >= latest.get(record.key) and (record.has_value or keeps_deletes)


def _rebuild(header: BatchHeader, body: bytes, kept: list[RawRecord], horizon_ms: int | None) -> bytes:
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if horizon_ms is None:
        parts = [body[record.start : record.end] for record in kept]
    else:
        attributes |= DELETE_HORIZON
        parts = []
        for record in kept:
            delta = encode_varint(base_timestamp + record.timestamp_delta - horizon_ms)
            # The byte before the timestamp is the record's attributes; none is in use.
            parts += (
                encode_varint(1 + len(delta) + record.end - record.rest),
                b"\0",
                delta,
                body[record.rest : record.end],
            )
        base_timestamp = horizon_ms
    if header.is_log_append_time:
        max_timestamp = header.max_timestamp
    else:
        max_timestamp = header.base_timestamp + max(record.timestamp_delta for record in kept)
    return assemble(
        header.base_offset,
        header.partition_leader_epoch,
        CHECKED.pack(attributes, header.last_offset_delta, base_timestamp, max_timestamp, *header[9:12], len(kept)),
        compress(header.codec, b"".join(parts)),
    )


def empty_batch(header: BatchHeader, data: Buffer) -> Buffer:
    """The batch without its records; `data` itself if it has none."""
    if not header.count:
        return data
    attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL) | Codec.NONE
    return assemble(
        header.base_offset,
        header.partition_leader_epoch,
        CHECKED.pack(attributes, header.last_offset_delta, NO_TIMESTAMP, header.max_timestamp, *header[9:12], 0),
        b"",
    )
