"""Aggregates of regrouped tables on columns: counts, sums, and folds by expressions.

Results, timestamps and stores equal those of `operator/table_aggregate.py`, which takes over when anything here raises.

Counts and sums of longs are computed with arrays; sums of doubles and other expressions change by change, because their
results depend on the order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.flow.column.expression import LONG_MAX, Expression, lit
from ottla.flow.column.kind import Type
from ottla.flow.store.key_value import TimestampedKeyValueStore
from ottla.flow.vector.aggregate import groups_of, maxima, running
from ottla.flow.vector.columns import objects
from ottla.flow.vector.encode import arrow_type, decode, encode, fixed
from ottla.flow.vector.evaluate import Frame, evaluate
from ottla.kernel.named import NamedTuple

_CLASSES = {"long": int, "double": float, "string": str, "boolean": bool, "bytes": bytes}


class Fold(NamedTuple):
    """An aggregate: its type, and its functions of key, value and aggregate. `initializer` None: reduce. `changes` are
    the expressions that it adds and subtracts, if it does nothing else.
    """

    kind: Type
    initializer: Callable[[], Any] | None
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]
    changes: tuple[Expression, Expression] | None


#: What a count adds and subtracts.
ONE = (lit(1), lit(1))


class Folded(NamedTuple):
    """The aggregates after each change, and a function that writes the final ones to the store."""

    frame: Frame
    write: Callable[[], None]


class _Groups(NamedTuple):
    """The groups of changes: each change's group, their keys as bytes, and their entries in the store."""

    of: Any
    keys: list[bytes]
    entries: list[bytes | None]


def folded(store: TimestampedKeyValueStore, frame: Frame, fold: Fold) -> Folded:
    """Fold the changes of a regrouped table. Keys must not be null."""
    if frame.keys.null_count:
        raise ValueError("a change has a null key")
    if not len(frame):
        return Folded(
            Frame(frame.keys, pa.array([], arrow_type(fold.kind)), frame.timestamps, frame.rows), lambda: None
        )
    groups = groups_of(frame.keys, None)
    keys = encode(store.key_serde, groups.keys).to_pylist()
    found = _Groups(groups.of, keys, store.read_many(keys))
    amounts = None
    if fold.changes is not None and fold.kind in ("long", "double"):
        sides = zip(fold.changes, (frame.values.new, frame.values.old), strict=True)
        amounts = tuple(_amounts(expression, frame, values, fold.kind) for expression, values in sides)
    values = _summed(frame, found, fold, amounts) if fold.kind == "long" and amounts is not None else None
    results, times = values if values is not None else _in_order(store, frame, found, fold, amounts)
    last = np.empty(len(keys), dtype=np.int64)
    last[found.of] = np.arange(len(frame))
    # Each result is written, so that one that cannot be is found.
    data = encode(store.value_serde, results).take(pa.array(last))
    stamps = fixed(np.ascontiguousarray(times[last], dtype=">i8").view(np.uint8), 8, groups.keys)
    entries = pc.binary_join_element_wise(stamps, data, b"").to_pylist()
    # A delete is logged with the time of its record.
    logged = np.where(np.asarray(data.is_null()), frame.timestamps[last], times[last]).tolist()
    return Folded(Frame(frame.keys, results, times, frame.rows), lambda: store.write_rows(keys, entries, logged))


def _amounts(expression: Expression, frame: Frame, values: Any, kind: str) -> Any:
    """What an expression is for each value; null where there is no value."""
    found = evaluate(expression, frame, values)
    if found.type != arrow_type(kind):
        found = pc.cast(found, arrow_type(kind), safe=False)
    return pc.if_else(values.is_valid(), found, pa.scalar(None, found.type))


def _summed(frame: Frame, groups: _Groups, fold: Fold, amounts: Any) -> tuple[Any, Any] | None:
    """The sums of longs and their times. None if one might overflow, or something that is added is null."""
    new, old = amounts
    if new.null_count != frame.values.new.null_count or old.null_count != frame.values.old.null_count:
        return None
    known = np.fromiter((entry is not None for entry in groups.entries), dtype=bool, count=len(groups.keys))
    table = np.frombuffer(b"".join([entry or bytes(16) for entry in groups.entries]), dtype=">i8").reshape(-1, 2)
    stored, before = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
    if fold.initializer is not None and not known.all():
        initial = fold.initializer()
        if initial.__class__ is not int:
            return None
        before = np.where(known, before, initial)
    run = running(groups.of, len(groups.keys))
    has_new = np.asarray(frame.values.new.is_valid())[run.order]
    news, olds = (np.asarray(side.fill_null(0))[run.order] for side in (new, old))
    largest = max(max(int(each.max()), -int(each.min())) for each in (news, olds))
    if 2 * largest * len(frame) + max(int(before.max()), -int(before.min())) > LONG_MAX:
        return None
    # A group exists from its first new value on.
    arrived = _totals(run, has_new.astype(np.int64))
    exists = known[run.groups] | (arrived > 0)
    existed = known[run.groups] | (arrived > has_new)
    sums = before[run.groups] + _totals(run, news - np.where(existed, olds, 0))
    stamps = frame.timestamps[run.order]
    newest = maxima(running(run.groups, len(groups.keys)), np.where(exists, stamps, -1), np.where(known, stored, -1))
    if newest is None:
        return None
    values, gone = np.empty(len(frame), dtype=np.int64), np.empty(len(frame), dtype=bool)
    times = np.empty(len(frame), dtype=np.int64)
    values[run.order], gone[run.order] = sums, ~exists
    times[run.order] = np.where(exists, newest[0], stamps)
    return pa.array(values, mask=gone), times


def _totals(run: Any, numbers: Any) -> Any:
    """The running totals of each group, of numbers sorted by group."""
    totals = np.concatenate(([0], np.cumsum(numbers)))
    return totals[1:] - totals[run.begins][run.groups]


def _in_order(
    store: TimestampedKeyValueStore, frame: Frame, groups: _Groups, fold: Fold, amounts: Any
) -> tuple[Any, Any]:
    """The aggregates and their times, change by change."""
    stored = pa.array([None if entry is None else entry[8:] for entry in groups.entries], pa.binary())
    states = objects(decode(store.value_serde, stored))
    stamps = [None if entry is None else int.from_bytes(entry[:8], "big", signed=True) for entry in groups.entries]
    news, olds = objects(frame.values.new), objects(frame.values.old)
    add, subtract = _functions(objects(frame.keys), (news, olds), fold, amounts)
    initializer, results, times = fold.initializer, list[Any](), list[int]()
    for change, (group, time) in enumerate(zip(groups.of.tolist(), frame.timestamps.tolist(), strict=True)):
        result, updated, stamp = states[group], False, stamps[group]
        if olds[change] is not None and result is not None:
            result, updated = subtract(change, result), True
        if news[change] is not None:
            if result is None and initializer is None:
                result = news[change]
            else:
                result = _checked(initializer(), fold.kind) if result is None and initializer else result
                result, updated = add(change, result), True
        if updated and stamp is not None and stamp > time:
            time = stamp
        states[group] = _stored(result)
        stamps[group] = None if result is None else time
        results.append(result)
        times.append(time)
    return pa.array(results, arrow_type(fold.kind)), np.array(times, dtype=np.int64)


def _functions(keys: list[Any], sides: tuple[list[Any], list[Any]], fold: Fold, amounts: Any) -> tuple[Any, Any]:
    """Functions of the number of a change and the aggregate, which add its new value and subtract its old one."""
    news, olds = sides
    if fold.kind != "double" or amounts is None:
        adder, subtractor = fold.adder, fold.subtractor
        return (
            lambda change, before: adder(keys[change], news[change], before),
            lambda change, before: subtractor(keys[change], olds[change], before),
        )
    plus, minus = (objects(side) for side in amounts)

    def add(change: int, before: Any) -> Any:
        return None if before is None or plus[change] is None else before + plus[change]

    def subtract(change: int, before: Any) -> Any:
        return None if before is None or minus[change] is None else before - minus[change]

    return add, subtract


def _checked(value: Any, kind: Type) -> Any:
    """A value that must be of a type. TypeError if it is not."""
    if isinstance(kind, str):
        fits = value is None or value.__class__ is _CLASSES[kind]
    else:
        fits = value is None or (
            isinstance(value, dict)
            and value.keys() <= dict(kind or ()).keys()
            and all(value.get(name) is None or value[name].__class__ is _CLASSES[each] for name, each in kind or ())
        )
    if not fits:
        raise TypeError(f"{value!r} is not a {kind}")
    return value


def _stored(value: Any) -> Any:
    """A value as it is read from a store: JSON has no negative zero."""
    if value.__class__ is not dict:
        return value
    return {name: each + 0.0 if each.__class__ is float else each for name, each in value.items()}
