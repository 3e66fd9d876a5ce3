"""Headers as a column: a list of (key, value) per record, without a Python object per header.

The first headers of all records are read together, then all second ones, and so on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ottla.columns.column import gather
from ottla.columns.field import Fields, is_constant, varints
from ottla.columns.uniform_layout import Bytes
from ottla.kernel.error import ErrorCode, KafkaError

#: The type of header columns, in polled tables and in tables to send.
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def header_column(data: Bytes, buffer: Any, fields: Fields) -> Any:
    """The headers of these records. CORRUPT_MESSAGE if they do not fill the rest of their record."""
    counts = fields.header_count
    if is_constant(counts) and not counts[0]:
        return no_headers(fields.size)
    offsets = np.zeros(fields.size + 1, dtype=np.int32)
    total = 0
    if counts.any():
        # A header has at least two bytes.
        if (counts < 0).any() or (2 * counts > fields.end_at - fields.header_at).any():
            raise _corrupt("a record has more headers than its bytes can hold")
        np.cumsum(counts, out=offsets[1:])
        total = int(offsets[-1])
    if not total:
        return _list(offsets, pa.array([], pa.string()), pa.array([], pa.binary()))
    key_at, key_size, value_at, value_size = (np.empty(total, dtype=np.int64) for _ in range(4))
    at = fields.header_at.copy()
    try:
        for header_index in range(int(counts.max())):
            record = np.flatnonzero(counts > header_index)
            index = offsets[record] + header_index
            key_size[index], key_at[index] = varints(data, at[record])
            value_size[index], value_at[index] = varints(data, key_at[index] + np.maximum(key_size[index], 0))
            at[record] = value_at[index] + np.maximum(value_size[index], 0)
    except IndexError:
        raise _corrupt("a record's header exceeds its batch") from None
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
