"""What a leader demands of a batch before it looks any further: Kafka's checks of the header, with Kafka's codes.

Rules:
- A client has one batch with base offset 0; a coordinator may have several, which go in one by one.
- The records are not looked at (decision 0021); `revise` does that where a topic's settings ask for it.
"""

from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError, RefusedBatch
from ottla.kernel.port import Buffer
from ottla.log.appended import Appended, Origin
from ottla.log.setting import LogSettings
from ottla.wire.batch import CONTROL, CRC_START, HEADER_BYTES, LENGTH_END, MAGIC, PREFIX
from ottla.wire.checksum import crc32c

if TYPE_CHECKING:
    from ottla.log.log import Log

#: What `HEADER` unpacks: the fields of `BatchHeader`, as a plain tuple.
Fields = tuple[int, ...]

#: The least that stands behind the length of a batch of any magic.
_OVERHEAD_BYTES = 14
#: The magic is the last byte of what batches of any magic have in common.
_MAGIC_END = 17
_CODEC_MASK = 7
_CODEC_MAX = 4


def check_header(data: Buffer, size: int, fields: Fields, settings: LogSettings, from_client: bool) -> None:
    """Raise KafkaError if the batch, `data` whole, cannot be taken."""
    base_offset, _, _, magic, crc, attributes, last_delta, _, _, producer_id, _, base_sequence, count = fields
    if not 0 <= magic <= MAGIC:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no batch has magic {magic}")
    if magic != MAGIC:
        raise invalid(f"the batch has magic {magic}, it must be 2")
    if base_offset != 0 and from_client:
        raise RefusedBatch(ErrorCode.INVALID_RECORD, f"the batch has base offset {base_offset}, it must be 0")
    if size > settings.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, at most {settings.max_message_bytes} are taken"
        )
    if size < HEADER_BYTES or crc32c(memoryview(data)[CRC_START:]) != crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch does not have the CRC that it claims")
    if last_delta < 0 or count != last_delta + 1:
        why = f"the batch claims {count} records and a last offset delta of {last_delta}"
        raise RefusedBatch(ErrorCode.INVALID_RECORD, why)
    if attributes & _CODEC_MASK > _CODEC_MAX:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec has the id {attributes & _CODEC_MASK}")
    if from_client:
        if attributes & CONTROL:
            raise RefusedBatch(ErrorCode.INVALID_RECORD, "a client must not write control records")
        if base_sequence < 0 <= producer_id:
            why = f"the batch of producer {producer_id} has sequence {base_sequence}"
            raise RefusedBatch(ErrorCode.INVALID_RECORD, why)


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
