"""Iterates over the records of a batch without creating them: for checks inside a batch.

Rules:
- A walk costs only the part that it covers: a compressed batch is decompressed as far as needed, in growing pieces.
- `bytes_max` limits the decompressed size. More is MESSAGE_TOO_LARGE.
- Truncated records, inconsistent lengths and non-consecutive offsets are INVALID_RECORD.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ports import Buffer
from ottla.wire.batch import HEADER_BYTES, BatchHeader
from ottla.wire.codec import Codec, decompress_some
from ottla.wire.varint import decode_varint

#: The maximum decompressed size that a node walks.
WALK_BYTES_MAX = 64 << 20
#: At least one byte each: lengths of record, key and value, attributes, timestamp and offset deltas, header count.
RECORD_BYTES_MIN = 7
_PIECE_BYTES_FIRST = 64 << 10
_GROWTH = 8

#: (offset delta, timestamp delta, whether the record has a key).
Step = tuple[int, int, bool]


def walk(
    header: BatchHeader,
    data: Buffer,
    *,
    whole_records: bool = False,
    bytes_max: int = WALK_BYTES_MAX,
    plain: Buffer | None = None,
) -> Iterator[Step]:
    """Yield the records of the batch at the start of `data`; `plain` are its records if already decompressed.

    With `whole_records`, offsets must count up from 0, and all fields are checked.
    """
    packed = memoryview(data)[HEADER_BYTES : header.size]
    if header.count < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the batch claims {header.count} records")
    room = _PIECE_BYTES_FIRST if header.codec is not Codec.NONE else len(packed)
    body, whole = (plain, True) if plain is not None else decompress_some(header.codec, packed, room)
    position, index, count = 0, 0, header.count
    while index < count:
        try:
            # Most of these varints have one byte; a call for each would double the time.
            byte = body[position]
            length, at = (byte >> 1, position + 1) if byte < 128 and not byte & 1 else decode_varint(body, position)
            end = at + length
            if length < RECORD_BYTES_MIN - 1:
                raise ValueError(f"a record of {length} bytes")
            if end > len(body):
                raise IndexError(f"{len(body) - at} bytes of a record of {length}")
            byte = body[at + 1]
            timestamp, at = ((byte >> 1) ^ -(byte & 1), at + 2) if byte < 128 else decode_varint(body, at + 1)
            byte = body[at]
            offset, at = ((byte >> 1) ^ -(byte & 1), at + 1) if byte < 128 else decode_varint(body, at)
            has_key = not body[at] & 1
            if whole_records:
                if offset != index:
                    raise ValueError(f"record {index} has the offset delta {offset}")
                byte = body[at]
                at = at + 1 + (0 if byte & 1 else byte >> 1) if byte < 128 else _behind(body, at)
                byte = body[at]
                at = at + 1 + (0 if byte & 1 else byte >> 1) if byte < 128 else _behind(body, at)
                # Records rarely have headers.
                if at != end - 1 or body[at]:
                    _check_headers(body, at, end)
        except IndexError as error:
            if whole:
                raise _invalid(f"a record is cut off: {error}") from error
            # The piece ends within this record: decompress more and read the record again.
            room = _more(room, bytes_max)
            body = b""  # free the old piece before the new one is allocated
            body, whole = decompress_some(header.codec, packed, room)
            continue
        except ValueError as error:
            raise _invalid(f"a record is malformed: {error}") from error
        yield offset, timestamp, has_key
        position = end
        index += 1
    if not whole:
        body, whole = decompress_some(header.codec, packed, position + 1)
    if position != len(body):
        raise _invalid(f"there are bytes after the last of {count} records")


def _more(room: int, bytes_max: int) -> int:
    """Return the size of the next piece. KafkaError MESSAGE_TOO_LARGE if the limit is reached."""
    if room >= bytes_max:
        why = f"the decompressed batch exceeds {bytes_max} bytes"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, why)
    return min(bytes_max, _GROWTH * room)


def record_end(body: Buffer, position: int) -> int:
    """Check all fields of the record at `position` and return its end. IndexError or ValueError if invalid."""
    length, at = decode_varint(body, position)
    end = at + length
    if length < RECORD_BYTES_MIN - 1:
        raise ValueError(f"a record of {length} bytes")
    if end > len(body):
        raise IndexError(f"{len(body) - at} bytes of a record of {length}")
    _, at = decode_varint(body, at + 1)
    _, at = decode_varint(body, at)
    _check_headers(body, _behind(body, _behind(body, at)), end)
    return end


def _behind(body: Buffer, at: int) -> int:
    """Return the end of the key or value whose length is at `at`."""
    size, at = decode_varint(body, at)
    return at + max(0, size)


def _check_headers(body: Buffer, at: int, end: int) -> None:
    """Check that the headers are complete and end at `end`; ValueError if not."""
    if at >= end:
        raise ValueError("its fields do not fit into its length")
    count, at = decode_varint(body, at)
    if not 0 <= count <= (end - at) // 2:
        raise ValueError(f"{count} headers in {end - at} bytes")
    for _ in range(count):
        size, at = decode_varint(body, at)
        if size < 0:
            raise ValueError("a header without a key")
        if at + size >= end:
            raise ValueError("its headers do not fit into its length")
        at = _behind(body, at + size)
    if at != end:
        raise ValueError("its fields do not add up to its length")


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, why)
