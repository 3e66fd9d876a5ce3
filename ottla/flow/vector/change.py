"""Changes of tables on columns: old values, regrouping, and the bytes in a repartition topic.

Results, timestamps and stores equal those of `operator/table.py` and `operator/table_aggregate.py`, which take over
when anything here raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.flow.column.expression import Expression
from ottla.flow.error import SerdeError
from ottla.flow.operator.table_aggregate import varint
from ottla.flow.store.key_value import TimestampedKeyValueStore
from ottla.flow.vector.aggregate import groups_of, running
from ottla.flow.vector.encode import decode, encode, read_back
from ottla.flow.vector.evaluate import Changes, Frame, evaluate

_OLD, _NEW, _BOTH = 0, 1, 2
_FLAGS = pa.array([b"\x00", b"\x01", b"\x02"], pa.binary())


def with_old(store: TimestampedKeyValueStore, frame: Frame) -> Frame:
    """The rows of a table as changes: the old value is that of the key's previous row or, for the first, the store's.
    Keys must not be null.
    """
    if not len(frame):
        return replace(frame, values=Changes(frame.values, frame.values))
    groups = groups_of(frame.keys, None)
    stored = decode(store.value_serde, stored_values(store, encode(store.key_serde, groups.keys).to_pylist()))
    run = running(groups.of, len(groups.keys))
    # The stored values come first, then the rows' own.
    previous = np.empty(len(frame), dtype=np.int64)
    previous[run.order[1:]] = run.order[:-1] + len(stored)
    firsts = run.order[run.begins]
    previous[firsts] = groups.of[firsts]
    old = pa.concat_arrays([stored, read_back(store.value_serde, frame.values)]).take(pa.array(previous))
    return replace(frame, values=Changes(frame.values, old))


def regrouped(frame: Frame, key: Expression, value: Expression) -> Frame:
    """Changes under new keys: one if the key stays, otherwise one for the old value, then one for the new value."""
    if frame.keys.null_count:
        raise ValueError("a table's row has a null key")
    changes = frame.values
    sides = [_mapped(replace(frame, values=values), key, value) for values in (changes.old, changes.new)]
    (old_keys, old_values, has_old), (new_keys, new_values, has_new) = sides
    same = has_old & has_new & np.asarray(pc.equal(old_keys, new_keys).fill_null(False))
    count = len(frame)
    picked = np.flatnonzero(np.stack([has_old & ~same, has_new], axis=1))
    row, is_new = picked // 2, picked % 2 == 1
    keys = pa.concat_arrays([old_keys, new_keys]).take(pa.array(row + is_new * count))
    old = old_values.take(pa.array(row, mask=is_new & ~same[row]))
    new = new_values.take(pa.array(row, mask=~is_new))
    return Frame(keys, Changes(new, old), frame.timestamps[row], frame.rows[row])


def _mapped(frame: Frame, key: Expression, value: Expression) -> tuple[Any, Any, Any]:
    """Keys and values of one side, and which rows have both."""
    keys, values = evaluate(key, frame), evaluate(value, frame)
    valid = [np.asarray(column.is_valid()) for column in (frame.values, keys, values)]
    return keys, values, valid[0] & valid[1] & valid[2]


def filtered(frame: Frame, predicate: Expression, negate: bool, send_old: bool) -> Frame:
    """Changes of a filter: values that it drops are null. With old values, changes without any value are dropped."""
    new = _kept(replace(frame, values=frame.values.new), predicate, negate)
    if not send_old:
        return replace(frame, values=Changes(new, pa.nulls(len(frame), new.type)))
    old = _kept(replace(frame, values=frame.values.old), predicate, negate)
    result = replace(frame, values=Changes(new, old))
    return result.where(pc.or_(pc.is_valid(new), pc.is_valid(old)))


def _kept(frame: Frame, predicate: Expression, negate: bool) -> Any:
    passed = evaluate(predicate, frame).fill_null(False)
    return _nulled(frame.values, passed if negate else pc.invert(passed))


def mapped(frame: Frame, mapper: Expression, send_old: bool) -> Frame:
    """Changes of map_values. A null value stays null."""
    sides = [frame.values.new, frame.values.old] if send_old else [frame.values.new]
    results = [_result(mapper, replace(frame, values=values)) for values in sides]
    old = results[1] if send_old else pa.nulls(len(frame), results[0].type)
    return replace(frame, values=Changes(results[0], old))


def _result(mapper: Expression, frame: Frame) -> Any:
    result = evaluate(mapper, frame)
    return _nulled(result, frame.values.is_null()) if frame.values.null_count else result


def _nulled(values: Any, where: Any) -> Any:
    """The values, null where `where` is true."""
    return values.take(pa.array(np.arange(len(values)), mask=np.asarray(where)))


def encode_changes(serde: Any, changes: Changes) -> Any:
    """Serialize changes as `ChangeSerde` does. `serde` is that of the values."""
    new, old = encode(serde, changes.new), encode(serde, changes.old)
    has_new, has_old = np.asarray(new.is_valid()), np.asarray(old.is_valid())
    if not (has_new | has_old).all():
        raise SerdeError("cannot serialize a change with neither an old nor a new value")
    both = has_new & has_old
    sizes, of = np.unique(np.where(both, np.asarray(pc.binary_length(new).fill_null(0)), -1), return_inverse=True)
    lengths = pa.array([b"" if size < 0 else varint(int(size)) for size in sizes], pa.binary()).take(pa.array(of))
    flags = _FLAGS.take(pa.array(np.where(both, _BOTH, np.where(has_new, _NEW, _OLD))))
    parts = (lengths, new, old, flags, b"")
    return pc.binary_join_element_wise(*parts, null_handling="replace", null_replacement=b"")


def decode_changes(serde: Any, array: Any) -> Changes:
    """Deserialize changes. ValueError if one is not valid."""
    if array.null_count:
        raise ValueError("a change is null")
    _, offsets, buffer = array.buffers()
    edges = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = np.frombuffer(buffer, dtype=np.uint8) if buffer is not None else np.empty(0, dtype=np.uint8)
    begins, ends = edges[:-1], edges[1:] - 1
    if (ends < begins).any():
        raise ValueError("a change is empty")
    flags = data[ends]
    if (flags > _BOTH).any():
        raise ValueError("a change has an invalid flag")
    both = flags == _BOTH
    begins = begins.copy()
    middles = np.where(flags == _OLD, begins, ends)
    rows = np.flatnonzero(both)
    size, shift = np.zeros(len(rows), dtype=np.int64), 0
    at, more = begins[rows], np.ones(len(rows), dtype=bool)
    while more.any():
        if (at[more] >= ends[rows][more]).any() or shift > 28:
            raise ValueError("the length of a new value is not valid")
        byte = data[np.where(more, at, 0)].astype(np.int64)
        size += np.where(more, (byte & 0x7F) << shift, 0)
        at, shift, more = at + more, shift + 7, more & (byte >= 0x80)
    begins[rows], middles[rows] = at, at + (size >> 1)
    if (middles > ends).any():
        raise ValueError("the length of a new value is not valid")
    new = _slices(data, begins, middles, flags == _OLD)
    old = _slices(data, middles, ends, flags == _NEW)
    return Changes(decode(serde, new), decode(serde, old))


def _slices(data: Any, begins: Any, ends: Any, null: Any) -> Any:
    """Binary values cut out of bytes."""
    sizes = np.where(null, 0, ends - begins)
    edges = np.concatenate(([0], np.cumsum(sizes)))
    index = np.arange(edges[-1]) + np.repeat(begins - edges[:-1], sizes)
    buffers = [None, pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(data[index].tobytes())]
    array = pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
    return pc.if_else(pa.array(null), pa.scalar(None, pa.binary()), array) if null.any() else array


def stored_values(store: TimestampedKeyValueStore, keys: Sequence[bytes]) -> Any:
    """The bytes of the values of keys, without the timestamps in front, as a binary array; null where there is none."""
    # Not by pyarrow's binary_slice, which raises for many entries.
    entries = store.read_many(keys)
    return pa.array([None if entry is None else entry[8:] for entry in entries], pa.binary())
