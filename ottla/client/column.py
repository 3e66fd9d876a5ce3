"""Records as columns: the bytes of batches to NumPy and Arrow arrays, without a Python object a record.

Where the records of a batch begin follows from their lengths, one after another. Four ways find it:

- Records of one layout (the same sizes, their numbers in the same widths) are recognised by comparing the bytes between
  the values at every multiple of the first one's size: where these agree, records begin (by induction from the first)
  and fields lie at the same place in each (`_stretches`).
- Records whose bytes hold few zeros but their own are found between these (`_starts_between_zeros`): text, mostly.
- Records of one size are recognised by their length bytes alone.
- The others are walked, one short step a record.

All else is vectorised: the varints of a field are decoded for all records at once, keys and values are gathered by
Arrow.

Needs the extra `ottla[arrow]` (NumPy and pyarrow); this module is imported where columns are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ottla.client.record import ConsumerRecord, read_headers
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.batch import BatchHeader, Header
from ottla.wire.varint import decode_varint

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

#: Runs shorter than this are walked; after so many steps of walking a run is looked for again.
_RUN_MIN = 32
_WALK_STEPS = 512
#: More zero bytes than so many a record: looking at the places behind them would cost more than walking.
_ZEROS_MAX = 8
#: Arrow's views hold shorter values themselves.
_VIEW_INLINE = 12


def as_bytes(buffer: Any) -> Bytes:
    """A buffer as an array, without a copy."""
    return np.frombuffer(buffer, dtype=np.uint8) if len(buffer) else np.empty(0, dtype=np.uint8)


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


def _starts_between_zeros(data: Bytes, start: int, end: int, count: int) -> Ints | None:
    """Where `count` records begin that fill `data` from `start` to `end`, if it can be seen; None where it cannot.

    A record without headers ends in a zero byte, and its attributes are one. So all places are tried that follow a zero
    and whose length leads to another such place: in text there are no others than the records' own. The places found
    are right if they lead from one to the next, from the first to the end: that is what walking finds.
    """
    zeros = np.flatnonzero(data[start:end] == 0) + start
    if zeros.size < count or zeros.size > _ZEROS_MAX * count or zeros[-1] != end - 1:
        return None
    at = np.concatenate((np.array([start], dtype=np.int64), zeros[:-1] + 1))
    at = at[data[at] != 0]
    try:
        length, after = _raw_varints(data, at)
        plain = data[after] == 0
    except (IndexError, KafkaError):
        return None
    at, following = at[plain], (after + (length >> 1))[plain]
    if at.size > count:
        place = np.minimum(np.searchsorted(at, following), at.size - 1)
        leads = (at[place] == following) | (following == end)
        at, following = at[leads], following[leads]
    if at.size != count or at[0] != start or following[-1] != end or (at[1:] != following[:-1]).any():
        return None
    starts: Ints = at
    return starts


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
    value, end = _raw_varints(data, at)
    # The shift is of an unsigned number: 64 bits may all be in use.
    return (value.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(value & 1), end


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

    timestamp_delta: Ints
    offset_delta: Ints
    key_at: Ints
    key_size: Ints
    value_at: Ints
    value_size: Ints
    header_count: Ints
    #: Behind the count.
    header_at: Ints
    #: Of the record.
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
        self.end_at = ends
        plain = self.header_count == 0
        if not (plain & (self.header_at == ends) | ~plain & (self.header_at < ends)).all():
            raise _corrupt("a record's fields do not add up to its length")

    @classmethod
    def joined(cls, parts: Sequence[Fields]) -> Fields:
        """The fields of several, one after another; positions are in the same bytes."""
        if len(parts) == 1:
            return parts[0]
        found = cls.__new__(cls)
        for name in cls.__slots__:
            setattr(found, name, np.concatenate([getattr(part, name) for part in parts]))
        return found

    def part(self, start: int, end: int) -> Fields:
        """Those of some records."""
        found = Fields.__new__(Fields)
        for name in self.__slots__:
            setattr(found, name, getattr(self, name)[start:end])
        return found

    @property
    def size(self) -> int:
        """How many records there are."""
        return int(self.key_size.size)


def fields_of(data: Bytes, raw: Any, start: int, end: int, count: int) -> Fields:
    """The fields of the `count` records that fill `data` from `start` to `end`. `raw` are the same bytes.

    CORRUPT_MESSAGE if they do not fill it exactly.
    """
    if count >= _RUN_MIN:
        stretches = _stretches(data, raw, start, end, count)
        if stretches is not None:
            return Fields.joined(stretches)
        starts = _starts_between_zeros(data, start, end, count)
        if starts is not None:
            return Fields(data, starts)
    return Fields(data, record_starts(data, raw, start, end, count))


def _stretches(data: Bytes, raw: Any, start: int, end: int, count: int) -> list[Fields] | None:
    """The fields where all records are of one layout but for the width of their offset delta; None where not."""
    found = []
    first = 0
    position = start
    while first < count:
        # The offset deltas of a whole batch count from 0: at these their varints become longer.
        most = next(step for step in (64, 8_192, 1_048_576, 1 << 31) if step > first)
        some = min(most, count) - first
        part = _stretch(data, raw, position, end, some)
        if part is None:
            return None
        found.append(part[0])
        position = part[1]
        first += some
    return found if position == end else None


def _stretch(data: Bytes, raw: Any, position: int, end: int, count: int) -> tuple[Fields, int] | None:
    """The fields of so many records of the first one's layout, and where they end. None if they are not alike."""
    try:
        length, width = _length(raw, position)
        size = width + length
        if length < 6 or position + size * count > end:
            return None
        stamp_at = position + width + 1
        offset_at = _after(raw, stamp_at)
        key_head_at = _after(raw, offset_at)
        key_size, key_at = decode_varint(raw, key_head_at)
        value_head_at = key_at + max(key_size, 0)
        value_size, value_at = decode_varint(raw, value_head_at)
        tail_at = value_at + max(value_size, 0)
    except (IndexError, ValueError, KafkaError):
        return None
    # The last byte is the header count, which has to be 0: headers differ too much to be of one layout.
    if tail_at != position + size - 1 or key_size < -1 or value_size < -1 or raw[tail_at]:
        return None
    # What lies between the values, a row for each place: NumPy's loops run along the records.
    rows = data[position : position + size * count].reshape(count, size).T
    places = [*range(key_at - position), *range(value_head_at - position, value_at - position), size - 1]
    head = rows[places]
    # Numbers may differ in all but the bits that say how wide they are.
    mask = np.full((len(places), 1), 0xFF, dtype=np.uint8)
    mask[stamp_at - position : key_head_at - position] = 0x80
    if ((head ^ head[:, :1]) & mask).any():
        return None
    fields = Fields.__new__(Fields)
    base = np.arange(0, size * count, size, dtype=np.int64)
    fields.timestamp_delta = _numbers(head[stamp_at - position : offset_at - position])
    fields.offset_delta = _numbers(head[offset_at - position : key_head_at - position])
    fields.key_at, fields.value_at = base + key_at, base + value_at
    fields.header_at = fields.end_at = base + (position + size)
    fields.key_size = np.full(count, key_size, dtype=np.int64)
    fields.value_size = np.full(count, value_size, dtype=np.int64)
    fields.header_count = np.zeros(count, dtype=np.int64)
    return fields, position + size * count


def _after(raw: Any, position: int) -> int:
    """Where the varint there ends."""
    while raw[position] > 127:
        position += 1
    return position + 1


def _numbers(places: Any) -> Any:
    """The zigzag varints whose bytes stand in these rows, all of one width."""
    if len(places) > 9:
        raise _corrupt("a varint has more than nine bytes in all records")
    value = (places[0] & 127).astype(np.int64)
    for number, place in enumerate(places[1:], 1):
        value |= (place & 127).astype(np.int64) << (7 * number)
    return (value >> 1) ^ -(value & 1)


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
    long = sizes > _VIEW_INLINE
    if long.all():
        rows[:, 1] = _windows(data, 4)[at].view(np.int32).ravel()
        rows[:, 3] = at
    else:
        for place in range(_VIEW_INLINE):
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
            raise _corrupt(f"a record's headers cannot be read: {error}") from error
    return found


def _corrupt(why: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, why)
