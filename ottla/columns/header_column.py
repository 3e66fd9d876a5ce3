"""Headers as a column: a list of (key, value) per record, without a Python object per header.

The first headers of all records are read together, then all second ones, and so on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ottla.columns.column import gather
from ottla.columns.field import Fields, varints
from ottla.columns.uniform_layout import Bytes
from ottla.kernel.error import ErrorCode, KafkaError

#: The type of header columns, in polled tables and in tables to send.
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def header_column(data: Bytes, buffer: Any, fields: Fields) -> Any:
    """The headers of these records. CORRUPT_MESSAGE if they do not fill the rest of their record."""
    counts = fields.header_count
    offsets = np.zeros(fields.size + 1, dtype=np.int32)
    total = 0
    if counts.any():
        # A header has at least two bytes.
        if (counts < 0).any() or (2 * counts > fields.end_at - fields.header_at).any():
            raise _corrupt("a record has more headers than bytes for them")
        np.cumsum(counts, out=offsets[1:])
        total = int(offsets[-1])
    if not total:
        return _list(offsets, pa.array([], pa.string()), pa.array([], pa.binary()))
    key_at, key_size, value_at, value_size = (np.empty(total, dtype=np.int64) for _ in range(4))
    at = fields.header_at.copy()
    try:
        for turn in range(int(counts.max())):
            record = np.flatnonzero(counts > turn)
            place = offsets[record] + turn
            key_size[place], key_at[place] = varints(data, at[record])
            value_size[place], value_at[place] = varints(data, key_at[place] + np.maximum(key_size[place], 0))
            at[record] = value_at[place] + np.maximum(value_size[place], 0)
    except IndexError:
        raise _corrupt("a record's header leaves its batch") from None
    if (key_size < 0).any() or (at != fields.end_at).any():
        raise _corrupt("a record's headers do not add up to its length")
    try:
        names = gather(data, buffer, key_at, key_size).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise _corrupt(f"a header's key is not UTF-8: {error}") from error
    return _list(offsets, names, gather(data, buffer, value_at, value_size).cast(pa.binary()))


def no_headers(count: int) -> Any:
    """A header column for `count` records without headers."""
    return _list(np.zeros(count + 1, dtype=np.int32), pa.array([], pa.string()), pa.array([], pa.binary()))


def _list(offsets: Any, names: Any, values: Any) -> Any:
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    buffers = [None, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(HEADERS, len(offsets) - 1, buffers, children=[pairs])


def _corrupt(why: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, why)
