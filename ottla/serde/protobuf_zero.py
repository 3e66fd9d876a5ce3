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
    wrong = np.flatnonzero(_has_negative_zero(rows))
    if not len(wrong):
        return written
    from google.protobuf import message_factory

    message_class = message_factory.GetMessageClass(descriptor)
    values = written.to_pylist()
    for index in wrong.tolist():
        message = message_class.FromString(values[index])
        _restore(message, rows[index].as_py())
        values[index] = message.SerializeToString()
    return pa.array(values, written.type)


def _has_negative_zero(array: Any) -> Any:
    """Which elements hold a negative zero outside of a list's elements, as a bool array."""
    kind = array.type
    nothing = np.zeros(len(array), bool)
    if pa.types.is_floating(kind):
        values = array.to_numpy(zero_copy_only=False)
        return (values == 0) & np.signbit(values)
    if pa.types.is_struct(kind):
        return np.logical_or.reduce([nothing, *map(_has_negative_zero, array.flatten())])
    if pa.types.is_map(kind) or (pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)):
        inner = _has_negative_zero(array.items if pa.types.is_map(kind) else array.values)
        before = np.concatenate(([0], np.cumsum(inner)))
        edges = array.offsets.to_numpy()
        return before[edges[1:]] > before[edges[:-1]]
    return nothing


def _restore(message: Any, row: dict[str, Any]) -> None:
    """Set a row's negative zeros in its message, which was parsed without them."""
    for field in message.DESCRIPTOR.fields:
        value, message_type = row[field.name], field.message_type
        if message_type is not None and message_type.GetOptions().map_entry:
            target = getattr(message, field.name)
            for key, item in value:
                if isinstance(item, dict):
                    _restore(target[key], item)
                elif _is_negative_zero(item):
                    target[key] = item
        elif isinstance(value, dict):
            _restore(getattr(message, field.name), value)
        elif isinstance(value, list):
            for element, item in zip(getattr(message, field.name), value, strict=True):
                if isinstance(item, dict):
                    _restore(element, item)
        elif message_type is None and _is_negative_zero(value):
            setattr(message, field.name, value)


def _is_negative_zero(value: Any) -> bool:
    return isinstance(value, float) and value == 0 and math.copysign(1, value) < 0
