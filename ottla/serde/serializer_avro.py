"""Avro, a record at a time: dicts and other plain values to bytes and back, by fastavro (the extra `ottla[avro]`).

For many records at once `serde.avro` makes columns of them, and needs no Avro library.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from ottla.kernel.error import OttlaError
from ottla.serde.confluent import behind, prefix

Schema = str | bytes | Mapping[str, Any] | list[Any]
#: A schema's id to the schema: what a schema registry is asked.
Registry = Callable[[int], Schema]


def avro_serializer(schema: Schema, *, schema_id: int | None = None) -> Callable[[Any], bytes]:
    """Values to bytes by `schema` (its JSON, or what that parses to); with `schema_id`, in Confluent's wire format."""
    fastavro = _fastavro()
    parsed = fastavro.parse_schema(_plain(schema))
    head = b"" if schema_id is None else prefix(schema_id)

    def write(value: Any) -> bytes:
        out = BytesIO()
        out.write(head)
        fastavro.schemaless_writer(out, parsed, value)
        return out.getvalue()

    return write


def avro_deserializer(schema: Schema | None = None, *, registry: Registry | None = None) -> Callable[[bytes], Any]:
    """Bytes to values.

    Without `registry` they were written by `schema`. With it, which gives the schema of an id, they are in Confluent's
    wire format; a `schema` beside it is the reader's, to which what was written is resolved.
    """
    fastavro = _fastavro()
    if schema is None and registry is None:
        raise OttlaError("Avro is read by a schema, or with a registry that gives it")
    reader = None if schema is None else fastavro.parse_schema(_plain(schema))
    writers: dict[int, Any] = {}

    def read(value: bytes) -> Any:
        if registry is None:
            return fastavro.schemaless_reader(BytesIO(value), reader, None)
        schema_id, value = behind(value)
        writer = writers.get(schema_id)
        if writer is None:
            writer = writers[schema_id] = fastavro.parse_schema(_plain(registry(schema_id)))
        return fastavro.schemaless_reader(BytesIO(value), writer, reader)

    return read


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise OttlaError("Avro records need fastavro: pip install 'ottla[avro]'") from error
    return fastavro


def _plain(schema: Schema) -> Any:
    if isinstance(schema, bytes):
        schema = schema.decode()
    return json.loads(schema) if isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"') else schema
