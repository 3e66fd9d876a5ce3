"""Serdes: convert keys and values to a typed column and back, all rows at once.

    consumer.poll_table(value_serde=serde.json({"id": pa.int64(), "price": pa.float64()}))
    producer.send_table("orders", table, key="id", value=["id", "price"], value_serde=serde.json())

Rules:
- Null stays null in both directions (a tombstone, or no key).
- A value that cannot be read is an error that names its record or, with `errors="null"`, a null with the error text in
  an extra column (`key_error`, `value_error`).

Your own subclass of `Serde` works as well. Needs the extra `ottla[arrow]`; Avro and Protobuf need their own extras.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

try:
    import numpy as np
    import pyarrow as pa
except ImportError as missing:
    raise ImportError("ottla.serde.serde needs numpy and pyarrow: pip install 'ottla[arrow]'") from missing

from ottla.kernel.error import OttlaError

#: Handling of a value that cannot be read.
Errors = Literal["raise", "null"]


class Serde:
    """Converts between a binary column and a column of one type. Subclass it for your own format."""

    #: The Arrow type of the decoded column.
    type: Any
    errors: Errors = "raise"
    #: True if `decode` takes views (binary_view) into the fetched bytes.
    view = False
    #: True if one `decode` call for many partitions is faster than one for each.
    together = False

    def decode(self, values: Any) -> Any:
        """Decode the binary array `values` to an array of `type` and the same length. ValueError for a bad value."""
        raise OttlaError(f"{type(self).__name__} cannot read: it has no decode")

    def encode(self, column: Any) -> Any:
        """Encode `column` as a binary array of the same length. OttlaError if its type has no form in bytes."""
        raise OttlaError(f"{type(self).__name__} cannot write: encode the column first")


class Binary(Serde):
    """Bytes, unchanged."""

    def __init__(self, *, view: bool) -> None:
        self.view = view
        self.type = pa.binary_view() if view else pa.binary()

    def decode(self, values: Any) -> Any:
        return values

    def encode(self, column: Any) -> Any:
        return as_binary(column)


class Text(Serde):
    """UTF-8 text."""

    def __init__(self, errors: Errors, *, view: bool) -> None:
        self.errors = checked(errors)
        self.view = view
        self.type = pa.string_view() if view else pa.string()

    def decode(self, values: Any) -> Any:
        return values.cast(self.type)

    def encode(self, column: Any) -> Any:
        """Encode as UTF-8; numbers, times and booleans become text."""
        return as_binary(column.cast(pa.string()) if pa.types.is_primitive(column.type) else column)


def binary(*, view: bool = False) -> Serde:
    """A serde for bytes. With `view`, the column has views into the fetched bytes (binary_view) instead of copies."""
    return Binary(view=view)


def text(*, view: bool = False, errors: Errors = "raise") -> Serde:
    """A serde for UTF-8. With `view`, the column has views into the fetched bytes (string_view) instead of copies.

    `errors` is "raise", or "null" to null values that are not UTF-8.
    """
    return Text(errors, view=view)


def json(schema: Any = None, *, errors: Errors = "raise") -> Serde:
    """A serde for JSON.

    `schema` is the type to read: a pyarrow type, or for objects (read as structs) a pyarrow schema or a mapping of
    names to types. Fields that it does not name are dropped; fields that a value lacks are null. Writing needs no
    schema. `errors` is "raise", or "null" to null values that cannot be read.
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
    """A serde for Avro; `schema` (JSON text or its parsed form) determines the column's type.

    With `registry`, a function from a schema id to its schema, values are read in Confluent's wire format, and data
    written with another schema is resolved to this one. With `schema_id`, values are written in that format. `errors`
    is "raise", or "null" to null values that cannot be read. OttlaError for a schema without an Arrow type.
    """
    from ottla.serde.avro import Avro

    return Avro(schema, registry, checked(errors), schema_id)


def protobuf(message: Any, *, confluent: bool = False, schema_id: int | None = None, errors: Errors = "raise") -> Serde:
    """A serde for Protobuf; `message` is a message class or its descriptor. Needs the extra `ottla[protobuf]`.

    With `confluent`, values are read in Confluent's wire format with any schema id. With `schema_id`, they are also
    written in that format. `errors` is "raise", or "null" to null values that cannot be read.
    """
    from ottla.serde.protobuf import Protobuf

    return Protobuf(message, checked(errors), confluent=confluent or schema_id is not None, schema_id=schema_id)


def checked(errors: str) -> Errors:
    """The policy, if it is valid; otherwise OttlaError."""
    if errors in ("raise", "null"):
        return cast(Errors, errors)
    raise OttlaError(f'invalid value for errors: {errors!r} (expected "raise" or "null")')


def arrow_type(schema: Any) -> Any:
    """The Arrow type of a type, a schema or a mapping of names to types."""
    if isinstance(schema, pa.DataType):
        return schema
    if isinstance(schema, Mapping):
        schema = pa.schema(list(schema.items()))
    if isinstance(schema, pa.Schema):
        return pa.struct(list(schema))
    raise OttlaError(
        f"invalid schema: {type(schema).__name__} (expected a pyarrow type or schema, or a mapping of names to types)"
    )


def spread(present: Any, values: Any) -> Any:
    """Expand `present`, the results of the values that are not null, with nulls where `values` has them."""
    valid = np.asarray(values.is_valid())
    return present.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def check_distinct(names: Sequence[str], where: str) -> None:
    """Check that no two columns have one name: only one of them would be written. OttlaError."""
    if len(set(names)) < len(names):
        raise OttlaError(f"{where} has two columns of one name: {', '.join(names)}")


def as_binary(column: Any) -> Any:
    """A binary or string column of any kind as Arrow's plain binary type."""
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
    raise OttlaError(f"a column of type {kind} has no form in bytes: give a serde (such as serde.json()), or cast it")


__all__ = ["Errors", "Serde", "avro", "binary", "json", "protobuf", "text"]
