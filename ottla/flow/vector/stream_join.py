"""Joins of two streams on columns: the pairs within the window, the records without a match, and the window stores.

Results, timestamps and stores equal those of `operator/stream_join.py`, which takes over when anything here raises.

The records of both sides are put in the order in which they are processed. The entries that a record may find are those
in the other side's store, and those that the other side's earlier records of the batch add.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ottla.flow.operator.stream_join import StreamJoin
from ottla.flow.record import TIME_MAX
from ottla.flow.vector.encode import decode, encode, read_back
from ottla.flow.vector.evaluate import Frame
from ottla.flow.vector.unmatched import NOTHING, Candidates, Expired
from ottla.kernel.named import NamedTuple

if TYPE_CHECKING:
    from ottla.flow.engine import Task
    from ottla.flow.vector.step import RegionRun


_NONE = np.empty(0, dtype=np.int64)


class Side(NamedTuple):
    """A side of a join: its node, and its own window store. `processor` looks into the other side's store."""

    node: str
    processor: StreamJoin
    store: Any


class Records(NamedTuple):
    """The records of both sides in the order in which they are processed, as arrays.

    `codes` are the keys as indexes of `names` (-1: null), `place` the index in the own side's frame, `origin` that in
    the frames of both sides, left first. `whole` records have a key and a value. `newest` is the join's stream time.
    """

    of: Any
    times: Any
    codes: Any
    names: list[bytes]
    left: Any
    place: Any
    origin: Any
    valued: Any
    whole: Any
    newest: Any


class Pairs(NamedTuple):
    """Records with the entries of the other side that they find: the record, then the entry's key, start, record in the
    batch or -1, and its place: in the own side's frame, or among the values read from the store.
    """

    of: Any
    codes: Any
    starts: Any
    when: Any
    place: Any
    #: The bytes of the values read from the store.
    stored: list[bytes]


def joined(task: Task, sides: Sequence[Side], frames: Sequence[Frame], run: RegionRun) -> Frame:
    """The results of the frames of both sides, left first."""
    left, windows = sides[0].processor, sides[0].processor.windows
    records = _records(frames, left.clock.stream_time.value, sides[0].store.key_serde)
    # A window that begins after the record is shorter than its reach.
    reach = max(windows.before_ms, windows.after_ms, windows.size_ms)
    if int(records.newest[-1]) + reach + windows.grace_ms > TIME_MAX:
        raise OverflowError("the end of a record's window is not a time")
    data = [encode(side.store.value_serde, frame.values) for side, frame in zip(sides, frames, strict=True)]
    pairs = [_pairs(records, mine, sides[1 - number].store) for number, mine in enumerate(sides)]
    alone = [_alone(records, side, found) for side, found in zip(sides, pairs, strict=True)]
    expired = NOTHING
    if left.candidates is not None:
        candidates = Candidates(left, records, pairs, np.sort(np.concatenate([each.waiting for each in alone])))
        expired = candidates.expired(data, task.now)
        run.effects.append(candidates.apply)
    frame, rights = _results(sides, frames, records, (pairs, [each.emitted for each in alone], expired))
    joiner: Any = left.joiner
    values = joiner.compute(frame, rights)

    def apply() -> None:
        left.clock.stream_time.value = int(records.newest[-1])
        for number, side in enumerate(sides):
            task.drop(side.node, alone[number].dropped)
            _put(side, number == 0, records, data[number], run)

    run.effects.append(apply)
    return replace(frame, values=values)


def _records(frames: Sequence[Frame], stream_time: int, key_serde: Any) -> Records:
    of = np.concatenate([frame.rows for frame in frames])
    order = np.argsort(of, kind="stable")
    times = np.concatenate([frame.timestamps for frame in frames])[order]
    keys = pa.concat_arrays([frame.keys for frame in frames]).dictionary_encode()
    codes = keys.indices.fill_null(-1).to_numpy().astype(np.int64)[order]
    valued = np.concatenate([np.asarray(frame.values.is_valid()) for frame in frames])[order]
    place = np.concatenate([np.arange(len(frame)) for frame in frames])[order]
    newest = np.maximum.accumulate(np.maximum(times, stream_time))
    names = encode(key_serde, keys.dictionary).to_pylist()
    left, whole = order < len(frames[0]), valued & (codes >= 0)
    return Records(of[order], times, codes, names, left, place, order, valued, whole, newest)


def _pairs(records: Records, side: Side, store: Any) -> Pairs:
    """The entries that one side's records find. `store` is that of the other side."""
    join, times = side.processor, records.times
    mine = np.flatnonzero(records.whole & (records.left == join.left))
    theirs = records.whole & (records.left != join.left)
    started = np.maximum.accumulate(np.maximum(np.where(theirs, times, -1), store.observed))
    observed = np.concatenate(([store.observed], started[:-1])) if len(times) else started
    if not len(mine):
        return Pairs(_NONE, _NONE, _NONE, _NONE, _NONE, [])
    earliest = np.maximum(np.maximum(times[mine] - join.before, observed[mine] - store.spec.retention_ms + 1), 0)
    latest = np.maximum(times[mine] + join.after, 0)
    first, last = int(earliest.min()), int(latest.max())
    wanted = np.unique(records.codes[mine])
    indexes, numbers = store.find_many([records.names[code] for code in wanted.tolist()], first, last)
    # A record that is too late to be stored is hidden from all that follow.
    new = np.flatnonzero(theirs & (times >= first) & (times <= last))
    sequence = store.sequence + np.cumsum((records.left != join.left) & (records.codes >= 0))[new]
    codes = np.concatenate([wanted[indexes], records.codes[new]]) if indexes else records.codes[new]
    starts = np.concatenate([np.array([number >> 32 for number in numbers], dtype=np.int64), times[new]])
    given = np.concatenate(
        [np.array([number & 0x7FFFFFFF for number in numbers], dtype=np.int64), sequence & 0x7FFFFFFF]
    )
    when = np.concatenate([np.full(len(numbers), -1), new])
    span = last - first + 1
    if span * len(records.names) >= 1 << 62:
        raise OverflowError("the times of the records are too far apart")
    order = np.lexsort((given, starts, codes))
    at = codes[order] * span + starts[order] - first
    wants = records.codes[mine] * span - first
    begins = np.searchsorted(at, wants + earliest)
    counts = np.maximum(np.searchsorted(at, wants + latest, side="right") - begins, 0)
    of = np.repeat(mine, counts)
    entry = order[np.arange(len(of)) + np.repeat(begins - np.cumsum(counts) + counts, counts)]
    earlier = when[entry] < of
    of, entry = of[earlier], entry[earlier]
    place = np.concatenate([np.zeros(len(numbers), dtype=np.int64), records.place[new]])
    used = np.unique(entry[entry < len(numbers)])
    place[used] = np.arange(len(used))
    stored = [store.read(records.names[codes[each]], numbers[each]) for each in used.tolist()]
    return Pairs(of, codes[entry], starts[entry], when[entry], place[entry], stored)


class _Alone(NamedTuple):
    """The records of a side without a match: those that are emitted at once, those that wait for their window to close,
    and the number of those dropped.
    """

    emitted: Any
    waiting: Any
    dropped: int


def _alone(records: Records, side: Side, pairs: Pairs) -> _Alone:
    join = side.processor
    mine = records.left == join.left
    if not join.outer:
        return _Alone(_NONE, _NONE, int(np.count_nonzero(mine & ~records.whole)))
    unmatched = mine & records.whole
    unmatched[pairs.of] = False
    closed = np.maximum(records.times + join.after, 0) < records.newest
    keyless = mine & records.valued & (records.codes < 0)
    emitted, waiting = np.flatnonzero(unmatched & closed | keyless), np.flatnonzero(unmatched & ~closed)
    return _Alone(emitted, waiting, int(np.count_nonzero(mine & ~records.valued)))


class _Pool:
    """The values of one side that results use: those of the records, as read from a store, and those of a store."""

    def __init__(self, serde: Any, values: Any, stored: list[bytes], expired: list[bytes]) -> None:
        self.again = read_back(serde, values)
        more = decode(serde, pa.array([*stored, *expired], pa.binary()))
        parts = [values, more] if self.again is values else [values, self.again, more]
        self._values = pa.concat_arrays(parts)
        self._again = 0 if self.again is values else len(values)
        self._stored = len(values) + self._again
        self._expired = self._stored + len(stored)

    def found(self, pairs: Pairs) -> Any:
        """The indexes of the entries of pairs."""
        return pairs.place + np.where(pairs.when >= 0, self._again, self._stored)

    def expired(self, count: int) -> Any:
        return self._expired + np.arange(count)

    def take(self, index: Any) -> Any:
        """The values at indexes; null for -1."""
        return self._values.take(pa.array(index, mask=index < 0))


def _results(
    sides: Sequence[Side], frames: Sequence[Frame], records: Records, found: tuple[Any, Any, Expired]
) -> tuple[Frame, Any]:
    """A frame with the left values of the results, and the right values."""
    pairs, emitted, expired = found
    lefts, rights = expired.of_side(left=True), expired.of_side(left=False)
    pools = [
        _Pool(side.store.value_serde, frame.values, pairs[1 - number].stored, values)
        for number, (side, frame, values) in enumerate(zip(sides, frames, (lefts[1], rights[1]), strict=True))
    ]
    of, times = [np.full(len(expired.times), expired.at)], [expired.times]
    values: tuple[list[Any], list[Any]] = ([], [])
    for own, (index, data) in enumerate((lefts, rights)):
        places = np.full(len(expired.times), -1)
        places[index] = pools[own].expired(len(data))
        values[own].append(places)
    for own, other in ((0, 1), (1, 0)):
        mine, alone = pairs[own], emitted[own]
        of += [mine.of, alone]
        times += [np.maximum(records.times[mine.of], mine.starts), records.times[alone]]
        values[own].extend([records.place[mine.of], records.place[alone]])
        values[other].extend([pools[other].found(mine), np.full(len(alone), -1)])
    result_of = np.concatenate(of).astype(np.int64)
    # What expired goes before the record's own results, which are sorted already.
    rank = 2 * result_of + 1
    rank[: len(expired.times)] -= 1
    order = np.argsort(rank, kind="stable")
    result_of, count = result_of[order], len(expired.times)
    names = decode(sides[0].store.key_serde, pa.array(expired.keys, pa.binary()))
    keys = pa.concat_arrays([*(frame.keys for frame in frames), names])
    origin = np.where(order < count, len(records.of) + order, records.origin[result_of])
    stamps = np.concatenate(times).astype(np.int64)[order]
    left, right = (
        pool.take(np.concatenate(places).astype(np.int64)[order]) for pool, places in zip(pools, values, strict=True)
    )
    return Frame(keys.take(pa.array(origin)), left, stamps, records.of[result_of]), right


def _put(side: Side, left: bool, records: Records, data: Any, run: RegionRun) -> None:
    """Put a side's records into its window store."""
    keyed = np.flatnonzero((records.left == left) & (records.codes >= 0))
    if not len(keyed):
        return
    names, store, times = records.names, side.store, records.times[keyed]
    keys = [names[code] for code in records.codes[keyed].tolist()]
    values = (data if len(keyed) == len(data) else data.take(pa.array(records.place[keyed]))).to_pylist()
    headers = None if run.headers is None else [run.headers[row] for row in records.of[keyed].tolist()]
    valued = records.valued[keyed]
    newest = np.maximum.accumulate(np.maximum(np.where(valued, times, -1), store.observed))
    # A start that is the newest is not late, so those before and with each record give the same.
    added = valued & (times >= newest - store.spec.retention_ms)
    kept = np.flatnonzero(added & (times >= store.kept_from(int(newest[-1]))))
    store.put_many(keys, values, times.tolist(), headers, kept.tolist())
