"""Avro to typed columns, field by field for all values at once, as `column` reads the records of a batch; and columns
to Avro (`avro_write`).

Rules:
- Values are bare datums of one schema or, with a registry, in Confluent's wire format (a zero byte, four bytes of
  schema id, the datum), each read with the schema that it was written with.
- Written data is resolved to the reader's schema as specified: fields by name or alias, missing fields by default,
  numbers by promotion.
- A value must be consumed exactly.

Avro 1.12. Needs no Avro library, since none returns columns (docs/decisions/0112).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.columns.column import gather
from ottla.columns.encode_columns import offsets_of
from ottla.columns.field import as_bytes, varints
from ottla.columns.uniform_layout import Bytes, Ints
from ottla.kernel.error import KafkaError, OttlaError
from ottla.serde.avro_schema import AvroNode, parse
from ottla.serde.avro_write import default, written
from ottla.serde.confluent import PREFIX_BYTES, prefix
from ottla.serde.serde import Errors, Serde, spread

Schema = str | bytes | Mapping[str, Any] | list[Any]
#: Returns the schema of a schema id, as a schema registry does.
Registry = Callable[[int], Schema]

_DECIMAL_BYTES = 16


class Avro(Serde):
    """Avro, read into and written from the type of `schema`."""

    def __init__(self, schema: Schema, registry: Registry | None, errors: Errors, schema_id: int | None = None) -> None:
        self.errors = errors
        self._prefix = b"" if schema_id is None else prefix(schema_id)
        self._reader = parse(schema)
        self.type = self._reader.type
        self._registry = registry
        #: Writers' schemas by schema id.
        self._writers: dict[int, AvroNode] = {}

    def decode(self, values: Any) -> Any:
        present = values.drop_null() if values.null_count else values
        if not len(present):
            return pa.nulls(len(values), self.type)
        edges = offsets_of(present).astype(np.int64)
        datums = _Datums(present.buffers()[2] or pa.py_buffer(b""))
        try:
            array = self._read(datums, edges[:-1], edges[1:])
        except (IndexError, KafkaError) as error:
            raise ValueError(f"the Avro value is cut off or broken: {error}") from None
        return array if len(present) == len(values) else spread(array, values)

    def encode(self, column: Any) -> Any:
        if self._registry is not None and not self._prefix:
            raise OttlaError("writing Confluent's wire format needs schema_id, the schema's id in the registry")
        present = column.drop_null() if column.null_count else column
        values = written(self._reader, present, self._prefix)
        return values if len(present) == len(column) else spread(values, column)

    def _read(self, datums: _Datums, at: Ints, ends: Ints) -> Any:
        if self._registry is None:
            return datums.all(self._reader, at, ends)
        if (ends - at < PREFIX_BYTES).any() or datums.data[at].any():
            raise ValueError(
                "not in Confluent's wire format: expected a zero byte, a four-byte schema id and the value"
            )
        ids = datums.windows(4, at + 1).copy().view(">u4").ravel()
        parts, rows = [], []
        for schema_id in np.unique(ids).tolist():
            index = np.flatnonzero(ids == schema_id)
            writer = self._writer(schema_id)
            read = datums.all(writer, at[index] + PREFIX_BYTES, ends[index])
            parts.append(resolved(read, writer, self._reader))
            rows.append(index)
        if len(parts) == 1:
            return parts[0]
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(rows), kind="stable")))

    def _writer(self, schema_id: int) -> AvroNode:
        writer = self._writers.get(schema_id)
        if writer is None:
            assert self._registry is not None
            writer = self._writers[schema_id] = parse(self._registry(schema_id))
        return writer


class _Datums:
    """The bytes of many values, read side by side. Each method takes start positions and returns those after it."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer
        self.data: Bytes = as_bytes(buffer)

    def all(self, node: AvroNode, at: Ints, ends: Ints) -> Any:
        """Values that begin at `at` and must end exactly at `ends`."""
        values, after = self.read(node, at)
        if (after != ends).any():
            raise ValueError("the value does not match the Avro schema: it has more or fewer bytes")
        return values

    def read(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        if not node.nullable:
            return self._read_present(node, at)
        branch, at = varints(self.data, at)
        if ((branch != 0) & (branch != 1)).any():
            raise ValueError("the value has an unknown branch of the Avro union")
        present = branch != node.null_branch
        if present.all():
            return self._read_present(node, at)
        values, after = self._read_present(node, at[present])
        at[present] = after
        index = np.cumsum(present) - 1
        return values.take(pa.array(index, mask=~present)), at

    def _read_present(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        if not at.size:
            return pa.array([], node.type), at
        read: dict[str, Callable[[AvroNode, Ints], tuple[Any, Ints]]] = {
            "null": self._null,
            "boolean": self._boolean,
            "int": self._number,
            "long": self._number,
            "float": self._floating,
            "double": self._floating,
            "bytes": self._bytes,
            "string": self._bytes,
            "fixed": self._fixed,
            "decimal": self._decimal,
            "enum": self._enum,
            "record": self._record,
            "array": self._items,
            "map": self._items,
        }
        return read[node.kind](node, at)

    def windows(self, size: int, at: Ints) -> Bytes:
        """The `size` bytes at each position, one row each."""
        if self.data.size < size or int(at.max()) + size > self.data.size:
            raise IndexError("past the last byte")
        rows: Bytes = np.lib.stride_tricks.sliding_window_view(self.data, size)[at]
        return rows

    def _null(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        return pa.nulls(at.size), at

    def _boolean(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        bits = self.data[at]
        if (bits > 1).any():
            raise ValueError("an Avro boolean that is neither 0 nor 1")
        return pa.array(bits.astype(np.bool_)), at + 1

    def _number(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        numbers, at = varints(self.data, at)
        if node.kind == "int":
            if (numbers != numbers.astype(np.int32)).any():
                raise ValueError("an Avro int with more than 32 bits")
            numbers = numbers.astype(np.int32)
        array = pa.array(numbers)
        return array if array.type == node.type else array.view(node.type), at

    def _floating(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        kind = "<f4" if node.kind == "float" else "<f8"
        size = int(kind[2])
        return pa.array(self.windows(size, at).view(kind).ravel()), at + size

    def _sized(self, at: Ints) -> tuple[Ints, Ints]:
        sizes, at = varints(self.data, at)
        if (sizes < 0).any() or (at + sizes > self.data.size).any():
            raise ValueError("an Avro string or bytes with a negative or too large size")
        return sizes, at

    def _bytes(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        sizes, at = self._sized(at)
        # The cast also checks that strings are UTF-8.
        return gather(self.data, self.buffer, at, sizes).cast(node.type), at + sizes

    def _fixed(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        rows = self.windows(node.size, at)
        return pa.Array.from_buffers(node.type, at.size, [None, pa.py_buffer(rows)]), at + node.size

    def _decimal(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        """Big-endian two's complement of any size, reversed and widened to Arrow's 16 bytes."""
        sizes, at = (np.full(at.size, node.size), at) if node.size else self._sized(at)
        if (sizes > _DECIMAL_BYTES).any() or (sizes == 0).any():
            raise ValueError("an Avro decimal without bytes, or with more than 16")
        rows = np.where(self.data[at] > 127, 0xFF, 0).astype(np.uint8)[:, None].repeat(_DECIMAL_BYTES, axis=1)
        for byte_index in range(int(sizes.max())):
            index = np.flatnonzero(sizes > byte_index)
            rows[index, byte_index] = self.data[at[index] + sizes[index] - 1 - byte_index]
        return pa.Array.from_buffers(node.type, at.size, [None, pa.py_buffer(rows)]), at + sizes

    def _enum(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        indexes, at = varints(self.data, at)
        if ((indexes < 0) | (indexes >= len(node.symbols))).any():
            raise ValueError("the value has an unknown symbol of the Avro enum")
        return pa.array(node.symbols).take(pa.array(indexes)), at

    def _record(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        columns = []
        rows = at.size
        for field in node.fields:
            column, at = self.read(field.node, at)
            columns.append(column)
        if not columns:
            return pa.array([{}] * rows, node.type), at
        return pa.StructArray.from_arrays(columns, fields=list(node.type)), at

    def _items(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        """Arrays and maps: the first items of all values together, then the second ones, and so on."""
        assert node.items is not None
        at = at.copy()
        left = np.zeros(at.size, dtype=np.int64)
        counts = np.zeros(at.size, dtype=np.int64)
        open_rows = np.arange(at.size)
        rows: list[Ints] = []
        keys: list[Any] = []
        items: list[Any] = []
        while open_rows.size:
            beginning = open_rows[left[open_rows] == 0]
            if beginning.size:
                self._block(at, left, beginning)
            open_rows = open_rows[left[open_rows] > 0]
            if not open_rows.size:
                break
            where = at[open_rows]
            if node.kind == "map":
                key, where = self._bytes(_STRING, where)
                keys.append(key)
            item, where = self.read(node.items, where)
            items.append(item)
            rows.append(open_rows)
            at[open_rows] = where
            left[open_rows] -= 1
            counts[open_rows] += 1
            # A block with items left continues; one without needs the next block's count.
        offsets = np.zeros(at.size + 1, dtype=np.int32)
        np.cumsum(counts, out=offsets[1:])
        order = pa.array(np.argsort(np.concatenate(rows), kind="stable")) if rows else None
        values = pa.array([], node.items.type) if order is None else pa.concat_arrays(items).take(order)
        if node.kind == "array":
            return pa.ListArray.from_arrays(pa.array(offsets), values), at
        names = pa.array([], pa.string()) if order is None else pa.concat_arrays(keys).take(order)
        return pa.MapArray.from_arrays(pa.array(offsets), names, values), at

    def _block(self, at: Ints, left: Ints, rows: Ints) -> None:
        """Read the item count of the next block; a count of 0 ends the value (its `left` stays 0)."""
        count, after = varints(self.data, at[rows])
        sized = count < 0
        if sized.any():
            # The block's size in bytes follows, for readers that skip it.
            _, after_size = varints(self.data, after[sized])
            after[sized] = after_size
        left[rows] = np.abs(count)
        if (left[rows] > self.data.size).any():
            raise ValueError("an Avro block with more items than bytes")
        at[rows] = after


_STRING = AvroNode("string", pa.string())


# ---- schema resolution


def resolved(array: Any, writer: AvroNode, reader: AvroNode) -> Any:
    """Resolve an array of the writer's type to the reader's type. OttlaError if the schemas do not agree."""
    if reader.kind == "record" and writer.kind == "record":
        result = _record(array, writer, reader)
    elif reader.kind in ("array", "map") and writer.kind == reader.kind:
        result = _collection(array, writer, reader)
    elif reader.kind == "enum" and writer.kind == "enum":
        result = _symbols(array, reader)
    else:
        if writer.kind != reader.kind and (writer.kind, reader.kind) not in _PROMOTED and writer.kind != "null":
            raise OttlaError(f"Avro cannot resolve {writer.kind} to {reader.kind}")
        result = array if array.type == reader.type else _promoted(array, writer, reader)
    if result.null_count and not reader.nullable and reader.kind != "null":
        raise ValueError("the value is null, which the reader's Avro schema does not allow")
    return result


def _promoted(array: Any, writer: AvroNode, reader: AvroNode) -> Any:
    """Numbers as Java promotes them, to the nearest double or float; a logical type is that of the reader."""
    if writer.kind not in ("int", "long") or (pa.types.is_timestamp(array.type) and pa.types.is_timestamp(reader.type)):
        return array.cast(reader.type)
    plain = array.view(pa.int32() if writer.kind == "int" else pa.int64())
    if reader.kind in ("float", "double"):
        return plain.cast(reader.type, safe=False)
    return plain.cast(pa.int32() if reader.kind == "int" else pa.int64()).view(reader.type)


_PROMOTED = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}


def _record(array: Any, writer: AvroNode, reader: AvroNode) -> Any:
    places = {writer_field.name: index for index, writer_field in enumerate(writer.fields)}
    columns = []
    # The fields of a null record are null as well, which the reader's schema need not allow.
    present = array.drop_null() if array.null_count else array
    for wanted in reader.fields:
        index = next((places[name] for name in (wanted.name, *wanted.aliases) if name in places), None)
        if index is None:
            why = f"the writer's Avro schema has no field {wanted.name}, and the reader's has no default for it"
            columns.append(default(wanted, len(present), why))
        else:
            columns.append(resolved(present.field(index), writer.fields[index].node, wanted.node))
    structs = pa.StructArray.from_arrays(columns, fields=list(reader.type))
    return spread(structs, array) if array.null_count else structs


def _collection(array: Any, writer: AvroNode, reader: AvroNode) -> Any:
    assert writer.items is not None and reader.items is not None
    lists = _as_list(array)
    sizes = np.asarray(pc.list_value_length(lists).fill_null(0)).astype(np.int64)
    offsets = np.zeros(len(array) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    mask = array.is_null()
    flat = lists.flatten()
    if reader.kind == "array":
        return pa.ListArray.from_arrays(pa.array(offsets), resolved(flat, writer.items, reader.items), mask=mask)
    items = resolved(flat.field(1), writer.items, reader.items)
    return pa.MapArray.from_arrays(pa.array(offsets), flat.field(0), items, mask=mask)


def _as_list(array: Any) -> Any:
    if not pa.types.is_map(array.type):
        return array
    return array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))


def _symbols(array: Any, reader: AvroNode) -> Any:
    known = pc.is_in(array, pa.array(reader.symbols, pa.string()))
    unknown = pc.and_(pc.invert(known), array.is_valid())
    if not pc.any(unknown).as_py():
        return array
    if reader.default_symbol is None:
        raise ValueError("the value has a symbol that the reader's Avro enum lacks")
    return pc.if_else(unknown, pa.scalar(reader.default_symbol), array)
