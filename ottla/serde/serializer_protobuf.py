"""Protobuf by record: converts messages of the program's own classes to bytes and back.

Needs Google's library, which the program's message classes need anyway (the extra `ottla[protobuf]` installs it).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.kernel.error import OttlaError
from ottla.serde.confluent import prefix, split_prefix
from ottla.wire.varint import decode_varint, encode_varint

#: Upper bound of the nesting depth of messages in a file.
_DEPTH_MAX = 64


def protobuf_serializer(schema_id: int | None = None) -> Callable[[Any], bytes]:
    """A serializer for messages; with `schema_id`, in Confluent's wire format under that registry id."""

    def write(message: Any) -> bytes:
        content: bytes = message.SerializeToString()
        return content if schema_id is None else prefix(schema_id, place_of(message.DESCRIPTOR)) + content

    return write


def protobuf_deserializer(message: Any, *, confluent: bool = False) -> Callable[[bytes], Any]:
    """A deserializer to messages of this class; with `confluent`, from Confluent's wire format with any schema id.

    OttlaError for a value that lacks the format's prefix; Google's DecodeError for an invalid message.
    """

    def read(value: bytes) -> Any:
        if confluent:
            _, value = split_prefix(value)
            value = _skip_place(value)
        return message.FromString(value)

    return read


def place_of(descriptor: Any) -> bytes:
    """A message's index path in its file, as Confluent's wire format encodes it; the first message is a single zero."""
    path: list[int] = []
    while descriptor is not None:
        outer = descriptor.containing_type
        siblings = outer.nested_types if outer is not None else descriptor.file.message_types_by_name.values()
        path.insert(0, [sibling.full_name for sibling in siblings].index(descriptor.full_name))
        descriptor = outer
    return b"\0" if path == [0] else b"".join(map(encode_varint, (len(path), *path)))


def _skip_place(value: bytes) -> bytes:
    count, at = decode_varint(value, 0)
    if not 0 <= count <= _DEPTH_MAX:
        raise OttlaError("not in Confluent's wire format: the message's index path is missing or invalid")
    for _ in range(count):
        _, at = decode_varint(value, at)
    return value[at:]
