"""JSON objects of one layout to typed columns, without parsing each of them.

What one serializer writes has the same names in the same order in every value, and the same bytes between the fields.
So these bytes are taken from the first value and compared in all values, eight or sixteen at a time. What is between
them is the text of the fields, which Arrow's casts read.

Rules:
- The result is that of Arrow's JSON reader. Values that may give another one are left to the reader: None.
- A comma before a quote begins every field but the first. Quotes are counted: there are as many as the bytes between
  the fields have, so the text of a field has none. Backslashes and control characters are left to the reader.

RFC 8259.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.columns.encode_columns import offsets_of
from ottla.columns.sparse import true_places
from ottla.columns.uniform_layout import Bytes, Ints
from ottla.kernel.named import NamedTuple
from ottla.serde.json_column import READ, Rows, kind_of

#: With fewer values than this, the calls cost more than they save.
ROWS_MIN = 1_000
#: The bytes that are searched in one step, so that they are still in cache for the next search.
_STEP_BYTES = 1 << 17
#: The longest value whose layout is looked for.
_VALUE_MAX = 1 << 14
_WORD = 8

_FIELD = re.compile(
    rb'(?P<head>[{,] ?"(?P<name>[^"\\\x00-\x1f]*)": ?)'
    rb'(?:(?P<text>")[^"\\\x00-\x1f]*"|(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|true|false)'
)


class _Field(NamedTuple):
    """A field of the layout: its name, the bytes before its text (a string's quote included), and what is read."""

    name: bytes
    head: bytes
    kind: str


class _Layout(NamedTuple):
    fields: list[_Field]
    #: The distance from a comma to the quote after it.
    gap: int

    @property
    def quotes(self) -> int:
        """The quotes of each value."""
        return sum(field.head.count(b'"') + (field.kind == "text") for field in self.fields)


def plain_types(schema: Any) -> dict[bytes, Any] | None:
    """The type of each name; None if one of the types is left to Arrow's reader."""
    kinds = {field.name.encode(): field.type for field in schema}
    plain = all(kind_of(kind) for kind in kinds.values())
    return kinds if plain and len(kinds) == len(schema) and all(field.nullable for field in schema) else None


def columns_of(values: Any, kinds: dict[bytes, Any]) -> list[Any] | None:
    """The columns of objects of one layout; None if they are left to Arrow's reader. No value is null."""
    count, buffer = len(values), values.buffers()[2]
    if buffer is None or not pa.types.is_binary(values.type):
        return None
    rows = Rows(np.frombuffer(buffer, dtype=np.uint8), buffer, offsets_of(values))
    layout = _layout_of(rows, 0)
    if layout is None or not _suits(layout, kinds):
        return None
    if layout != _layout_of(rows, count // 2) or layout != _layout_of(rows, count - 1):
        return None
    commas = _commas(rows, layout)
    places = None if commas is None else _places(rows, layout, commas)
    if places is None:
        return None
    found = {}
    for field, (at, sizes) in zip(layout.fields, places, strict=True):
        try:
            column = READ[field.kind](rows, at, sizes, kinds.get(field.name))
        except pa.ArrowInvalid:
            return None
        if column is None:
            return None
        found[field.name] = column
    return [found[name] if name in found else pa.nulls(count, kind) for name, kind in kinds.items()]


# ---- the layout


def _layout_of(rows: Rows, row: int) -> _Layout | None:
    """The layout of one value."""
    start, end = int(rows.edges[row]), int(rows.edges[row + 1])
    if not _WORD <= end - start <= _VALUE_MAX:
        return None
    value = rows.data[start:end].tobytes()
    fields: list[_Field] = []
    gaps = set()
    at = 0
    while (match := _FIELD.match(value, at)) and value[at : at + 1] == (b"," if fields else b"{"):
        text, number = match["text"], match["number"]
        fields.append(
            _Field(match["name"], match["head"] + (text or b""), "text" if text else "number" if number else "truth")
        )
        if len(fields) > 1:
            gaps.add(match["head"].index(b'"'))
        at = match.end()
    if not fields or value[at:] != b"}" or len(gaps) > 1 or len({field.name for field in fields}) < len(fields):
        return None
    return _Layout(fields, max(gaps, default=1))


def _suits(layout: _Layout, kinds: dict[bytes, Any]) -> bool:
    """True if each field is of the kind that its type reads. A field without a type is only checked."""
    return all(field.name not in kinds or kind_of(kinds[field.name]) == field.kind for field in layout.fields)


def _commas(rows: Rows, layout: _Layout) -> Ints | None:
    """The commas that begin fields, a row of them for each field but the first.

    None if there are not as many as the values need, or if there are bytes that are left to Arrow's reader.
    """
    edges, gap = rows.edges, layout.gap
    count, each = edges.size - 1, len(layout.fields) - 1
    commas = np.empty((each, count), dtype=np.int64)
    step = max(1, _STEP_BYTES * count // int(edges[-1] - edges[0]))
    for first in range(0, count, step):
        last = min(first + step, count)
        start = int(edges[first])
        text = rows.data[start : int(edges[last])]
        quote = text == ord('"')
        if np.count_nonzero(quote) != layout.quotes * (last - first):
            return None
        if int(text.min()) < ord(" ") or (text == ord("\\")).any():
            return None
        if each:
            found = true_places((text[:-gap] == ord(",")) & quote[gap:])
            if found.size != each * (last - first):
                return None
            np.add(found.reshape(last - first, each).T, start, out=commas[:, first:last])
    return commas


def _places(rows: Rows, layout: _Layout, commas: Ints) -> list[tuple[Any, Any]] | None:
    """The positions and the sizes of each field's texts; None if the bytes between them differ."""
    begins, stops = rows.edges[:-1], rows.edges[1:]
    if int((stops - begins).min()) < _WORD:
        return None
    places = []
    at, closing, known = begins, b"", set[int]()
    for number, field in enumerate(layout.fields):
        # A string's closing quote is compared, too; the comma and the quote after it were found.
        if not _agree(rows.data, at, closing + field.head, known):
            return None
        at = at + len(closing + field.head)
        closing = b'"' if field.kind == "text" else b""
        known = {len(closing), len(closing) + layout.gap}
        ends = commas[number] if number < len(commas) else stops - 1
        if closing:
            ends = ends - 1
        sizes = ends - at
        if int(sizes.min()) < (field.kind != "text"):
            return None
        places.append((at, sizes))
        at = ends
    return places if _agree(rows.data, at, closing + b"}", set()) else None


def _agree(data: Bytes, at: Ints, piece: bytes, known: set[int]) -> bool:
    """True if `piece` is at each of these positions; the bytes at `known` are not compared."""
    open_bytes = set(range(len(piece))) - known
    while open_bytes:
        # The last word ends with the last byte that is not compared yet: bytes behind the values are not read.
        end = max(open_bytes) + 1
        count = 2 if end - min(open_bytes) > _WORD and end - 2 * _WORD + int(at[0]) >= 0 else 1
        start = end - count * _WORD
        if start + int(at[0]) < 0:
            start = 0
        room = data.size - count * _WORD + 1
        if start + int(at[-1]) >= room:
            # A comma at the end of the last text.
            return False
        # As elements of 8 or 16 bytes they are moved at once.
        words = np.ndarray((room,), f"V{count * _WORD}", data, 0, (1,))[at + start].view("<u8")
        for first in range(count):
            begin = start + first * _WORD
            inside = open_bytes & set(range(begin, begin + _WORD))
            mask = sum(0xFF << 8 * (place - begin) for place in inside)
            code = sum(piece[place] << 8 * (place - begin) for place in inside)
            word = words[first::count]
            if mask != (1 << 64) - 1:
                word = word & np.uint64(mask)
            if (word != np.uint64(code)).any():
                return False
            open_bytes -= inside
    return True
