"""Restores negative zeros in Protobuf columns.

ptars omits a float that equals zero, but -0.0 is not the default: Google's libraries write it, and a reader that finds
no field takes 0.0. Only rows with a negative zero in a field without presence, or as a map's value, are written again,
by Google's library.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa


def with_negative_zeros(written: Any, rows: Any, descriptor: Any) -> Any:
    """`written` (a binary array with one message of `descriptor` per row) with the negative zeros of `rows`
    restored.
    """
    wrong = np.flatnonzero(_holding(rows))
    if not len(wrong):
        return written
    from google.protobuf import message_factory

    kind = message_factory.GetMessageClass(descriptor)
    values = written.to_pylist()
    for at in wrong.tolist():
        message = kind.FromString(values[at])
        _restore(message, rows[at].as_py())
        values[at] = message.SerializeToString()
    return pa.array(values, written.type)


def _holding(array: Any) -> Any:
    """Which elements hold a negative zero outside of a list's elements, as a bool array."""
    kind = array.type
    nothing = np.zeros(len(array), bool)
    if pa.types.is_floating(kind):
        values = array.to_numpy(zero_copy_only=False)
        return (values == 0) & np.signbit(values)
    if pa.types.is_struct(kind):
        return np.logical_or.reduce([nothing, *map(_holding, array.flatten())])
    if pa.types.is_map(kind) or (pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)):
        inner = _holding(array.items if pa.types.is_map(kind) else array.values)
        before = np.concatenate(([0], np.cumsum(inner)))
        edges = array.offsets.to_numpy()
        return before[edges[1:]] > before[edges[:-1]]
    return nothing


def _restore(message: Any, row: dict[str, Any]) -> None:
    """Set a row's negative zeros in its message, which was parsed without them."""
    for field in message.DESCRIPTOR.fields:
        value, there = row[field.name], field.message_type
        if there is not None and there.GetOptions().map_entry:
            target = getattr(message, field.name)
            for key, one in value:
                if isinstance(one, dict):
                    _restore(target[key], one)
                elif _is_negative_zero(one):
                    target[key] = one
        elif isinstance(value, dict):
            _restore(getattr(message, field.name), value)
        elif isinstance(value, list):
            for element, one in zip(getattr(message, field.name), value, strict=True):
                if isinstance(one, dict):
                    _restore(element, one)
        elif there is None and _is_negative_zero(value):
            setattr(message, field.name, value)


def _is_negative_zero(value: Any) -> bool:
    return isinstance(value, float) and value == 0 and math.copysign(1, value) < 0
