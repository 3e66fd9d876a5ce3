"""Consumer records, and their decoding from the bytes of a fetch.

Rules:
- A fetch may begin in the middle of a batch: records before the requested offset are skipped.
- Control batches are not visible; with read_committed, neither are the batches of aborted transactions (KIP-98). The
  broker lists these transactions with each fetch: a producer's batches are skipped from the transaction's
  `first_offset` on until its abort marker.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Generic

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Buffer
from ottla.kernel.typevar import K, V
from ottla.wire.batch import (
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    Header,
    check,
    decode_records,
    header_name,
    headers,
)
from ottla.wire.codec import decompress
from ottla.wire.varint import decode_varint

if TYPE_CHECKING:
    from ottla.columns.column import Decoded

_ABORT = 0
#: Smaller batches are decoded in a loop, because the calls of NumPy would cost more than they save.
_COLUMNS_MIN = 64
#: Makes a decoded batch's records from one index to another.
Part = Callable[[int, int], list["ConsumerRecord"]]


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """A record that a consumer has read.

    `timestamp` is in milliseconds since 1970-01-01 UTC; `key` and `value` are what the deserializers return (default:
    bytes), or None; `leader_epoch` is that of the record's batch.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: K
    value: V
    headers: tuple[Header, ...]
    leader_epoch: int


def batches(
    data: Buffer, offset: int, *, aborted: Iterable[tuple[int, int]] | None, check_crcs: bool
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the visible batches, from the one that holds `offset` on.

    `aborted` has the (producer id, first offset) of aborted transactions; None: all transactions are visible.
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


class Unread:
    """The records of one batch that no poll has returned yet."""

    __slots__ = ("_at", "_end", "_offsets", "_part", "end_offset")

    def __init__(
        self, data: Buffer, position: int, header: BatchHeader, topic: str, partition: int, offset: int
    ) -> None:
        """Decode the records from `offset` on. CORRUPT_MESSAGE if the batch cannot be read."""
        codec = header.codec
        raw = memoryview(data)[position + HEADER_BYTES : position + header.size]
        body = bytes(raw) if not codec else decompress(codec, raw)
        fixed = header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        #: The offset after the batch.
        self.end_offset = header.base_offset + header.last_offset_delta + 1
        self._offsets: Any
        self._part: Part
        columns = _columns() if header.count >= _COLUMNS_MIN else None
        try:
            if columns is not None:
                decoded = columns(body, header, topic, partition, fixed)
                self._offsets, self._part = decoded.offsets, decoded.part
            else:
                records = decode_records_in_turn(body, header, topic, partition, fixed)
                self._offsets = [record.offset for record in records]
                self._part = lambda start, end: records[start:end]
        except KafkaError as error:
            why = f"{topic}-{partition}: the batch at offset {header.base_offset} cannot be read: {error.message}"
            raise KafkaError(error.code, why) from error
        self._at = bisect_left(self._offsets, offset) if offset > header.base_offset else 0
        self._end = header.count

    def __len__(self) -> int:
        return self._end - self._at

    @property
    def next_offset(self) -> int:
        """The offset of the next record; `end_offset` after the last one."""
        return int(self._offsets[self._at]) if self._at < self._end else self.end_offset

    def take(self, records_max: int) -> list[ConsumerRecord]:
        """The next records, at most `records_max`."""
        start = self._at
        self._at = min(self._end, start + records_max)
        return self._part(start, self._at)


def decode_records_in_turn(
    body: bytes, header: BatchHeader, topic: str, partition: int, fixed: int
) -> list[ConsumerRecord]:
    """All records of an uncompressed body, decoded in a loop. `fixed` is the timestamp of LogAppendTime, or -1."""
    base_offset, base_timestamp, epoch = header.base_offset, header.base_timestamp, header.partition_leader_epoch
    records: list[ConsumerRecord] = []
    append = records.append
    new = tuple.__new__
    record_type = ConsumerRecord
    at = 0
    record_headers: tuple[Header, ...]
    try:
        for _ in range(header.count):
            # Nearly all of these varints have one or two bytes and are read inline: a call would cost more.
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
                record_headers, at = read_headers(body, at)
            else:
                record_headers = ()
                at += 1
            if at != end:
                raise ValueError("a record's fields do not add up to its length")
            if fixed >= 0:
                timestamp = fixed
            append(new(record_type, (topic, partition, record_offset, timestamp, key, value, record_headers, epoch)))
    except (IndexError, ValueError) as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    return records


@cache
def _columns() -> type[Decoded] | None:
    """The class that decodes large batches by columns, in half the time; None without NumPy."""
    try:
        from ottla.columns.column import Decoded
    except ImportError:
        return None
    return Decoded


def read_headers(body: bytes, at: int) -> tuple[tuple[Header, ...], int]:
    """A record's headers, from their count at `at`, and the position after them.

    ValueError or IndexError if they are malformed.
    """
    count, at = decode_varint(body, at)
    if count < 0:
        raise ValueError(f"invalid header count: {count}")
    pairs: list[Header] = []
    for _ in range(count):
        size, at = decode_varint(body, at)
        if size < 0:
            raise ValueError("a header without a key")
        name = header_name(body[at : at + size])
        at += size
        size, at = decode_varint(body, at)
        if size < 0:
            pairs.append((name, None))
        else:
            pairs.append((name, body[at : at + size]))
            at += size
    return tuple(pairs), at
