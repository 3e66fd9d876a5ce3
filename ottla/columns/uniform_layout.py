"""Records of one layout: finds them, and extracts their columns by comparing words and copying rows.

Records of a table, or of a program with values of one size, differ only in their numbers: their fields have the same
sizes and positions. A span is a sequence of such records; a run is a sequence of batches with the same spans. All
records are checked: the bytes between keys and values are compared, eight at a time, with those of the first record (by
induction, each record begins where the one before it ends).

Rules:
- A batch's offset deltas count from 0, and their varints become longer at 64, 8,192 and 1,048,576: a span ends there.
- None means that the records are not uniform, not that they are invalid: `column` then checks each of them.

Needs the extra `ottla[arrow]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.named import NamedTuple
from ottla.wire.varint import decode_varint, encode_varint

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

#: With fewer records than this the calls cost more than they save.
RUN_MIN = 32
#: Number of records that make up for one run that is too short.
_SMALL_EVERY = 512
#: Offset deltas at which the varint becomes longer.
STEPS = (64, 8_192, 1_048_576, 1 << 31)
#: Number of offset deltas cached as varints.
_KEPT = 1 << 16
#: Arrow's views store values of at most this size themselves.
VIEW_INLINE = 12


class UniformSpan(NamedTuple):
    """Records of one layout. Positions are those of the first record in the first batch of the run."""

    at: int
    #: Distance from one record to the next.
    size: int
    #: Number of records in each batch.
    records: int
    #: A size of -1 means null.
    key_at: int
    key_size: int
    value_at: int
    value_size: int
    #: The same value for all records, or an array with one row per batch.
    timestamp_delta: int | Ints
    #: The first record's if they count up, or an array of all, with one row per batch.
    offset_delta: int | Ints


class UniformRun(NamedTuple):
    """Batches of one layout, each of which begins `pitch` bytes after the one before."""

    batches: int
    pitch: int
    #: Number of records in each batch.
    records: int
    spans: list[UniformSpan]


def runs_of(data: Bytes, raw: Any, places: Sequence[tuple[int, int, int]]) -> list[UniformRun] | None:
    """The records of batches, each given as (start, end, count), as uniform runs; None if they have many layouts.

    `raw` has the same bytes as `data`.
    """
    runs: list[UniformRun] = []
    at = 0
    looks_ahead = True
    # A few small batches among large ones do no harm; if all are small and differ, checking each record is cheaper.
    small_max = 1 + sum(count for *_, count in places) // _SMALL_EVERY
    while at < len(places):
        start, end, count = places[at]
        batches = _count_regular_batches(places, at) if looks_ahead else 1
        pitch = places[at + 1][0] - start if batches > 1 else end - start
        small_max -= count * batches < RUN_MIN
        if small_max < 0:
            return None
        run = run_of(data, raw, start, end, count, batches, pitch)
        if run is None and batches > 1:
            # Looking ahead each time would dominate where it never helps.
            looks_ahead = False
            run = run_of(data, raw, start, end, count)
        if run is None:
            return None
        runs.append(run)
        at += run.batches
    return runs


def _count_regular_batches(places: Sequence[tuple[int, int, int]], at: int) -> int:
    """The number of batches from index `at` on with the same size and number of records at one distance."""
    start, end, count = places[at]
    if at + 1 == len(places):
        return 1
    pitch = places[at + 1][0] - start
    batches = 1
    while at + batches < len(places) and places[at + batches] == (
        start + batches * pitch,
        end + batches * pitch,
        count,
    ):
        batches += 1
    return batches


def run_of(
    data: Bytes, raw: Any, start: int, end: int, count: int, batches: int = 1, pitch: int = 0
) -> UniformRun | None:
    """The `count` records in `data` from `start` to `end`, and in `batches` batches at every `pitch` from there."""
    spans = []
    first = 0
    position = start
    while first < count:
        records = min(next(step for step in STEPS if step > first), count) - first
        span = _span(data, raw, position, end, (batches, records), pitch)
        if span is None:
            return None
        spans.append(span)
        position += span.size * records
        first += records
    return UniformRun(batches, pitch, count, spans) if spans and position == end else None


def _span(data: Bytes, raw: Any, position: int, end: int, shape: tuple[int, int], pitch: int) -> UniformSpan | None:
    """Records with the layout of the first one, in (batches, records) of `shape`; None if they are not uniform."""
    count = shape[1]
    try:
        length, width = length_at(raw, position)
        size = width + length
        if length < 6 or position + size * count > end:
            return None
        stamp_at = position + width + 1
        stamp, offset_at = decode_varint(raw, stamp_at)
        offset, key_head_at = decode_varint(raw, offset_at)
        key_size, key_at = decode_varint(raw, key_head_at)
        value_head_at = key_at + max(key_size, 0)
        value_size, value_at = decode_varint(raw, value_head_at)
        tail_at = value_at + max(value_size, 0)
    except (IndexError, ValueError, KafkaError):
        return None
    # The last byte is the header count, which must be 0: headers vary too much for one layout.
    if tail_at != position + size - 1 or key_size < -1 or value_size < -1 or raw[tail_at]:
        return None
    if offset_at - stamp_at > 9 or key_head_at - offset_at > 9:
        # Numbers of this width are neither timestamps nor offsets.
        return None
    strides = (pitch, size)
    rest = [(value_head_at, value_at), (tail_at, tail_at + 1)]
    head_end = key_at
    if key_size <= 0:
        head_end = rest.pop(0)[1]
    for gap in rest:
        if not _agrees(data, gap, bytes(raw[gap[0] : gap[1]]), bytes([0xFF]) * (gap[1] - gap[0]), shape, strides):
            return None
    head = bytes(raw[position:head_end])
    stamp_part = slice(stamp_at - position, offset_at - position)
    offset_part = slice(offset_at - position, key_head_at - position)
    codes = codes_of(offset, count) if counts_up(offset, count, head[offset_part]) else None
    # From the most common to the rarest: one timestamp and counting offsets, any timestamps, any offsets.
    for same_stamp, counting in ((True, True), (False, True), (False, False)):
        if counting and codes is None:
            continue
        mask = bytearray(b"\xff" * len(head))
        # Numbers may differ in all bits but those that say how wide they are.
        if not same_stamp:
            mask[stamp_part] = b"\x80" * (offset_at - stamp_at)
        if not counting:
            mask[offset_part] = b"\x80" * (key_head_at - offset_at)
        counted = (codes, offset_part.start) if counting else None
        if _agrees(data, (position, head_end), head, bytes(mask), shape, strides, counted):
            stamps = stamp if same_stamp else _numbers(data, stamp_at, offset_at, shape, strides)
            offsets = offset if counting else _numbers(data, offset_at, key_head_at, shape, strides)
            return UniformSpan(position, size, count, key_at, key_size, value_at, value_size, stamps, offsets)
    return None


def _agrees(
    data: Bytes,
    place: tuple[int, int],
    first: bytes,
    mask: bytes,
    shape: tuple[int, int],
    strides: tuple[int, int],
    counted: tuple[Any, int] | None = None,
) -> bool:
    """True if all records have the first one's bytes at this place, in the bits of the mask.

    `counted` has numbers that count up in each batch, as varints, and their position in these bytes.
    """
    at, end = place
    width = next(width for width in (8, 4, 2, 1) if width <= end - at)
    kind = np.dtype(f"<u{width}")
    full = (1 << 8 * width) - 1
    words = list(range(0, end - at - width + 1, width))
    if words[-1] + width < end - at:
        words.append(end - at - width)
    for word in words:
        words_read = np.ndarray(shape, kind, data, at + word, strides).copy()
        wanted = int.from_bytes(first[word : word + width], "little")
        bits = int.from_bytes(mask[word : word + width], "little")
        if counted is not None:
            codes, start = counted
            shift = 8 * (start - word)
            if -64 < shift < 8 * width:
                moved = codes << np.uint64(shift) if shift >= 0 else codes >> np.uint64(-shift)
                words_read ^= moved.astype(kind, copy=False)
                wanted ^= int(moved[0]) & full
        if bits != full:
            words_read &= kind.type(bits)
            wanted &= bits
        if (words_read != kind.type(wanted)).any():
            return False
    return True


def counts_up(first: int, count: int, code: bytes) -> bool:
    """True if `count` numbers from `first` on have varints of one width, and `code` is the shortest one of `first`."""
    last = first + count - 1
    same_width = first >= 0 and last < STEPS[-1] and not any(first < step <= last for step in STEPS)
    return same_width and code == encode_varint(first)


@cache
def _kept_codes() -> Any:
    return _coded(np.arange(_KEPT, dtype=np.uint64))


def codes_of(first: int, count: int) -> Any:
    """The zigzag varints of `count` numbers from `first` on, as words with the first byte lowest."""
    if first + count <= _KEPT:
        return _kept_codes()[first : first + count]
    return _coded(np.arange(first, first + count, dtype=np.uint64))


def _coded(numbers: Any) -> Any:
    left = numbers << np.uint64(1)
    code = np.zeros(numbers.size, dtype=np.uint64)
    for byte_index in range(5):
        code |= (left & np.uint64(127)) << np.uint64(8 * byte_index)
        left = left >> np.uint64(7)
        code |= (left > 0).astype(np.uint64) << np.uint64(8 * byte_index + 7)
    return code


def _numbers(data: Bytes, at: int, end: int, shape: tuple[int, int], strides: tuple[int, int]) -> Ints:
    """The zigzag varints from `at` to `end` of the first record, and at the same place in all others."""
    value = np.zeros(shape, dtype=np.int64)
    for byte_index in range(end - at):
        byte = np.ndarray(shape, np.uint8, data, at + byte_index, strides) & np.uint8(127)
        value |= byte.astype(np.int64) << (7 * byte_index)
    return (value >> 1) ^ -(value & 1)


# ---- the columns


def records_of(runs: Sequence[UniformRun]) -> int:
    """The number of records."""
    return sum(run.batches * run.records for run in runs)


def _blocks(runs: Sequence[UniformRun], column: Any) -> Iterator[tuple[UniformRun, slice, UniformSpan, Any]]:
    """(run, slice of all batches, span, rows of `column` with one row per batch) for each span."""
    at = batch = 0
    for run in runs:
        block = column[at : at + run.batches * run.records].reshape(run.batches, run.records, *column.shape[1:])
        first = 0
        for span in run.spans:
            yield run, slice(batch, batch + run.batches), span, block[:, first : first + span.records]
            first += span.records
        at += run.batches * run.records
        batch += run.batches


def offsets_of(runs: Sequence[UniformRun], bases: Ints) -> Ints:
    """The offset of each record; `bases` has one per batch."""
    offsets = np.empty(records_of(runs), dtype=np.int64)
    for _, batches, span, rows in _blocks(runs, offsets):
        delta = span.offset_delta
        counted = np.arange(delta, delta + span.records) if isinstance(delta, int) else delta
        np.add(bases[batches, None], counted, out=rows)
    return offsets


def timestamps_of(runs: Sequence[UniformRun], bases: Ints) -> Ints:
    """The timestamp of each record; `bases` has one per batch."""
    timestamps = np.empty(records_of(runs), dtype=np.int64)
    for _, batches, span, rows in _blocks(runs, timestamps):
        np.add(bases[batches, None], span.timestamp_delta, out=rows)
    return timestamps


def pieces_of(data: Bytes, runs: Sequence[UniformRun], *, keys: bool) -> Any:
    """The keys or the values as an Arrow binary array with its own memory: one copy, and nothing more."""
    import pyarrow as pa

    total = records_of(runs)
    edges, valid = _edges(runs, total, keys)
    if edges is None:
        return pa.nulls(total, pa.binary())
    # Arrow keeps freed memory for the next table; NumPy returns it to the system, page by page.
    memory = pa.allocate_buffer(int(edges[-1]))
    cells = np.frombuffer(memory, dtype=np.uint8)
    at = 0
    for run in runs:
        row = sum(max(_piece(span, keys)[1], 0) * span.records for span in run.spans)
        block = cells[at : at + run.batches * row].reshape(run.batches, row)
        first = 0
        for span in run.spans:
            start, size = _piece(span, keys)
            if size > 0:
                # As elements of `size` bytes, each piece is moved at once.
                kind = f"V{size}"
                into = block[:, first : first + span.records * size].view(kind)
                np.copyto(into, np.ndarray((run.batches, span.records), kind, data, start, (run.pitch, span.size)))
                first += span.records * size
        at += run.batches * row
    return pa.Array.from_buffers(pa.binary(), total, [valid, pa.py_buffer(edges), memory])


def _edges(runs: Sequence[UniformRun], total: int, keys: bool) -> tuple[Any, Any]:
    """The start of each piece and the end of the last one, and Arrow's validity bits (None if none is null)."""
    import pyarrow as pa

    piece_sizes = {_piece(span, keys)[1] for run in runs for span in run.spans}
    if piece_sizes == {-1}:
        return None, None
    if len(piece_sizes) == 1:
        (size,) = piece_sizes
        if size:
            return np.arange(0, (total + 1) * size, size, dtype=np.int32), None
    sizes = np.empty(total, dtype=np.int32)
    for _, _, span, rows in _blocks(runs, sizes):
        rows[...] = _piece(span, keys)[1]
    valid = pa.py_buffer(np.packbits(sizes >= 0, bitorder="little")) if -1 in piece_sizes else None
    edges = np.zeros(total + 1, dtype=np.int32)
    np.cumsum(np.maximum(sizes, 0), out=edges[1:])
    return edges, valid


def views_of(data: Bytes, buffer: Any, runs: Sequence[UniformRun], *, keys: bool) -> Any:
    """The keys or the values as views into `buffer`, an Arrow buffer of the same bytes."""
    import pyarrow as pa

    total = records_of(runs)
    _, valid = _edges(runs, total, keys)
    views = np.zeros((total, 4), dtype=np.int32)
    for run, _, span, rows in _blocks(runs, views):
        start, size = _piece(span, keys)
        shape, strides = (run.batches, span.records), (run.pitch, span.size)
        if size > VIEW_INLINE:
            # The size, the first four bytes, the buffer's index, the position.
            rows[..., 0] = size
            rows[..., 1] = np.ndarray(shape, "<i4", data, start, strides)
            places = np.arange(span.records, dtype=np.int32) * span.size + start
            rows[..., 3] = places + (np.arange(run.batches, dtype=np.int32) * run.pitch)[:, None]
        elif size > 0:
            rows[..., 0] = size
            rows.view(np.uint8)[..., 4 : 4 + size] = np.ndarray((*shape, size), np.uint8, data, start, (*strides, 1))
    if _piece(runs[0].spans[0], keys)[1] < 0 and valid is None:
        return pa.nulls(total, pa.binary_view())
    return pa.Array.from_buffers(pa.binary_view(), total, [valid, pa.py_buffer(views), buffer])


def _piece(span: UniformSpan, keys: bool) -> tuple[int, int]:
    return (span.key_at, span.key_size) if keys else (span.value_at, span.value_size)


# ---- shared with records of any layout


def length_at(raw: Any, position: int) -> tuple[int, int]:
    """The varint at `position` (at least 0) and its width. CORRUPT_MESSAGE if it is not a valid length."""
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
                raise corrupt("a record's length has more than five bytes")
    except IndexError:
        raise corrupt("a record's length is cut off") from None
    if value & 1:
        raise corrupt("a record's length is negative")
    return value >> 1, width


def corrupt(why: str) -> KafkaError:
    """The error for invalid bytes."""
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, why)
