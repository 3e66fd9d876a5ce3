"""Turns the rows of Arrow tables into batches, for `send_table`.

Rules:
- Rows are taken one slice at a time, so a reader of any length needs little memory.
- A slice is cut into batches of at most `batch_bytes`; rows of one partition keep their order.
- Without partition and key, all rows of a batch go to one partition, whichever is next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.producer.delivery import ProducerBatch
from ottla.columns.encode_columns import encode_columns, murmur2_all, offsets_of, size_of_all
from ottla.columns.header_column import HEADERS
from ottla.columns.uniform_layout import Ints
from ottla.kernel.error import OttlaError
from ottla.kernel.memory import new_memory
from ottla.kernel.named import NamedTuple
from ottla.serde.serde import Serde, as_binary
from ottla.wire.batch import HEADER_BYTES
from ottla.wire.codec import Codec, compress

#: The most rows and (approximately) bytes processed at once.
_SLICE_ROWS = 1 << 17
_SLICE_BYTES = 32 * 1024 * 1024
#: Upper bound of a record's size beyond its key and value.
_OVERHEAD = 24

#: The name of a column, or of several columns that become one struct.
Columns = str | Sequence[str]


class ColumnMapping(NamedTuple):
    """The roles of a table's columns, by name."""

    value: Columns = "value"
    key: Columns | None = None
    timestamp: str | None = None
    partition: str | None = None
    headers: str | None = None
    value_serde: Serde | None = None
    key_serde: Serde | None = None


class Cut(NamedTuple):
    """The rows of one batch."""

    #: None: any partition.
    partition: int | None
    values: Any
    keys: Any | None
    headers: Any | None
    timestamps: Ints


def cuts(
    table: Any, columns: ColumnMapping, partitions: Callable[[], int], batch_bytes: int, now: Callable[[], int]
) -> Iterator[Cut | int]:
    """Cut the rows into batches. `now()` (ms) is the timestamp of rows without one.

    `partitions()` is the number of partitions of the topic as far as is known. A number instead of a cut is a partition
    that the rows name and that is not known: the caller looks for it before it goes on.
    """
    for rows in _slices(table):
        yield from _cuts_of(rows, columns, partitions, batch_bytes, now())


def _slices(table: Any) -> Iterator[Any]:
    for batch in _record_batches(table):
        if not batch.num_rows:
            continue
        rows = max(1, min(_SLICE_ROWS, _SLICE_BYTES * batch.num_rows // max(1, batch.nbytes)))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _record_batches(table: Any) -> Iterator[Any]:
    if isinstance(table, pa.RecordBatch):
        yield table
    elif isinstance(table, pa.Table):
        # Many small chunks are combined into few.
        yield from (table.combine_chunks() if _in_small_chunks(table) else table).to_batches()
    elif isinstance(table, pa.RecordBatchReader):
        yield from table
    elif hasattr(table, "__arrow_c_stream__"):
        yield from pa.RecordBatchReader.from_stream(table)
    elif hasattr(table, "__arrow_c_array__"):
        yield pa.record_batch(table)
    else:
        raise OttlaError(
            f"invalid table: {type(table).__name__} (expected a pyarrow Table, RecordBatch or RecordBatchReader, or a "
            f"data frame with Arrow's PyCapsule interface, such as pandas 2.2 or polars)"
        )


def _in_small_chunks(table: Any) -> bool:
    chunks = max((column.num_chunks for column in table.columns), default=0)
    return chunks > 1 and table.num_rows // chunks < 4_096 and table.nbytes < _SLICE_BYTES


def _cuts_of(
    rows: Any, columns: ColumnMapping, partitions: Callable[[], int], batch_bytes: int, now_ms: int
) -> Iterator[Cut | int]:
    values = _bytes(rows, columns.value, columns.value_serde, "value")
    keys = None if columns.key is None else _bytes(rows, columns.key, columns.key_serde, "key")
    headers = None if columns.headers is None else _headers(_column(rows, columns.headers), columns.headers)
    stamps = _timestamps(rows, columns.timestamp, now_ms)
    if columns.partition is None and keys is None:
        for start, end in _edges(values, None, headers, batch_bytes):
            yield Cut(None, *_part(values, None, headers, stamps, start, end))
        return
    named = None if columns.partition is None else _named_partitions(rows, columns.partition)
    if named is not None and (highest := int(named.max())) >= partitions():
        yield highest
    numbers = _partitions(rows, named, keys, partitions())
    if (numbers == numbers[0]).all():
        groups: list[tuple[int, Any]] = [(int(numbers[0]), None)]
    else:
        order = np.argsort(numbers, kind="stable")
        ends = np.flatnonzero(np.diff(numbers[order])) + 1
        groups = [(int(numbers[index[0]]), index) for index in np.split(order, ends)]
    for number, index in groups:
        group = (values, keys, headers, stamps)
        if index is not None:
            wanted = pa.array(index)
            group = (values.take(wanted), _take(keys, wanted), _take(headers, wanted), stamps[index])
        for start, end in _edges(*group[:3], batch_bytes):
            yield Cut(None if number < 0 else number, *_part(*group, start, end))


def _take(column: Any | None, index: Any) -> Any | None:
    return None if column is None else column.take(index)


def _part(
    values: Any, keys: Any | None, headers: Any | None, stamps: Ints, start: int, end: int
) -> tuple[Any, Any | None, Any | None, Ints]:
    size = end - start
    return (
        values.slice(start, size),
        None if keys is None else keys.slice(start, size),
        None if headers is None else headers.slice(start, size),
        stamps[start:end],
    )


def _edges(values: Any, keys: Any | None, headers: Any | None, batch_bytes: int) -> Iterator[tuple[int, int]]:
    """The start and end rows of batches of at most `batch_bytes`."""
    size, key_size = size_of_all(values), 0 if keys is None else size_of_all(keys)
    if size is not None and key_size is not None and headers is None:
        step = max(1, batch_bytes // (size + key_size + _OVERHEAD))
        for start in range(0, len(values), step):
            yield start, min(start + step, len(values))
        return
    sizes = np.diff(offsets_of(values)) + _OVERHEAD
    if keys is not None:
        sizes = sizes + np.diff(offsets_of(keys))
    if headers is not None:
        sizes = sizes + _header_sizes(headers)
    total = np.cumsum(sizes, dtype=np.int64)
    start = 0
    while start < len(values):
        before = int(total[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(total, before + batch_bytes, side="right")))
        yield start, end
        start = end


def _header_sizes(headers: Any) -> Ints:
    counts = np.asarray(pc.list_value_length(headers).fill_null(0)).astype(np.int64)
    flat = headers.flatten()
    running_total = np.zeros(len(flat) + 1, dtype=np.int64)
    if len(flat):
        np.cumsum(np.diff(offsets_of(flat.field(0))) + np.diff(offsets_of(flat.field(1))) + 10, out=running_total[1:])
    ends = np.cumsum(counts)
    sizes: Ints = running_total[ends] - running_total[ends - counts]
    return sizes


# ---- the columns


def _named_partitions(rows: Any, name: str) -> Ints:
    """The partition that each row names; -1 for those that name none."""
    column = _column(rows, name)
    if not pa.types.is_integer(column.type):
        raise OttlaError(f"column {name} has type {column.type} (expected integers: partition numbers)")
    named: Ints = np.asarray(column.fill_null(0)).astype(np.int64)
    if (named < 0).any():
        raise OttlaError(f"invalid partition in the table: {int(named.min())} (expected 0 or more)")
    return np.where(np.asarray(column.is_valid()), named, -1)


def _partitions(rows: Any, named: Ints | None, keys: Any | None, count: int) -> Ints:
    """The partition of each row; -1 for any partition."""
    partitions: Ints = np.full(rows.num_rows, -1, dtype=np.int64)
    if keys is not None:
        partitions = (murmur2_all(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
        if keys.null_count:
            partitions[np.asarray(keys.is_null())] = -1
    # A row with a null partition is placed as if the column did not exist.
    return partitions if named is None else np.where(named >= 0, named, partitions)


def _timestamps(rows: Any, name: str | None, now_ms: int) -> Ints:
    if name is None:
        return np.full(rows.num_rows, now_ms, dtype=np.int64)
    column = _column(rows, name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).view(pa.int64())
    elif not pa.types.is_integer(column.type):
        raise OttlaError(f"column {name} has type {column.type} (expected timestamps, or integers in ms since 1970)")
    return np.asarray(column.fill_null(now_ms)).astype(np.int64)


def _headers(column: Any, name: str) -> Any:
    """A header column as lists of (key, value) structs."""
    kind = column.type
    if pa.types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        kind = column.type
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type) or kind.value_type.num_fields != 2:
        raise OttlaError(f"column {name} has type {kind} (expected a map, or a list of structs of a key and a value)")
    pairs = [HEADERS.value_type.field(number).with_nullable(True) for number in (0, 1)]
    renamed = pa.list_(pa.struct([pa.field(pair.name, kind.value_type[i].type) for i, pair in enumerate(pairs)]))
    flat = column.values
    names = pa.StructArray.from_arrays([flat.field(0), flat.field(1)], fields=list(renamed.value_type))
    offsets = pa.Array.from_buffers(pa.int32(), len(column) + 1, [None, column.buffers()[1]], offset=column.offset)
    mask = column.is_null() if column.null_count else None
    pairs_column = pa.ListArray.from_arrays(offsets, names, mask=mask).cast(HEADERS)
    if pairs_column.flatten().field(0).null_count:
        raise OttlaError(f"column {name} has a header without a key")
    return pairs_column


def _bytes(rows: Any, columns: Columns, serde: Serde | None, role: str) -> Any:
    if isinstance(columns, str):
        column = _column(rows, columns)
    else:
        fields = [_column(rows, name) for name in columns]
        column = pa.StructArray.from_arrays(fields, names=list(columns))
        if serde is None:
            raise OttlaError(
                f"{role} has {len(fields)} columns: give a {role}_serde (such as serde.json()) to encode them as one"
            )
    if serde is not None:
        return serde.encode(column)
    try:
        return as_binary(column)
    except OttlaError as error:
        raise OttlaError(f"{role}: {error}".replace("give a serde", f"give {role}_serde")) from None


def _column(rows: Any, name: str) -> Any:
    if name not in rows.schema.names:
        raise OttlaError(f"the table has no column {name} (it has {', '.join(rows.schema.names)})")
    return rows.column(name)


# ---- the batch


def fill(
    batch: ProducerBatch,
    cut: Cut,
    codec: Codec,
    level: int | None,
    memory: Callable[[int], memoryview] = new_memory,
) -> None:
    """Encode the rows into their batch; `memory(size)` returns the memory for uncompressed rows."""
    stamps = cut.timestamps
    batch.already_encoded(len(cut.values), int(stamps[0]), int(stamps.max()))
    if codec is Codec.NONE:
        batch.uncompressed = encode_columns(cut.values, cut.keys, cut.headers, stamps, room=HEADER_BYTES, memory=memory)
        batch.limit = len(batch.uncompressed)
    else:
        batch.body = compress(codec, encode_columns(cut.values, cut.keys, cut.headers, stamps), level)
        batch.limit = len(batch.body) + HEADER_BYTES
