"""A wide request of every API: for each of its arrays one in which that array has very many elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.kernel.ids import Uuid
from ottla.wire.api import API, BROKER, Api
from ottla.wire.schema import WireField, fields
from ottla.wire.type import UnsupportedVersion
from tests.abuse.served import frame

Path = tuple[str, ...]
_INTEGERS = {"Int8": 0x7F, "Int16": 0x7FFF, "Uint16": 0xFFFF, "Int32": 0x7FFFFFFF, "Int64": 0x7FFFFFFF}
#: What a request has at its top, so that it gets as far as its array.
_SETTINGS = {"timeout_ms": 1000, "max_wait_ms": 10, "replica_id": -1, "group_id": "wide", "member_id": "member"}


def wide_requests(count: int) -> Iterator[tuple[str, bytes]]:
    """The API and the array's path, and the request as it is sent."""
    for api in API.values():
        if api.listeners >= BROKER and api.stable_versions:
            version = api.stable_versions[-1]
            for path in _arrays(api.request, version, ()):
                request = _made(api, version, path, count)
                if request is not None:
                    yield f"{api.name} {'.'.join(path)}", request


def _made(api: Api, version: int, path: Path, count: int) -> bytes | None:
    message = _filled(api.request, version, path, count)
    there = {field.name for field in fields(api.request) if version in field.versions and not field.is_array}
    for name in there & _SETTINGS.keys():
        setattr(message, name, _SETTINGS[name])
    try:
        return frame(message, version)
    except UnsupportedVersion:
        # This version has another form for it.
        return None


def _arrays(cls: type, version: int, above: Path) -> Iterator[Path]:
    for field in fields(cls):
        if version in field.versions and field.tag < 0:
            path = (*above, field.name)
            if field.is_array:
                yield path
            if field.struct is not None:
                yield from _arrays(field.struct, version, path)


def _filled(cls: type, version: int, path: Path, count: int, number: int | None = None) -> Any:
    """A message whose array at the path has `count` elements, those on the way one; `number`: of an element."""
    values: dict[str, Any] = {}
    for field in fields(cls):
        if version not in field.versions or field.tag >= 0:
            continue
        on_the_way = bool(path) and path[0] == field.name
        below = path[1:] if on_the_way else ()
        if field.is_array:
            numbers = range(count) if on_the_way and not below else (None,) if on_the_way or number is not None else ()
            values[field.name] = [
                _value(field, each) if field.struct is None else _filled(field.struct, version, below, count, each)
                for each in numbers
            ]
        elif field.struct is not None:
            values[field.name] = _filled(field.struct, version, below, count, number)
        else:
            values[field.name] = _value(field, number)
    return cls(**values)


def _value(field: WireField, number: int | None) -> Any:
    if field.type == "String":
        return (
            f"name-{number}"
            if number is not None
            else "good"
            if "topic" in field.name or field.name == "name"
            else "one"
        )
    if field.type == "Uuid":
        return Uuid((number or 0).to_bytes(16, "big"))
    if field.type in _INTEGERS:
        counts = any(word in field.name for word in ("partition", "index", "broker", "id"))
        return (number or 0) & _INTEGERS[field.type] if counts else 0
    return {"Boolean": False, "Float64": 0.0}.get(field.type, b"")
