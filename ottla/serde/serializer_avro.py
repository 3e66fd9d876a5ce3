"""Avro by record: converts dicts and other plain values to bytes and back, with fastavro (the extra `ottla[avro]`).

For many records at once, `serde.avro` works on columns and needs no Avro library.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from ottla.kernel.error import OttlaError
from ottla.serde.confluent import prefix, split_prefix

Schema = str | bytes | Mapping[str, Any] | list[Any]
#: Returns the schema of a schema id, as a schema registry does.
Registry = Callable[[int], Schema]


def avro_serializer(schema: Schema, *, schema_id: int | None = None) -> Callable[[Any], bytes]:
    """A serializer by `schema` (JSON text or its parsed form); with `schema_id`, in Confluent's wire format.

    OttlaError without fastavro. The serializer raises fastavro's errors for a value that does not match the schema.
    """
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
    """A deserializer from Avro.

    Without `registry`, values are bare and were written with `schema`. With `registry`, a function from a schema id to
    its schema, values are in Confluent's wire format; a `schema` is then the reader's schema, to which the written data
    is resolved. OttlaError without fastavro, or if both arguments are missing. The deserializer raises ValueError for a
    value with bytes after the datum, and fastavro's errors for one that is cut off.
    """
    fastavro = _fastavro()
    if schema is None and registry is None:
        raise OttlaError("avro_deserializer needs a schema, or a registry that returns one")
    reader = None if schema is None else fastavro.parse_schema(_plain(schema))
    writers: dict[int, Any] = {}

    def read(value: bytes) -> Any:
        if registry is None:
            return whole(value, reader, None)
        schema_id, value = split_prefix(value)
        writer = writers.get(schema_id)
        if writer is None:
            writer = writers[schema_id] = fastavro.parse_schema(_plain(registry(schema_id)))
        return whole(value, writer, reader)

    def whole(value: bytes, written: Any, wanted: Any) -> Any:
        stream = BytesIO(value)
        datum = fastavro.schemaless_reader(stream, written, wanted)
        if stream.tell() != len(value):
            raise ValueError("the value does not match the Avro schema: it has more bytes")
        return datum

    return read


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise OttlaError("Avro serializers need fastavro: pip install 'ottla[avro]'") from error
    return fastavro


def _plain(schema: Schema) -> Any:
    if isinstance(schema, bytes):
        schema = schema.decode()
    return json.loads(schema) if isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"') else schema
