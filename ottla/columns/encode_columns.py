"""Encodes columns as the bytes of a batch: Arrow arrays in, records out, without a Python object per record.

Rules:
- The bytes equal those of `encode_records.encode_records`, and of the Java producer, for the same records.
- Values of one size (with keys of one size, or none) are laid out as rows of a table, in spans in which all numbers
  have the same width; the bytes between keys and values are written in words. Arrow joins everything else piece by
  piece.

Needs the extra `ottla[arrow]`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ottla.columns.uniform_layout import STEPS, Bytes, Ints, codes_of
from ottla.kernel.memory import new_memory
from ottla.wire.varint import encode_varint

#: With fewer records per span than this, laying out spans costs more than joining pieces.
_SPAN_MIN = 32
#: The number of offset deltas that are cached as varints.
_OFFSETS_KEPT = 1 << 16


def encode_columns(
    values: Any,
    keys: Any | None,
    headers: Any | None,
    timestamps: Ints,
    *,
    room: int = 0,
    memory: Callable[[int], memoryview] = new_memory,
) -> memoryview:
    """Encode the records of one batch from Arrow binary arrays (and lists of headers), uncompressed.

    `timestamps` are in ms; the first one is the batch's base. `room` bytes are left free in front. `memory(size)`
    returns the memory that the records are written to.
    """
    stamps = timestamps - timestamps[0]
    rows = _rows(values, keys, stamps, room, memory) if headers is None else None
    if rows is not None:
        return rows
    joined = _joined(values, keys, headers, stamps)
    out = memory(room + len(joined))
    out[room:] = joined
    return out


# ---- rows of a table


def _rows(
    values: Any, keys: Any | None, stamps: Ints, room: int, memory: Callable[[int], memoryview]
) -> memoryview | None:
    """Lay out values of one size, with keys of one size. None if sizes differ, or if that takes too many spans."""
    count = len(values)
    value_size, key_size = size_of_all(values), -1 if keys is None else size_of_all(keys)
    if value_size is None or key_size is None:
        return None
    stamp_bytes: Varints = _ZERO if not stamps.any() else Varints(stamps)
    edges = _edges(stamp_bytes, count)
    if len(edges) - 1 > max(8, count // _SPAN_MIN):
        return None
    table, key_table = _table(values, value_size), _table(keys, key_size) if keys is not None else None
    key_head = encode_varint(key_size)
    value_head = encode_varint(value_size)
    after = len(key_head) + max(key_size, 0) + len(value_head) + value_size + 1
    plans = []
    total = room
    for start, end in pairwise(edges):
        stamp_width, offset_width = stamp_bytes.width_at(start), len(encode_varint(start))
        length = encode_varint(1 + stamp_width + offset_width + after)
        size = len(length) + 1 + stamp_width + offset_width + after
        plans.append((start, end, stamp_width, offset_width, length, size, total))
        total += size * (end - start)
    out = memory(total)
    cells = np.frombuffer(out, dtype=np.uint8)
    for start, end, stamp_width, offset_width, length, size, at in plans:
        rows = (end - start, size)
        stamp_at = at + len(length) + 1
        offset_at = stamp_at + stamp_width
        position = offset_at + offset_width + len(key_head)
        head = length + bytes(1 + stamp_width + offset_width) + key_head
        if key_table is None:
            head += value_head
            position += len(value_head)
        _write(cells, at, rows, head, (codes_of(start, end - start), offset_at - at))
        if stamp_bytes is not _ZERO:
            _copy(cells, stamp_at, rows, stamp_bytes.bytes(start, end, stamp_width))
        if key_table is not None:
            _copy(cells, position, rows, key_table[start:end])
            position += key_size
            _write(cells, position, rows, value_head)
            position += len(value_head)
        _copy(cells, position, rows, table[start:end])
        # The header count.
        _write(cells, position + value_size, rows, b"\x00")
    return out


def _write(
    cells: Bytes, at: int, rows: tuple[int, int], content: bytes, counted: tuple[Any, int] | None = None
) -> None:
    """Write the same bytes into all rows, eight at a time.

    `rows` is (number of rows, size of a row). `counted` adds a number per row: varints as words (`codes_of`), and their
    position in these bytes.
    """
    count, size = rows
    width = next(width for width in (8, 4, 2, 1) if width <= len(content))
    kind = np.dtype(f"<u{width}")
    words = list(range(0, len(content) - width + 1, width))
    if words[-1] + width < len(content):
        words.append(len(content) - width)
    for word in words:
        same = int.from_bytes(content[word : word + width], "little")
        value: Any = kind.type(same)
        if counted is not None:
            codes, start = counted
            shift = 8 * (start - word)
            if -64 < shift < 8 * width:
                moved = codes << np.uint64(shift) if shift >= 0 else codes >> np.uint64(-shift)
                value = moved.astype(kind, copy=False) | value
        np.ndarray((count,), kind, cells, at + word, (size,))[...] = value


def _copy(cells: Bytes, at: int, rows: tuple[int, int], content: Any) -> None:
    """Write one element of `content` into each row: NumPy moves a row's bytes at once, not one by one."""
    if content.dtype.itemsize:
        np.copyto(np.ndarray((rows[0],), content.dtype, cells, at, (rows[1],)), content)


def _edges(stamps: Varints, count: int) -> list[int]:
    """The rows at which a number's width changes, and both ends."""
    edges = {0, count, *(step for step in STEPS if step < count)}
    if stamps.width is not None:
        edges.update((np.flatnonzero(np.diff(stamps.width)) + 1).tolist())
    return sorted(edges)


def _table(array: Any, size: int) -> NDArray[np.void]:
    """The values of an array, all of `size` bytes, as one element each."""
    if not size:
        return np.zeros(len(array), dtype="V0")
    _, offsets, data = array.buffers()
    first = int(np.frombuffer(offsets, dtype=np.int32)[array.offset])
    return np.frombuffer(data, dtype=f"V{size}", count=len(array), offset=first)


def size_of_all(array: Any) -> int | None:
    """The size of all values; None if they differ or some are null."""
    if array.null_count:
        return None
    offsets = offsets_of(array)
    size = int(offsets[1] - offsets[0])
    if int(offsets[-1] - offsets[0]) != size * len(array) or not (np.diff(offsets) == size).all():
        return None
    return size


# ---- varints


class Varints:
    """A column of numbers as zigzag varints: a row of bytes for each, and how many of these bytes count."""

    __slots__ = ("rows", "width")

    #: None: all have one byte.
    width: Ints | None

    def __init__(self, numbers: Ints) -> None:
        zigzag = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
        most = max(1, -(-int(zigzag.max()).bit_length() // 7))
        rows = np.empty((numbers.size, most), dtype=np.uint8)
        width = np.ones(numbers.size, dtype=np.int64)
        for place in range(most):
            left = zigzag >> np.uint64(7 * place) if place else zigzag
            rows[:, place] = left & np.uint64(127)
            if place:
                more = left > 0
                width += more
                rows[:, place - 1] |= more.astype(np.uint8) << 7
        self.rows: Bytes = rows
        self.width = width if most > 1 else None

    def widths(self) -> Any:
        """The width of each value: an array, or 1."""
        return 1 if self.width is None else self.width

    def width_at(self, row: int) -> int:
        return 1 if self.width is None else int(self.width[row])

    def bytes(self, start: int, end: int, width: int) -> Any:
        """The first `width` bytes of these rows, as one element each."""
        return np.ascontiguousarray(self.rows[start:end, :width]).view(f"V{width}").reshape(end - start)

    def part(self, count: int) -> Varints:
        """The first `count` values."""
        part = Varints.__new__(Varints)
        part.rows = self.rows[:count]
        part.width = None if self.width is None else self.width[:count]
        return part


class _ConstantByte(Varints):
    """The same byte in all rows."""

    def __init__(self, byte: int) -> None:
        self.byte = bytes((byte,))
        self.width = None

    __slots__ = ("byte",)

    def bytes(self, start: int, end: int, width: int) -> Any:
        return self.byte

    def filled(self, count: int) -> Varints:
        constant = Varints.__new__(Varints)
        constant.rows = np.full((count, 1), self.byte[0], dtype=np.uint8)
        constant.width = None
        return constant


_ZERO = _ConstantByte(0)


@cache
def _kept_offsets() -> Varints:
    return Varints(np.arange(_OFFSETS_KEPT, dtype=np.int64))


def _offsets(count: int) -> Varints:
    if count > _OFFSETS_KEPT:
        return Varints(np.arange(count, dtype=np.int64))
    return _kept_offsets().part(count)


# ---- pieces joined


def _joined(values: Any, keys: Any | None, headers: Any | None, stamps: Ints) -> memoryview:
    count = len(values)
    value_sizes = sizes_of(values)
    value_bytes = Varints(value_sizes)
    stamp_bytes, offset_bytes = Varints(stamps), _offsets(count)
    total: Any = 1 + stamp_bytes.widths() + offset_bytes.widths() + value_bytes.widths() + np.maximum(value_sizes, 0)
    head: list[Varints] = [_ZERO.filled(count), stamp_bytes, offset_bytes]
    if keys is None:
        middle: list[Any] = []
        head += [_ConstantByte(1).filled(count), value_bytes]
        total = total + 1
    else:
        key_sizes = sizes_of(keys)
        key_bytes = Varints(key_sizes)
        head.append(key_bytes)
        middle = [_no_nulls(keys), packed([value_bytes])]
        total = total + key_bytes.widths() + np.maximum(key_sizes, 0)
    if headers is None:
        tail: Any = pa.scalar(b"\x00", pa.binary())
        total = total + 1
    else:
        tail = _header_bytes(headers)
        total = total + sizes_of(tail)
    pieces = [packed([Varints(total), *head]), *middle, _no_nulls(values), tail]
    joined = pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))
    _, _, data = joined.buffers()
    edges = offsets_of(joined)
    return memoryview(data).cast("B")[int(edges[0]) : int(edges[-1])]


def _header_bytes(headers: Any) -> Any:
    """Each record's header count and headers, from a list of (key, value) each."""
    counts = np.asarray(pc.list_value_length(headers).fill_null(0)).astype(np.int64)
    flat = headers.flatten()
    if not len(flat):
        return packed([Varints(counts)])
    names, contents = flat.field(0), flat.field(1)
    parts = [
        packed([Varints(sizes_of(names))]),
        names.cast(pa.binary()),
        packed([Varints(sizes_of(contents))]),
        _no_nulls(contents),
    ]
    encoded = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))
    offsets = np.zeros(len(headers) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    headers_of_record = pc.binary_join(
        pa.ListArray.from_arrays(pa.array(offsets), encoded), pa.scalar(b"", pa.binary())
    )
    return pc.binary_join_element_wise(packed([Varints(counts)]), headers_of_record, pa.scalar(b"", pa.binary()))


def packed(columns: list[Varints]) -> Any:
    """The bytes of these columns, row by row, as an Arrow binary array."""
    rows = np.hstack([column.rows for column in columns])
    count = len(rows)
    widths: Any = sum(column.widths() for column in columns)
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(np.broadcast_to(widths, count), out=offsets[1:])
    if int(offsets[-1]) != rows.size:
        counts = [
            np.arange(column.rows.shape[1]) < np.broadcast_to(column.widths(), count)[:, None] for column in columns
        ]
        rows = rows[np.hstack(counts)]
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(rows)])


def offsets_of(array: Any) -> NDArray[np.int32]:
    """The start of each value of a binary or list array, and the end of the last one."""
    return np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + len(array) + 1]


def sizes_of(array: Any) -> Ints:
    """The size of each value in bytes, -1 for a null."""
    sizes = np.diff(offsets_of(array)).astype(np.int64)
    if array.null_count:
        sizes[np.asarray(array.is_null())] = -1
    return sizes


def _no_nulls(array: Any) -> Any:
    return array.fill_null(b"") if array.null_count else array


# ---- which partition


def murmur2_all(keys: Any) -> NDArray[np.uint32]:
    """Murmur2 of each value of an Arrow binary array, as `partitioner.murmur2` computes it."""
    sizes = sizes_of(keys)
    data = np.frombuffer(keys.buffers()[2] or b"", dtype=np.uint8)
    offsets = offsets_of(keys)[:-1].astype(np.int64)
    hashes = np.zeros(len(keys), dtype=np.uint32)
    for size in np.unique(sizes[sizes >= 0]).tolist():
        index = np.flatnonzero(sizes == size)
        hashes[index] = _murmur2_of_size(data, offsets[index], size)
    return hashes


def _murmur2_of_size(data: Bytes, at: Ints, size: int) -> NDArray[np.uint32]:
    multiplier = np.uint32(0x5BD1E995)
    value = np.full(at.size, np.uint32(0x9747B28C ^ size), dtype=np.uint32)
    aligned = size & ~3
    for offset in range(0, aligned, 4):
        piece = np.zeros(at.size, dtype=np.uint32)
        for byte in range(4):
            piece |= data[at + offset + byte].astype(np.uint32) << np.uint32(8 * byte)
        piece *= multiplier
        piece ^= piece >> np.uint32(24)
        piece *= multiplier
        value = (value * multiplier) ^ piece
    if size != aligned:
        rest = np.zeros(at.size, dtype=np.uint32)
        for byte in range(size - aligned):
            rest |= data[at + aligned + byte].astype(np.uint32) << np.uint32(8 * byte)
        value = (value ^ rest) * multiplier
    value ^= value >> np.uint32(13)
    value *= multiplier
    return value ^ (value >> np.uint32(15))
