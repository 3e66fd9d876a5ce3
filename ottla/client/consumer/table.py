"""Polled records as Arrow tables, for `poll_table`.

Rules:
- A table has the columns topic, partition, offset, timestamp, key, value, headers (see `schema`).
- Batches are taken as a whole: a table may hold somewhat more rows than requested, and the position is after all of
  them.
- Taking bytes is quick and happens under the consumer's lock; `tables_of` then decodes them without it.
- Data that cannot be read ends a partition's rows before it. The rows so far are returned, the next poll raises the
  error, and the position stays at the record until the program seeks past it. With `tolerant`, a value that its serde
  cannot read is left out instead, and its error is returned beside the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.client.consumer.position import PartitionPosition
from ottla.columns.column import gather
from ottla.columns.column import views as views_into
from ottla.columns.field import Fields, fields_of
from ottla.columns.header_column import HEADERS, header_column, no_headers
from ottla.columns.sparse import keep_freed_memory
from ottla.columns.uniform_layout import Ints, offsets_of, pieces_of, runs_of, timestamps_of, views_of
from ottla.kernel.client_error import RecordDeserializationError
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Buffer
from ottla.serde.serde import Serde
from ottla.wire.batch import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader
from ottla.wire.codec import Codec, decompress

#: Decompressed batches are concatenated up to this size: one pass over many costs less than a pass over each.
_TOGETHER_BYTES = 8 * 1024 * 1024
#: Arrow's binary arrays have 32-bit offsets.
_BYTES_MAX = (1 << 31) - 1
#: The most bytes of keys or values that are copied into one array, for serdes that are faster with many values.
_TOGETHER_MAX = 64 * 1024 * 1024

keep_freed_memory()


class Taken(NamedTuple):
    """The batches of one partition that a poll took, still encoded."""

    partition: TopicPartition
    #: The first requested offset; batches may begin earlier.
    offset: int
    batches: list[tuple[Buffer, int, BatchHeader]]
    #: The number of records in the batches.
    records: int


class Unreadable(NamedTuple):
    """The offset from which a partition's records cannot be read, and the error."""

    partition: TopicPartition
    offset: int
    error: Exception


class _Bodies(NamedTuple):
    """Uncompressed batches in one buffer: the bytes, and (start, end, header) of each batch."""

    data: Buffer
    places: list[tuple[int, int, BatchHeader]]


class _Part(NamedTuple):
    """The columns of some batches of one partition; keys and values are still bytes."""

    partition: TopicPartition
    offsets: Ints
    timestamps: Ints
    keys: Any
    values: Any
    headers: Any

    def from_offset(self, offset: int) -> _Part:
        """The records from this offset on."""
        skip = int(np.searchsorted(self.offsets, offset))
        parts = (self.keys.slice(skip), self.values.slice(skip), self.headers.slice(skip))
        return _Part(self.partition, self.offsets[skip:], self.timestamps[skip:], *parts)


class _Column(NamedTuple):
    """Decoded keys or values."""

    array: Any
    #: The errors of nulled values, as a column.
    errors: Any | None
    #: The number of good rows, and the error of the next row.
    good: int
    why: str = ""
    #: Rows to leave out, and their errors.
    bad: Sequence[tuple[int, str]] = ()


class BadRow(Exception):
    """A value that its serde cannot read: its row, and the error text."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


def schema(key: Serde | None = None, value: Serde | None = None) -> Any:
    """The schema of a polled table. A serde with errors="null" adds a column of error texts."""
    fields = [
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms")),
        ("key", pa.binary() if key is None else key.type),
        ("value", pa.binary() if value is None else value.type),
        ("headers", HEADERS),
    ]
    for name, serde in (("key", key), ("value", value)):
        if serde is not None and serde.errors == "null":
            fields.append((f"{name}_error", pa.string()))
    return pa.schema(fields)


def take(state: PartitionPosition, records_max: int) -> Taken | None:
    """Take about `records_max` records of one partition, in whole batches; None if there are none."""
    position = state.position
    assert position is not None
    if state.unread is not None:
        # A poll for objects took a part of a batch: fetch that batch again.
        state.go_back(position)
        return None
    batches: list[tuple[Buffer, int, BatchHeader]] = []
    count = 0
    del state.epochs[:-1]
    while state.chunks and count < records_max:
        try:
            batch = state.next_batch()
        except KafkaError as error:
            state.stop(state.position or position, error)
            break
        if batch is None:
            continue
        header = batch[2]
        # Compaction keeps batches without records for their producer's sequence.
        if header.count:
            batches.append(batch)
        count += header.count
        state.position = header.base_offset + header.last_offset_delta + 1
    return Taken(state.partition, position, batches, count) if batches else None


def tables_of(
    taken: Sequence[Taken], key: Serde | None = None, value: Serde | None = None, *, tolerant: bool = False
) -> tuple[list[Any], list[Unreadable], list[RecordDeserializationError]]:
    """Decode taken batches: record batches, unreadable places, and the errors of values that `tolerant` left out."""
    parts: list[_Part] = []
    unreadables: list[Unreadable] = []
    for fetch in taken:
        offset = fetch.offset
        try:
            for bodies in _bodies(fetch.batches):
                offset = max(fetch.offset, bodies.places[0][2].base_offset)
                part = _part(fetch, bodies, views=(key is not None and key.view, value is not None and value.view))
                if len(part.offsets):
                    parts.append(part)
        except KafkaError as error:
            why = f"{fetch.partition} from offset {offset}: the records cannot be read: {error.message}"
            unreadables.append(Unreadable(fetch.partition, offset, KafkaError(error.code, why)))
    table_schema = schema(key, value)
    keys = _columns([part.keys for part in parts], key, tolerant=tolerant)
    values = _columns([part.values for part in parts], value, tolerant=tolerant)
    left_out: list[RecordDeserializationError] = []
    tables: list[Any] = []
    stopped: set[TopicPartition] = set()
    for part, own_keys, own_values in zip(parts, keys, values, strict=True):
        if part.partition not in stopped:
            rows, unreadable = _rows(part, own_keys, own_values, table_schema, left_out)
            if rows.num_rows:
                tables.append(rows)
            if unreadable is not None:
                unreadables = [entry for entry in unreadables if entry.partition != part.partition]
                unreadables.append(unreadable)
                stopped.add(part.partition)
    return tables, unreadables, left_out


def _bodies(batches: Sequence[tuple[Buffer, int, BatchHeader]]) -> Iterator[_Bodies]:
    """Group batches that share a buffer; compressed batches are decompressed into a common one."""
    plain: list[tuple[int, int, BatchHeader]] = []
    buffer: Buffer = b""
    decompressed_batches: list[tuple[bytes, BatchHeader]] = []
    for data, position, header in batches:
        start, end = position + HEADER_BYTES, position + header.size
        if plain and (data is not buffer or header.codec is not Codec.NONE):
            yield _Bodies(buffer, plain)
            plain = []
        if decompressed_batches and (
            header.codec is Codec.NONE or sum(len(body) for body, _ in decompressed_batches) > _TOGETHER_BYTES
        ):
            yield _concatenated(decompressed_batches)
            decompressed_batches = []
        if header.codec is Codec.NONE:
            buffer = data
            plain.append((start, end, header))
        else:
            decompressed_batches.append((decompress(header.codec, memoryview(data)[start:end]), header))
    if plain:
        yield _Bodies(buffer, plain)
    if decompressed_batches:
        yield _concatenated(decompressed_batches)


def _concatenated(decompressed_batches: list[tuple[bytes, BatchHeader]]) -> _Bodies:
    places = []
    end = 0
    for body, header in decompressed_batches:
        places.append((end, end + len(body), header))
        end += len(body)
    return _Bodies(
        decompressed_batches[0][0]
        if len(decompressed_batches) == 1
        else b"".join([body for body, _ in decompressed_batches]),
        places,
    )


def _part(taken: Taken, bodies: _Bodies, views: tuple[bool, bool]) -> _Part:
    """The columns of these batches; `views` says whether keys and values are to be views into their bytes."""
    if len(bodies.data) > _BYTES_MAX:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {len(bodies.data)} bytes is more than Arrow holds")
    data = np.frombuffer(bodies.data, dtype=np.uint8)
    buffer = pa.py_buffer(bodies.data)
    headers = [header for _, _, header in bodies.places]
    bases = np.array([(header.base_offset, header.base_timestamp) for header in headers], dtype=np.int64)
    runs = runs_of(data, bodies.data, [(start, end, header.count) for start, end, header in bodies.places])
    if runs is not None:
        offsets, timestamps = offsets_of(runs, bases[:, 0]), timestamps_of(runs, bases[:, 1])
        counts = [header.count for header in headers]
        keys, values = (
            views_of(data, buffer, runs, keys=is_key) if view else pieces_of(data, runs, keys=is_key)
            for is_key, view in zip((True, False), views, strict=True)
        )
        header_values = no_headers(len(offsets))
    else:
        parts = [fields_of(data, bodies.data, start, end, header.count) for start, end, header in bodies.places]
        fields = Fields.joined(parts)
        counts = [part.size for part in parts]
        offsets = fields.offset_delta + np.repeat(bases[:, 0], counts)
        timestamps = fields.timestamp_delta + np.repeat(bases[:, 1], counts)
        keys, values = (
            (views_into if view else gather)(data, buffer, at, sizes)
            for at, sizes, view in (
                (fields.key_at, fields.key_size, views[0]),
                (fields.value_at, fields.value_size, views[1]),
            )
        )
        header_values = header_column(data, buffer, fields)
    if int(offsets[0]) < headers[0].base_offset or (offsets[1:] <= offsets[:-1]).any():
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the offsets of a batch are not increasing")
    fixed = [header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1 for header in headers]
    if max(fixed) >= 0:
        given = np.repeat(np.array(fixed, dtype=np.int64), counts)
        timestamps = np.where(given >= 0, given, timestamps)
    part = _Part(taken.partition, offsets, timestamps, keys, values, header_values)
    # A fetch may begin in the middle of a batch.
    return part if offsets[0] >= taken.offset else part.from_offset(taken.offset)


def _rows(
    part: _Part, keys: _Column, values: _Column, table_schema: Any, left_out: list[RecordDeserializationError]
) -> tuple[Any, Unreadable | None]:
    topic, number = part.partition
    size = len(part.offsets)
    end = min(keys.good, values.good)
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, dtype=np.int32)), pa.array([topic])),
        pa.array(np.full(size, number, dtype=np.int32)),
        pa.array(part.offsets),
        pa.array(part.timestamps).view(pa.timestamp("ms")),
        keys.array,
        values.array,
        part.headers,
    ]
    columns += [decoded_column.errors for decoded_column in (keys, values) if decoded_column.errors is not None]
    if end == size:
        rows = pa.RecordBatch.from_arrays(columns, schema=table_schema)
        bad = {**{row: ("value", why) for row, why in values.bad}, **{row: ("key", why) for row, why in keys.bad}}
        if bad:
            left_out += [_error(part, row, *bad[row]) for row in sorted(bad)]
            keep = np.ones(size, dtype=bool)
            keep[list(bad)] = False
            rows = rows.filter(pa.array(keep))
        return rows, None
    rows = pa.RecordBatch.from_arrays([column.slice(0, end) for column in columns], schema=table_schema)
    part_name, why = ("key", keys.why) if keys.good == end else ("value", values.why)
    return rows, Unreadable(part.partition, int(part.offsets[end]), _error(part, end, part_name, why))


def _error(part: _Part, row: int, part_name: str, why: str) -> RecordDeserializationError:
    topic, number = part.partition
    headers = [(header["key"], header["value"]) for header in part.headers[row].as_py()]
    key, value = part.keys[row].as_py(), part.values[row].as_py()
    record = (topic, number, int(part.offsets[row]), int(part.timestamps[row]), key, value, headers)
    return RecordDeserializationError(record, part_name, why)


def _columns(raws: list[Any], serde: Serde | None, *, tolerant: bool) -> list[_Column]:
    """Decode keys or values, part by part."""
    if serde is not None and serde.together and len(raws) > 1 and sum(raw.nbytes for raw in raws) <= _TOGETHER_MAX:
        try:
            column = serde.decode(pa.concat_arrays(raws))
        except (ValueError, KafkaError):
            # Decoding part by part, below, finds the bad value.
            pass
        else:
            ends = np.cumsum([len(raw) for raw in raws]).tolist()
            error_columns = None if serde.errors != "null" else [_error_column([], len(raw)) for raw in raws]
            return [
                _Column(
                    column.slice(end - len(raw), len(raw)),
                    None if error_columns is None else error_columns[index],
                    len(raw),
                )
                for index, (end, raw) in enumerate(zip(ends, raws, strict=True))
            ]
    return [_column(raw, serde, tolerant=tolerant) for raw in raws]


def _column(raw: Any, serde: Serde | None, *, tolerant: bool) -> _Column:
    if serde is None:
        return _Column(raw, None, len(raw))
    errors: list[tuple[int, str]] = []
    try:
        column = decoded(serde, raw, errors if tolerant or serde.errors == "null" else None)
    except BadRow as bad:
        return _Column(decoded(serde, raw.slice(0, bad.row), None), None, bad.row, str(bad))
    if serde.errors == "null":
        return _Column(column, _error_column(errors, len(raw)), len(raw))
    return _Column(column, None, len(raw), bad=errors)


def decoded(serde: Serde, raw: Any, errors: list[tuple[int, str]] | None) -> Any:
    """Decode a column. Bad values become nulls and are added to `errors`; if that is None, the first raises BadRow."""
    if not len(raw):
        return pa.array([], serde.type)
    pieces: list[Any] = []

    def read(start: int, end: int) -> None:
        """Decode all in one call; after a failure try the halves, so that one bad value costs only a few calls."""
        try:
            pieces.append(serde.decode(raw.slice(start, end - start)))
        except (ValueError, KafkaError) as error:
            if end - start > 1:
                read(start, (start + end) // 2)
                read((start + end) // 2, end)
            elif errors is None:
                raise BadRow(start, str(error)) from None
            else:
                errors.append((start, str(error)))
                pieces.append(pa.nulls(1, serde.type))

    read(0, len(raw))
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


def _error_column(errors: list[tuple[int, str]], size: int) -> Any:
    if not errors:
        return pa.nulls(size, pa.string())
    index = np.full(size, -1, dtype=np.int64)
    index[[row for row, _ in errors]] = np.arange(len(errors))
    return pa.array([why for _, why in errors]).take(pa.array(index, mask=index < 0))
