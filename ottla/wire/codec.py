"""The compression codecs of record batches, by Kafka's ids, through cramjam.

Rules:
- What we write, every client reads: snappy in the xerial framing that Java writes, lz4 frames with independent blocks
  (Java's reader refuses dependent ones), gzip and zstd plain.
- What a client may send, we read: snappy with or without that framing.
- cramjam is imported on first use: a broker that only passes batches on never loads it.

KIPs: 57 (lz4 framing), 110 (zstd), 390 (levels).
"""

import struct
from enum import IntEnum

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.port import Buffer

#: The head of a xerial (snappy-java) stream: magic, version 1, compatible from 1.
_XERIAL_HEAD = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
#: snappy-java's default block.
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = struct.Struct(">i")


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


#: Kafka's names of `compression.type` (`uncompressed` is a topic's name for NONE, `none` a producer's).
CODEC_BY_NAME = {
    "none": Codec.NONE,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

#: Kafka's default levels (compression.gzip.level -1 is zlib's own default, 6). Snappy has none.
_LEVEL_DEFAULT = {Codec.GZIP: 6, Codec.LZ4: 9, Codec.ZSTD: 3}


def codec_of(attributes: int) -> Codec:
    """The codec in a batch's attributes. KafkaError UNSUPPORTED_COMPRESSION_TYPE for an id nobody has defined."""
    try:
        return Codec(attributes & 7)
    except ValueError:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {attributes & 7} is not known"
        ) from None


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed; the level is the codec's own scale, None or -1 (gzip) is Kafka's default."""
    if codec is Codec.NONE:
        return bytes(data)
    import cramjam

    if codec is Codec.SNAPPY:
        return _compress_xerial(data)
    if level is None or (codec is Codec.GZIP and level < 0):
        level = _LEVEL_DEFAULT[codec]
    if codec is Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level))
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level))
    frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    frame.compress(bytes(data))
    return bytes(frame.finish())


def decompress(codec: Codec, data: Buffer) -> bytes:
    """The reverse. KafkaError CORRUPT_MESSAGE if `data` is not a stream of that codec."""
    if codec is Codec.NONE:
        return bytes(data)
    import cramjam

    try:
        if codec is Codec.SNAPPY:
            return _decompress_snappy(bytes(data))
        if codec is Codec.ZSTD:
            return bytes(cramjam.zstd.decompress(data))
        if codec is Codec.GZIP:
            return bytes(cramjam.gzip.decompress(data))
        return bytes(cramjam.lz4.decompress(data))
    except (cramjam.DecompressionError, struct.error, ValueError, OverflowError, MemoryError) as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch is not valid {codec.name.lower()}: {error}") from error


def _compress_xerial(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    parts = [_XERIAL_HEAD]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: bytes) -> bytes:
    import cramjam

    if not data.startswith(_XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    parts = []
    position = len(_XERIAL_HEAD)
    while position < len(data):
        (size,) = _INT32.unpack_from(data, position)
        position += 4
        if size < 0 or size > len(data) - position:
            raise ValueError(f"a block of {size} bytes with {len(data) - position} left")
        parts.append(bytes(cramjam.snappy.decompress_raw(data[position : position + size])))
        position += size
    return b"".join(parts)
