"""Conversion between bytes and typed Arrow arrays, for serdes with a column type.

Results equal those of the serde. When a function here raises, the caller converts the values one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.flow.column.serde import ColumnsSerde
from ottla.flow.serde import BYTES, DOUBLE, LONG, STRING, Serde
from ottla.flow.vector.evaluate import ARROW
from ottla.serde.json import to_json
from ottla.serde.serde import json

_NUMBERS: dict[Serde, str] = {LONG: ">i8", DOUBLE: ">f8"}
_NATIVE = {">i8": "<i8", ">f8": "<f8"}


def arrow_type(kind: Any) -> Any:
    """The Arrow type of a column type."""
    return ARROW[kind] if isinstance(kind, str) else pa.struct([(name, ARROW[field_type]) for name, field_type in kind])


def decode(serde: Serde, array: Any) -> Any:
    """Deserialize a binary array."""
    if array.null_count == len(array):
        return pa.nulls(len(array), arrow_type(serde.column_type))
    if serde is BYTES:
        return array
    if serde is STRING:
        return array.cast(pa.string())
    if serde in _NUMBERS:
        return _numbers(array, _NUMBERS[serde])
    assert isinstance(serde, ColumnsSerde)
    array.cast(pa.string())  # raises unless all is UTF-8: the reader does not look at fields that are not declared
    decoded = json({name: ARROW[kind] for name, kind in serde.column_type}).decode(array)
    fields = []
    for (_, kind), column in zip(serde.column_type, decoded.flatten(), strict=True):
        column.validate(full=True)
        fields.append(_finite(pc.add(column, 0.0)) if kind == "double" else column)
    names = [name for name, _ in serde.column_type]
    mask = decoded.is_null() if decoded.null_count else None
    if decoded.null_count != array.null_count:
        raise ValueError("a value is the JSON null")
    return pa.StructArray.from_arrays(fields, names=names, mask=mask)


def encode(serde: Serde, array: Any) -> Any:
    """Serialize a typed array. ValueError if its type is not the serde's."""
    if array.type != arrow_type(serde.column_type):
        raise ValueError(f"the {serde.name} serde cannot write a column of {array.type}")
    if serde is BYTES:
        return array
    if serde is STRING:
        return array.view(pa.binary())
    if serde in _NUMBERS:
        data = np.ascontiguousarray(array.fill_null(0), dtype=_NUMBERS[serde])
        return fixed(data.view(np.uint8), 8, array)
    assert isinstance(serde, ColumnsSerde)
    pieces: list[Any] = []
    for number, ((name, kind), column) in enumerate(zip(serde.column_type, array.flatten(), strict=True)):
        head = to_json(pa.array([name]))[0].as_py()
        pieces += [
            f"{',' if number else '{'}{head}:",
            _text_of_doubles(column) if kind == "double" else to_json(column),
        ]
    text = pc.binary_join_element_wise(*pieces, "}", "").view(pa.binary())
    return pc.if_else(array.is_null(), pa.scalar(None, pa.binary()), text) if array.null_count else text


def read_back(serde: Serde, values: Any) -> Any:
    """The values as they are read after they were written: JSON has no negative zero."""
    if not isinstance(serde, ColumnsSerde) or all(kind != "double" for _, kind in serde.column_type):
        return values
    fields = zip(serde.column_type, values.flatten(), strict=True)
    columns = [pc.add(column, 0.0) if kind == "double" else column for (_, kind), column in fields]
    names = [name for name, _ in serde.column_type]
    return pa.StructArray.from_arrays(columns, names=names, mask=values.is_null())


def fixed(data: Any, size: int, like: Any) -> Any:
    """Binary values of `size` bytes each, null where `like` is null."""
    count = len(like)
    edges = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    array = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    return pc.if_else(like.is_null(), pa.scalar(None, pa.binary()), array) if like.null_count else array


def _numbers(array: Any, form: str) -> Any:
    filled = array.fill_null(bytes(8)) if array.null_count else array
    _, offsets, data = filled.buffers()
    edges = np.frombuffer(offsets, dtype=np.int32)[filled.offset : filled.offset + len(filled) + 1]
    if not (np.diff(edges) == 8).all():
        raise ValueError("a value does not have 8 bytes")
    flat = np.frombuffer(memoryview(data)[int(edges[0]) : int(edges[-1])], dtype=form)
    mask = np.asarray(array.is_null()) if array.null_count else None
    return pa.array(flat.astype(_NATIVE[form]), mask=mask)


def _finite(column: Any) -> Any:
    if pc.all(pc.is_finite(column)).as_py() is False:
        raise ValueError("JSON cannot represent a double that is not finite")
    return column


def _text_of_doubles(column: Any) -> Any:
    """Doubles as Python writes them, with negative zero as 0.0."""
    values = pc.add(_finite(column), 0.0).to_numpy(zero_copy_only=False).tolist()
    if column.null_count:
        texts = ["null" if number != number else repr(number) for number in values]
    else:
        texts = [repr(number) for number in values]
    return pa.array(texts, pa.string())
