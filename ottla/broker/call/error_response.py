"""The response to a request that fails as a whole, for every API without a form of its own.

The error code goes to the top of the response if its version has a field for it. Otherwise the response mirrors the
request: one element for each requested item, with the code in each, like Apache Kafka's error responses. A missing
node is id -1 and port -1.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ottla.kernel.error import KafkaError
from ottla.kernel.error_message import words
from ottla.wire.schema import WireField, fields


def build_error_response(request: Any, response_class: Any, version: int, error: KafkaError) -> Any | None:
    """The response with `error`, or None if this version has no field for it.

    It calls itself for each part of the response, with the corresponding part of the request.
    """
    struct = response_class()
    if not isinstance(request, str | int | bytes):
        _copy_names(request, struct, version)
    return struct if _set_error(struct, version, error) or _mirror(request, struct, version, error) else None


def _set_error(struct: Any, version: int, error: KafkaError) -> bool:
    has_code = False
    for field in fields(type(struct)):
        if version not in field.versions:
            continue
        if field.type == "Int16" and field.name.endswith("error_code"):
            setattr(struct, field.name, error.code)
            has_code = True
        elif field.name == "error_message" and (error.message or struct.error_message == ""):
            # Java's clients show an empty message, and the code's meaning where there is none.
            struct.error_message = words(error)
    if has_code and {"node_id", "port"} <= {field.name for field in fields(type(struct))}:
        struct.node_id = struct.port = -1
    return has_code


def _mirror(asked: Any, struct: Any, version: int, error: KafkaError) -> bool:
    """Fill the response's list of parts from the request's list of items."""
    part = next((field for field in fields(type(struct)) if _is_part(field, version)), None)
    if part is None or isinstance(asked, str | int | bytes):
        return False
    lists = [field for field in fields(type(asked)) if field.is_array and version in field.versions]
    source = next((field for field in lists if field.name == part.name), lists[0] if lists else None)
    if source is None:
        return False
    response_parts = []
    for each in getattr(asked, source.name) or ():
        response_part = build_error_response(each, part.struct, version, error)
        if response_part is None:
            return False
        if source.struct is None:
            _set_name(response_part, each, source.type, version)
        response_parts.append(response_part)
    setattr(struct, part.name, response_parts)
    return True


def _set_name(struct: Any, value: Any, kind: str, version: int) -> None:
    """Put the requested item into the field of the part that identifies it."""
    for field in fields(type(struct)):
        if field.type == kind and version in field.versions and field.name != "error_message":
            setattr(struct, field.name, value)
            return


def _copy_names(asked: Any, struct: Any, version: int) -> None:
    there = {field.name for field in fields(type(asked)) if not field.is_array and field.struct is None}
    for field in fields(type(struct)):
        if field.name in there and version in field.versions and not field.name.endswith("error_code"):
            setattr(struct, field.name, getattr(asked, field.name))


def _is_part(field: WireField, version: int) -> bool:
    return (
        field.is_array and field.struct is not None and version in field.versions and _has_code(field.struct, version)
    )


@cache
def _has_code(cls: Any, version: int) -> bool:
    """Whether this struct or one below it has a field for an error code."""
    return any(
        version in field.versions
        and (
            (field.type == "Int16" and field.name.endswith("error_code"))
            or (field.struct is not None and _has_code(field.struct, version))
        )
        for field in fields(cls)
    )
