"""The wire's types, as they stand in the annotations of messages, and the two ways in which bytes can be wrong.

Rules:
- Integers are big-endian. `Uuid` is 16 bytes, `Boolean` one byte.
- Up to a message's flexible version a string has an int16 length, bytes and arrays an int32; from there on they are
  compact: an unsigned varint of length + 1, so that 0 is null (KIP-482).
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
#: Record batches, unparsed. Read: a memoryview into the input. Written: any bytes, or an object with a length that
#: the sender understands (a slice of a file), which then is a part of its own.
Records: TypeAlias = Any

#: The types of a fixed size: their format for `struct` and that size.
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
    """These bytes are not what they should be. The peer's fault (or the disk's)."""


class UnsupportedVersion(ValueError):
    """The message has no such version, or a field holds what this version cannot say. Our own fault, or the user's."""
