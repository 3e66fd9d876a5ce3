"""Protobuf, a record at a time: messages of the program's own classes to bytes and back.

Needs Google's library (the extra `ottla[protobuf]` brings it), which the program's message classes need anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.kernel.error import OttlaError
from ottla.serde.confluent import behind, prefix
from ottla.wire.varint import decode_varint, encode_varint

#: No file nests messages deeper.
_DEPTH_MAX = 64


def protobuf_serializer(schema_id: int | None = None) -> Callable[[Any], bytes]:
    """Messages to bytes; with `schema_id`, in Confluent's wire format."""

    def write(message: Any) -> bytes:
        content: bytes = message.SerializeToString()
        return content if schema_id is None else prefix(schema_id, place_of(message.DESCRIPTOR)) + content

    return write


def protobuf_deserializer(message: Any, *, confluent: bool = False) -> Callable[[bytes], Any]:
    """Bytes to messages of this class; with `confluent`, from Confluent's wire format, whatever the schema's id."""

    def read(value: bytes) -> Any:
        if confluent:
            _, value = behind(value)
            value = _behind_place(value)
        return message.FromString(value)

    return read


def place_of(descriptor: Any) -> bytes:
    """Where a message stands in its file, as Confluent's wire format says it; the first one is a single zero."""
    path: list[int] = []
    while descriptor is not None:
        outer = descriptor.containing_type
        siblings = outer.nested_types if outer is not None else descriptor.file.message_types_by_name.values()
        path.insert(0, [one.full_name for one in siblings].index(descriptor.full_name))
        descriptor = outer
    return b"\0" if path == [0] else b"".join(map(encode_varint, (len(path), *path)))


def _behind_place(value: bytes) -> bytes:
    count, at = decode_varint(value, 0)
    if not 0 <= count <= _DEPTH_MAX:
        raise OttlaError("not in Confluent's wire format: the message's place in its file is missing")
    for _ in range(count):
        _, at = decode_varint(value, at)
    return value[at:]
