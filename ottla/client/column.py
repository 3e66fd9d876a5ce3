"""Records as columns: the bytes of batches to NumPy and Arrow arrays and back, without a Python object a record.

Where the records of a batch begin follows from their lengths, one after another. Two ways find it: records of one size
are recognised by comparing the length bytes at every multiple of that size at once (records that agree there begin
there, by induction from the first); the others are walked, one short step a record. All else is vectorised: the
varints of a field are decoded for all records at once, keys and values are gathered by Arrow.

Needs the extra `ottla[arrow]` (NumPy and pyarrow); this module is imported where columns are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ottla.client.encode import Run
from ottla.client.record import ConsumerRecord, read_headers
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.batch import BatchHeader, Header

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

#: Runs shorter than this are walked; after so many steps of walking a run is looked for again.
_RUN_MIN = 32
_WALK_STEPS = 512


def record_starts(data: Bytes, raw: Any, start: int, end: int, count: int) -> Ints:
    """Where `count` records begin that fill `data` from `start` to `end`. `raw` are the same bytes, for the walk.

    CORRUPT_MESSAGE if they do not fill it exactly.
    """
    pieces: list[Any] = []
    position, left = start, count
    while left > 0:
        length, width = _length(raw, position)
        size = length + width
        most = min(left, (end - position) // size if size > 0 else 0)
        if most <= 0:
            raise _corrupt("a record is longer than its batch")
        run = 1
        # A short look first: where sizes vary, comparing to the end of the batch again and again would cost most.
        if most >= _RUN_MIN and _run(data, position, size, width, _RUN_MIN) == _RUN_MIN:
            run = _run(data, position, size, width, most)
        if run >= _RUN_MIN:
            pieces.append(np.arange(position, position + run * size, size, dtype=np.int64))
            position += run * size
            left -= run
        else:
            steps = min(left, _WALK_STEPS)
            walked, position = _walk(raw, position, steps)
            pieces.append(np.array(walked, dtype=np.int64))
            left -= steps
    if position != end:
        raise _corrupt("the records do not fill their batch")
    return np.concatenate(pieces) if len(pieces) != 1 else pieces[0]


def _run(data: Bytes, position: int, size: int, width: int, most: int) -> int:
    """How many of the next `most` records bear the same length as the first."""
    table = data[position : position + most * size].reshape(most, size)[:, :width]
    same = (table == table[0]).all(axis=1) if width > 1 else table[:, 0] == table[0, 0]
    return most if same.all() else int(same.argmin())


def _walk(raw: Any, position: int, steps: int) -> tuple[list[int], int]:
    found: list[int] = []
    append = found.append
    try:
        for _ in range(steps):
            append(position)
            byte = raw[position]
            if byte < 128:
                position += (byte >> 1) + 1
            else:
                second = raw[position + 1]
                if second < 128:
                    position += ((byte & 127 | second << 7) >> 1) + 2
                else:
                    length, width = _length(raw, position)
                    position += length + width
    except IndexError:
        raise _corrupt("a record is longer than its batch") from None
    return found, position


def _length(raw: Any, position: int) -> tuple[int, int]:
    """The varint there, at least 0, and its width."""
    value = shift = width = 0
    try:
        while True:
            byte = raw[position + width]
            value |= (byte & 127) << shift
            width += 1
            if byte < 128:
                break
            shift += 7
            if shift > 28:
                raise _corrupt("a record's length has more than five bytes")
    except IndexError:
        raise _corrupt("a record's length is cut off") from None
    if value & 1:
        raise _corrupt("a record's length is negative")
    return value >> 1, width


def varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The zigzag varints that begin at each of `at`, and where each ends."""
    raw = _raw_varints(data, at)
    value, end = raw
    return (value >> 1) ^ -(value & 1), end


def _raw_varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    byte = data[at]
    value = (byte & 127).astype(np.int64)
    end = at + 1
    more = byte > 127
    if not more.any():
        return value, end
    if more.all():
        # Sizes are alike more often than not: two bytes in all records need no selection.
        second = data[end]
        if not (second > 127).any():
            return value | (second.astype(np.int64) << 7), end + 1
    index = np.flatnonzero(more)
    shift = 7
    while index.size:
        if shift > 63:
            raise _corrupt("a varint has more than ten bytes")
        byte = data[end[index]]
        value[index] |= (byte & 127).astype(np.int64) << shift
        end[index] += 1
        index = index[byte > 127]
        shift += 7
    return value, end


class Fields:
    """The fields of many records: arrays of one length. Sizes of -1 are nulls."""

    __slots__ = (
        "header_at",
        "header_count",
        "key_at",
        "key_size",
        "offset_delta",
        "timestamp_delta",
        "value_at",
        "value_size",
    )

    def __init__(self, data: Bytes, starts: Ints) -> None:
        """From records that begin at `starts`. CORRUPT_MESSAGE if a field leaves its record."""
        try:
            length, at = varints(data, starts)
            ends = at + length
            # The attributes are a byte that nobody uses.
            self.timestamp_delta, at = varints(data, at + 1)
            self.offset_delta, at = varints(data, at)
            self.key_size, self.key_at = varints(data, at)
            self.value_size, self.value_at = varints(data, self.key_at + np.maximum(self.key_size, 0))
            self.header_count, self.header_at = varints(data, self.value_at + np.maximum(self.value_size, 0))
        except IndexError:
            raise _corrupt("a record's field leaves its batch") from None
        plain = self.header_count == 0
        if not (plain & (self.header_at == ends) | ~plain & (self.header_at < ends)).all():
            raise _corrupt("a record's fields do not add up to its length")

    @property
    def size(self) -> int:
        """How many records there are."""
        return int(self.key_size.size)


def gather(data: Bytes, buffer: Any, at: Ints, sizes: Ints) -> Any:
    """An Arrow binary array of the pieces of `data` that begin at `at`, in order and apart; a size of -1 is null.

    `buffer` is an Arrow buffer of the same bytes.
    """
    import pyarrow as pa

    count = at.size
    if not count:
        return pa.array([], pa.binary())
    missing = sizes < 0
    nulls = int(missing.sum())
    if nulls == count:
        return pa.nulls(count, pa.binary())
    size = int(sizes[0])
    if not nulls and size and (sizes == size).all():
        rows = np.lib.stride_tricks.sliding_window_view(data, size)[at]
        offsets = np.arange(0, (count + 1) * size, size, dtype=np.int32)
        return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(rows)])
    # Pieces and the gaps between them are neighbours: as one array over the same bytes they need no copy, and taking
    # every second one is Arrow's own loop.
    edges = np.empty(2 * count + 1, dtype=np.int32)
    edges[0:-1:2] = at
    edges[1::2] = at + np.maximum(sizes, 0)
    edges[-1] = data.size
    both = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(edges), buffer])
    index = np.arange(0, 2 * count, 2, dtype=np.int32)
    return both.take(pa.array(index, mask=missing) if nulls else pa.array(index))


def decode_objects(body: bytes, header: BatchHeader, topic: str, partition: int, fixed: int) -> list[ConsumerRecord]:
    """The records of an uncompressed body as `record.decode_batch` gives them; `fixed` is LogAppendTime's, or -1."""
    data = np.frombuffer(body, dtype=np.uint8)
    count = header.count
    fields = Fields(data, record_starts(data, body, 0, len(body), count))
    offsets = (fields.offset_delta + header.base_offset).tolist()
    timestamps: Any = repeat(fixed) if fixed >= 0 else (fields.timestamp_delta + header.base_timestamp).tolist()
    headers: Any = repeat(())
    if fields.header_count.any():
        headers = headers_of(body, fields)
    keys = _pieces(body, fields.key_at, fields.key_size)
    values = _pieces(body, fields.value_at, fields.value_size)
    epoch = repeat(header.partition_leader_epoch)
    rows = zip(repeat(topic, count), repeat(partition), offsets, timestamps, keys, values, headers, epoch, strict=False)
    return list(map(tuple.__new__, repeat(ConsumerRecord), rows))


def _pieces(body: bytes, at: Ints, sizes: Ints) -> Any:
    if (sizes < 0).any():
        if (sizes < 0).all():
            return repeat(None)
        pairs = zip(at.tolist(), sizes.tolist(), strict=True)
        return [body[start : start + size] if size >= 0 else None for start, size in pairs]
    return [body[start:end] for start, end in zip(at.tolist(), (at + sizes).tolist(), strict=True)]


def headers_of(body: bytes, fields: Fields) -> list[Sequence[Header]]:
    """Of each record its headers: nearly always none; those that have some are read one by one."""
    found: list[Sequence[Header]] = [()] * fields.size
    for index in np.flatnonzero(fields.header_count).tolist():
        # `header_at` stands behind the count, whose width follows from it.
        count = int(fields.header_count[index])
        width = 1 if count < 64 else 2 if count < 8192 else 3
        try:
            found[index], _ = read_headers(body, int(fields.header_at[index]) - width)
        except (IndexError, ValueError) as error:
            raise _corrupt(f"a record's headers cannot be read: {error}") from error
    return found


# ---- the other way


def encode_columns(values: Any, keys: Any | None, runs: Sequence[Run]) -> bytes | memoryview:
    """The records of one batch from Arrow binary arrays, uncompressed. The bytes are `encode_records`'s."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = len(values)
    value_sizes = _sizes(values)
    stamps = np.empty(count, dtype=np.int64)
    base = runs[0][1]
    for number, (first, timestamp) in enumerate(runs):
        stamps[first : runs[number + 1][0] if number + 1 < len(runs) else count] = timestamp - base
    offset_bytes = _Varints(np.arange(count, dtype=np.int64))
    stamp_bytes = _Varints(stamps)
    value_bytes = _Varints(value_sizes)
    head = 1 + stamp_bytes.width + offset_bytes.width
    tail = value_bytes.width + np.maximum(value_sizes, 0) + 1
    if keys is None:
        key_bytes: _Varints = _Fixed(count, 1)
        total = head + 1 + tail
    else:
        key_sizes = _sizes(keys)
        key_bytes = _Varints(key_sizes)
        total = head + key_bytes.width + np.maximum(key_sizes, 0) + tail
    length_bytes = _Varints(total)
    zero = _Fixed(count, 0)
    columns = [length_bytes, zero, stamp_bytes, offset_bytes]
    columns.append(key_bytes)
    if keys is None:
        columns.append(value_bytes)
        if not values.null_count and (value_sizes == value_sizes[0]).all():
            return _one_size(columns, values, int(value_sizes[0]))
        pieces = [_packed(columns), _no_nulls(values)]
    else:
        pieces = [_packed(columns), _no_nulls(keys), _packed([value_bytes]), _no_nulls(values)]
    end = pa.scalar(b"\x00", pa.binary())
    joined = pc.binary_join_element_wise(*pieces, end, pa.scalar(b"", pa.binary()))
    if isinstance(joined, pa.ChunkedArray):
        joined = joined.combine_chunks()
    _, offsets, data = joined.buffers()
    edges = np.frombuffer(offsets, dtype=np.int32)[joined.offset : joined.offset + count + 1]
    return memoryview(data)[int(edges[0]) : int(edges[-1])]


class _Varints:
    """A column of numbers as zigzag varints: a row of bytes for each, and how many of them count."""

    __slots__ = ("rows", "width")

    def __init__(self, numbers: Ints) -> None:
        zigzag = (numbers << 1) ^ (numbers >> 63)
        highest = int(zigzag.max()) if zigzag.min() >= 0 else -1
        most = max(1, -(-highest.bit_length() // 7)) if highest >= 0 else 10
        unsigned = zigzag.astype(np.uint64)
        rows = np.empty((numbers.size, most), dtype=np.uint8)
        width = np.ones(numbers.size, dtype=np.int64)
        for place in range(most):
            rows[:, place] = (unsigned >> np.uint64(7 * place)) & np.uint64(127)
            if place:
                more = (unsigned >> np.uint64(7 * place)) > 0
                width += more
                rows[:, place - 1] |= more.astype(np.uint8) << 7
        self.rows = rows
        self.width = width


class _Fixed(_Varints):
    """A column of one byte, the same in all rows."""

    def __init__(self, count: int, byte: int) -> None:
        self.rows = np.full((count, 1), byte, dtype=np.uint8)
        self.width = np.ones(count, dtype=np.int64)


def _mask(columns: list[_Varints]) -> tuple[Bytes, NDArray[np.bool_]]:
    rows = np.hstack([one.rows for one in columns])
    counts = np.hstack([np.arange(one.rows.shape[1]) < one.width[:, None] for one in columns])
    return rows, counts


def _packed(columns: list[_Varints]) -> Any:
    """The columns' bytes, row after row, as an Arrow binary array."""
    import pyarrow as pa

    rows, counts = _mask(columns)
    offsets = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum(sum(one.width for one in columns), out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(rows[counts])])


def _one_size(columns: list[_Varints], values: Any, size: int) -> bytes:
    """Values of one size: where the heads are alike in width too, records are rows of one table."""
    rows, counts = _mask(columns)
    widths: Any = sum(one.width for one in columns)
    data = np.frombuffer(values.buffers()[2], dtype=np.uint8) if size else np.empty(0, dtype=np.uint8)
    first = int(np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset]) if size else 0
    table = data[first : first + size * len(values)].reshape(len(values), size)
    # Widths only grow with the offset, or with the time: a batch falls into few stretches.
    edges = [0, *(np.flatnonzero(np.diff(widths)) + 1).tolist(), len(values)]
    parts = []
    for start, end in pairwise(edges):
        width = int(widths[start])
        out = np.zeros((end - start, width + size + 1), dtype=np.uint8)
        out[:, :width] = rows[start:end][counts[start:end]].reshape(end - start, width)
        out[:, width : width + size] = table[start:end]
        parts.append(out.tobytes())
    return b"".join(parts)


def _sizes(array: Any) -> Ints:
    """Of each value its bytes, -1 for a null."""
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    sizes = np.diff(offsets).astype(np.int64)
    if array.null_count:
        sizes[np.asarray(array.is_null())] = -1
    return sizes


def _no_nulls(array: Any) -> Any:
    return array.fill_null(b"") if array.null_count else array


def murmur2_all(keys: Any) -> NDArray[np.uint32]:
    """Murmur2 of each value of an Arrow binary array, as `partitioner.murmur2` computes it."""
    sizes = _sizes(keys)
    data = np.frombuffer(keys.buffers()[2] or b"", dtype=np.uint8)
    offsets = np.frombuffer(keys.buffers()[1], dtype=np.int32)[keys.offset : keys.offset + len(keys)].astype(np.int64)
    hashes = np.zeros(len(keys), dtype=np.uint32)
    for size in np.unique(sizes[sizes >= 0]).tolist():
        index = np.flatnonzero(sizes == size)
        hashes[index] = _murmur2_of_size(data, offsets[index], size)
    return hashes


def _murmur2_of_size(data: Bytes, at: Ints, size: int) -> NDArray[np.uint32]:
    multiplier = np.uint32(0x5BD1E995)
    value = np.full(at.size, np.uint32(0x9747B28C ^ size), dtype=np.uint32)
    whole = size & ~3
    for place in range(0, whole, 4):
        piece = np.zeros(at.size, dtype=np.uint32)
        for byte in range(4):
            piece |= data[at + place + byte].astype(np.uint32) << np.uint32(8 * byte)
        piece *= multiplier
        piece ^= piece >> np.uint32(24)
        piece *= multiplier
        value = (value * multiplier) ^ piece
    if size != whole:
        rest = np.zeros(at.size, dtype=np.uint32)
        for byte in range(size - whole):
            rest |= data[at + whole + byte].astype(np.uint32) << np.uint32(8 * byte)
        value = (value ^ rest) * multiplier
    value ^= value >> np.uint32(13)
    value *= multiplier
    return value ^ (value >> np.uint32(15))


def _corrupt(why: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, why)
