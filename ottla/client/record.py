"""What a consumer gets, and how it comes out of the bytes of a fetch.

Rules:
- A fetch may begin in the middle of a batch: records before the offset that was asked for are left out.
- Control batches are not shown; with read_committed, neither are the batches of aborted transactions (KIP-98). The
  broker names these with each fetch: from `first_offset` of such a transaction on, its producer's batches are left out
  until its abort marker.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.port import Buffer
from ottla.wire.batch import (
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    Header,
    check,
    decode_records,
    headers,
)
from ottla.wire.codec import decompress
from ottla.wire.varint import decode_varint

_ABORT = 0
#: Smaller batches are decoded in a loop: NumPy's calls cost more than they save.
_COLUMNS_MIN = 64


class ConsumerRecord(NamedTuple):
    """One record. `timestamp` is in ms since 1970; `leader_epoch` is its batch's."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Sequence[Header]
    leader_epoch: int


def batches(
    data: Buffer, offset: int, *, aborted: Iterable[tuple[int, int]] | None, check_crcs: bool
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the batches whose records are to be shown, from the one that holds `offset` on.

    `aborted` are (producer id, first offset) of aborted transactions; None: all records are shown.
    """
    waiting = sorted((first, producer_id) for producer_id, first in aborted or ())
    heapq.heapify(waiting)
    open_aborted: set[int] = set()
    for position, header in headers(data):
        last_offset = header.base_offset + header.last_offset_delta
        if last_offset < offset:
            continue
        if check_crcs:
            check(data, position)
        if header.attributes & (TRANSACTIONAL | CONTROL):
            while waiting and waiting[0][0] <= last_offset:
                open_aborted.add(heapq.heappop(waiting)[1])
            if header.attributes & CONTROL:
                if header.producer_id in open_aborted and _is_abort(data, position, header):
                    open_aborted.discard(header.producer_id)
                continue
            if header.producer_id in open_aborted:
                continue
        yield position, header


def _is_abort(data: Buffer, position: int, header: BatchHeader) -> bool:
    body = bytes(memoryview(data)[position + HEADER_BYTES : position + header.size])
    (record,) = decode_records(body, 1, header.base_offset, header.base_timestamp)
    # A control record's key is its version and type, two int16.
    return record.key is not None and int.from_bytes(record.key[2:4], "big") == _ABORT


def decode_batch(
    data: Buffer, position: int, header: BatchHeader, topic: str, partition: int, offset: int
) -> list[ConsumerRecord]:
    """The records of one batch from `offset` on."""
    codec = header.codec
    raw = memoryview(data)[position + HEADER_BYTES : position + header.size]
    body = bytes(raw) if not codec else decompress(codec, raw)
    base_offset, base_timestamp, epoch = header.base_offset, header.base_timestamp, header.partition_leader_epoch
    fixed = header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1
    fast = _columns() if header.count >= _COLUMNS_MIN else None
    if fast is not None:
        found: list[ConsumerRecord] = fast(body, header, topic, partition, fixed)
        return [record for record in found if record.offset >= offset] if offset > base_offset else found
    found = []
    append = found.append
    new = tuple.__new__
    record_type = ConsumerRecord
    at = 0
    own: Sequence[Header]
    try:
        for _ in range(header.count):
            # Nearly all of these varints have one or two bytes: they are read in place, a call would cost more.
            length = body[at]
            at += 1
            if length > 127:
                length, at = decode_varint(body, at - 1)
            else:
                length >>= 1
            end = at + length
            byte = body[at + 1]
            at += 2
            if byte > 127:
                byte, at = decode_varint(body, at - 1)
                timestamp = base_timestamp + byte
            else:
                timestamp = base_timestamp + ((byte >> 1) ^ -(byte & 1))
            byte = body[at]
            at += 1
            if byte > 127:
                second = body[at]
                if second > 127:
                    byte, at = decode_varint(body, at - 1)
                else:
                    at += 1
                    byte = (byte & 127 | second << 7) >> 1
            else:
                byte >>= 1
            record_offset = base_offset + byte
            size = body[at]
            at += 1
            if size == 1:
                key = None
            else:
                if size > 127:
                    size, at = decode_varint(body, at - 1)
                else:
                    size >>= 1
                key = body[at : at + size]
                at += size
            size = body[at]
            at += 1
            if size == 1:
                value = None
            else:
                if size > 127:
                    second = body[at]
                    if second > 127:
                        size, at = decode_varint(body, at - 1)
                    else:
                        at += 1
                        size = (size & 127 | second << 7) >> 1
                else:
                    size >>= 1
                value = body[at : at + size]
                at += size
            if body[at]:
                own, at = read_headers(body, at)
            else:
                own = ()
                at += 1
            if at != end:
                raise ValueError("a record's fields do not add up to its length")
            if fixed >= 0:
                timestamp = fixed
            append(new(record_type, (topic, partition, record_offset, timestamp, key, value, own, epoch)))
    except (IndexError, ValueError) as error:
        why = f"{topic}-{partition}: the batch at offset {base_offset} cannot be read: {error}"
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, why) from error
    if offset > base_offset:
        return [record for record in found if record.offset >= offset]
    return found


@cache
def _columns() -> Callable[..., list[ConsumerRecord]] | None:
    """With NumPy, records of a large batch are decoded field by field: that halves the time. None without it."""
    try:
        from ottla.client.column import decode_objects
    except ImportError:
        return None
    return decode_objects


def read_headers(body: bytes, at: int) -> tuple[list[Header], int]:
    """A record's headers, from their count at `at`, and where they end. ValueError or IndexError if they are
    malformed.
    """
    count, at = decode_varint(body, at)
    if count < 0:
        raise ValueError(f"{count} headers")
    found: list[Header] = []
    for _ in range(count):
        size, at = decode_varint(body, at)
        name = body[at : at + size].decode()
        at += size
        size, at = decode_varint(body, at)
        if size < 0:
            found.append((name, None))
        else:
            found.append((name, body[at : at + size]))
            at += size
    return found, at
