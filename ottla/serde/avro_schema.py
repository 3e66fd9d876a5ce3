"""Avro schemas as nodes with their Arrow types. Reads a schema's JSON. Pure.

Rules:
- Names are resolved as specified: a name without a dot is in the nearest namespace.
- A union of null and one other type is that type, nullable. Any other union, and a type that contains itself, has no
  single Arrow type and is refused.

Avro 1.12.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ottla.kernel.error import OttlaError

_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_NO_DEFAULT = object()
#: The most digits of a decimal128.
_DIGITS_MAX = 38


@dataclass
class AvroNode:
    """A type in a schema."""

    #: Avro's name of the type: "record", "long", ...
    kind: str
    #: The Arrow type of its values.
    type: Any
    nullable: bool = False
    #: For a nullable type: the index of the union's null branch.
    null_branch: int = 0
    #: For a record.
    fields: list[AvroField] = field(default_factory=list)
    #: For an array or a map.
    items: AvroNode | None = None
    symbols: list[str] = field(default_factory=list)
    default_symbol: str | None = None
    #: For a fixed.
    size: int = 0


@dataclass
class AvroField:
    """A field of a record."""

    name: str
    node: AvroNode
    default: Any
    aliases: list[str]

    @property
    def has_default(self) -> bool:
        return self.default is not _NO_DEFAULT


def parse(schema: str | bytes | Mapping[str, Any] | list[Any]) -> AvroNode:
    """Parse a schema. OttlaError if it is invalid or has no Arrow type."""
    if isinstance(schema, bytes):
        schema = schema.decode()
    try:
        plain = json.loads(schema) if isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"') else schema
        return _node(plain, "", {})
    except (ValueError, KeyError, TypeError) as error:
        raise OttlaError(f"invalid Avro schema: {error!r}") from error


def _node(schema: Any, namespace: str, named: dict[str, AvroNode | None]) -> AvroNode:
    if isinstance(schema, list):
        return _union(schema, namespace, named)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return AvroNode(schema, _PLAIN[schema])
        full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
        node = named.get(full, named.get(schema, _NO_DEFAULT))
        if node is _NO_DEFAULT:
            raise OttlaError(f"the Avro schema uses the type {schema} before it defines it")
        if not isinstance(node, AvroNode):
            raise OttlaError(f"the Avro type {full} contains itself: Arrow has no such type")
        return node
    kind = schema["type"]
    if isinstance(kind, (dict, list)):
        return _node(kind, namespace, named)
    if kind in ("record", "error", "enum", "fixed"):
        return _named(schema, kind, namespace, named)
    if kind == "array":
        items = _node(schema["items"], namespace, named)
        return AvroNode("array", pa.list_(items.type), items=items)
    if kind == "map":
        items = _node(schema["values"], namespace, named)
        return AvroNode("map", pa.map_(pa.string(), items.type), items=items)
    node = _node(kind, namespace, named)
    logical = schema.get("logicalType")
    if (node.kind, logical) in _LOGICAL:
        return AvroNode(node.kind, _LOGICAL[node.kind, logical])
    if node.kind == "bytes" and logical == "decimal":
        return AvroNode("decimal", _decimal(schema))
    return node


def _named(schema: Mapping[str, Any], kind: str, namespace: str, named: dict[str, AvroNode | None]) -> AvroNode:
    name = schema["name"]
    space = name.rpartition(".")[0] if "." in name else schema.get("namespace", namespace)
    full = name if "." in name or not space else f"{space}.{name}"
    named[full] = None
    if kind == "enum":
        node = AvroNode("enum", pa.string(), symbols=schema["symbols"], default_symbol=schema.get("default"))
    elif kind == "fixed":
        size = schema["size"]
        decimal = schema.get("logicalType") == "decimal"
        node = AvroNode("fixed", pa.binary(size), size=size)
        if decimal:
            node = AvroNode("decimal", _decimal(schema), size=size)
    else:
        fields = [
            AvroField(
                field_schema["name"],
                _node(field_schema["type"], space, named),
                field_schema.get("default", _NO_DEFAULT),
                field_schema.get("aliases", []),
            )
            for field_schema in schema["fields"]
        ]
        node = AvroNode(
            "record",
            pa.struct([pa.field(record_field.name, record_field.node.type) for record_field in fields]),
            fields=fields,
        )
    named[full] = node
    return node


def _union(branches: list[Any], namespace: str, named: dict[str, AvroNode | None]) -> AvroNode:
    nodes = [_node(branch, namespace, named) for branch in branches]
    others = [node for node in nodes if node.kind != "null"]
    if len(nodes) == 1:
        return nodes[0]
    if len(nodes) != 2 or len(others) != 1:
        kinds = ", ".join(node.kind for node in nodes)
        raise OttlaError(f"an Avro union of {kinds} has no single Arrow type (expected null and one other type)")
    (other,) = others
    return AvroNode(
        other.kind,
        other.type,
        nullable=True,
        null_branch=0 if nodes[0].kind == "null" else 1,
        fields=other.fields,
        items=other.items,
        symbols=other.symbols,
        default_symbol=other.default_symbol,
        size=other.size,
    )


def _decimal(schema: Mapping[str, Any]) -> Any:
    precision = schema["precision"]
    if precision > _DIGITS_MAX:
        raise OttlaError(f"an Avro decimal of {precision} digits is too large (Arrow's decimal128 has {_DIGITS_MAX})")
    return pa.decimal128(precision, schema.get("scale", 0))
