"""The compression codecs of record batches, with Kafka's ids, implemented by cramjam.

Rules:
- Every client can read our output: snappy in Java's xerial framing, lz4 frames with independent blocks (Java rejects
  dependent ones), plain gzip and zstd.
- We read whatever clients send: snappy with or without that framing.
- The decompressed size is limited: a few kilobytes can expand to gigabytes (docs/decisions/0342).
- cramjam is imported on first use: a broker that only passes batches through never loads it.

KIPs: 57 (lz4 framing), 110 (zstd), 390 (levels).
"""

import mmap
import struct
from collections.abc import Callable, Iterator
from enum import IntEnum

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ports import Buffer

#: The header of a xerial (snappy-java) stream: magic, version 1, compatible from 1.
_XERIAL_HEAD = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
#: snappy-java's default block.
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = struct.Struct(">i")
#: The maximum decompressed size of a batch: a little more than the largest request (100 MiB by default).
PLAIN_BYTES_MAX = 128 << 20
#: The first estimate of the decompressed size, and its growth factor.
_RATIO_FIRST, _PLAIN_BYTES_FIRST, _GROWTH = 4, 4096, 8
#: cramjam's error message for a buffer that is too small.
_OUT_OF_ROOM = "failed to write whole buffer"


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


#: Kafka's names in `compression.type`; NONE is `uncompressed` for topics and `none` for producers.
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
    """Return the codec in a batch's attributes. KafkaError UNSUPPORTED_COMPRESSION_TYPE for an unknown id."""
    try:
        return Codec(attributes & 7)
    except ValueError:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression type {attributes & 7}") from None


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data`. `level` is on the codec's own scale; None or -1 (gzip) is Kafka's default."""
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


def decompress(codec: Codec, data: Buffer, bytes_max: int = PLAIN_BYTES_MAX) -> bytes:
    """Decompress `data`.

    KafkaError CORRUPT_MESSAGE if it is not a stream of that codec, MESSAGE_TOO_LARGE for more than `bytes_max`.
    """
    if codec is Codec.NONE:
        return bytes(data)
    import cramjam

    try:
        if codec is Codec.SNAPPY:
            return b"".join(_snappy_blocks(bytes(data), bytes_max))
        module = {Codec.ZSTD: cramjam.zstd, Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4}[codec]
        return _decompress_into(module.decompress_into, data, bytes_max)
    except (cramjam.DecompressionError, struct.error, ValueError, OverflowError, MemoryError) as error:
        raise _not_valid(codec, error) from error


def decompress_some(codec: Codec, data: Buffer, room: int) -> tuple[Buffer, bool]:
    """Decompress about the first `room` bytes, and no more; return (bytes, whether that is everything)."""
    if codec is Codec.NONE:
        return bytes(data), True
    import cramjam

    out = bytearray(room if codec is not Codec.SNAPPY else 0)
    try:
        if codec is Codec.SNAPPY:
            for block in _snappy_blocks(bytes(data), PLAIN_BYTES_MAX):
                if len(out) >= room:
                    return out, False
                out += block
            return out, True
        module = {Codec.ZSTD: cramjam.zstd, Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4}[codec]
        written = module.decompress_into(data, out)
    except (cramjam.DecompressionError, struct.error, ValueError, OverflowError, MemoryError) as error:
        if _OUT_OF_ROOM in str(error):
            # The output up to the limit is valid.
            return out, False
        raise _not_valid(codec, error) from error
    del out[written:]
    return out, True


def decompress_beside(codec: Codec, data: Buffer, bytes_max: int) -> Buffer:
    """Decompress in a worker thread: the time with the GIL held does not depend on the size of the batch.

    The output is an anonymous mapping of `bytes_max`, whose pages are only allocated when written.
    """
    import cramjam

    try:
        out = mmap.mmap(-1, bytes_max)
    except OSError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no memory for a batch's {bytes_max} bytes") from error
    try:
        if codec is Codec.SNAPPY:
            written = _snappy_into(bytes(data), out)
        else:
            module = {Codec.ZSTD: cramjam.zstd, Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4}[codec]
            written = module.decompress_into(data, out)
    except (cramjam.DecompressionError, struct.error, ValueError, OverflowError, MemoryError) as error:
        if _OUT_OF_ROOM in str(error):
            raise _too_large(bytes_max) from error
        raise _not_valid(codec, error) from error
    return memoryview(out)[:written]


def _not_valid(codec: Codec, error: Exception) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch is not valid {codec.name.lower()}: {error}")


def _compress_xerial(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    parts = [_XERIAL_HEAD]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_into(decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, bytes_max: int) -> bytes:
    """Decompress into a buffer that grows until it is large enough or exceeds `bytes_max`."""
    import cramjam

    size = min(bytes_max, _RATIO_FIRST * len(data) + _PLAIN_BYTES_FIRST)
    while True:
        out = bytearray(size)
        try:
            written = decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if _OUT_OF_ROOM not in str(error):
                raise
            if size >= bytes_max:
                raise _too_large(bytes_max) from error
            size = min(bytes_max, _GROWTH * size)
        else:
            return bytes(memoryview(out)[:written])


def _too_large(bytes_max: int) -> KafkaError:
    why = f"the decompressed batch exceeds {bytes_max} bytes"
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, why)


def _snappy_blocks(data: bytes, bytes_max: int) -> Iterator[bytes]:
    import cramjam

    left = bytes_max
    for packed in _snappy_packed(data):
        # The block starts with its decompressed length, which determines the buffer's size.
        if left < cramjam.snappy.decompress_raw_len(packed):
            raise _too_large(bytes_max)
        plain = bytes(cramjam.snappy.decompress_raw(packed))
        yield plain
        left -= len(plain)


def _snappy_into(data: bytes, out: mmap.mmap) -> int:
    import cramjam

    position = 0
    with memoryview(out) as room:
        for packed in _snappy_packed(data):
            size = cramjam.snappy.decompress_raw_len(packed)
            if len(room) - position < size:
                raise _too_large(len(room))
            position += cramjam.snappy.decompress_raw_into(packed, room[position : position + size])
    return position


def _snappy_packed(data: bytes) -> Iterator[bytes]:
    """Yield the compressed blocks; a stream without framing is one block."""
    if not data.startswith(_XERIAL_MAGIC):
        yield data
        return
    position = len(_XERIAL_HEAD)
    while position < len(data):
        (size,) = _INT32.unpack_from(data, position)
        position += 4
        if size < 0 or size > len(data) - position:
            raise ValueError(f"a block of {size} bytes with {len(data) - position} left")
        yield data[position : position + size]
        position += size
