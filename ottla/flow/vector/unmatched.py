"""Candidates of a left or outer stream join on columns: records that wait for a match until their window closes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.flow.operator.emit import is_early
from ottla.flow.operator.stream_join import StreamJoin
from ottla.flow.record import TIME_MAX
from ottla.kernel.named import NamedTuple


class Expired(NamedTuple):
    """The candidates that expire in a batch, at its record `at`. `keys` and `values` are bytes."""

    at: int
    keys: list[bytes]
    times: Any
    left: Any
    values: list[bytes]

    def of_side(self, *, left: bool) -> tuple[Any, list[bytes]]:
        """The indexes of one side's candidates, and their values."""
        index = np.flatnonzero(self.left == left)
        return index, [self.values[each] for each in index.tolist()]


NOTHING = Expired(-1, [], np.empty(0, dtype=np.int64), np.empty(0, dtype=bool), [])


class Candidates:
    """The candidates of a join through a batch: those before it, and `waiting`, the records that become candidates."""

    def __init__(self, join: StreamJoin, records: Any, pairs: Sequence[Any], waiting: Any) -> None:
        assert join.candidates is not None
        self._join = join
        self._store = join.candidates
        self._records = records
        self._waiting = waiting
        self._data: list[bytes] = []
        self._oldest_left = TIME_MAX
        self._next_emit: int | None = None
        self._oldest = min(join.clock.oldest.value, *records.times[waiting].tolist()) if len(waiting) else None
        self._gone: list[bytes] = []
        self._match(pairs)

    def _match(self, pairs: Sequence[Any]) -> None:
        """Find the records at which candidates get a match. A pair of the left side's matches an entry of the right."""
        records, waiting = self._records, self._waiting
        of = np.concatenate([each.of for each in pairs])
        order = np.argsort(of, kind="stable")
        codes = np.concatenate([each.codes for each in pairs])[order]
        starts = np.concatenate([each.starts for each in pairs])[order]
        left = np.repeat([False, True], [len(each.of) for each in pairs])[order]
        self._of = of[order]
        every = [np.concatenate(each) for each in ((codes, records.codes[waiting]), (starts, records.times[waiting]))]
        span = int(every[1].max() - every[1].min()) + 1 if len(every[1]) else 1
        if 2 * span * (len(records.names) + 1) >= 1 << 62:
            raise OverflowError("the times of the records are too far apart")
        first = every[1].min() if len(every[1]) else 0
        sides = np.concatenate([left, records.left[waiting]])
        groups, group_of = np.unique((every[0] * span + every[1] - first) * 2 + sides, return_inverse=True)
        self._group_of = group_of[: len(of)]
        self._waiting_in = group_of[len(of) :]
        #: The last match of each group of candidates.
        self._last = np.full(len(groups), -1)
        self._last[self._group_of] = self._of
        entries, side = np.divmod(groups, 2)
        group_codes, group_starts = np.divmod(entries, span)
        self._prefixes = _prefixes(records.names, group_codes, group_starts + first, side)
        self._entry_keys = self._store.entry_keys([self._prefixes[group] for group in self._waiting_in.tolist()])
        #: The earlier candidates that get a match, with the group.
        self._matched: dict[bytes, int] = {}
        if len(self._store.entries):
            for group in np.unique(self._group_of).tolist():
                for entry_key in self._store.arrived(self._prefixes[group]):
                    self._matched[entry_key] = group

    def expired(self, data: Sequence[Any], now: int) -> Expired:
        """The candidates that expire. `data` are the bytes of both sides' values, by frame."""
        records, waiting = self._records, self._waiting
        self._data = pa.concat_arrays(data).take(pa.array(records.origin[waiting])).to_pylist()
        at = self._due(now)
        if at < 0:
            return NOTHING
        self._next_emit = now + self._join.clock.interval
        before = np.full(len(self._last), -1)
        count = int(np.searchsorted(self._of, at))
        before[self._group_of[:count]] = self._of[:count]
        alive = (waiting < at) & (before[self._waiting_in] <= waiting)
        new = sorted((self._entry_keys[each], self._data[each]) for each in np.flatnonzero(alive).tolist())
        found = self._closed(merge(self._earlier(before), new), int(records.newest[at]))
        later = records.times[waiting[waiting >= at]].tolist()
        self._oldest = min(self._oldest_left, *later) if later else self._oldest_left
        self._gone = [entry_key for entry_key, _ in found]
        return Expired(
            at,
            [entry_key[9:-4] for entry_key, _ in found],
            np.array([int.from_bytes(entry_key[:8], "big") for entry_key, _ in found], dtype=np.int64),
            np.array([entry_key[8] == 1 for entry_key, _ in found], dtype=bool),
            [value for _, value in found],
        )

    def _due(self, now: int) -> int:
        """The first record that emits expired candidates; -1 if none does."""
        records, join, clock = self._records, self._join, self._join.clock
        if is_early(now, clock.next_emit.value, clock.interval):
            return -1
        put = np.full(len(records.of), TIME_MAX)
        put[self._waiting] = records.times[self._waiting]
        oldest = np.minimum.accumulate(np.concatenate(([clock.oldest.value], put[:-1])))
        reach = np.where(records.left, join.windows.after_ms, join.windows.before_ms) + join.windows.grace_ms
        # The sum overflows without a candidate, as in Java.
        due = records.whole & (records.times == records.newest) & (oldest + reach < records.newest)
        found = np.flatnonzero(due)
        return int(found[0]) if len(found) else -1

    def _earlier(self, before: Any) -> Iterator[tuple[bytes, bytes]]:
        """The candidates before the batch that have no match yet."""
        for entry_key, value in self._store.entries.scan(None, None):
            group = self._matched.get(entry_key)
            if group is None or before[group] < 0:
                yield entry_key, value

    def _closed(self, candidates: Iterator[tuple[bytes, bytes]], newest: int) -> list[tuple[bytes, bytes]]:
        """The candidates whose window has closed, in order, as `StreamJoin` finds them."""
        windows, found, open_sides = self._join.windows, list[tuple[bytes, bytes]](), set[bool]()
        for entry_key, value in candidates:
            time, left = int.from_bytes(entry_key[:8], "big"), entry_key[8] == 1
            self._oldest_left = time
            if len(open_sides) == 2:
                break
            if time + (windows.after_ms if left else windows.before_ms) + windows.grace_ms >= newest:
                open_sides.add(left)
            else:
                found.append((entry_key, value))
        return found

    def apply(self) -> None:
        """Write the store and the numbers of the join."""
        clock, store = self._join.clock, self._store
        store.skip(len(self._waiting))
        gone = set(self._gone)
        for entry_key in gone.union(self._matched).difference(self._entry_keys):
            store.remove_entry(entry_key)
        matched = (self._last[self._waiting_in] > self._waiting).tolist()
        for entry_key, value, is_matched in zip(self._entry_keys, self._data, matched, strict=True):
            if is_matched or entry_key in gone:
                store.remove_entry(entry_key)
            else:
                store.put_entry(entry_key, value)
        if self._oldest is not None:
            clock.oldest.value = self._oldest
        if self._next_emit is not None:
            clock.next_emit.value = self._next_emit


def _prefixes(names: list[bytes], codes: Any, starts: Any, sides: Any) -> list[bytes]:
    """Time, side and key of each group, as the store writes them."""
    heads = np.empty((len(codes), 9), dtype=np.uint8)
    heads[:, :8] = np.ascontiguousarray(starts, dtype=">i8").view(np.uint8).reshape(-1, 8)
    heads[:, 8] = sides
    flat = heads.tobytes()
    return [flat[9 * n : 9 * n + 9] + names[code] for n, code in enumerate(codes.tolist())]
