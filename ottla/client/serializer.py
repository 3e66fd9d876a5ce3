"""Between a program's values and the bytes of a record: by name (`"str"`, `"json"`, `"bytes"`) or any function.

Avro and Protobuf: `avro_serializer`, `avro_deserializer`, `protobuf_serializer`, `protobuf_deserializer` of
`ottla.client` make such functions.

A serializer takes the value and gives bytes or None; a deserializer the reverse. None stays None (a tombstone) and is
not shown to either.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Serializer = Callable[[Any], bytes | None]
Deserializer = Callable[[bytes], Any]


def _to_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _to_bytes(value: bytes | bytearray | memoryview) -> bytes:
    return bytes(value)


def _from_bytes(value: bytes) -> bytes:
    return value


_SERIALIZERS: dict[str, Serializer] = {"bytes": _to_bytes, "str": str.encode, "json": _to_json}
_DESERIALIZERS: dict[str, Deserializer] = {"bytes": _from_bytes, "str": bytes.decode, "json": json.loads}


def serializer(value: object) -> Serializer | None:
    """A setting's value as a function. None: bytes pass as they are and text becomes UTF-8."""
    return _named(value, _SERIALIZERS)


def deserializer(value: object) -> Deserializer | None:
    """A setting's value as a function. None: records keep their bytes."""
    return _named(value, _DESERIALIZERS)


def plain_bytes(value: object, what: str) -> bytes:
    """What goes without a serializer. TypeError for anything that is not bytes or text."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(
        f"a record's {what} is bytes, str or None, not {type(value).__name__}: "
        f'set {what}.serializer ("json", or a function that gives bytes)'
    )


def header_of(name: object, content: object) -> tuple[str, bytes | None]:
    """A header as it is sent. TypeError for a name that is no text, a content that is not bytes, text or None."""
    if not isinstance(name, str):
        raise TypeError(f"a header's name is str, not {type(name).__name__}")
    if content is None:
        return name, None
    if isinstance(content, str):
        return name, content.encode()
    if isinstance(content, (bytes, bytearray, memoryview)):
        return name, bytes(content)
    raise TypeError(f"header {name} is bytes, str or None, not {type(content).__name__}")


def _named(value: object, known: dict[str, Callable[[Any], Any]]) -> Callable[[Any], Any] | None:
    if value is None or callable(value):
        return value
    if isinstance(value, str) and value in known:
        return known[value]
    raise ValueError(f"a function, or one of {', '.join(known)}")
