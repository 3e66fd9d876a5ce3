"""Decides oneofs in Protobuf columns.

A message on the wire may have several members of a oneof, for example when it was put together from two: the last one
counts. ptars makes a column of each. Only rows with several members are read again, by Google's library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa


def has_choices(descriptor: Any, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a message, or a message in it, has a oneof of several members."""
    if descriptor.full_name in seen:
        return False
    seen |= {descriptor.full_name}
    return any(len(oneof.fields) > 1 for oneof in descriptor.oneofs) or any(
        field.message_type is not None and has_choices(field.message_type, seen) for field in descriptor.fields
    )


def with_last_members(structs: Any, values: Any, descriptor: Any, decode: Callable[[Any], Any]) -> Any:
    """`structs` (the decoded `values`) with one member of each oneof; `decode` decodes messages."""
    wrong = np.flatnonzero(_has_several(structs, descriptor))
    if not len(wrong):
        return structs
    from google.protobuf import message_factory

    message_class = message_factory.GetMessageClass(descriptor)
    right = [message_class.FromString(values[index].as_py()).SerializeToString() for index in wrong.tolist()]
    at = np.arange(len(structs))
    at[wrong] = len(structs) + np.arange(len(wrong))
    return pa.concat_arrays([structs, decode(pa.array(right, pa.binary()))]).take(pa.array(at))


def _has_several(array: Any, descriptor: Any) -> Any:
    """Which elements have several members of a oneof, as a bool array."""
    found = np.zeros(len(array), bool)
    if not has_choices(descriptor):
        return found
    columns = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    for oneof in descriptor.oneofs:
        members = [columns[field.name].is_valid().to_numpy(zero_copy_only=False) for field in oneof.fields]
        found |= np.sum(members, axis=0) > 1
    for field in descriptor.fields:
        if field.message_type is not None:
            found |= _in_field(columns[field.name], field.message_type)
    return found


def _in_field(column: Any, descriptor: Any) -> Any:
    kind = column.type
    if pa.types.is_struct(kind):
        return _has_several(column, descriptor)
    if pa.types.is_map(kind) and pa.types.is_struct(kind.item_type):
        inner = _has_several(column.items, descriptor.fields_by_name["value"].message_type)
    elif pa.types.is_list(kind) and not pa.types.is_map(kind) and pa.types.is_struct(kind.value_type):
        inner = _has_several(column.values, descriptor)
    else:
        # A well-known type that has an Arrow type of its own, or a map of plain values.
        return np.zeros(len(column), bool)
    before = np.concatenate(([0], np.cumsum(inner)))
    edges = column.offsets.to_numpy()
    return before[edges[1:]] > before[edges[:-1]]
