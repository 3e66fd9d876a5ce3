"""Columns from the fields of records: keys and values as Arrow arrays, or as objects a few at a time.

`stretch` has the short way for records of one layout; here are those for records of any.

Needs the extra `ottla[arrow]` (NumPy and pyarrow); this module is imported where columns are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np

from ottla.client.field import Fields, fields_of
from ottla.client.record import ConsumerRecord, read_headers
from ottla.client.stretch import VIEW_INLINE, Bytes, Ints, corrupt
from ottla.wire.batch import BatchHeader, Header


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
        rows = _windows(data, size)[at]
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


def views(data: Bytes, buffer: Any, at: Ints, sizes: Ints) -> Any:
    """The same pieces as views into `buffer`: nothing is copied but 16 bytes each, and the array keeps it alive."""
    import pyarrow as pa

    rows = np.zeros((at.size, 4), dtype=np.int32)
    missing = sizes < 0
    rows[:, 0] = np.maximum(sizes, 0)
    # Up to 12 bytes stand in the view itself; of longer ones the first four do, then which buffer, and where.
    text = rows.view(np.uint8).reshape(at.size, 16)[:, 4:]
    long = sizes > VIEW_INLINE
    if long.all():
        rows[:, 1] = _windows(data, 4)[at].view(np.int32).ravel()
        rows[:, 3] = at
    else:
        for place in range(VIEW_INLINE):
            index = np.flatnonzero(sizes > place) if place < 4 else np.flatnonzero((sizes > place) & ~long)
            text[index, place] = data[at[index] + place]
        rows[:, 3][long] = at[long]
    valid = None if not missing.any() else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(pa.binary_view(), at.size, [valid, pa.py_buffer(rows), buffer])


class Decoded:
    """A batch field by field; its records become objects a few at a time: what is handed out at once stays in cache.

    `body` is uncompressed; `fixed` is LogAppendTime's timestamp, or -1.
    """

    __slots__ = ("_body", "_fields", "_headers", "_same", "_timestamps", "offsets")

    def __init__(self, body: bytes, header: BatchHeader, topic: str, partition: int, fixed: int) -> None:
        fields = fields_of(np.frombuffer(body, dtype=np.uint8), body, 0, len(body), header.count)
        self._body = body
        self._fields = fields
        self.offsets = fields.offset_delta + header.base_offset
        self._timestamps = None if fixed >= 0 else fields.timestamp_delta + header.base_timestamp
        self._headers = headers_of(body, fields) if fields.header_count.any() else None
        self._same = (topic, partition, fixed, header.partition_leader_epoch)

    def part(self, start: int, end: int) -> list[ConsumerRecord]:
        """These records."""
        fields = self._fields
        topic, partition, fixed, epoch = self._same
        timestamps: Any = repeat(fixed) if self._timestamps is None else self._timestamps[start:end].tolist()
        rows = zip(
            repeat(topic, end - start),
            repeat(partition),
            self.offsets[start:end].tolist(),
            timestamps,
            _pieces(self._body, fields.key_at[start:end], fields.key_size[start:end]),
            _pieces(self._body, fields.value_at[start:end], fields.value_size[start:end]),
            repeat(()) if self._headers is None else self._headers[start:end],
            repeat(epoch),
            strict=False,
        )
        return list(map(tuple.__new__, repeat(ConsumerRecord), rows))


def _pieces(body: bytes, at: Ints, sizes: Ints) -> Any:
    if (sizes < 0).any():
        if (sizes < 0).all():
            return repeat(None)
        pairs = zip(at.tolist(), sizes.tolist(), strict=True)
        return [body[start : start + size] if size >= 0 else None for start, size in pairs]
    size = int(sizes[0]) if sizes.size else 0
    if size and (sizes == size).all():
        # As elements of so many bytes they become Python's in one call.
        pieces: list[bytes] = _windows(np.frombuffer(body, dtype=np.uint8), size)[at].view(f"V{size}").ravel().tolist()
        return pieces
    return [body[start:end] for start, end in zip(at.tolist(), (at + sizes).tolist(), strict=True)]


def _windows(data: Bytes, size: int) -> Bytes:
    """Of each position the bytes that follow, so many."""
    return np.lib.stride_tricks.sliding_window_view(data, size)


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
            raise corrupt(f"a record's headers cannot be read: {error}") from error
    return found
