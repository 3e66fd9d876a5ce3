"""Columns to Avro: the pieces of all values side by side, joined by Arrow as for batches (see `encode_columns`).

Rules:
- A column is cast to its field's type. Values that do not fit (a number too large, an unknown symbol) are an error that
  names the field, and so is a column that the schema lacks: nothing is dropped silently.
- A field without a column gets its default.
- An array or a map is one block; decimals have the fewest bytes that hold them, as Java writes them.

Avro 1.12.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ottla.columns.encode_columns import Varints, offsets_of, packed, sizes_of
from ottla.kernel.error import OttlaError
from ottla.serde.avro_schema import AvroField, AvroNode
from ottla.serde.serde import as_binary, check_distinct, spread

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
#: A piece of all rows: numbers laid out in NumPy, or an Arrow binary array.
Piece = Any
_NOTHING = pa.scalar(b"", pa.binary())


def written(node: AvroNode, column: Any, prefix: bytes = b"") -> Any:
    """Encode the values of `column`, which has no nulls, as a binary array. OttlaError if the schema does not fit."""
    if not len(column):
        return pa.array([], pa.binary())
    joined = _joined(_pieces_of_values(node, column, "the value"), len(column))
    return pc.binary_join_element_wise(pa.scalar(prefix, pa.binary()), joined, _NOTHING) if prefix else joined


def _joined(pieces: list[Piece], rows: int) -> Any:
    """Join the pieces of each row; adjacent numbers are laid out at once."""
    arrays: list[Any] = []
    numbers: list[Varints] = []
    for piece in pieces:
        if isinstance(piece, Varints):
            numbers.append(piece)
            continue
        if numbers:
            arrays.append(packed(numbers))
            numbers = []
        arrays.append(piece)
    if numbers:
        arrays.append(packed(numbers))
    if not arrays:
        return pa.array([b""] * rows, pa.binary())
    return arrays[0] if len(arrays) == 1 else pc.binary_join_element_wise(*arrays, _NOTHING)


def _pieces(node: AvroNode, column: Any, where: str) -> list[Piece]:
    """The pieces of a column that may have nulls."""
    if not node.nullable:
        if column.null_count and node.kind != "null":
            raise OttlaError(f"{where} is null, which the Avro schema does not allow")
        return _pieces_of_values(node, column, where)
    valid = np.asarray(column.is_valid())
    branch = Varints(np.where(valid, 1 - node.null_branch, node.null_branch).astype(np.int64))
    if valid.all():
        return [branch, *_pieces_of_values(node, column, where)]
    present = column.drop_null()
    if not len(present):
        return [branch]
    return [branch, spread(_joined(_pieces_of_values(node, present, where), len(present)), column).fill_null(b"")]


def _pieces_of_values(node: AvroNode, column: Any, where: str) -> list[Piece]:
    if node.kind == "record":
        return _record(node, column, where)
    if node.kind in ("array", "map"):
        return _items(node, column, where)
    if node.kind == "enum":
        return [_enum(node, column, where)]
    if node.kind == "null":
        return []
    column = _cast(column, node.type, where)
    if node.kind in ("int", "long"):
        return [Varints(np.asarray(column.view(pa.int32() if node.kind == "int" else pa.int64())).astype(np.int64))]
    if node.kind in ("bytes", "string"):
        plain = as_binary(column)
        return [Varints(sizes_of(plain)), plain]
    if node.kind == "decimal":
        return _decimal(node, column, where)
    if node.kind == "boolean":
        return [_rows(np.asarray(column).astype(np.uint8)[:, None])]
    if node.kind == "fixed":
        return [_rows(_wide(column, node.size))]
    numbers = np.asarray(column).astype("<f4" if node.kind == "float" else "<f8")
    return [_rows(numbers[:, None].view(np.uint8))]


def _cast(column: Any, kind: Any, where: str) -> Any:
    if column.type == kind:
        return column
    try:
        cast = column.cast(kind)
        _check_cast(column, cast)
    except pa.ArrowException as error:
        raise OttlaError(
            f"{where} has type {column.type}, which does not fit the Avro schema's {kind}: {error}"
        ) from None
    return cast


def _check_cast(column: Any, cast: Any) -> None:
    """Refuse what Arrow's safe casts let pass: infinite floats, the time of day of a date, 5 as true."""
    before, after = column.type, cast.type
    if pa.types.is_floating(before) and pa.types.is_floating(after):
        fits = pc.or_(pc.is_finite(cast), pc.invert(pc.is_finite(column)))
    elif pa.types.is_timestamp(before) and (pa.types.is_date(after) or pa.types.is_time(after)):
        fits = pc.equal(cast.cast(before), column) if pa.types.is_date(after) else pa.array([False])
    elif pa.types.is_boolean(after) and pa.types.is_integer(before):
        fits = pc.equal(cast.cast(before), column)
    else:
        return
    if not pc.all(fits).as_py():
        raise pa.ArrowInvalid("a value would change")


def _wide(column: Any, size: int) -> Bytes:
    """The bytes of a fixed-width array, one row per value."""
    data = np.frombuffer(column.buffers()[1], dtype=np.uint8)
    return data[column.offset * size : (column.offset + len(column)) * size].reshape(len(column), size)


def _rows(rows: Bytes, widths: Ints | None = None) -> Varints:
    """Rows of bytes in the form of numbers, with the count of valid bytes in each row."""
    varints = Varints.__new__(Varints)
    varints.rows = rows
    varints.width = np.full(len(rows), rows.shape[1], dtype=np.int64) if widths is None else widths
    return varints


def _decimal(node: AvroNode, column: Any, where: str) -> list[Piece]:
    """Big-endian two's complement, with the bytes of the fixed type, or the fewest that hold the number."""
    wide = _wide(column, 16)[:, ::-1]
    sign = np.where(wide[:, 0] > 127, 0xFF, 0).astype(np.uint8)
    # Skip the bytes that only repeat the sign, but keep the last of them if the sign would be lost.
    differs = wide != sign[:, None]
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), 15)
    needed = 16 - first + ((wide[np.arange(len(wide)), first] > 127) != (sign > 0))
    if node.size:
        if (needed > node.size).any():
            raise OttlaError(f"{where} has a number that does not fit in {node.size} bytes")
        filled = np.concatenate([np.repeat(sign[:, None], max(0, node.size - 16), axis=1), wide], axis=1)
        return [_rows(np.ascontiguousarray(filled[:, -node.size :]))]
    places = 16 - needed[:, None] + np.arange(int(needed.max()))
    return [Varints(needed), _rows(np.take_along_axis(wide, np.minimum(places, 15), axis=1), needed)]


def _enum(node: AvroNode, column: Any, where: str) -> Varints:
    indexes = pc.index_in(_cast(column, pa.string(), where), pa.array(node.symbols, pa.string()))
    if indexes.null_count:
        unknown = column.filter(indexes.is_null())[0].as_py()
        raise OttlaError(f"{where} is {unknown!r} (expected a symbol of the Avro enum: {', '.join(node.symbols)})")
    return Varints(np.asarray(indexes).astype(np.int64))


def _record(node: AvroNode, column: Any, where: str) -> list[Piece]:
    if pa.types.is_map(column.type) or not pa.types.is_struct(column.type):
        raise OttlaError(f"{where} has type {column.type} (the Avro schema expects a record)")
    names = [field.name for field in column.type]
    check_distinct(names, where)
    columns = dict(zip(names, column.flatten(), strict=True))
    unknown = set(names) - {field.name for field in node.fields}
    if unknown:
        raise OttlaError(f"{where}: the Avro schema has no field {min(unknown)}")
    pieces: list[Piece] = []
    for field in node.fields:
        given = columns.get(field.name)
        if given is None:
            given = default(field, len(column), f"{where} has no column {field.name}, and the Avro schema no default")
        pieces += _pieces(field.node, given, f"field {field.name}")
    return pieces


def default(field: AvroField, rows: int, why: str) -> Any:
    """A field's default value for all rows; OttlaError with `why` if it has none."""
    if not field.has_default:
        raise OttlaError(why)
    try:
        return pa.repeat(pa.scalar(plain_default(field.node, field.default), field.node.type), rows)
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise OttlaError(f"the Avro field {field.name} has an invalid default: {field.default!r} ({error})") from None


_DEFAULTS: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "string": (str,),
    "bytes": (str,),
    "fixed": (str,),
    "decimal": (str,),
    "enum": (str,),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
}


def plain_default(node: AvroNode, value: Any) -> Any:
    """The value that a default in a schema stands for, as Arrow takes it. ValueError, TypeError or KeyError if the type
    has no such value.
    """
    if value is None and (node.nullable or node.kind == "null"):
        return None
    _check_default(node, value)
    if node.kind == "record":
        return {
            inner.name: plain_default(inner.node, value[inner.name] if inner.name in value else _own_default(inner))
            for inner in node.fields
        }
    if node.kind in ("array", "map"):
        assert node.items is not None
        if node.kind == "array":
            return [plain_default(node.items, item) for item in value]
        return [(key, plain_default(node.items, item)) for key, item in value.items()]
    if node.kind in ("bytes", "fixed"):
        return value.encode("latin-1")
    if node.kind == "decimal":
        unscaled = int.from_bytes(value.encode("latin-1"), "big", signed=True)
        return Decimal(f"{unscaled}E{-node.type.scale}")
    if node.kind == "enum" and value not in node.symbols:
        raise ValueError(f"expected one of {', '.join(node.symbols)}")
    return value


def _check_default(node: AvroNode, value: Any) -> None:
    if not isinstance(value, _DEFAULTS.get(node.kind, ())) or isinstance(value, bool) is not (node.kind == "boolean"):
        raise ValueError(f"expected a value of the type {node.kind}")


def _own_default(field: AvroField) -> Any:
    if not field.has_default:
        raise ValueError(f"the field {field.name} has no value and no default")
    return field.default


def _items(node: AvroNode, column: Any, where: str) -> list[Piece]:
    """A single block with all items, then the end marker; without items, only the end marker."""
    assert node.items is not None
    kind = column.type
    if pa.types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
    elif pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        column = column.cast(pa.list_(kind.value_type))
    if not pa.types.is_list(column.type) or pa.types.is_map(kind) != (node.kind == "map"):
        raise OttlaError(f"{where} has type {kind} (the Avro schema expects: {node.kind})")
    offsets = offsets_of(column).astype(np.int64)
    counts = np.diff(offsets)
    flat = column.flatten()
    if node.kind == "map":
        keys = as_binary(_cast(flat.field(0), pa.string(), f"{where}'s keys"))
        pieces = [Varints(sizes_of(keys)), keys] if len(flat) else []
        pieces += _pieces(node.items, flat.field(1), f"{where}'s values") if len(flat) else []
    else:
        pieces = _pieces(node.items, flat, f"{where}'s items") if len(flat) else []
    heads = Varints(counts)
    heads.width = np.where(counts > 0, heads.widths(), 0)
    end = _rows(np.zeros((len(column), 1), dtype=np.uint8))
    if not len(flat):
        return [end]
    edges = pa.array((offsets - offsets[0]).astype(np.int32))
    blocks = pc.binary_join(pa.ListArray.from_arrays(edges, _joined(pieces, len(flat))), _NOTHING)
    return [heads, blocks, end]
