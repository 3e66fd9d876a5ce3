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
            found = self._read(datums, edges[:-1], edges[1:])
        except (IndexError, KafkaError) as error:
            raise ValueError(f"the Avro value is cut off or broken: {error}") from None
        return found if len(present) == len(values) else spread(found, values)

    def encode(self, column: Any) -> Any:
        if self._registry is not None and not self._prefix:
            raise OttlaError("writing Confluent's wire format needs schema_id: the id under which a registry knows it")
        present = column.drop_null() if column.null_count else column
        values = written(self._reader, present, self._prefix)
        return values if len(present) == len(column) else spread(values, column)

    def _read(self, datums: _Datums, at: Ints, ends: Ints) -> Any:
        if self._registry is None:
            return datums.all(self._reader, at, ends)
        if (ends - at < PREFIX_BYTES).any() or datums.data[at].any():
            raise ValueError("not in Confluent's wire format: a zero byte, four of the schema's id, then the value")
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
        found = self._writers.get(schema_id)
        if found is None:
            assert self._registry is not None
            found = self._writers[schema_id] = parse(self._registry(schema_id))
        return found


class _Datums:
    """The bytes of many values, read side by side. Each method takes start positions and returns those after it."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer
        self.data: Bytes = as_bytes(buffer)

    def all(self, node: AvroNode, at: Ints, ends: Ints) -> Any:
        """Values that begin at `at` and must end exactly at `ends`."""
        found, after = self.read(node, at)
        if (after != ends).any():
            raise ValueError("the value does not fit the Avro schema: it has more or fewer bytes")
        return found

    def read(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        if not node.nullable:
            return self._one(node, at)
        branch, at = varints(self.data, at)
        if ((branch != 0) & (branch != 1)).any():
            raise ValueError("the value names a branch that the Avro union has not")
        there = branch != node.null_branch
        if there.all():
            return self._one(node, at)
        some, after = self._one(node, at[there])
        at[there] = after
        place = np.cumsum(there) - 1
        return some.take(pa.array(place, mask=~there)), at

    def _one(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
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
            raise IndexError("behind the last byte")
        rows: Bytes = np.lib.stride_tricks.sliding_window_view(self.data, size)[at]
        return rows

    def _null(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        return pa.nulls(at.size), at

    def _boolean(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        found = self.data[at]
        if (found > 1).any():
            raise ValueError("an Avro boolean that is neither 0 nor 1")
        return pa.array(found.astype(np.bool_)), at + 1

    def _number(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        found, at = varints(self.data, at)
        if node.kind == "int":
            if (found != found.astype(np.int32)).any():
                raise ValueError("an Avro int of more than 32 bits")
            found = found.astype(np.int32)
        array = pa.array(found)
        return array if array.type == node.type else array.view(node.type), at

    def _floating(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        kind = "<f4" if node.kind == "float" else "<f8"
        size = int(kind[2])
        return pa.array(self.windows(size, at).view(kind).ravel()), at + size

    def _sized(self, at: Ints) -> tuple[Ints, Ints]:
        sizes, at = varints(self.data, at)
        if (sizes < 0).any() or (at + sizes > self.data.size).any():
            raise ValueError("an Avro string or bytes of a negative or too large size")
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
            raise ValueError("an Avro decimal of no bytes, or of more than 16")
        rows = np.where(self.data[at] > 127, 0xFF, 0).astype(np.uint8)[:, None].repeat(_DECIMAL_BYTES, axis=1)
        for place in range(int(sizes.max())):
            index = np.flatnonzero(sizes > place)
            rows[index, place] = self.data[at[index] + sizes[index] - 1 - place]
        return pa.Array.from_buffers(node.type, at.size, [None, pa.py_buffer(rows)]), at + sizes

    def _enum(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        found, at = varints(self.data, at)
        if ((found < 0) | (found >= len(node.symbols))).any():
            raise ValueError("the value names a symbol that the Avro enum has not")
        return pa.array(node.symbols).take(pa.array(found)), at

    def _record(self, node: AvroNode, at: Ints) -> tuple[Any, Ints]:
        columns = []
        rows = at.size
        for each in node.fields:
            column, at = self.read(each.node, at)
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
            return pa.ListArray.from_arrays(pa.array(offsets), values).cast(node.type), at
        names = pa.array([], pa.string()) if order is None else pa.concat_arrays(keys).take(order)
        return pa.MapArray.from_arrays(pa.array(offsets), names, values).cast(node.type), at

    def _block(self, at: Ints, left: Ints, rows: Ints) -> None:
        """Read the item count of the next block; a count of 0 ends the value (its `left` stays 0)."""
        count, after = varints(self.data, at[rows])
        sized = count < 0
        if sized.any():
            # The block's size in bytes follows, for readers that skip it.
            _, behind = varints(self.data, after[sized])
            after[sized] = behind
        left[rows] = np.abs(count)
        if (left[rows] > self.data.size).any():
            raise ValueError("an Avro block of more items than there are bytes")
        at[rows] = after


_STRING = AvroNode("string", pa.string())


# ---- schema resolution


def resolved(array: Any, writer: AvroNode, reader: AvroNode) -> Any:
    """Resolve an array of the writer's type to the reader's type. OttlaError if the schemas do not agree."""
    if reader.kind == "record" and writer.kind == "record":
        found = _record(array, writer, reader)
    elif reader.kind in ("array", "map") and writer.kind == reader.kind:
        found = _collection(array, writer, reader)
    elif reader.kind == "enum" and writer.kind == "enum":
        found = _symbols(array, reader)
    else:
        if writer.kind != reader.kind and (writer.kind, reader.kind) not in _PROMOTED and writer.kind != "null":
            raise OttlaError(f"Avro has no way from {writer.kind} to {reader.kind}")
        found = array if array.type == reader.type else array.cast(reader.type)
    if found.null_count and not reader.nullable and reader.kind != "null":
        raise ValueError("the value is null, and the reader's Avro schema does not allow that")
    return found


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
    places = {one.name: number for number, one in enumerate(writer.fields)}
    columns = []
    # The fields of a null record are null as well, which the reader's schema need not allow.
    there = array.drop_null() if array.null_count else array
    for wanted in reader.fields:
        place = next((places[name] for name in (wanted.name, *wanted.aliases) if name in places), None)
        if place is None:
            why = f"the reader's Avro schema has the field {wanted.name}, the writer's has not, and no default"
            columns.append(default(wanted, len(there), why))
        else:
            columns.append(resolved(there.field(place), writer.fields[place].node, wanted.node))
    found = pa.StructArray.from_arrays(columns, fields=list(reader.type))
    return spread(found, array) if array.null_count else found


def _collection(array: Any, writer: AvroNode, reader: AvroNode) -> Any:
    assert writer.items is not None and reader.items is not None
    plain = array.cast(pa.list_(array.type.value_type)) if reader.kind == "array" else array
    sizes = np.asarray(pc.list_value_length(_as_list(plain)).fill_null(0)).astype(np.int64)
    offsets = np.zeros(len(array) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    mask = array.is_null() if array.null_count else None
    flat = _as_list(plain).flatten()
    if reader.kind == "array":
        return pa.ListArray.from_arrays(pa.array(offsets), resolved(flat, writer.items, reader.items), mask=mask).cast(
            reader.type
        )
    items = resolved(flat.field(1), writer.items, reader.items)
    return pa.MapArray.from_arrays(pa.array(offsets), flat.field(0), items, mask=mask).cast(reader.type)


def _as_list(array: Any) -> Any:
    if not pa.types.is_map(array.type):
        return array
    return array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))


def _symbols(array: Any, reader: AvroNode) -> Any:
    known = pc.is_in(array, pa.array(reader.symbols, pa.string()))
    strange = pc.and_(pc.invert(known), array.is_valid())
    if not pc.any(strange).as_py():
        return array
    if reader.default_symbol is None:
        raise ValueError("the value has a symbol that the reader's Avro enum has not")
    return pc.if_else(strange, pa.scalar(reader.default_symbol), array)
