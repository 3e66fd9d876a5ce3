"""Columns from the fields of records: keys and values as Arrow arrays, or as objects, some records at a time.

This module handles records of any layout; `uniform_layout` has the fast path for records of one layout.

Needs the extra `ottla[arrow]` (NumPy and pyarrow), so it is imported only where columns are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np

from ottla.columns.field import Fields, fields_of, is_constant
from ottla.columns.record import ConsumerRecord, read_headers
from ottla.columns.uniform_layout import VIEW_INLINE, Bytes, Ints, corrupt
from ottla.wire.batch import BatchHeader, Header


def gather(data: Bytes, buffer: Any, at: Ints, sizes: Ints) -> Any:
    """An Arrow binary array of the pieces of `data` at `at`, which are in order and do not overlap; size -1 is null.

    `buffer` is an Arrow buffer of the same bytes.
    """
    import pyarrow as pa

    count = at.size
    if not count:
        return pa.array([], pa.binary())
    if is_constant(sizes) and sizes[0] < 0:
        return pa.nulls(count, pa.binary())
    least, most = int(sizes.min()), int(sizes.max())
    if most < 0:
        return pa.nulls(count, pa.binary())
    if least == most and most:
        # As elements of `most` bytes, each piece is moved at once.
        rows = np.ndarray((data.size - most + 1,), f"V{most}", data, 0, (1,))[at]
        offsets = np.arange(0, (count + 1) * most, most, dtype=np.int32)
        return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(rows)])
    # Pieces and the gaps between them alternate: as one array over the same bytes they need no copy, and taking every
    # second element is Arrow's own loop.
    edges = np.empty(2 * count + 1, dtype=np.int32)
    edges[0:-1:2] = at
    edges[1::2] = at + (sizes if least >= 0 else np.maximum(sizes, 0))
    edges[-1] = data.size
    both = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(edges), buffer])
    index = np.arange(0, 2 * count, 2, dtype=np.int32)
    return both.take(pa.array(index, mask=sizes < 0) if least < 0 else pa.array(index))


def views(data: Bytes, buffer: Any, at: Ints, sizes: Ints) -> Any:
    """The same pieces as views into `buffer`: only 16 bytes are written for each, and the array keeps `buffer`
    alive.
    """
    import pyarrow as pa

    rows = np.zeros((at.size, 4), dtype=np.int32)
    missing = sizes < 0
    rows[:, 0] = np.maximum(sizes, 0)
    # Up to 12 bytes are stored in the view itself; for longer pieces the first four, then the buffer and the position.
    text = rows.view(np.uint8).reshape(at.size, 16)[:, 4:]
    long = sizes > VIEW_INLINE
    if long.all():
        rows[:, 1] = _windows(data, 4)[at].view(np.int32).ravel()
        rows[:, 3] = at
    else:
        for byte_index in range(VIEW_INLINE):
            index = (
                np.flatnonzero(sizes > byte_index) if byte_index < 4 else np.flatnonzero((sizes > byte_index) & ~long)
            )
            text[index, byte_index] = data[at[index] + byte_index]
        rows[:, 3][long] = at[long]
    valid = None if not missing.any() else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(pa.binary_view(), at.size, [valid, pa.py_buffer(rows), buffer])


class Decoded:
    """A batch as columns; its records become objects some at a time, so that they are still in cache when processed.

    `body` is uncompressed; `fixed` is the timestamp of LogAppendTime, or -1.
    """

    __slots__ = ("_headers", "_keys", "_record_source", "_timestamp", "_timestamps", "_values", "offsets")

    def __init__(self, body: bytes, header: BatchHeader, topic: str, partition: int, fixed: int) -> None:
        fields = fields_of(np.frombuffer(body, dtype=np.uint8), body, 0, len(body), header.count)
        self._keys = _Pieces(body, fields.key_at, fields.key_size)
        self._values = _Pieces(body, fields.value_at, fields.value_size)
        self.offsets = fields.offset_delta + header.base_offset
        self._timestamps = fields.timestamp_delta + header.base_timestamp
        #: The timestamp of all records; None if they differ.
        self._timestamp = fixed if fixed >= 0 else _common_value(self._timestamps)
        self._headers = headers_of(body, fields) if fields.header_count.any() else None
        self._record_source = (topic, partition, header.partition_leader_epoch)

    def part(self, start: int, end: int) -> list[ConsumerRecord]:
        """The records from index `start` to `end`."""
        topic, partition, epoch = self._record_source
        rows = zip(
            repeat(topic, end - start),
            repeat(partition),
            self.offsets[start:end].tolist(),
            self._timestamps[start:end].tolist() if self._timestamp is None else repeat(self._timestamp),
            self._keys.part(start, end),
            self._values.part(start, end),
            repeat(()) if self._headers is None else self._headers[start:end],
            repeat(epoch),
            strict=False,
        )
        return list(map(tuple.__new__, repeat(ConsumerRecord), rows))


class _Pieces:
    """The keys or the values of a batch, taken as bytes some at a time; None for a null."""

    __slots__ = ("_at", "_body", "_cells", "_sizes")

    def __init__(self, body: bytes, at: Ints, sizes: Ints) -> None:
        self._body = body
        self._at = at
        self._sizes = sizes
        size = _common_value(sizes)
        #: If all have the same size: an array with one element of that many bytes for each position of the body, whose
        #: elements become Python objects in one call. Empty if all are null.
        self._cells: Any = None
        if size is not None and size:
            self._cells = np.ndarray((len(body) - size + 1 if size > 0 else 0,), f"V{max(size, 1)}", body, 0, (1,))

    def part(self, start: int, end: int) -> Any:
        """The pieces from index `start` to `end`."""
        cells = self._cells
        if cells is not None:
            return cells[self._at[start:end]].tolist() if cells.size else repeat(None)
        body, at, sizes = self._body, self._at[start:end], self._sizes[start:end]
        if (sizes < 0).any():
            pairs = zip(at.tolist(), sizes.tolist(), strict=True)
            return [body[first : first + size] if size >= 0 else None for first, size in pairs]
        return [body[first:last] for first, last in zip(at.tolist(), (at + sizes).tolist(), strict=True)]


def _common_value(numbers: Ints) -> int | None:
    """The value of all numbers; None if they differ."""
    first = numbers[0]
    return int(first) if (numbers == first).all() else None


def _windows(data: Bytes, size: int) -> Bytes:
    """The `size` bytes at each position."""
    return np.lib.stride_tricks.sliding_window_view(data, size)


def headers_of(body: bytes, fields: Fields) -> list[Sequence[Header]]:
    """The headers of each record. Records with headers are rare, and read one by one."""
    headers: list[Sequence[Header]] = [()] * fields.size
    for index in np.flatnonzero(fields.header_count).tolist():
        # `header_at` is the position after the count, from which the count's width follows.
        count = int(fields.header_count[index])
        width = 1 if count < 64 else 2 if count < 8192 else 3
        try:
            headers[index], end = read_headers(body, int(fields.header_at[index]) - width)
            if end != fields.end_at[index]:
                raise ValueError("they do not add up to its length")
        except (IndexError, ValueError) as error:
            raise corrupt(f"a record's headers cannot be read: {error}") from error
    return headers
