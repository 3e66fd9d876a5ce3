"""The positions, sizes and numbers of record fields as arrays, without a Python object per record.

A record's start follows from the lengths of all records before it. There are four ways to find the starts:

- Records of one layout are recognised by comparing the bytes between the values (`uniform_layout`).
- Records whose bytes contain few zeros, such as text, are found between their own zeros (`_between_zeros`).
- Records of one size are recognised by their length bytes alone.
- All others are walked, one short step per record.

Everything else is vectorised: the varints of a field are decoded for all records at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ottla.columns.sparse import true_places
from ottla.columns.uniform_layout import (
    RUN_MIN,
    STEPS,
    Bytes,
    Ints,
    UniformSpan,
    codes_of,
    corrupt,
    counts_up,
    length_at,
    run_of,
)
from ottla.kernel.error import KafkaError
from ottla.wire.varint import decode_varint

#: After this many steps of walking, look for a uniform run again.
_WALK_STEPS = 512
#: Candidates for record ends per record, above which walking costs less than checking them.
_PLACES_MAX = 8
#: The bytes that are searched in one step, so that they are still in cache for the next search.
_SEARCH_BYTES = 1 << 16


def as_bytes(buffer: Any) -> Bytes:
    """A buffer as an array, without copying."""
    return np.frombuffer(buffer, dtype=np.uint8) if len(buffer) else np.empty(0, dtype=np.uint8)


def fields_of(data: Bytes, raw: Any, start: int, end: int, count: int) -> Fields:
    """The fields of the `count` records in `data` from `start` to `end`. `raw` has the same bytes.

    CORRUPT_MESSAGE if the records do not fill that range exactly.
    """
    if count >= RUN_MIN:
        run = run_of(data, raw, start, end, count)
        if run is not None:
            return Fields.joined([Fields.of(span) for span in run.spans])
        located = _between_zeros(data, raw, start, end, count)
        if located is not None:
            return _uniform_heads(data, raw, *located) or Fields(data, located[0])
    return Fields(data, record_starts(data, raw, start, end, count))


class Fields:
    """The fields of many records, as arrays of the same length. Sizes of -1 are nulls."""

    timestamp_delta: Ints
    offset_delta: Ints
    key_at: Ints
    key_size: Ints
    value_at: Ints
    value_size: Ints
    header_count: Ints
    #: Position after the header count.
    header_at: Ints
    #: Position after the record.
    end_at: Ints

    __slots__ = (
        "end_at",
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
        """Decode the fields of records that begin at `starts`. CORRUPT_MESSAGE if a field exceeds its record."""
        try:
            length, at = varints(data, starts)
            ends = at + length
            # The attributes are one unused byte.
            self.timestamp_delta, at = varints(data, at + 1)
            self.offset_delta, at = varints(data, at)
            self.key_size, self.key_at = varints(data, at)
            self.value_size, self.value_at = varints(data, self.key_at + np.maximum(self.key_size, 0))
            self.header_count, self.header_at = varints(data, self.value_at + np.maximum(self.value_size, 0))
        except IndexError:
            raise corrupt("a record's field exceeds its batch") from None
        self.end_at = ends
        plain = self.header_count == 0
        if not (plain & (self.header_at == ends) | ~plain & (self.header_at < ends)).all():
            raise corrupt("a record's fields do not add up to its length")

    @classmethod
    def of(cls, span: UniformSpan) -> Fields:
        """The fields of records of one layout, in a single batch."""
        fields = cls.__new__(cls)
        count, size = span.records, span.size
        base = np.arange(0, size * count, size, dtype=np.int64)
        stamp, offset = span.timestamp_delta, span.offset_delta
        fields.timestamp_delta = np.full(count, stamp, dtype=np.int64) if isinstance(stamp, int) else stamp[0]
        fields.offset_delta = np.arange(offset, offset + count) if isinstance(offset, int) else offset[0]
        fields.key_at, fields.value_at = base + span.key_at, base + span.value_at
        fields.header_at = fields.end_at = base + (span.at + size)
        fields.key_size = np.full(count, span.key_size, dtype=np.int64)
        fields.value_size = np.full(count, span.value_size, dtype=np.int64)
        fields.header_count = np.zeros(count, dtype=np.int64)
        return fields

    @classmethod
    def joined(cls, parts: Sequence[Fields]) -> Fields:
        """The concatenated fields of several parts, whose positions refer to the same bytes."""
        if len(parts) == 1:
            return parts[0]
        fields = cls.__new__(cls)
        for name in cls.__slots__:
            setattr(fields, name, _concatenated([getattr(part, name) for part in parts]))
        return fields

    @property
    def size(self) -> int:
        """The number of records."""
        return int(self.key_size.size)


# ---- where records begin


def _between_zeros(data: Bytes, raw: Any, start: int, end: int, count: int) -> tuple[Ints, Ints, Ints] | None:
    """The (starts, ends of the lengths, ends) of `count` records in `data` from `start` to `end`; None if unclear.

    A record without headers ends in a zero byte, and so does its head: the attributes after the length are zero. A
    candidate follows a zero, has another zero as far away as in the first record, and has a length that leads to
    another candidate. In text only the records themselves match. The candidates are correct if they lead from one to
    the next, from `start` to `end`, as walking would.
    """
    try:
        width = length_at(raw, start)[1]
    except KafkaError:
        return None
    if end - start < width + 2 or data[end - 1]:
        return None
    edge = np.empty(end - start - width - 1, dtype=bool)
    for first in range(0, edge.size, _SEARCH_BYTES):
        last = min(first + _SEARCH_BYTES, edge.size)
        zero = data[start + first : start + last + width + 1] == 0
        found = np.logical_and(zero[: -width - 1], zero[width + 1 :], out=edge[first:last])
        if width > 1:
            found &= data[start + first + 1 : start + last + 1] > 127
    edges = true_places(edge)
    if edges.size < count - 1 or edges.size > _PLACES_MAX * count:
        return None
    at = np.empty(edges.size + 1, dtype=np.int64)
    at[0] = start
    np.add(edges, start + 1, out=at[1:])
    # Lengths of two bytes, the most common ones of text, are read in one step.
    pair = np.ndarray((data.size - 1,), "<u2", data, 0, (1,))[at] if width == 2 else None
    if pair is not None and ((pair & 0x8080) == 0x80).all():
        after = at + 2
        following = after + (((pair & 127) >> 1) | ((pair >> 8) << 6))
    else:
        try:
            length, after = _raw_varints(data, at)
        except (IndexError, KafkaError):
            return None
        following = after + (length >> 1)
    if at.size > count:
        # A candidate stands for itself in `edge`, one byte before it.
        leads = edge[np.minimum(following - (start + 1), edge.size - 1)] | (following == end)
        at, after, following = at[leads], after[leads], following[leads]
    if at.size != count or at[0] != start or following[-1] != end or (at[1:] != following[:-1]).any():
        return None
    return at, after, following


def _uniform_heads(data: Bytes, raw: Any, starts: Ints, after: Ints, ends: Ints) -> Fields | None:
    """The fields of records without keys and headers whose numbers have the same widths as in the first record.

    Their heads, the bytes before the value, then have at most eight bytes: one word per record. None otherwise.
    """
    windows = np.ndarray((max(0, data.size - 7),), "<u8", data, 0, (1,))
    parts = []
    first, count = 0, starts.size
    while first < count:
        part_slice = slice(first, min(count, next(step for step in STEPS if step > first)))
        part = _fields_of_heads(windows, raw, after[part_slice], ends[part_slice])
        if part is None:
            return None
        parts.append(part)
        first = part_slice.stop
    # Every record ends in its header count, which is 0: `_between_zeros` found the records by it.
    return Fields.joined(parts)


def _fields_of_heads(windows: Any, raw: Any, after: Ints, ends: Ints) -> Fields | None:
    """The fields of records whose heads begin (after the length) at `after`."""
    begin, count = int(after[0]), after.size
    try:
        stamp, offset_at = decode_varint(raw, begin + 1)
        offset, key_at = decode_varint(raw, offset_at)
        value_at = decode_varint(raw, key_at + 1)[1]
    except (IndexError, ValueError):
        return None
    width = value_at - begin
    if raw[key_at] != 1 or width > 8 or after[-1] >= windows.size:
        return None
    if not counts_up(offset, count, bytes(raw[offset_at:key_at])):
        return None
    word = windows[after]
    # Offset deltas count up; timestamps and value sizes are as wide as in the first record.
    code = codes_of(offset, count) << np.uint64(8 * (offset_at - begin))
    differs = (word ^ code) ^ (word[0] ^ code[0])
    mask = b"\xff" + b"\x80" * (offset_at - begin - 1) + b"\xff" * (key_at + 1 - offset_at)
    mask += b"\x80" * (value_at - key_at - 1)
    if (differs & np.uint64(int.from_bytes(mask, "little"))).any():
        return None
    size = _number(word, key_at + 1 - begin, value_at - begin)
    fields = Fields.__new__(Fields)
    fields.value_at = after + width
    fields.value_size = size
    value_end = fields.value_at + (size if int(size.min()) >= 0 else np.maximum(size, 0))
    value_end += 1
    if (value_end != ends).any():
        return None
    stamps = mask[1 : offset_at - begin].replace(b"\x80", b"\x7f")
    same = not (differs & np.uint64(int.from_bytes(b"\0" + stamps, "little"))).any()
    fields.timestamp_delta = constant(stamp, count) if same else _number(word, 1, offset_at - begin)
    fields.offset_delta = np.arange(offset, offset + count)
    # A null has no position: any does.
    fields.key_at = fields.value_at
    fields.key_size = constant(-1, count)
    fields.header_count = constant(0, count)
    fields.header_at = fields.end_at = ends
    return fields


def _number(word: Any, start: int, end: int) -> Ints:
    """The zigzag varints in these bytes of the words."""
    if end - start == 2:
        # Halves of four: there is less to move.
        pair = (word >> np.uint64(8 * start)).astype(np.uint16)
        both = ((pair & 127) | ((pair >> 8 & 127) << 7)).view(np.int16)
        short: Ints = ((both >> 1) ^ -(both & 1)).astype(np.int64)
        return short
    value = (word >> np.uint64(8 * start)) & np.uint64(127)
    for place in range(1, end - start):
        value |= ((word >> np.uint64(8 * (start + place))) & np.uint64(127)) << np.uint64(7 * place)
    signed: Ints = value.view(np.int64)
    return (signed >> 1) ^ -(signed & 1)


def constant(value: int, count: int) -> Ints:
    """An array of `count` equal numbers in the memory of one. It is read-only."""
    return np.ndarray((count,), "<i8", value.to_bytes(8, "little", signed=True), 0, (0,))


def is_constant(numbers: Ints) -> bool:
    """True if these are the numbers of `constant`."""
    return numbers.strides == (0,)


def _concatenated(parts: list[Ints]) -> Ints:
    first = parts[0]
    if is_constant(first) and all(is_constant(part) and part[0] == first[0] for part in parts):
        return constant(int(first[0]), sum(part.size for part in parts))
    return np.concatenate(parts)


def record_starts(data: Bytes, raw: Any, start: int, end: int, count: int) -> Ints:
    """The starts of `count` records in `data` from `start` to `end`. `raw` has the same bytes, for walking.

    CORRUPT_MESSAGE if the records do not fill that range exactly.
    """
    pieces: list[Any] = []
    position, left = start, count
    while left > 0:
        length, width = length_at(raw, position)
        size = length + width
        most = min(left, (end - position) // size if size > 0 else 0)
        if most <= 0:
            raise corrupt("a record is longer than its batch")
        run = 1
        # Compare a few records first: where sizes vary, comparing to the end of the batch each time would dominate.
        if most >= RUN_MIN and _run(data, position, size, width, RUN_MIN) == RUN_MIN:
            run = _run(data, position, size, width, most)
        if run >= RUN_MIN:
            pieces.append(np.arange(position, position + run * size, size, dtype=np.int64))
            position += run * size
            left -= run
        else:
            steps = min(left, _WALK_STEPS)
            walked, position = _walk(raw, position, steps)
            pieces.append(np.array(walked, dtype=np.int64))
            left -= steps
    if position != end:
        raise corrupt("the records do not fill their batch")
    return np.concatenate(pieces) if len(pieces) != 1 else pieces[0]


def _run(data: Bytes, position: int, size: int, width: int, most: int) -> int:
    """How many of the next `most` records have the same length as the first."""
    table = data[position : position + most * size].reshape(most, size)[:, :width]
    same = (table == table[0]).all(axis=1) if width > 1 else table[:, 0] == table[0, 0]
    return most if same.all() else int(same.argmin())


def _walk(raw: Any, position: int, steps: int) -> tuple[list[int], int]:
    starts: list[int] = []
    append = starts.append
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
                    length, width = length_at(raw, position)
                    position += length + width
    except IndexError:
        raise corrupt("a record is longer than its batch") from None
    return starts, position


# ---- varints


def varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The zigzag varints at `at`, and the positions after them."""
    value, end = _raw_varints(data, at)
    # The shift is on unsigned numbers, since all 64 bits may be used.
    return (value.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(value & 1), end


def _raw_varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    byte = data[at]
    value = (byte & 127).astype(np.int64)
    end = at + 1
    more = byte > 127
    if not more.any():
        return value, end
    if more.all():
        # Sizes are often similar: two bytes in all records need no selection.
        second = data[end]
        if not (second > 127).any():
            return value | (second.astype(np.int64) << 7), end + 1
    index = np.flatnonzero(more)
    shift = 7
    while index.size:
        if shift > 63:
            raise corrupt("a varint has more than ten bytes")
        byte = data[end[index]]
        value[index] |= (byte & 127).astype(np.int64) << shift
        end[index] += 1
        index = index[byte > 127]
        shift += 7
    return value, end
