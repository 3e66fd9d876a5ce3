"""How a coordinator's record stands in its log: an int16 and a message in the key, the same in the value.

The int16 of the key is the type of the record, that of the value its version. A null value (tombstone) removes.
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
    """A record of a type that we do not know: a newer broker wrote it, and it is to be passed over."""


class Keyed:
    """The records of one log: the classes of key and value by type."""

    def __init__(self, types: Mapping[int, tuple[type, type]]) -> None:
        self.types = types
        self._prefix = {key: _INT16.pack(type_id) for type_id, (key, _) in types.items()}

    def key_bytes(self, key: Any) -> bytes:
        """The key of the log's record."""
        return self._prefix[type(key)] + encode(key, 0)

    def value_bytes(self, value: Any, version: int = 0) -> bytes | None:
        """The value of the log's record; None, a tombstone, for None."""
        return None if value is None else _INT16.pack(version) + encode(value, version)

    def parse(self, key: Buffer, value: Buffer | None) -> tuple[Any, Any]:
        """(key, value) as messages, the value None if it is a tombstone.

        UnknownRecord for a type that is not ours, Malformed for anything else that is wrong. Bytes that follow are let
        be, as Kafka does.
        """
        type_id = _int16(key)
        types = self.types.get(type_id)
        if types is None:
            raise UnknownRecord(f"there is no record of type {type_id}")
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
