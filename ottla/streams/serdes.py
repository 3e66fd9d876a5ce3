"""Serdes beyond the built-in ones: functions, classes, Avro, Protobuf, JSON Schema, windowed keys.

The built-in serdes are given by name wherever a serde is expected: "bytes", "string", "json", "long", "integer",
"short", "double", "float", "boolean" and "uuid", in Java's encodings.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.flow.check import checked
from ottla.flow.column.serde import ColumnsSerde
from ottla.flow.error import TopologyError
from ottla.flow.serde import FunctionSerde, Serde, SessionWindowedSerde, TimeWindowedSerde, serde
from ottla.flow.where import here
from ottla.flow.window import Duration, ms
from ottla.kernel.argument import shown
from ottla.kernel.error import OttlaError


@checked
def of_functions(name: str, serializer: Callable[[Any], bytes], deserializer: Callable[[bytes], Any]) -> Serde:
    """A serde made of two functions, `serializer(value)` and `deserializer(data)`. Neither is called for None."""
    return FunctionSerde(name, serializer, deserializer)


def of_class(cls: type) -> Serde:
    """Instances of a dataclass or a Pydantic model, as JSON. Dataclasses within are restored as well, also
    those in lists, tuples, dicts and optional fields.

    TopologyError if `cls` is neither.
    """
    if hasattr(cls, "model_validate_json"):
        model: Any = cls
        return FunctionSerde(cls.__name__, lambda value: value.model_dump_json().encode(), model.model_validate_json)
    if not dataclasses.is_dataclass(cls):
        raise TopologyError(f"invalid class for a serde: {cls!r} (expected a dataclass or a Pydantic model)", here())

    def write(value: Any) -> bytes:
        if not isinstance(value, cls):
            raise TypeError(f"expected {cls.__name__}")
        return json.dumps(dataclasses.asdict(value), separators=(",", ":"), ensure_ascii=False).encode()

    return FunctionSerde(cls.__name__, write, lambda data: _restored(cls, json.loads(data)))


def columns(fields: typing.Any = None, /, **named: str) -> Serde:
    """JSON objects with typed fields, as dicts: `columns(card="string", amount="double")`.

    Types are long, double, string and boolean; column expressions and batch functions use them. A missing field reads
    as None, and other fields of the JSON are ignored.
    """
    if not isinstance(fields, (Mapping, type(None))):
        raise TopologyError(f"invalid columns: {shown(fields)} (expected a dict of names and types)", here())
    return ColumnsSerde({**(fields or {}), **named})


_hints = functools.cache(typing.get_type_hints)


def _restored(kind: Any, data: Any) -> Any:
    """JSON data as a value of the annotated type: dataclasses, also those in lists, tuples, dicts and `X | None`."""
    if data is None:
        return None
    made: Any = kind
    if dataclasses.is_dataclass(kind):
        if not isinstance(data, dict):
            raise TypeError(f"expected an object for {made.__name__}")
        hints = _hints(made)
        return made(**{name: _restored(hints.get(name), each) for name, each in data.items()})
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        given = [part for part in parts if part is not types.NoneType]
        return _restored(given[0], data) if len(given) == 1 else data
    if tuple in (origin, kind):
        kinds = parts[:1] * len(data) if parts[1:] in ((), (Ellipsis,)) else parts
        return tuple(map(_restored, kinds, data)) if parts else tuple(data)
    if parts and origin in (list, Sequence):
        return [_restored(parts[0], each) for each in data]
    if parts and origin in (dict, Mapping):
        return {name: _restored(parts[1], each) for name, each in data.items()}
    return data


@checked
def avro(schema: Any, *, schema_id: int | None = None, registry: Any = None) -> Serde:
    """Avro with a fixed schema. Needs the extra `ottla[avro]`.

    With `schema_id`, and a `registry` that looks up the schema of an id, in Confluent's wire format.
    """
    from ottla.serde.serializer_avro import avro_deserializer, avro_serializer

    try:
        write, read = avro_serializer(schema, schema_id=schema_id), avro_deserializer(schema, registry=registry)
    except OttlaError:
        raise
    except Exception as error:  # the library has its own for each fault
        raise TopologyError(f"invalid Avro schema: {type(error).__name__}: {error}", here()) from error
    return FunctionSerde("avro", write, read)


@checked
def protobuf(message: Any, *, schema_id: int | None = None) -> Serde:
    """Instances of a Protobuf message class. Needs the extra `ottla[protobuf]`.

    With `schema_id`, in Confluent's wire format.
    """
    from ottla.serde.serializer_protobuf import protobuf_deserializer, protobuf_serializer

    if not hasattr(message, "DESCRIPTOR") or not isinstance(message, type):
        raise TopologyError(f"invalid message: {shown(message)} (expected a class that protoc made)", here())
    confluent = schema_id is not None
    return FunctionSerde(
        "protobuf", protobuf_serializer(schema_id), protobuf_deserializer(message, confluent=confluent)
    )


@checked
def json_schema(schema: Any, *, schema_id: int | None = None, registry: Any = None) -> Serde:
    """JSON that a JSON Schema validates, as dicts and lists. Needs the extra `ottla[json-schema]`.

    A value that does not match the schema is an error of its record. With `schema_id`, and a `registry` that looks up
    the schema of an id, in Confluent's wire format.
    """
    from ottla.serde.serializer_json_schema import json_schema_deserializer, json_schema_serializer

    confluent = schema_id is not None
    try:
        write = json_schema_serializer(schema, schema_id=schema_id)
        read = json_schema_deserializer(schema, confluent=confluent, registry=registry)
    except OttlaError as error:
        raise TopologyError(str(error), here()) from error
    return FunctionSerde("json_schema", write, read)


def time_windowed(inner: Any, size: Duration) -> Serde:
    """Keys of time and sliding windows (`Windowed`). The bytes hold only the start; `size` determines the end."""
    return TimeWindowedSerde(serde(inner, here()), ms(size, "window size", 1))


def session_windowed(inner: Any) -> Serde:
    """Keys of session windows (`Windowed`)."""
    return SessionWindowedSerde(serde(inner, here()))
