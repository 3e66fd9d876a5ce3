"""Serdes for programs: by two functions, of a class, Avro, Protobuf, JSON Schema, windowed keys.

Names work wherever a serde is asked for: "bytes", "string", "json", "long", "integer", "short", "double", "float",
"boolean", "uuid" (Java's encodings). What is here is for the rest.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Callable
from typing import Any

from ottla.flow.column.serde import ColumnsSerde
from ottla.flow.error import TopologyError
from ottla.flow.serde import FunctionSerde, Serde, SessionWindowedSerde, TimeWindowedSerde
from ottla.flow.where import here
from ottla.flow.window import Duration, ms


def of_functions(name: str, serializer: Callable[[Any], bytes], deserializer: Callable[[bytes], Any]) -> Serde:
    """A serde of two functions; neither is called for None."""
    return FunctionSerde(name, serializer, deserializer)


def of_class(cls: type) -> Serde:
    """Values of a dataclass or a Pydantic model, as JSON. Fields that are dataclasses themselves come back as such."""
    if hasattr(cls, "model_validate_json"):
        model: Any = cls
        return FunctionSerde(cls.__name__, lambda value: value.model_dump_json().encode(), model.model_validate_json)
    if not dataclasses.is_dataclass(cls):
        raise TopologyError(f"invalid class for a serde: {cls!r} (expected a dataclass or a Pydantic model)", here())

    def write(value: Any) -> bytes:
        if not isinstance(value, cls):
            raise TypeError(f"expected {cls.__name__}")
        return json.dumps(dataclasses.asdict(value), separators=(",", ":"), ensure_ascii=False).encode()

    return FunctionSerde(cls.__name__, write, lambda data: _made(cls, json.loads(data)))


def columns(fields: typing.Any = None, /, **named: str) -> Serde:
    """JSON objects with these fields, as dicts: `columns(card="string", amount="double")`. Types are long, double,
    string and boolean; column expressions and batch functions know them. Fields that a value lacks are null, others are
    left out.
    """
    return ColumnsSerde({**(fields or {}), **named})


def _made(cls: Any, fields: Any) -> Any:
    kinds = typing.get_type_hints(cls)
    nested = {
        name: _made(kinds[name], value) if dataclasses.is_dataclass(kinds.get(name)) and value is not None else value
        for name, value in fields.items()
    }
    return cls(**nested)


def avro(schema: Any, *, schema_id: int | None = None, registry: Any = None) -> Serde:
    """Avro by a schema; with `schema_id`, and a `registry` that gives the schema of an id, in Confluent's wire format.
    Needs the extra `ottla[avro]`.
    """
    from ottla.serde.serializer_avro import avro_deserializer, avro_serializer

    return FunctionSerde(
        "avro", avro_serializer(schema, schema_id=schema_id), avro_deserializer(schema, registry=registry)
    )


def protobuf(message: Any, *, schema_id: int | None = None) -> Serde:
    """Messages of a Protobuf class; with `schema_id`, in Confluent's wire format. Needs the extra `ottla[protobuf]`."""
    from ottla.serde.serializer_protobuf import protobuf_deserializer, protobuf_serializer

    confluent = schema_id is not None
    return FunctionSerde(
        "protobuf", protobuf_serializer(schema_id), protobuf_deserializer(message, confluent=confluent)
    )


def json_schema(schema: Any, *, schema_id: int | None = None, registry: Any = None) -> Serde:
    """JSON that keeps to a JSON Schema, as dicts and lists; what does not is an error of the record. With `schema_id`,
    and a `registry` that gives the schema of an id, in Confluent's wire format. Needs the extra `ottla[json-schema]`.
    """
    from ottla.serde.serializer_json_schema import json_schema_deserializer, json_schema_serializer

    confluent = schema_id is not None
    return FunctionSerde(
        "json_schema",
        json_schema_serializer(schema, schema_id=schema_id),
        json_schema_deserializer(schema, confluent=confluent, registry=registry),
    )


def time_windowed(inner: Any, size: Duration) -> Serde:
    """Keys of time and sliding windows; the size gives the end when they are read."""
    return TimeWindowedSerde(inner, ms(size, "window size"))


def session_windowed(inner: Any) -> Serde:
    """Keys of session windows."""
    return SessionWindowedSerde(inner)
