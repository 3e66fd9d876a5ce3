"""Converts a program's values to a record's bytes and back: by name (`"str"`, `"json"`, `"bytes"`) or any function.

For Avro, Protobuf and JSON Schema, `avro_serializer`, `protobuf_serializer` and `json_schema_serializer` of
`ottla.client` make such functions, and so do the matching `..._deserializer` functions.

A serializer takes a value and returns bytes or None; a deserializer takes bytes and returns a value. Both are never
called with None (a tombstone, or no key), which stays None.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.kernel.argument import shown
from ottla.wire.batch import Header

Serializer = Callable[[Any], bytes | None]
Deserializer = Callable[[bytes], Any]


def _to_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _to_bytes(value: object) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"the serializer bytes takes bytes, not {type(value).__name__}: {shown(value)}")
    return bytes(value)


def _to_str(value: object) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"the serializer str takes str, not {type(value).__name__}: {shown(value)}")
    return value.encode()


def _from_bytes(value: bytes) -> bytes:
    return value


_SERIALIZERS: dict[str, Serializer] = {"bytes": _to_bytes, "str": _to_str, "json": _to_json}
_DESERIALIZERS: dict[str, Deserializer] = {"bytes": _from_bytes, "str": bytes.decode, "json": json.loads}


def serializer(value: object) -> Serializer | None:
    """The function of a setting's value. None: bytes are sent unchanged, and text as UTF-8."""
    return _named(value, _SERIALIZERS)


def deserializer(value: object) -> Deserializer | None:
    """The function of a setting's value. None: records keep their bytes."""
    return _named(value, _DESERIALIZERS)


def plain_bytes(value: object, part: str) -> bytes:
    """A key or value that has no serializer, as bytes. TypeError for anything but bytes or text."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(
        f"a record's {part} is bytes, str or None, not {type(value).__name__}: "
        f'set {part}.serializer ("json", or a function that gives bytes)'
    )


def serialized(raw: object, part: str) -> bytes | None:
    """Check the result of a serializer. TypeError for anything but bytes or None."""
    if raw is None or raw.__class__ is bytes:
        return raw
    if isinstance(raw, (bytes, bytearray, memoryview)):
        return bytes(raw)
    raise TypeError(f"{part}.serializer gives bytes or None, not {type(raw).__name__}: {shown(raw)}")


def headers_of(headers: object) -> list[Header]:
    """Headers in the form to send. TypeError for anything but pairs or a mapping."""
    items = headers.items() if isinstance(headers, Mapping) else headers
    if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
        raise TypeError(f"headers are a list of (name, value) pairs or a mapping, not {shown(headers)}")
    pairs: list[Header] = []
    for item in items:
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise TypeError(f"a header is a (name, value) pair, not {shown(item)}")
        pairs.append(header_of(*item))
    return pairs


def header_of(name: object, content: object) -> tuple[str, bytes | None]:
    """A header in the form to send. TypeError for an invalid name or value."""
    if not isinstance(name, str):
        raise TypeError(f"a header's name is str, not {type(name).__name__}: {shown(name)}")
    if not name.isascii():
        # Refuse a lone surrogate now, not when the batch is encoded.
        name.encode()
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
