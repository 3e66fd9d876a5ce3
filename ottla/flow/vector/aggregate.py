"""Count, sum, min and max on columns: Arrow and NumPy form the groups, which are folded in the order of the records.

Results, timestamps and stores equal those of `operator/aggregate.py` and `operator/window_aggregate.py`, which take
over when anything here raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.flow.column.expression import LONG_MAX, LONG_MIN
from ottla.flow.column.fold import FOLDS
from ottla.flow.record import TIME_MAX, ValueAndTimestamp
from ottla.flow.serde import LONG
from ottla.flow.store.key_value import TimestampedKeyValueStore
from ottla.flow.vector.encode import arrow_type, encode
from ottla.flow.vector.evaluate import ARROW, Frame
from ottla.kernel.named import NamedTuple

#: The store entry of a new group: no timestamp, and 0.
_NEW = (-1).to_bytes(8, "big", signed=True) + bytes(8)
#: A group's value and newest timestamp; None: a new group.
GroupState = tuple[Any, int] | None


class WindowedKeys(NamedTuple):
    """Keys of a windowed table: the inner keys and the window starts."""

    keys: Any
    starts: Any

    def take(self, index: Any) -> WindowedKeys:
        return WindowedKeys(self.keys.take(index), self.starts[np.asarray(index)])

    def filter(self, mask: Any) -> WindowedKeys:
        return WindowedKeys(self.keys.filter(mask), self.starts[np.asarray(mask)])


class Groups(NamedTuple):
    """Each record's group (`of`), and each group's key and start, as arrays. Groups are in order of their start."""

    of: Any
    keys: Any
    starts: Any


def groups_of(keys: Any, starts: Any | None) -> Groups:
    """Group records by key, or by key and start. Keys must not be null."""
    encoded = keys.dictionary_encode()
    codes, names = encoded.indices.to_numpy().astype(np.int64), encoded.dictionary
    if starts is None:
        return Groups(codes, names, np.zeros(len(names), dtype=np.int64))
    firsts, of_start = np.unique(starts, return_inverse=True)
    if len(firsts) == 1:
        return Groups(codes, names, np.full(len(names), firsts[0]))
    pairs, of = np.unique(of_start * len(names) + codes, return_inverse=True)
    start_of, key_of = np.divmod(pairs, max(1, len(names)))
    return Groups(of, names.take(pa.array(key_of)), firsts[start_of])


class Running(NamedTuple):
    """Records sorted by group, for running folds."""

    #: The indexes of the records sorted by group, in record order within a group; and the group of each.
    order: Any
    groups: Any
    #: The start and end of each group in `order`.
    begins: Any
    ends: Any


def running(of: Any, count: int) -> Running:
    """Sort records by group. `of` is each record's group, one of `count`; no group is empty."""
    order = np.argsort(of, kind="stable")
    groups = of[order]
    ends = np.cumsum(np.bincount(of, minlength=count))
    return Running(order, groups, np.concatenate(([0], ends[:-1])), ends)


def counts(run: Running, before: Any) -> tuple[Any, Any]:
    """The running count of its group at each record, and the final counts. `before`: the counts so far."""
    out = np.empty(len(run.order), dtype=np.int64)
    out[run.order] = np.arange(len(out)) - run.begins[run.groups] + before[run.groups] + 1
    return out, before + run.ends - run.begins


def maxima(run: Running, values: Any, before: Any) -> tuple[Any, Any] | None:
    """The running maximum of its group at each record, and the final maxima; None if the numbers are too large."""
    low = min(int(values.min()), int(before.min()))
    reach = max(int(values.max()), int(before.max())) - low + 1
    if reach * len(before) >= 1 << 62:
        return None
    # Raise each group's values above those of all groups before it, so that one running maximum serves all groups.
    raised = run.groups * reach
    maxima_at = np.maximum.accumulate(np.maximum(values[run.order], before[run.groups]) - low + raised) - raised + low
    out = np.empty(len(maxima_at), dtype=np.int64)
    out[run.order] = maxima_at
    return out, maxima_at[run.ends - 1]


def minima(run: Running, values: Any, before: Any) -> tuple[Any, Any] | None:
    """The running minimum of its group at each record, and the final minima; None if the numbers are too large."""
    if min(int(values.min()), int(before.min())) == LONG_MIN:
        return None
    negated = maxima(run, -values, -before)
    return None if negated is None else (-negated[0], -negated[1])


def sums(run: Running, values: Any, before: Any) -> tuple[Any, Any] | None:
    """The running sum of its group at each record, and the final sums; None if a sum might overflow a long."""
    largest, earlier = (max(int(column.max()), -int(column.min())) for column in (values, before))
    if largest * len(values) + earlier > LONG_MAX:
        return None
    # Subtract the running total at the start of each group.
    totals = np.concatenate(([0], np.cumsum(values[run.order])))
    totals_at = totals[1:] - totals[run.begins][run.groups] + before[run.groups]
    out = np.empty(len(totals_at), dtype=np.int64)
    out[run.order] = totals_at
    return out, totals_at[run.ends - 1]


_LONGS = {"sum": sums, "min": minima, "max": maxima}


def fold(
    name: str, groups: Groups, values: Any, timestamps: Any, states: list[GroupState]
) -> tuple[list[Any], list[int]]:
    """The value and timestamp of its group after each record. Updates `found` to the final state of the groups."""
    out: list[Any] = []
    times: list[int] = []
    sums = [None if state is None else state[0] for state in states]
    newest = [-1 if state is None else state[1] for state in states]
    add, note = out.append, times.append
    if name == "count":
        for group, time in zip(groups.of.tolist(), timestamps.tolist(), strict=True):
            count = sums[group]
            count = sums[group] = 1 if count is None else count + 1
            add(count)
            if time > newest[group]:
                newest[group] = time
            note(newest[group])
    else:
        function = FOLDS[name]
        for group, value, time in zip(groups.of.tolist(), values.to_pylist(), timestamps.tolist(), strict=True):
            before = sums[group]
            after = value if before is None else before if value is None else function(before, value)
            sums[group] = after
            add(after)
            if before is None or time > newest[group]:
                newest[group] = time
            note(newest[group])
    states[:] = [(value, time) for value, time in zip(sums, newest, strict=True)]
    return out, times


class Aggregated(NamedTuple):
    """The result of an aggregate on a frame. `apply` writes the store, after all other steps have succeeded."""

    frame: Frame
    dropped: int
    apply: Callable[[], None]


def by_key(operator: Any, name: str, frame: Frame, kind: str) -> Aggregated:
    """Aggregate without windows. Records without a key or a value are dropped."""
    store = operator._store
    whole = pc.and_(pc.is_valid(frame.keys), pc.is_valid(frame.values))
    kept = frame.where(whole)
    groups = groups_of(kept.keys, None)
    dropped = len(frame) - len(kept)
    entries = store.store
    entry_keys = _names(entries, groups) if isinstance(entries, TimestampedKeyValueStore) else None
    arrays = None if entry_keys is None else _folded(name, groups, kept, entries.read_many(entry_keys))
    if entry_keys is not None and arrays is not None:
        result = Frame(kept.keys, pa.array(arrays.values, ARROW[kind]), arrays.times, kept.rows)
        return Aggregated(result, dropped, lambda: entries.write_many(entry_keys, arrays.entries))
    names = groups.keys.to_pylist()
    states: list[GroupState] = [store.get(key) for key in names]
    values, times = fold(name, groups, kept.values, kept.timestamps, states)

    def apply() -> None:
        for key, pair in zip(names, states, strict=True):
            assert pair is not None
            store.put(key, pair[0], pair[1])

    result = Frame(kept.keys, pa.array(values, ARROW[kind]), np.array(times, dtype=np.int64), kept.rows)
    return Aggregated(result, dropped, apply)


def by_window(operator: Any, name: str, frame: Frame, kind: str) -> Aggregated:
    """Aggregate in tumbling or hopping windows. Records without a key and those of closed windows are dropped."""
    store, windows, time = operator._store, operator._windows, operator._time
    keyed = frame.where(pc.is_valid(frame.keys))
    if not len(keyed):
        return Aggregated(_windowed(keyed, keyed.timestamps, [], kind, []), len(frame), lambda: None)
    newest = np.maximum.accumulate(np.maximum(keyed.timestamps, time.value))
    if int(newest[-1]) + windows.size_ms > TIME_MAX:
        raise OverflowError("the end of a window is not a time")
    index, starts = windows_of(keyed.timestamps, windows.size_ms, windows.advance_ms)
    windowed = keyed if index is None else keyed.take(index)
    live = starts + windows.size_ms > (newest if index is None else newest[index]) - windows.grace_ms
    kept = windowed.where(pa.array(live))
    starts = starts[live]
    groups = groups_of(kept.keys, starts)
    dropped = len(frame) - len(keyed) + len(windowed) - len(kept)
    keys = _names(store, groups)
    if keys is not None:
        firsts = groups.starts.tolist()
        entry_keys = store.entry_keys(keys, firsts)
        arrays = _folded(name, groups, kept, store.read_many(entry_keys))
        if arrays is not None:

            def write() -> None:
                time.value = int(newest[-1])
                store.write_many(entry_keys, firsts, arrays.entries)

            return Aggregated(_windowed(kept, starts, arrays.values, kind, arrays.times), dropped, write)
    pairs = list(zip(groups.keys.to_pylist(), groups.starts.tolist(), strict=True))
    states: list[GroupState] = [store.fetch_one(key, start) for key, start in pairs]
    values, times = fold(name, groups, kept.values, kept.timestamps, states)

    def apply() -> None:
        time.value = int(newest[-1])
        # A window whose value is None is deleted, at the time of its last record.
        last = np.empty(len(pairs), dtype=np.int64)
        last[groups.of] = kept.timestamps
        for (key, start), pair, deleted_ms in zip(pairs, states, last.tolist(), strict=True):
            assert pair is not None
            store.put(key, ValueAndTimestamp(*pair), start, deleted_ms=deleted_ms)

    return Aggregated(_windowed(kept, starts, values, kind, times), dropped, apply)


class Folded(NamedTuple):
    """The value and timestamp of its group after each record, and the final store entry of each group."""

    values: Any
    times: Any
    entries: list[bytes]


def _names(store: Any, groups: Groups) -> list[bytes] | None:
    """The bytes of each group's key; None if store values are not longs or keys cannot be encoded as an array."""
    key = store.key_serde
    if store.value_serde is not LONG or key.column_type is None or groups.keys.type != arrow_type(key.column_type):
        return None
    names: list[bytes] = encode(key, groups.keys).to_pylist()
    return names


def _folded(name: str, groups: Groups, kept: Frame, entries: list[bytes | None]) -> Folded | None:
    """Fold longs with arrays; None if values are not longs, contain nulls, or might overflow."""
    counting = name == "count"
    if not len(kept) or not (counting or (kept.values.type == pa.int64() and not kept.values.null_count)):
        return None
    # An entry is a timestamp and a long.
    table = np.frombuffer(b"".join([_NEW if entry is None else entry for entry in entries]), dtype=">i8").reshape(-1, 2)
    newest, before = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
    run = running(groups.of, len(entries))
    times = maxima(run, kept.timestamps, newest)
    if counting:
        folded: tuple[Any, Any] | None = counts(run, before)
    else:
        values = kept.values.to_numpy()
        if name != "sum":  # a new group starts with its first value, not with 0
            new = np.fromiter((entry is None for entry in entries), dtype=bool, count=len(entries))
            before = np.where(new, values[run.order[run.begins]], before)
        folded = _LONGS[name](run, values, before)
    if times is None or folded is None:
        return None
    packed = np.stack([times[1], folded[1]], axis=1).astype(">i8").tobytes()
    return Folded(folded[0], times[0], [packed[at : at + 16] for at in range(0, len(packed), 16)])


def windows_of(timestamps: Any, size: int, advance: int) -> tuple[Any | None, Any]:
    """(record index of each start, starts of each record's windows, ascending). Index None: one window per record."""
    last = timestamps - timestamps % advance
    if advance == size:
        return None, last
    first = np.maximum(timestamps - size + advance, 0) // advance * advance
    counts = (last - first) // advance + 1
    index = np.repeat(np.arange(len(timestamps)), counts)
    number = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    return index, first[index] + number * advance


def _windowed(kept: Frame, starts: Any, values: Any, kind: str, times: Any) -> Frame:
    keys = WindowedKeys(kept.keys, starts)
    return Frame(keys, pa.array(values, ARROW[kind]), np.array(times, dtype=np.int64), kept.rows)
