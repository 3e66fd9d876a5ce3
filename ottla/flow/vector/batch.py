"""Calls of batch functions: conversion of frames to tables and of results to columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ottla.flow.column.batch import BatchFunction, JoinBatch
from ottla.flow.vector.encode import arrow_type
from ottla.flow.vector.evaluate import Frame


def frame_of(function: BatchFunction, key: Any, value: Any, timestamp: int) -> Frame:
    """A frame of one record."""
    assert function.inputs is not None
    kinds = [arrow_type(kind) for kind in function.inputs]
    return Frame(pa.array([key], kinds[0]), pa.array([value], kinds[1]), np.array([timestamp]), np.zeros(1, dtype=int))


def values_of(function: BatchFunction, frame: Frame) -> Any:
    """Call the function for one value per record. ValueError if it returns another number of values."""
    return _values(function, _table(function, _columns(frame)), len(frame))


def joined_of(function: BatchFunction, frame: Frame, right: Any) -> Any:
    """Call the function of a joiner for one value per record. The frame's values are the left ones."""
    columns = {"key": frame.keys, **_side("left", frame.values), **_side("right", right)}
    return _values(function, _table(function, columns), len(frame))


def joined_one(joiner: JoinBatch, key: Any, left: Any, right: Any) -> Any:
    """The result of a joiner for one record."""
    given = zip((key, left, right), joiner.inputs, strict=True)
    arrays = [pa.array([operand], arrow_type(kind)) for operand, kind in given]
    frame = Frame(arrays[0], arrays[1], np.zeros(1, dtype=np.int64), np.zeros(1, dtype=int))
    return joined_of(joiner.function, frame, arrays[2])[0].as_py()


def _values(function: BatchFunction, table: Any, count: int) -> Any:
    if not count:
        return pa.array([], arrow_type(function.kind))
    array = _array(function.function(table), arrow_type(function.kind))
    if len(array) != count:
        raise ValueError(f"the batch function returned {len(array)} values for {count} records")
    return array


def rows_of(function: BatchFunction, frame: Frame) -> Frame:
    """Call the function for rows of its own. Each row gets the timestamp and headers of the record it comes from."""
    table = _arrow(function.function(_table(function, _columns(frame))))
    for name in ("row", "key"):
        if name not in table.schema.names:
            raise ValueError(f"the batch function returned no column {name} (it has: {', '.join(table.schema.names)})")
    rows = np.asarray(table.column("row")).astype(np.int64)
    if len(rows) and (rows.min() < 0 or rows.max() >= len(frame) or (np.diff(rows) < 0).any()):
        raise ValueError("invalid column row of a batch function (expected ascending indexes of its input rows)")
    key = _array(table.column("key"), arrow_type(function.key_kind))
    kind = arrow_type(function.kind)
    if pa.types.is_struct(kind):
        value: Any = pa.StructArray.from_arrays(
            [_array(table.column(field.name), field.type) for field in kind], fields=list(kind)
        )
    else:
        value = _array(table.column("value"), kind)
    return Frame(key, value, frame.timestamps[rows], frame.rows[rows])


def _columns(frame: Frame) -> dict[str, Any]:
    columns: dict[str, Any] = {"key": frame.keys, "timestamp": pa.array(frame.timestamps)}
    if pa.types.is_struct(frame.values.type):
        named = zip(frame.values.type, frame.values.flatten(), strict=True)
        return columns | {field.name: column for field, column in named}
    return columns | {"value": frame.values}


def _side(name: str, values: Any) -> dict[str, Any]:
    """The columns of one side of a join."""
    if not pa.types.is_struct(values.type):
        return {name: values}
    return {f"{name}.{field.name}": column for field, column in zip(values.type, values.flatten(), strict=True)}


def _table(function: BatchFunction, columns: dict[str, Any]) -> Any:
    table = pa.table(columns)
    if function.form == "pandas":
        return table.to_pandas()
    if function.form == "polars":
        import polars

        return polars.from_arrow(table)
    return table


def _arrow(table: Any) -> Any:
    """Convert any kind of table to an Arrow table."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if isinstance(table, dict):
        table = pa.table(table)
    if not isinstance(table, pa.Table):
        table = (
            pa.table(table)
            if hasattr(table, "__arrow_c_stream__")
            else pa.Table.from_pandas(table, preserve_index=False)
        )
    return table.combine_chunks()


def _array(values: Any, kind: Any) -> Any:
    """Convert values of any kind to one Arrow array of this type. ValueError if they do not fit it."""
    if pa.types.is_struct(kind):
        table = _arrow(values)
        return pa.StructArray.from_arrays(
            [_array(table.column(field.name), field.type) for field in kind], fields=list(kind)
        )
    if hasattr(values, "to_arrow"):
        values = values.to_arrow()
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):
            values = values.chunk(0) if values.num_chunks else pa.array([], values.type)
    if not isinstance(values, pa.Array):
        # pandas represents missing values as NaN; make them null.
        return pa.array(values, kind, from_pandas=hasattr(values, "index") and not isinstance(values, list))
    return values if values.type == kind else values.cast(kind)
