"""The wire types for the annotations of messages, and the two errors of encoding and decoding.

Rules:
- Integers are big-endian. `Uuid` is 16 bytes, `Boolean` one byte.
- Before a message's first flexible version a string has an int16 length, bytes and arrays an int32. In flexible
  versions they are compact: an unsigned varint of length + 1, with 0 for null (KIP-482).
"""

from typing import Any, TypeAlias

from ottla.kernel.ids import NO_UUID, Uuid

__all__ = [
    "FIXED",
    "NO_UUID",
    "Boolean",
    "Bytes",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Malformed",
    "Records",
    "String",
    "Uint16",
    "Uint32",
    "UnsupportedVersion",
    "Uuid",
]

Boolean: TypeAlias = bool
Int8: TypeAlias = int
Int16: TypeAlias = int
Int32: TypeAlias = int
Int64: TypeAlias = int
Uint16: TypeAlias = int
Uint32: TypeAlias = int
Float64: TypeAlias = float
String: TypeAlias = str
Bytes: TypeAlias = bytes
#: Unparsed record batches. When read: a memoryview into the input. When written: any bytes, or an object with a length
#: that the sender understands (a slice of a file), which becomes a separate part.
Records: TypeAlias = Any

#: The fixed-size types: their `struct` format and size.
FIXED = {
    "Boolean": ("?", 1),
    "Int8": ("b", 1),
    "Int16": ("h", 2),
    "Int32": ("i", 4),
    "Int64": ("q", 8),
    "Uint16": ("H", 2),
    "Uint32": ("I", 4),
    "Float64": ("d", 8),
    "Uuid": ("16s", 16),
}


class Malformed(ValueError):
    """The bytes are invalid, because of the peer or the disk."""


class UnsupportedVersion(ValueError):
    """The message has no such version, or the version cannot express a field's value: our bug or a user error."""
