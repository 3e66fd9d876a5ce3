"""Rows of CSV and Parquet as records: the value is a JSON object of all columns, or one column; keys and headers are
columns.

Rules:
- CSV has a header row. Its cells are text, unless a column's type is given; an empty cell of a typed column is null.
- Parquet needs the arrow extra. Its types become JSON's; bytes that are not UTF-8 become {"base64": ...}, times ISO
  8601.
"""

from __future__ import annotations

import csv
import io
import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from datetime import time as clock_time
from decimal import Decimal
from typing import Any, BinaryIO

from ottla.cli.records.input import BadRecord, Shape
from ottla.kernel.error import OttlaError
from ottla.operations.writing import Headers, InputRecord

#: The most characters of a CSV's cell, instead of Python's 131,072; without a limit, a quote that is never closed would
#: take the rest of the file into memory.
_CELL_MAX = 64 << 20
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


def _digits(text: str) -> str:
    """Check the text of a number: Python would take 1_000 for 1000."""
    if "_" in text:
        raise ValueError(text)
    return text


def _boolean(text: str) -> bool:
    return _BOOLEANS[text.lower()]


#: What the cells of a CSV can be said to be.
TYPES: dict[str, Callable[[str], Any]] = {
    "text": str,
    "int": lambda text: int(_digits(text)),
    "float": lambda text: float(_digits(text)),
    "bool": _boolean,
    "json": json.loads,
}


def from_csv(stream: BinaryIO, shape: Shape, types: Mapping[str, str], delimiter: str = ",") -> Iterator[InputRecord]:
    """Yield the rows of a CSV with a header row. `types`: column -> a name in `TYPES`."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    csv.field_size_limit(_CELL_MAX)
    rows = csv.reader(text, delimiter=delimiter, strict=True)
    try:
        heading = next(rows, None)
        if heading is None:
            return
        _check_columns(heading, shape, types)
        for row in rows:
            if not row:
                continue
            where = f"line {rows.line_num}"
            if len(row) != len(heading):
                raise BadRecord(where, f"has {len(row)} cells, but the header row has {len(heading)}")
            cells = {name: _cell(name, cell, types, where) for name, cell in zip(heading, row, strict=True)}
            yield _record(cells, shape, where, sum(map(len, row)) + len(row))
    except csv.Error as error:
        raise BadRecord(f"line {rows.line_num}", f"is not CSV: {error}") from error
    except UnicodeDecodeError as error:
        raise BadRecord(f"line {rows.line_num + 1}", f"or a later one is not UTF-8: {error}") from error
    finally:
        text.detach()


def _cell(name: str, cell: str, types: Mapping[str, str], where: str) -> Any:
    kind = types.get(name, "text")
    if kind == "text":
        return cell
    if cell == "":
        return None
    try:
        return TYPES[kind](cell)
    except (ValueError, KeyError, RecursionError) as error:
        raise BadRecord(where, f"has an invalid {kind} in column {name}: {cell!r}") from error


def from_parquet(path: str, shape: Shape) -> Iterator[InputRecord]:
    """Yield the rows of a Parquet file, read in batches."""
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise OttlaError("Parquet needs pyarrow: pip install 'ottla[arrow]'") from error
    import pyarrow

    try:
        file = parquet.ParquetFile(path, page_checksum_verification=True)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise OttlaError(f"{path} cannot be read as Parquet: {error}") from error
    with file:
        _check_columns(file.schema_arrow.names, shape, {})
        number = 0
        batches = file.iter_batches(10_000)
        while True:
            try:
                batch = next(batches, None)
                rows = [] if batch is None else _in_microseconds(batch).to_pylist()
            except (OSError, ValueError, OverflowError, pyarrow.ArrowException) as error:
                raise BadRecord(f"a row of {path} after row {number}", f"cannot be read: {error}") from error
            if batch is None:
                return
            share = batch.nbytes // max(batch.num_rows, 1)
            for row in rows:
                number += 1
                yield _record(row, shape, f"row {number}", share)


def _in_microseconds(batch: Any) -> Any:
    """Times of day as Python has them. ArrowInvalid for one that would lose nanoseconds."""
    import pyarrow

    fine, plain = pyarrow.time64("ns"), pyarrow.time64("us")
    columns = [column.cast(plain) if column.type == fine else column for column in batch.columns]
    return pyarrow.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _check_columns(heading: Sequence[str], shape: Shape, types: Mapping[str, str]) -> None:
    if len(set(heading)) < len(heading):
        raise OttlaError(f"the file names a column twice: {', '.join(heading)}")
    meant = [shape.key_column, shape.value_column, *shape.header_columns, *types]
    for name in meant:
        if name is not None and name not in heading:
            raise OttlaError(f"there is no column {name}; the columns are {', '.join(heading)}")


def _record(row: dict[str, Any], shape: Shape, where: str, size: int) -> InputRecord:
    value = _text(row if shape.value_column is None else row[shape.value_column], where)
    if value == shape.null:
        value = None
    key = shape.key if shape.key_column is None else _text(row[shape.key_column], where)
    own: Headers = [(name, _text(row[name], where)) for name in shape.header_columns]
    return InputRecord(value, key, shape.headers + own, shape.partition, None, size)


def _text(value: Any, where: str) -> bytes | None:
    """Encode text as UTF-8, keep bytes and null, and encode anything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    try:
        if isinstance(value, str):
            return value.encode()
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False).encode()
    except (ValueError, TypeError) as error:
        what = "UTF-8" if isinstance(value, str) else "JSON"
        raise BadRecord(where, f"cannot be written as {what}: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode()}
    if isinstance(value, datetime | date | clock_time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"JSON cannot represent {type(value).__name__}")
