"""Tables on columns: rows written to a table's store, and the rows that the records of a stream are joined with.

Results, timestamps and stores equal those of `operator/table.py` and `operator/stream_table_join.py`, which take over
when anything here raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.flow.column.kind import Type
from ottla.flow.operator.view import Derived, StoreValues, Values, value_of
from ottla.flow.store.key_value import TimestampedKeyValueStore
from ottla.flow.vector.aggregate import groups_of
from ottla.flow.vector.change import stored_values
from ottla.flow.vector.columns import objects
from ottla.flow.vector.encode import arrow_type, decode, encode, fixed
from ottla.flow.vector.evaluate import Frame


def rows_of_table(store: TimestampedKeyValueStore, frame: Frame) -> Callable[[], None]:
    """A function that writes the last row of each key to a table's store; a null value deletes. Keys must not be
    null.
    """
    if not len(frame):
        return lambda: None
    groups = groups_of(frame.keys, None)
    last = np.empty(len(groups.keys), dtype=np.int64)
    last[groups.of] = np.arange(len(frame))
    keys = encode(store.key_serde, groups.keys).to_pylist()
    times = frame.timestamps[last]
    values = encode(store.value_serde, frame.values.take(pa.array(last)))
    stamps = fixed(np.ascontiguousarray(times, dtype=">i8").view(np.uint8), 8, groups.keys)
    entries = pc.binary_join_element_wise(stamps, values, b"").to_pylist()
    return lambda: store.write_rows(keys, entries, times.tolist())


def holds(store: Any, key: Type, value: Type) -> bool:
    """Whether a store is the kind of a table's that is not versioned, with keys and values of these types."""
    return (
        isinstance(store, TimestampedKeyValueStore)
        and store.key_serde.column_type == key
        and store.value_serde.column_type == value
    )


def can_look_up(values: Values, key: Type, kind: Type) -> bool:
    """Whether `look_up` takes the values of a table, of type `kind`, by keys of type `key`."""
    base, derived = values, False
    while isinstance(base, Derived):
        base, derived = base.parent, True
    if not isinstance(base, StoreValues):
        return False
    if base.versioned or derived:
        kind = base.store.value_serde.column_type
    return (base.versioned and base.store.key_serde.column_type == key) or holds(base.store, key, kind)


def look_up(values: Values, kind: Type, keys: Any, timestamps: Any) -> Any:
    """A table's value for each key, as an array of type `kind`; null where there is none. Keys may be null."""
    if values.versioned:
        at = zip(objects(keys), timestamps.tolist(), strict=True)
        rows = [None if key is None else values.get_as_of(key, time) for key, time in at]
        return pa.array([value_of(row) for row in rows], arrow_type(kind))
    encoded = keys.dictionary_encode()
    names = encoded.dictionary
    if isinstance(values, StoreValues):
        store = values.store
        found = decode(store.value_serde, stored_values(store, encode(store.key_serde, names).to_pylist()))
    else:
        found = pa.array([value_of(values.get(name)) for name in objects(names)], arrow_type(kind))
    return found.take(encoded.indices)
