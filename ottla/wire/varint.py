"""The variable-length integers of record batches: 7 bits per byte, low bits first, zig-zag for signed values.

Rules:
- A reader does not read past the end of its input: it raises IndexError, which callers convert to their own error.
- A varint has at most 5 bytes and a varlong at most 10; a longer one raises ValueError.
"""

from ottla.kernel.ports import Buffer

#: 64 bits in groups of 7.
_VARLONG_BYTES_MAX = 10

_CACHE_MAX = 16384
_cache: dict[int, bytes] = {}


def encode_varint(value: int) -> bytes:
    """Return the zig-zag encoding of a signed value, which is the same for int32 and int64."""
    cached = _cache.get(value)
    if cached is not None:
        return cached
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    encoded = bytes(out)
    if len(_cache) < _CACHE_MAX:
        _cache[value] = encoded
    return encoded


def decode_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Read a zig-zag value; return (value, its end). IndexError past the end of the data, ValueError if too long."""
    byte = data[position]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 127
    shift = 7
    for index in range(position + 1, position + _VARLONG_BYTES_MAX):
        byte = data[index]
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), index + 1
        shift += 7
    raise ValueError(f"a varint at byte {position} does not end within {_VARLONG_BYTES_MAX} bytes")
