"""The leader's checks of a batch header, with Kafka's error codes.

Rules:
- A client sends one batch with base offset 0; a coordinator may append several, one by one.
- Only cheap checks look at the records: their number must be possible for their bytes, the first record must be well
  formed, and compressed records must begin like a stream of their codec (decision 0342). `rewrite_batch` checks all
  records where a topic's settings ask for it.
"""

import struct
from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError, RefusedBatch
from ottla.kernel.ports import Buffer
from ottla.log.append_result import Appended, Origin
from ottla.log.setting import LogSettings
from ottla.wire.batch import CONTROL, CRC_START, HEADER, HEADER_BYTES, LENGTH_END, MAGIC, PREFIX, TRANSACTIONAL
from ottla.wire.checksum import crc32c
from ottla.wire.codec import codec_of, decompress_some
from ottla.wire.walk import RECORD_BYTES_MIN, WALK_BYTES_MAX, record_end

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.producer.producer import Producers

#: A batch header and the first six bytes after it: one call unpacks both, because every append pays for it.
HEADER_AND_FIRST = struct.Struct(HEADER.format + "BBBHB")
#: The unpacked values: the fields of `BatchHeader`, and the six bytes, of which the fourth and fifth are one number.
Fields = tuple[int, ...]

#: The fewest bytes after the length field in a batch of any magic.
_OVERHEAD_BYTES = 14
#: Batches of any magic share the bytes up to and including the magic.
_MAGIC_END = 17
_CODEC_MASK = 7
_CODEC_MAX = 4
#: Where the first record's length ends if it takes one byte, two, or three.
_ONE_BYTE_LENGTH_END = HEADER_BYTES + 1
_TWO_BYTE_LENGTH_END = HEADER_BYTES + 2
_THREE_BYTE_LENGTH_END = HEADER_BYTES + 3
#: The length byte (zigzag) of the smallest record.
_LENGTH_MIN = (RECORD_BYTES_MIN - 1) << 1
#: Compressed batches hardly ever hold more records per byte than this.
_RECORDS_PER_BYTE = 8
#: The most bytes that are decompressed to check whether a batch can hold its records.
_PROBE_BYTES_MAX = 8 << 20
#: The first bytes of a stream, by codec id; raw snappy may begin with any bytes.
_STREAM_MAGIC = (b"", b"\x1f\x8b", b"", b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd")


def unpack_padded(data: Buffer) -> Fields:
    """Unpack a batch that ends before the six bytes do. No record is that short, so the padding does not matter."""
    return HEADER_AND_FIRST.unpack(bytes(data).ljust(HEADER_AND_FIRST.size, b"\0"))


def check_header(data: Buffer, size: int, fields: Fields, settings: LogSettings, from_client: bool) -> None:
    """Raise KafkaError if the batch, which is all of `data`, is not acceptable."""
    base_offset, _, _, magic, crc, attributes, delta, _, _, producer_id, _, sequence, count, b0, b1, b2, b34, b5 = (
        fields
    )
    if magic != MAGIC:
        only_batch(data)
    if base_offset and from_client:
        raise RefusedBatch(ErrorCode.INVALID_RECORD, f"the batch has base offset {base_offset}, it must be 0")
    if size > settings.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, at most {settings.max_message_bytes} are allowed"
        )
    view = data if type(data) is memoryview else memoryview(data)
    if size < HEADER_BYTES or crc32c(view[CRC_START:]) != crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its CRC")
    if delta < 0 or count != delta + 1:
        why = f"the batch claims {count} records and a last offset delta of {delta}"
        raise RefusedBatch(ErrorCode.INVALID_RECORD, why)
    codec = attributes & _CODEC_MASK
    if codec > _CODEC_MAX:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec id {codec} (expected 0 to {_CODEC_MAX})"
        )
    if from_client:
        if attributes & CONTROL:
            raise RefusedBatch(ErrorCode.INVALID_RECORD, "a client must not write control records")
        if sequence < 0 <= producer_id:
            raise RefusedBatch(ErrorCode.INVALID_RECORD, f"the batch of producer {producer_id} has sequence {sequence}")
        if codec:
            _check_compressed(data, size, codec, count)
            return
        # The fast path: a length of one to three bytes, attributes, and two deltas of 0 begin nearly every batch.
        if b0 > 127 > b1 and not b34 and not b0 & 1:
            end = _TWO_BYTE_LENGTH_END + ((b1 << 7 | b0 & 127) >> 1)
        elif _LENGTH_MIN <= b0 < 128 and b34 < 256 and not b2 and not b0 & 1:
            end = _ONE_BYTE_LENGTH_END + (b0 >> 1)
        elif b0 > 127 < b1 and b2 < 128 and not (b34 & 255 or b5 or b0 & 1):
            end = _THREE_BYTE_LENGTH_END + ((b2 << 14 | (b1 & 127) << 7 | b0 & 127) >> 1)
        else:
            end = _check_first(data, size)
        if count * RECORD_BYTES_MIN > size - HEADER_BYTES:
            raise _header_mismatch(f"{count} records do not fit into {size - HEADER_BYTES} bytes")
        if end != size and (end > size or count == 1):
            raise _header_mismatch(f"the first of {count} records ends at byte {end} of {size}")


def _check_first(data: Buffer, size: int) -> int:
    """The end of the first record. Raises KafkaError if the record is malformed."""
    try:
        return record_end(memoryview(data)[:size], HEADER_BYTES)
    except (IndexError, ValueError) as error:
        raise _header_mismatch(f"the first record is cut off or malformed: {error}") from error


def _check_compressed(data: Buffer, size: int, codec: int, count: int) -> None:
    """Check that the body begins like its codec and can hold as many records as the header claims."""
    begin = _STREAM_MAGIC[codec]
    if data[HEADER_BYTES : HEADER_BYTES + len(begin)] != begin:
        # Apache Kafka's code for a failing decoder.
        raise RefusedBatch(ErrorCode.UNKNOWN_SERVER_ERROR, "the batch's data is not a stream of its codec")
    if count > _RECORDS_PER_BYTE * (size - HEADER_BYTES):
        # Rare enough to decompress as many bytes as these records need at least.
        needed = count * RECORD_BYTES_MIN
        if needed > WALK_BYTES_MAX:
            raise _header_mismatch(f"{count} records in {size} bytes are too many, send fewer at once")
        # If these bytes are there, trust the header for the rest, which would cost 60 ms of the loop's time.
        needed = min(needed, _PROBE_BYTES_MAX)
        plain, _ = decompress_some(codec_of(codec), memoryview(data)[HEADER_BYTES:size], needed)
        if len(plain) < needed:
            raise _header_mismatch(f"{count} records do not fit into {len(plain)} bytes")


def _header_mismatch(why: str) -> RefusedBatch:
    return RefusedBatch(ErrorCode.INVALID_RECORD, f"the batch's records contradict its header: {why}")


def only_batch(data: Buffer) -> Buffer:
    """The only batch in `data`, without a partial batch that may follow it. Raises KafkaError for any other format."""
    end = _batch_end(data, 0)
    if end is None:
        raise invalid(f"{len(data)} bytes of records are no complete batch")
    magic = data[_MAGIC_END - 1]
    if magic != MAGIC:
        raise invalid(f"the batch has magic {magic}, it must be {MAGIC}")
    if _batch_end(data, end) is not None:
        raise invalid("the data has more than one batch, expected one")
    return data if end == len(data) else memoryview(data)[:end]


def _batch_end(data: Buffer, position: int) -> int | None:
    """The end of the batch of any magic at `position`; None if it is cut off. Raises CORRUPT_MESSAGE if it is none."""
    rest = len(data) - position
    if rest < LENGTH_END:
        return None
    length = int.from_bytes(data[position + LENGTH_END - 4 : position + LENGTH_END], "big", signed=True)
    if length < _OVERHEAD_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch claims {length} bytes")
    if rest < _MAGIC_END:
        return None
    magic = int.from_bytes(data[position + _MAGIC_END - 1 : position + _MAGIC_END], "big", signed=True)
    if not 0 <= magic <= MAGIC:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no batch has magic {magic}")
    return position + LENGTH_END + length if LENGTH_END + length <= rest else None


def resent(producers: "Producers", fields: Fields, settings: LogSettings, from_client: bool) -> Appended | None:
    """The result of the first append if this batch is a retry; KafkaError if its sequence is not the next one."""
    sent = producers.check(fields[9], fields[10], fields[11], fields[6], bool(fields[5] & TRANSACTIONAL), from_client)
    if sent is None:
        return None
    time_ms = sent.timestamp if settings.log_append_time else -1
    return Appended(sent.first_offset, sent.last_offset, time_ms, sent.timestamp, True)


def append_several(log: "Log", data: Buffer, leader_epoch: int, now_ms: int, transaction_version: int) -> Appended:
    """Append the coordinator's batches in `data` one by one."""
    view = memoryview(data)
    results = []
    position = 0
    while position < len(view):
        rest = len(view) - position
        size = PREFIX.unpack_from(view, position)[1] + LENGTH_END if rest >= HEADER_BYTES else 0
        if not HEADER_BYTES <= size <= rest:
            raise invalid("the batches end within a batch")
        results.append(
            log.append(
                view[position : position + size],
                leader_epoch=leader_epoch,
                now_ms=now_ms,
                origin=Origin.COORDINATOR,
                transaction_version=transaction_version,
            )
        )
        position += size
    latest = max(result.max_timestamp for result in results)
    return Appended(results[0].base_offset, results[-1].last_offset, results[0].log_append_time_ms, latest, False)


def invalid(message: str) -> KafkaError:
    """An INVALID_RECORD error with a message."""
    return KafkaError(ErrorCode.INVALID_RECORD, message)
