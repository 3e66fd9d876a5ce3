"""JSON with a JSON Schema, by record, with jsonschema-rs (the extra `ottla[json-schema]`).

A schema's own `$schema` selects its draft (4 to 2020-12; the newest without one). Nothing is fetched: a schema must
contain everything it refers to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ottla.kernel.error import OttlaError
from ottla.serde.confluent import prefix, split_prefix

Schema = str | bytes | Mapping[str, Any] | bool
#: Returns the schema of a schema id, as a schema registry does.
Registry = Callable[[int], Schema]
Check = Callable[[Any], None]


def json_schema_serializer(schema: Schema, *, schema_id: int | None = None) -> Callable[[Any], bytes]:
    """A serializer to JSON for values that match `schema` (JSON text or its parsed form).

    With `schema_id`, values are in Confluent's wire format. The serializer raises ValueError for a value that does not
    match; OttlaError for an invalid schema, or without jsonschema-rs.
    """
    check = _check(schema)
    head = b"" if schema_id is None else prefix(schema_id)

    def write(value: Any) -> bytes:
        check(value)
        return head + json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    return write


def json_schema_deserializer(
    schema: Schema | None = None, *, confluent: bool = False, registry: Registry | None = None
) -> Callable[[bytes], Any]:
    """A deserializer from JSON that checks values against `schema`, if given, with ValueError for a mismatch.

    With `confluent`, values are in Confluent's wire format, with any schema id. With `registry`, a function from a
    schema id to its schema, they are in that format, and must match the schema that they were written with as well.
    """
    check = None if schema is None else _check(schema)
    writers: dict[int, Check] = {}

    def read(value: bytes) -> Any:
        writer = None
        if confluent or registry is not None:
            schema_id, value = split_prefix(value)
            if registry is not None and (writer := writers.get(schema_id)) is None:
                writer = writers[schema_id] = _check(registry(schema_id))
        parsed = json.loads(value)
        for checker in (writer, check):
            if checker is not None:
                checker(parsed)
        return parsed

    return read


def _check(schema: Schema) -> Check:
    """A function that raises ValueError for a value that does not match the schema. OttlaError for an invalid
    schema.
    """
    library = _library()
    try:
        plain = json.loads(schema) if isinstance(schema, str | bytes) else schema
        validator = library.validator_for(plain, offline=True)
    except (ValueError, TypeError, library.ReferencingError) as error:
        raise OttlaError(f"invalid JSON Schema: {_first_line(error)}") from error

    def check(value: Any) -> None:
        try:
            validator.validate(value)
        except library.ValidationError as error:
            place = "".join(f"[{step!r}]" for step in error.instance_path)
            raise ValueError(f"the value{place} does not match its schema: {error.message}") from None

    return check


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _library() -> Any:
    try:
        import jsonschema_rs
    except ImportError:
        raise OttlaError("JSON Schema needs jsonschema-rs: pip install 'ottla[json-schema]'") from None
    return jsonschema_rs
