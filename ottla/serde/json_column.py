"""Typed columns from the texts of JSON's numbers, strings, `true` and `false`, with Arrow's casts.

Arrow's casts accept numbers that JSON lacks (`01`, `1.`, `inf`, `0x1F`), and numbers that are too large for Arrow's
JSON reader (`1e999`). What may give another result than that reader gives is left to it: None, or pa.ArrowInvalid.

RFC 8259.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ottla.columns.column import gather
from ottla.columns.encode_columns import offsets_of
from ottla.columns.uniform_layout import Bytes
from ottla.kernel.named import NamedTuple

#: The longest number that is read; writers need 24 bytes for a float.
_NUMBER_MAX = 32
_ZERO = np.uint8(ord("0"))
_TRUE, _ALSE = (np.uint32(int.from_bytes(word, "little")) for word in (b"true", b"alse"))
#: The column of a string without a type: it is not read.
_UNREAD = object()


class Rows(NamedTuple):
    """The values: their bytes, the same as an Arrow buffer, and the edges of the values."""

    data: Bytes
    buffer: Any
    edges: Any


def kind_of(kind: Any) -> str:
    """What is read as this type, "" if that is left to Arrow's reader."""
    if pa.types.is_boolean(kind):
        return "truth"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    return "number" if pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind) else ""


def _text(rows: Rows, at: Any, sizes: Any, kind: Any) -> Any:
    # Without a type, it is enough that no quote, backslash or control character is within.
    return _UNREAD if kind is None else gather(rows.data, rows.buffer, at, sizes).cast(kind)


def _number(rows: Rows, at: Any, sizes: Any, kind: Any) -> Any:
    """Numbers; None if one is not JSON's."""
    data = rows.data
    texts = gather(rows.data, rows.buffer, at, sizes)
    first = data[at] - _ZERO
    if int(first.max()) > 9:
        minus = data[at] == ord("-")
        at = at + minus
        sizes = sizes - minus
        if int(sizes.min()) < 1:
            return None
        first = data[at] - _ZERO
    if int(first.max()) > 9 or int((data[at + sizes - 1] - _ZERO).max()) > 9:
        return None
    # No digit follows a zero that begins a number.
    zero = np.flatnonzero(first == 0)
    after = data[at[zero] + 1][sizes[zero] > 1]
    if not ((after == ord(".")) | (after | 32 == ord("e"))).all():
        return None
    if (kind is None or pa.types.is_floating(kind)) and not _plain_floats(texts):
        return None
    return texts.view(pa.string()).cast(kind or pa.float64())


def _plain_floats(texts: Any) -> bool:
    """True if a digit follows each point, and no exponent is of a size that Arrow's reader may refuse.

    The last byte of each text is a digit.
    """
    edges = offsets_of(texts)
    text = np.frombuffer(texts.buffers()[2], dtype=np.uint8)[: int(edges[-1])]
    points = np.flatnonzero(text == ord("."))
    if points.size and int((text[points + 1] - _ZERO).max()) > 9:
        return False
    marks = np.flatnonzero(text | 32 == ord("e"))
    if marks.size:
        rest = edges[np.searchsorted(edges, marks, "right")] - marks
        signed = text[marks + 1] - _ZERO > 9
        if (rest > signed + len(b"e99")).any():
            return False
    return int(np.diff(edges).max()) <= _NUMBER_MAX


def _truth(rows: Rows, at: Any, sizes: Any, kind: Any) -> Any:
    """`true` and `false`; None if there is another."""
    del kind
    data, yes = rows.data, sizes == len(b"true")
    if not (yes | (sizes == len(b"false"))).all():
        return None
    # The last four bytes are `true` or `alse`.
    words = np.ndarray((data.size - 3,), "<u4", data, 0, (1,))[at + sizes - 4]
    if (words != np.where(yes, _TRUE, _ALSE)).any() or (data[at[~yes]] != ord("f")).any():
        return None
    return pa.array(yes)


#: The functions that read the texts of each kind of field, given their positions, sizes and type (None: check only).
READ = {"text": _text, "number": _number, "truth": _truth}
