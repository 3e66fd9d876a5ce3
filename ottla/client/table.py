"""Arrow tables in and out of topics: what `poll_table` gives and `send_table` takes.

Rules:
- A table of records has the columns topic, partition, offset, timestamp, key, value, headers (see `schema`).
- Batches are taken whole: a table may hold somewhat more than was asked for, and the position stands behind it.
- A table that is sent is cut into batches of at most `batch_bytes`; rows of one partition keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.client.column import Fields, Ints, encode_columns, gather, headers_of, murmur2_all, record_starts
from ottla.client.delivery import ProducerBatch
from ottla.client.position import PartitionPosition
from ottla.kernel.error import OttlaError
from ottla.wire.batch import HEADER_BYTES, LOG_APPEND_TIME
from ottla.wire.codec import Codec, compress, decompress

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def schema() -> Any:
    """The columns of a polled table."""
    return pa.schema(
        [
            ("topic", pa.dictionary(pa.int32(), pa.string())),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms")),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", _HEADERS),
        ]
    )


def take_table(state: PartitionPosition, records_max: int) -> Any | None:
    """A record batch of up to so many records (or the rest of a Kafka batch more) of one partition; None for none."""
    parts: list[tuple[Any, int, int, int, int, int, int]] = []
    count = 0
    asked = state.position
    assert asked is not None
    # One after another, from wherever records() left off: leftovers of a poll of objects come first.
    if state.leftover:
        rewind(state)
    while state.chunks and count < records_max:
        batch = state.next_batch()
        if batch is None:
            continue
        data, position, header = batch
        raw = memoryview(data)[position + HEADER_BYTES : position + header.size]
        codec = header.codec
        body = raw if codec is Codec.NONE else memoryview(decompress(codec, raw))
        fixed = header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        parts.append((body, header.count, header.base_offset, header.base_timestamp, fixed, position, 0))
        state.position = header.base_offset + header.last_offset_delta + 1
        count += header.count
    if not parts:
        return None
    return _record_batch(state, parts, asked)


def rewind(state: PartitionPosition) -> None:
    """Give decoded records back: fetch again from the position."""
    assert state.position is not None
    state.seek(state.position)


def _record_batch(state: PartitionPosition, parts: list[Any], asked: int) -> Any:
    joined = parts[0][0] if len(parts) == 1 else memoryview(b"".join([part[0] for part in parts]))
    data = np.frombuffer(joined, dtype=np.uint8)
    starts: list[Ints] = []
    begin = 0
    for body, count, *_ in parts:
        end = begin + len(body)
        starts.append(record_starts(data, joined, begin, end, count))
        begin = end
    at = starts[0] if len(starts) == 1 else np.concatenate(starts)
    fields = Fields(data, at)
    counts = [part[1] for part in parts]
    offsets = fields.offset_delta + np.repeat(np.array([part[2] for part in parts], dtype=np.int64), counts)
    timestamps = fields.timestamp_delta + np.repeat(np.array([part[3] for part in parts], dtype=np.int64), counts)
    fixed = np.repeat(np.array([part[4] for part in parts], dtype=np.int64), counts)
    if (fixed >= 0).any():
        timestamps = np.where(fixed >= 0, fixed, timestamps)
    buffer = pa.py_buffer(joined)
    size = fields.size
    topic, number = state.partition
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, dtype=np.int32)), pa.array([topic])),
        pa.array(np.full(size, number, dtype=np.int32)),
        pa.array(offsets),
        pa.array(timestamps).cast(pa.timestamp("ms")),
        gather(data, buffer, fields.key_at, fields.key_size).cast(pa.binary()),
        gather(data, buffer, fields.value_at, fields.value_size).cast(pa.binary()),
        _header_column(bytes(joined) if fields.header_count.any() else b"", fields),
    ]
    table = pa.RecordBatch.from_arrays(columns, schema=schema())
    skip = int(np.searchsorted(offsets, asked))
    return table.slice(skip) if skip else table


def _header_column(body: bytes, fields: Fields) -> Any:
    """Mostly all empty. The records that have some are read one by one: a list of pairs is an object anyway."""
    size = fields.size
    if not fields.header_count.any():
        empty = pa.array([], _HEADERS.value_type)
        return pa.ListArray.from_arrays(pa.array(np.zeros(size + 1, dtype=np.int32)), empty).cast(_HEADERS)
    rows = [[{"key": name, "value": content} for name, content in own] for own in headers_of(body, fields)]
    return pa.array(rows, _HEADERS)


# ---- in


class OutgoingTable:
    """A table on its way into batches: the columns as Arrow binary arrays, in one piece."""

    __slots__ = ("keys", "partitions", "timestamps", "values")

    def __init__(
        self, table: Any, key: str | None, value: str, partition: str | None, timestamp: str | None, now_ms: int
    ) -> None:
        self.values = _binary(table, value)
        self.keys = None if key is None else _binary(table, key)
        self.partitions = None if partition is None else np.asarray(_column(table, partition)).astype(np.int64)
        if timestamp is None:
            self.timestamps = np.full(len(self.values), now_ms, dtype=np.int64)
        else:
            column = _column(table, timestamp)
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
            self.timestamps = np.asarray(column.fill_null(now_ms)).astype(np.int64)

    def split(self, count: int, sticky: Any, batch_bytes: int) -> Iterator[tuple[int, Any, Any | None, Ints]]:
        """(partition, values, keys, timestamps) of each batch. `sticky()` gives the partition of a batch without
        keys.
        """
        if self.partitions is None and self.keys is None:
            for start, end in self._cuts(self.values, None, batch_bytes):
                yield sticky(), self.values.slice(start, end - start), None, self.timestamps[start:end]
            return
        if self.partitions is not None:
            numbers = self.partitions
            if numbers.size and not (int(numbers.min()) >= 0 and int(numbers.max()) < count):
                raise OttlaError(f"the topic has {count} partitions, the table names {int(numbers.max())}")
        else:
            assert self.keys is not None
            numbers = (murmur2_all(self.keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
            if self.keys.null_count:
                numbers[np.asarray(self.keys.is_null())] = sticky()
        order = np.argsort(numbers, kind="stable")
        edges = np.searchsorted(numbers[order], np.arange(count + 1))
        for number in range(count):
            index = order[edges[number] : edges[number + 1]]
            if not index.size:
                continue
            values = self.values.take(pa.array(index))
            keys = None if self.keys is None else self.keys.take(pa.array(index))
            timestamps = self.timestamps[index]
            for start, end in self._cuts(values, keys, batch_bytes):
                some = None if keys is None else keys.slice(start, end - start)
                yield number, values.slice(start, end - start), some, timestamps[start:end]

    def _cuts(self, values: Any, keys: Any | None, batch_bytes: int) -> Iterator[tuple[int, int]]:
        sizes = np.diff(_offsets(values)) + 24
        if keys is not None:
            sizes = sizes + np.diff(_offsets(keys))
        total = np.cumsum(sizes)
        start = 0
        while start < len(values):
            before = int(total[start - 1]) if start else 0
            end = max(start + 1, int(np.searchsorted(total, before + batch_bytes, side="right")))
            yield start, end
            start = end


def fill(
    batch: ProducerBatch, values: Any, keys: Any | None, timestamps: Ints, codec: Codec, level: int | None
) -> None:
    """Encode a batch from columns."""
    changes = np.flatnonzero(np.diff(timestamps)) + 1
    batch.runs = [(0, int(timestamps[0]))]
    batch.runs += zip(changes.tolist(), timestamps[changes].tolist(), strict=True)
    batch.max_timestamp = int(timestamps.max())
    batch.count = len(values)
    body: Any = encode_columns(values, keys, batch.runs)
    if codec is not Codec.NONE:
        body = compress(codec, body, level)
    batch.body = body if isinstance(body, bytes) else bytes(body)
    batch.size = len(batch.body) + HEADER_BYTES


def _column(table: Any, name: str) -> Any:
    if name not in table.schema.names:
        raise OttlaError(f"the table has no column {name}: it has {', '.join(table.schema.names)}")
    column = table.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _binary(table: Any, name: str) -> Any:
    column = _column(table, name)
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_binary(column.type):
        return column
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    if any(kind(column.type) for kind in kinds) or "view" in str(column.type):
        return column.cast(pa.binary())
    raise OttlaError(f"column {name} is {column.type}: keys and values are binary or string; cast or encode it first")


def _offsets(array: Any) -> Any:
    return np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + len(array) + 1]
