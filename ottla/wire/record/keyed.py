"""The framing of coordinator records: key and value are each an int16 and a message.

The int16 of the key is the record's type, that of the value its version. A null value is a tombstone.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct as Format
from typing import Any

from ottla.kernel.ports import Buffer
from ottla.wire.compile import decode, encode
from ottla.wire.type import Malformed, UnsupportedVersion

__all__ = ["Keyed", "UnknownRecord"]

_INT16 = Format(">h")


class UnknownRecord(Malformed):
    """A record of an unknown type, written by a newer broker; callers skip it."""


class Keyed:
    """The record types of one log: type -> classes of key and value."""

    def __init__(self, types: Mapping[int, tuple[type, type]]) -> None:
        self.types = types
        self._prefix = {key: _INT16.pack(type_id) for type_id, (key, _) in types.items()}

    def key_bytes(self, key: Any) -> bytes:
        """Encode the key of a record."""
        return self._prefix[type(key)] + encode(key, 0)

    def value_bytes(self, value: Any, version: int = 0) -> bytes | None:
        """Encode the value of a record; None stays None, a tombstone."""
        return None if value is None else _INT16.pack(version) + encode(value, version)

    def parse(self, key: Buffer, value: Buffer | None) -> tuple[Any, Any]:
        """Decode (key, value); the value is None for a tombstone.

        UnknownRecord for an unknown type, Malformed for any other error. Trailing bytes are ignored, as in Kafka.
        """
        type_id = _int16(key)
        types = self.types.get(type_id)
        if types is None:
            raise UnknownRecord(f"unknown record type {type_id}")
        parsed: Any
        parsed, _ = decode(types[0], 0, key, 2)
        if value is None:
            return parsed, None
        version = _int16(value)
        try:
            return parsed, decode(types[1], version, value, 2)[0]
        except UnsupportedVersion as error:
            raise Malformed(str(error)) from None


def _int16(data: Buffer) -> int:
    if len(data) < 2:
        raise Malformed(f"{len(data)} bytes, where a type or version should be")
    return int(_INT16.unpack_from(data)[0])
