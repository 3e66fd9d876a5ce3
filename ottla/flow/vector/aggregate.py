"""Count, sum, min and max of columns: groups are found by Arrow and NumPy, and folded in the order of the records.

The results, their times and the stores are those of `operator/aggregate.py` and `operator/window_aggregate.py`, which
take over wherever something here raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.flow.column.fold import FOLDS
from ottla.flow.record import ValueAndTimestamp
from ottla.flow.vector.evaluate import ARROW, Frame
from ottla.kernel.named import NamedTuple

#: A group's value and its newest time so far; None: there is none.
Found = tuple[Any, int] | None


class WindowedKeys(NamedTuple):
    """Keys of a windowed table."""

    keys: Any
    starts: Any

    def take(self, index: Any) -> WindowedKeys:
        return WindowedKeys(self.keys.take(index), self.starts[np.asarray(index)])

    def filter(self, mask: Any) -> WindowedKeys:
        return WindowedKeys(self.keys.filter(mask), self.starts[np.asarray(mask)])


class Groups(NamedTuple):
    """Each record's group, and each group's key (and start)."""

    of: list[int]
    keys: list[Any]
    starts: list[int] | None


def groups_of(keys: Any, starts: Any | None) -> Groups:
    """Groups by key, or by key and start; keys are not null."""
    encoded = keys.dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    names = encoded.dictionary.to_pylist()
    if starts is None:
        return Groups(codes.tolist(), names, None)
    firsts, of_start = np.unique(starts, return_inverse=True)
    if len(firsts) == 1:
        return Groups(codes.tolist(), names, [int(firsts[0])] * len(names))
    pairs, of = np.unique(codes * len(firsts) + of_start, return_inverse=True)
    key_of, start_of = np.divmod(pairs, len(firsts))
    return Groups(of.tolist(), [names[each] for each in key_of.tolist()], firsts[start_of].tolist())


def fold(name: str, groups: Groups, values: Any, timestamps: Any, found: list[Found]) -> tuple[list[Any], list[int]]:
    """The value and time of each record's group behind it. `found` is changed to what the groups are in the end."""
    out: list[Any] = []
    times: list[int] = []
    sums = [None if each is None else each[0] for each in found]
    newest = [-1 if each is None else each[1] for each in found]
    add, note = out.append, times.append
    if name == "count":
        for group, time in zip(groups.of, timestamps.tolist(), strict=True):
            count = sums[group]
            count = sums[group] = 1 if count is None else count + 1
            add(count)
            if time > newest[group]:
                newest[group] = time
            note(newest[group])
    else:
        function = FOLDS[name]
        for group, value, time in zip(groups.of, values.to_pylist(), timestamps.tolist(), strict=True):
            before = sums[group]
            after = value if before is None else before if value is None else function(before, value)
            sums[group] = after
            add(after)
            if before is None or time > newest[group]:
                newest[group] = time
            note(newest[group])
    found[:] = [(value, time) for value, time in zip(sums, newest, strict=True)]
    return out, times


class Aggregated(NamedTuple):
    """What an aggregate makes of a frame, and what is to be done if nothing else fails."""

    frame: Frame
    dropped: int
    apply: Callable[[], None]


def by_key(operator: Any, name: str, frame: Frame, kind: str) -> Aggregated:
    """Without windows: records without a key or a value are dropped."""
    store = operator._store
    whole = pc.and_(pc.is_valid(frame.keys), pc.is_valid(frame.values))
    kept = frame.where(whole)
    groups = groups_of(kept.keys, None)
    found: list[Found] = [store.get(key) for key in groups.keys]
    values, times = fold(name, groups, kept.values, kept.timestamps, found)

    def apply() -> None:
        for key, pair in zip(groups.keys, found, strict=True):
            assert pair is not None
            store.put(key, pair[0], pair[1])

    made = Frame(kept.keys, pa.array(values, ARROW[kind]), np.array(times, dtype=np.int64), kept.rows)
    return Aggregated(made, len(frame) - len(kept), apply)


def by_window(operator: Any, name: str, frame: Frame, kind: str) -> Aggregated:
    """In tumbling or hopping windows: records without a key and those of closed windows are dropped."""
    store, windows, time = operator._store, operator._windows, operator._time
    keyed = frame.where(pc.is_valid(frame.keys))
    if not len(keyed):
        return Aggregated(_windowed(keyed, keyed.timestamps, [], kind, []), len(frame), lambda: None)
    running = np.maximum.accumulate(np.maximum(keyed.timestamps, time.value))
    index, starts = windows_of(keyed.timestamps, windows.size_ms, windows.advance_ms)
    each = keyed if index is None else keyed.take(index)
    live = starts + windows.size_ms > (running if index is None else running[index]) - windows.grace_ms
    kept = each.where(pa.array(live))
    starts = starts[live]
    groups = groups_of(kept.keys, starts)
    assert groups.starts is not None
    pairs = list(zip(groups.keys, groups.starts, strict=True))
    found: list[Found] = [store.fetch_one(key, start) for key, start in pairs]
    values, times = fold(name, groups, kept.values, kept.timestamps, found)

    def apply() -> None:
        time.value = int(running[-1])
        for (key, start), pair in sorted(zip(pairs, found, strict=True), key=lambda each: each[0][1]):
            assert pair is not None
            store.put(key, ValueAndTimestamp(*pair), start)

    dropped = len(frame) - len(keyed) + len(each) - len(kept)
    return Aggregated(_windowed(kept, starts, values, kind, times), dropped, apply)


def windows_of(timestamps: Any, size: int, advance: int) -> tuple[Any | None, Any]:
    """The starts of each record's windows, ascending, and the record of each start; None: a window for each record."""
    last = timestamps - timestamps % advance
    if advance == size:
        return None, last
    first = np.maximum(timestamps - size + advance, 0) // advance * advance
    counts = (last - first) // advance + 1
    index = np.repeat(np.arange(len(timestamps)), counts)
    number = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    return index, first[index] + number * advance


def _windowed(kept: Frame, starts: Any, values: list[Any], kind: str, times: list[int]) -> Frame:
    keys = WindowedKeys(kept.keys, starts)
    return Frame(keys, pa.array(values, ARROW[kind]), np.array(times, dtype=np.int64), kept.rows)
