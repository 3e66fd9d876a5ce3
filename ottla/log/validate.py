"""What a leader demands of a batch before it looks any further: Kafka's checks of the header, with Kafka's codes.

Rules:
- A client has one batch with base offset 0; a coordinator may have several, which go in one by one.
- Of the records as much is looked at as costs nothing: their number must be possible for their bytes, the first must
  be one, and compressed ones must begin as their codec does (decision 0342). `revise` looks at all of them where a
  topic's settings ask for it.
"""

import struct
from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError, RefusedBatch
from ottla.kernel.ports import Buffer
from ottla.log.append_result import Appended, Origin
from ottla.log.setting import LogSettings
from ottla.wire.batch import CONTROL, CRC_START, HEADER, HEADER_BYTES, LENGTH_END, MAGIC, PREFIX
from ottla.wire.checksum import crc32c
from ottla.wire.codec import codec_of, decompress_some
from ottla.wire.walk import RECORD_BYTES_MIN, WALK_BYTES_MAX, record_end

if TYPE_CHECKING:
    from ottla.log.log import Log

#: A batch's header and the first six bytes of what follows: one call for both, since every append pays for it.
HEADER_AND_FIRST = struct.Struct(HEADER.format + "BBBHB")
#: What it unpacks: the fields of `BatchHeader`, and these bytes, of which the fourth and fifth are one number.
Fields = tuple[int, ...]

#: The least that stands behind the length of a batch of any magic.
_OVERHEAD_BYTES = 14
#: The magic is the last byte of what batches of any magic have in common.
_MAGIC_END = 17
_CODEC_MASK = 7
_CODEC_MAX = 4
#: Where the lengths end that take one byte, two, or three.
_ONE_END = HEADER_BYTES + 1
_TWO_END = HEADER_BYTES + 2
_THREE_END = HEADER_BYTES + 3
#: The least bytes of a plain record, and the byte of its length.
_LENGTH_MIN = (RECORD_BYTES_MIN - 1) << 1
#: More records in a byte of a compressed batch than this are hardly ever there.
_RECORDS_A_BYTE = 8
#: The most that is decompressed to see whether a batch's records may be there.
_LOOK_BYTES_MAX = 8 << 20
#: What the streams of a codec begin with; snappy may be raw, which begins with anything.
_BEGINS = (b"", b"\x1f\x8b", b"", b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd")


def unpack_short(data: Buffer) -> Fields:
    """The same of a batch that ends before these six bytes do. INVALID_RECORD if it ends within its header."""
    if len(data) < HEADER_BYTES:
        raise invalid("there is no whole batch to append")
    # No record is so short: bytes that are not there are as good as any.
    return HEADER_AND_FIRST.unpack(bytes(data).ljust(HEADER_AND_FIRST.size, b"\0"))


def check_header(data: Buffer, size: int, fields: Fields, settings: LogSettings, from_client: bool) -> None:
    """Raise KafkaError if the batch, `data` whole, cannot be taken."""
    base_offset, _, _, magic, crc, attributes, delta, _, _, producer_id, _, sequence, count, b0, b1, b2, b34, b5 = (
        fields
    )
    if magic != MAGIC:
        raise _other_magic(magic)
    if base_offset and from_client:
        raise RefusedBatch(ErrorCode.INVALID_RECORD, f"the batch has base offset {base_offset}, it must be 0")
    if size > settings.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, at most {settings.max_message_bytes} are taken"
        )
    view = data if type(data) is memoryview else memoryview(data)
    if size < HEADER_BYTES or crc32c(view[CRC_START:]) != crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch does not have the CRC that it claims")
    if delta < 0 or count != delta + 1:
        why = f"the batch claims {count} records and a last offset delta of {delta}"
        raise RefusedBatch(ErrorCode.INVALID_RECORD, why)
    codec = attributes & _CODEC_MASK
    if codec > _CODEC_MAX:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec has the id {codec}")
    if from_client:
        if attributes & CONTROL:
            raise RefusedBatch(ErrorCode.INVALID_RECORD, "a client must not write control records")
        if sequence < 0 <= producer_id:
            raise RefusedBatch(ErrorCode.INVALID_RECORD, f"the batch of producer {producer_id} has sequence {sequence}")
        if codec:
            _check_packed(data, size, codec, count)
            return
        # Nearly every batch begins so: a length of one to three bytes, attributes, and two deltas that are 0.
        if b0 > 127 > b1 and not b34 and not b0 & 1:
            end = _TWO_END + ((b1 << 7 | b0 & 127) >> 1)
        elif _LENGTH_MIN <= b0 < 128 and b34 < 256 and not b2 and not b0 & 1:
            end = _ONE_END + (b0 >> 1)
        elif b0 > 127 < b1 and b2 < 128 and not (b34 & 255 or b5 or b0 & 1):
            end = _THREE_END + ((b2 << 14 | (b1 & 127) << 7 | b0 & 127) >> 1)
        else:
            end = _check_first(data, size)
        if count * RECORD_BYTES_MIN > size - HEADER_BYTES:
            raise _not_borne_out(f"{count} records do not fit into {size - HEADER_BYTES} bytes")
        if end != size and (end > size or count == 1):
            raise _not_borne_out(f"the first of {count} records ends at byte {end} of {size}")


def _other_magic(magic: int) -> KafkaError:
    if 0 <= magic < MAGIC:
        return invalid(f"the batch has magic {magic}, it must be 2")
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no batch has magic {magic}")


def _check_first(data: Buffer, size: int) -> int:
    """Where the first record ends. KafkaError if it is malformed."""
    try:
        return record_end(memoryview(data)[:size], HEADER_BYTES)
    except (IndexError, ValueError) as error:
        raise _not_borne_out(f"the first record is cut off or malformed: {error}") from error


def _check_packed(data: Buffer, size: int, codec: int, count: int) -> None:
    """The body begins as its codec does, and as many records may come out as the header claims."""
    begin = _BEGINS[codec]
    if data[HEADER_BYTES : HEADER_BYTES + len(begin)] != begin:
        # Apache Kafka's code: its decoders fail in ways that it has no other for.
        raise RefusedBatch(ErrorCode.UNKNOWN_SERVER_ERROR, "the batch is not of the codec that it claims")
    if count > _RECORDS_A_BYTE * (size - HEADER_BYTES):
        # Hardly ever, and then it is worth a look: as many bytes as these records need at least.
        needed = count * RECORD_BYTES_MIN
        if needed > WALK_BYTES_MAX:
            raise _not_borne_out(f"{count} records in {size} bytes are too many, send fewer at once")
        # A body that has so much in it is believed for the rest, which would take 60 ms of the loop's time.
        needed = min(needed, _LOOK_BYTES_MAX)
        plain, _ = decompress_some(codec_of(codec), memoryview(data)[HEADER_BYTES:size], needed)
        if len(plain) < needed:
            raise _not_borne_out(f"{count} records do not fit into {len(plain)} bytes")


def _not_borne_out(why: str) -> RefusedBatch:
    return RefusedBatch(ErrorCode.INVALID_RECORD, f"the batch's records do not bear out its header: {why}")


def single(data: Buffer, size: int) -> Buffer:
    """The one batch at the head of `data`, without the part of another that may follow it."""
    rest = len(data) - size
    if size < LENGTH_END + _OVERHEAD_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch claims {size} bytes")
    if len(data) >= _MAGIC_END and data[_MAGIC_END - 1] > MAGIC:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no batch has magic {data[_MAGIC_END - 1]}")
    if rest < 0:
        raise invalid(f"the batch claims {size} bytes and has {len(data)}")
    if size < HEADER_BYTES:
        return data
    if rest >= PREFIX.size and PREFIX.unpack_from(data, size)[1] + LENGTH_END <= rest:
        raise invalid("there is more than one batch")
    return memoryview(data)[:size]


def append_several(log: "Log", data: Buffer, leader_epoch: int, now_ms: int, transaction_version: int) -> Appended:
    """Append a coordinator's batches, which follow one another in `data`, one by one."""
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
    latest = max(each.max_timestamp for each in results)
    return Appended(results[0].base_offset, results[-1].last_offset, results[0].log_append_time_ms, latest, False)


def invalid(message: str) -> KafkaError:
    """An INVALID_RECORD that says why."""
    return KafkaError(ErrorCode.INVALID_RECORD, message)
