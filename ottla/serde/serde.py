"""How keys and values become columns of a type, and columns become keys and values: all rows at once.

    consumer.poll_table(value_serde=serde.json({"id": pa.int64(), "price": pa.float64()}))
    producer.send_table("orders", table, key="id", value=["id", "price"], value_serde=serde.json())

Rules:
- Null stays null, both ways: a tombstone.
- A value that cannot be read is an error that names its record, or, with `errors="null"`, a null beside a column
  (`key_error`, `value_error`) that says why.

A class of one's own works as well: see `Serde`. Needs the extra `ottla[arrow]`; Avro and Protobuf need their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

try:
    import numpy as np
    import pyarrow as pa
except ImportError as missing:
    raise ImportError("ottla.serde.serde needs numpy and pyarrow: pip install 'ottla[arrow]'") from missing

from ottla.kernel.error import OttlaError

#: What becomes of a value that cannot be read.
Errors = Literal["raise", "null"]


class Serde:
    """Between bytes and a column of one type."""

    #: The column's type.
    type: Any
    errors: Errors = "raise"
    #: Are the values given to `decode` as views (binary_view) into what was fetched?
    view = False
    #: Is one call for the values of many partitions quicker than one for each?
    together = False

    def decode(self, values: Any) -> Any:
        """An array of `type`, as long as the binary array `values`; ValueError if one of them cannot be read."""
        raise OttlaError(f"{type(self).__name__} does not read")

    def encode(self, column: Any) -> Any:
        """A binary array, as long as `column`; OttlaError if that has no form in bytes."""
        raise OttlaError(f"{type(self).__name__} does not write: encode the column first")


class Binary(Serde):
    """Bytes as they are."""

    def __init__(self, *, view: bool) -> None:
        self.view = view
        self.type = pa.binary_view() if view else pa.binary()

    def decode(self, values: Any) -> Any:
        return values

    def encode(self, column: Any) -> Any:
        return as_binary(column)


class Text(Serde):
    """UTF-8."""

    def __init__(self, errors: Errors, *, view: bool) -> None:
        self.errors = checked(errors)
        self.view = view
        self.type = pa.string_view() if view else pa.string()

    def decode(self, values: Any) -> Any:
        return values.cast(self.type)

    def encode(self, column: Any) -> Any:
        """Numbers, times and truths as text, too."""
        return as_binary(column.cast(pa.string()) if pa.types.is_primitive(column.type) else column)


def binary(*, view: bool = False) -> Serde:
    """Bytes. `view` gives views into what was fetched (Arrow's binary_view) instead of a copy of it."""
    return Binary(view=view)


def text(*, view: bool = False, errors: Errors = "raise") -> Serde:
    """UTF-8. `view` gives views into what was fetched (Arrow's string_view) instead of a copy of it."""
    return Text(errors, view=view)


def json(schema: Any = None, *, errors: Errors = "raise") -> Serde:
    """JSON.

    `schema` says what is read: a pyarrow type, a schema or a mapping of names to types (both for objects, which become
    structs). Fields that it does not name are left out, fields that a value lacks are null. Writing needs none.
    """
    from ottla.serde.json import Json

    return Json(schema, checked(errors))


def avro(
    schema: Any,
    *,
    registry: Callable[[int], Any] | None = None,
    schema_id: int | None = None,
    errors: Errors = "raise",
) -> Serde:
    """Avro. `schema` (its JSON, or what that parses to) says the type of the column.

    With `registry`, which gives the schema of an id, values are read in Confluent's wire format, and what was written
    with another schema is resolved to this one. With `schema_id` they are written in it, under that id.
    """
    from ottla.serde.avro import Avro

    return Avro(schema, registry, checked(errors), schema_id)


def protobuf(message: Any, *, confluent: bool = False, schema_id: int | None = None, errors: Errors = "raise") -> Serde:
    """Protobuf: a message class or its descriptor says the fields. Needs the extra `ottla[protobuf]`.

    With `confluent`, values are read in Confluent's wire format; whatever their schema's id, as this message. With
    `schema_id` they are written in it, under that id.
    """
    from ottla.serde.protobuf import Protobuf

    return Protobuf(message, checked(errors), confluent=confluent or schema_id is not None, schema_id=schema_id)


def checked(errors: str) -> Errors:
    """The policy, if it is one."""
    if errors in ("raise", "null"):
        return cast(Errors, errors)
    raise OttlaError(f'errors is "raise" or "null", not {errors!r}')


def arrow_type(schema: Any) -> Any:
    """A type, a schema or a mapping as a type."""
    if isinstance(schema, pa.DataType):
        return schema
    if isinstance(schema, Mapping):
        schema = pa.schema(list(schema.items()))
    if isinstance(schema, pa.Schema):
        return pa.struct(list(schema))
    raise OttlaError(
        f"a schema is a pyarrow type or schema, or a mapping of names to types, not {type(schema).__name__}"
    )


def spread(found: Any, values: Any) -> Any:
    """`found`, of the values that are not null, with nulls where `values` has them."""
    valid = np.asarray(values.is_valid())
    return found.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def as_binary(column: Any) -> Any:
    """A binary or string column of any kind as Arrow's plain binary."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_binary(kind):
        return column
    if pa.types.is_string(kind):
        return column.view(pa.binary())
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.binary())
    if str(kind) in ("large_string", "large_binary", "string_view", "binary_view") or pa.types.is_fixed_size_binary(
        kind
    ):
        return column.cast(pa.binary())
    raise OttlaError(f"a column of {kind} has no form in bytes of its own: give a serde (serde.json()), or cast it")


__all__ = ["Errors", "Serde", "avro", "binary", "json", "protobuf", "text"]
