"""Record batches, format v2: the same bytes in produce requests, segments and fetch responses.

Rules:
- A batch is a header of 61 bytes, then its records, compressed as a whole or not at all. The CRC-32C covers everything
  from the attributes (byte 21) to the end. It excludes base offset, length, leader epoch and magic, so that the broker
  sets its own without a new CRC (`stamp`).
- Reading stops silently at a truncated batch at the end of the input, because a fetch may end in one.
- Invalid bytes raise KafkaError: CORRUPT_MESSAGE (lengths, CRC), INVALID_RECORD (records),
  UNSUPPORTED_FOR_MESSAGE_FORMAT (magic 0 and 1).

KIPs: 98 (the format, producers, transactions), 110 (zstd), 32 (timestamps), 82 (headers).
"""

import struct
from collections.abc import Iterable, Iterator, Sequence

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Buffer
from ottla.wire.checksum import crc32c
from ottla.wire.codec import PLAIN_BYTES_MAX, Codec, codec_of, compress, decompress
from ottla.wire.varint import decode_varint, encode_varint

HEADER_BYTES = 61
#: The end of the length field; the length counts the bytes after it.
LENGTH_END = 12
#: The start of the bytes that the CRC covers.
CRC_START = 21
#: The attributes are an int16 at byte 21.
_ATTRIBUTES_LOW = 22
MAGIC = 2

#: Bits of the attributes.
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

#: baseOffset, length, partitionLeaderEpoch, magic, crc, attributes, lastOffsetDelta, baseTimestamp, maxTimestamp,
#: producerId, producerEpoch, baseSequence, count.
HEADER = struct.Struct(">qiibIhiqqqhii")
#: baseOffset, length, partitionLeaderEpoch: the fields before the magic.
PREFIX = struct.Struct(">qii")
_OFFSET_LENGTH = struct.Struct(">qi")
_CRC = struct.Struct(">I")
#: attributes .. count: the part of the header that the CRC covers.
CHECKED = struct.Struct(">hiqqqhii")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")

Header = tuple[str, bytes | None]
#: A record for `build`: (timestamp, key, value, headers).
NewRecord = tuple[int, bytes | None, bytes | None, Sequence[Header]]


class Record(NamedTuple):
    """A record as a consumer sees it, with absolute offset and timestamp instead of deltas."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]


class BatchHeader(NamedTuple):
    """The decoded header."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # Kafka's field, not the method of tuple

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes, including the header."""
        return self.length + LENGTH_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; it wraps from 2^31-1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> Codec:
        return codec_of(self.attributes)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """True if the base timestamp is the time from which the cleaner may drop tombstones and markers (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON)


class Batch:
    """A complete batch: its header, and its records on demand."""

    __slots__ = ("data", "header")

    def __init__(self, header: BatchHeader, data: memoryview) -> None:
        self.header = header
        #: The bytes of the batch, including the header; a view into the input of `read`.
        self.data = data

    def records(self) -> list[Record]:
        """Decode all records, decompressing them if needed. The CRC is not verified; `check` does that."""
        header = self.header
        body = decompress(header.codec, self.data[HEADER_BYTES:])
        fixed = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
        return decode_records(body, header.count, header.base_offset, header.base_timestamp, fixed)


def header_at(data: Buffer, position: int = 0) -> BatchHeader:
    """Decode the header at `position`. CORRUPT_MESSAGE if it is shorter than 61 bytes."""
    try:
        return BatchHeader._make(HEADER.unpack_from(data, position))
    except struct.error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the input ends within a batch's header") from None


def attributes_of(data: Buffer) -> int:
    """Return the low byte of the first batch's attributes, which has all of them; 0 if the header is incomplete."""
    return data[_ATTRIBUTES_LOW] if len(data) >= HEADER_BYTES else 0


def is_transactional(data: Buffer | None) -> bool:
    """Return True if the first batch belongs to a transaction."""
    return data is not None and bool(attributes_of(data) & TRANSACTIONAL)


def headers(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each complete batch in `data`."""
    position = 0
    end = len(data)
    while end - position >= HEADER_BYTES:
        header = BatchHeader._make(HEADER.unpack_from(data, position))
        if header.magic != MAGIC:
            raise _old_magic(header.magic)
        if header.length < HEADER_BYTES - LENGTH_END:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch's length is {header.length}")
        if header.length + LENGTH_END > end - position:
            return
        yield position, header
        position += header.length + LENGTH_END


def read(data: Buffer) -> Iterator[Batch]:
    """Yield each complete batch in `data`."""
    view = memoryview(data)
    for position, header in headers(view):
        yield Batch(header, view[position : position + header.size])


def check(data: Buffer, position: int = 0) -> BatchHeader:
    """Verify the length, magic and CRC of the batch at `position`, and return its header. KafkaError if invalid."""
    header = header_at(data, position)
    if header.magic != MAGIC:
        raise _old_magic(header.magic)
    end = position + header.size
    if header.size < HEADER_BYTES or end > len(data):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {header.size} bytes with {len(data) - position} left")
    actual = crc32c(memoryview(data)[position + CRC_START : end])
    if actual != header.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch's CRC is {header.crc}, its bytes give {actual}")
    return header


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write the base offset and leader epoch into a batch in place. The CRC covers neither."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + LENGTH_END, leader_epoch)


def build(
    records: Iterable[NewRecord],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Build a batch of these records, at least one. Offsets count up from `base_offset`."""
    parts: list[bytes] = []
    delta = -1
    base_timestamp = max_timestamp = NO_TIMESTAMP
    for timestamp, key, value, record_headers in records:
        delta += 1
        if delta == 0:
            base_timestamp = timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        _encode_record(parts, timestamp - base_timestamp, delta, key, value, record_headers)
    if delta < 0:
        raise ValueError("a batch has at least one record")
    body = b"".join(parts)
    if codec is not Codec.NONE:
        body = compress(codec, body, level)
    attributes = codec | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    checked = CHECKED.pack(
        attributes, delta, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, delta + 1
    )
    return assemble(base_offset, leader_epoch, checked, body)


def assemble(base_offset: int, leader_epoch: int, checked: bytes, body: Buffer) -> bytes:
    """Build a batch from the header part that the CRC covers and the (compressed) records."""
    crc = crc32c(body, crc32c(checked))
    length = HEADER_BYTES - LENGTH_END + len(body)
    prefix = PREFIX.pack(base_offset, length, leader_epoch)
    return b"".join((prefix, b"\x02", _CRC.pack(crc), checked, body))


def seal(data: memoryview, base_offset: int, leader_epoch: int, checked: bytes) -> memoryview:
    """Complete a batch in place: `data` has room for the header, followed by the records."""
    with data[HEADER_BYTES:] as body:
        crc = crc32c(body, crc32c(checked))
    prefix = PREFIX.pack(base_offset, len(data) - LENGTH_END, leader_epoch)
    data[:HEADER_BYTES] = b"".join((prefix, b"\x02", _CRC.pack(crc), checked))
    return data


def rewrite(
    data: Buffer,
    header: BatchHeader,
    *,
    attributes: int,
    max_timestamp: int,
    codec: Codec | None = None,
    level: int | None = None,
    bytes_max: int = PLAIN_BYTES_MAX,
) -> bytes:
    """Return the batch with other attributes and another maximum timestamp, recompressed if `codec` is not None.

    The records contain only deltas, so they do not change.
    """
    body: Buffer = memoryview(data)[HEADER_BYTES : header.size]
    if codec is not None:
        body = compress(codec, decompress(header.codec, body, bytes_max), level)
        attributes = attributes & ~7 | codec
    checked = CHECKED.pack(attributes, header.last_offset_delta, header.base_timestamp, max_timestamp, *header[9:13])
    return assemble(header.base_offset, header.partition_leader_epoch, checked, body)


def decode_records(
    body: bytes, count: int, base_offset: int, base_timestamp: int, fixed_timestamp: int | None = None
) -> list[Record]:
    """Decode `count` records from the uncompressed `body`. With LogAppendTime, all records get `fixed_timestamp`."""
    records: list[Record] = []
    position = 0
    end = len(body)
    new = tuple.__new__
    try:
        for _ in range(count):
            length, position = decode_varint(body, position)
            record_end = position + length
            if length < 0 or record_end > end:
                raise KafkaError(ErrorCode.INVALID_RECORD, f"a record of {length} bytes with {end - position} left")
            # Most of these varints have one byte; a call for each would double the time.
            byte = body[position + 1]
            if byte < 128:
                timestamp = (byte >> 1) ^ -(byte & 1)
                position += 2
            else:
                timestamp, position = decode_varint(body, position + 1)
            byte = body[position]
            if byte < 128:
                offset = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                offset, position = decode_varint(body, position)
            key, position = _decode_bytes(body, position)
            value, position = _decode_bytes(body, position)
            if body[position] == 0:
                position += 1
                record_headers: list[Header] = []
            else:
                record_headers, position = _decode_headers(body, position)
            if position != record_end:
                raise KafkaError(ErrorCode.INVALID_RECORD, "a record's fields do not add up to its length")
            timestamp = base_timestamp + timestamp if fixed_timestamp is None else fixed_timestamp
            records.append(new(Record, (base_offset + offset, timestamp, key, value, record_headers)))
    except (IndexError, ValueError) as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"a record is cut off or malformed: {error}") from error
    if position != end:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{end - position} bytes after the last of {count} records")
    return records


def _decode_bytes(body: bytes, position: int) -> tuple[bytes | None, int]:
    byte = body[position]
    if byte < 128:
        size = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        size, position = decode_varint(body, position)
    if size < 0:
        return None, position
    # A slice past the end is short; the caller detects it by checking the record's length.
    return body[position : position + size], position + size


def header_name(name: bytes) -> str:
    """A header's name. Bytes that are not UTF-8, which librdkafka can send, become U+FFFD, as in Java's client."""
    return name.decode(errors="replace")


def _decode_headers(body: bytes, position: int) -> tuple[list[Header], int]:
    count, position = decode_varint(body, position)
    # A header has at least two bytes: an impossible count is rejected before anything is allocated for it.
    if count < 0 or count > (len(body) - position) // 2:
        raise ValueError(f"{count} headers in {len(body) - position} bytes")
    headers: list[Header] = []
    for _ in range(count):
        key, position = _decode_bytes(body, position)
        if key is None:
            raise ValueError("a header without a key")
        value, position = _decode_bytes(body, position)
        headers.append((header_name(key), value))
    return headers, position


def _encode_record(
    parts: list[bytes],
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    record_headers: Sequence[Header],
) -> None:
    body = b"\x00" + encode_varint(timestamp_delta) + encode_varint(offset_delta)
    body += b"\x01" if key is None else encode_varint(len(key)) + key
    body += b"\x01" if value is None else encode_varint(len(value)) + value
    if not record_headers:
        body += b"\x00"
    else:
        pieces = [body, encode_varint(len(record_headers))]
        for name, content in record_headers:
            raw = name.encode()
            pieces += (encode_varint(len(raw)), raw)
            pieces += (b"\x01",) if content is None else (encode_varint(len(content)), content)
        body = b"".join(pieces)
    parts.append(encode_varint(len(body)))
    parts.append(body)


def _old_magic(magic: int) -> KafkaError:
    return KafkaError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"message format v{magic} is not supported, only v2")
