"""Calls of batch functions: conversion of frames to tables and of results to columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ottla.flow.column.batch import BatchFunction
from ottla.flow.vector.encode import arrow_type
from ottla.flow.vector.evaluate import Frame


def frame_of(function: BatchFunction, key: Any, value: Any, timestamp: int) -> Frame:
    """A frame of one record."""
    assert function.inputs is not None
    kinds = [arrow_type(kind) for kind in function.inputs]
    return Frame(pa.array([key], kinds[0]), pa.array([value], kinds[1]), np.array([timestamp]), np.zeros(1, dtype=int))


def values_of(function: BatchFunction, frame: Frame) -> Any:
    """Call the function for one value per record. ValueError if it returns another number of values."""
    array = _array(function.function(_table(function, frame)), arrow_type(function.kind))
    if len(array) != len(frame):
        raise ValueError(f"the batch function returned {len(array)} values for {len(frame)} records")
    return array


def rows_of(function: BatchFunction, frame: Frame) -> Frame:
    """Call the function for rows of its own. Each row gets the timestamp and headers of the record it comes from."""
    table = _arrow(function.function(_table(function, frame)))
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


def _table(function: BatchFunction, frame: Frame) -> Any:
    columns: dict[str, Any] = {"key": frame.keys, "timestamp": pa.array(frame.timestamps)}
    if pa.types.is_struct(frame.values.type):
        named = zip(frame.values.type, frame.values.flatten(), strict=True)
        columns |= {field.name: column for field, column in named}
    else:
        columns["value"] = frame.values
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
