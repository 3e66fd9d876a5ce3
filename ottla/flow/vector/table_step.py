"""The steps of a region that write, change, aggregate or join tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla.flow.column.batch import JoinBatch
from ottla.flow.column.function import ColumnFunction, FoldFunction, JoinFunction, PairFunction
from ottla.flow.column.kind import Type, type_of
from ottla.flow.operator import stateless
from ottla.flow.operator.stream_table_join import StreamTableJoin
from ottla.flow.operator.table import FilteredTable, TableFilterProcessor, TableMapProcessor, TableSourceProcessor
from ottla.flow.operator.table_aggregate import TableAggregate, TableAggregateProcessor, TableGroupBy
from ottla.flow.vector.change import filtered, mapped, regrouped, with_old
from ottla.flow.vector.evaluate import Changes, Frame, evaluate
from ottla.flow.vector.step import KEYS, Applied, Kinds, RegionRun
from ottla.flow.vector.table import can_look_up, holds, look_up, rows_of_table
from ottla.flow.vector.table_fold import ONE, Fold, folded

if TYPE_CHECKING:
    from ottla.flow.engine import Task


def table_step(task: Task, processor: Any, name: str, kinds: Kinds, streams: bool) -> Applied | None:
    """A topic or stream as a table. `streams`: its changes go nowhere but to streams."""
    if not isinstance(processor, TableSourceProcessor) or kinds.windowed or kinds.key not in KEYS:
        return None
    store = None if processor.store is None else processor.store.store
    if store is not None and not holds(store, kinds.key, kinds.value):
        return None
    sends_old = processor.sends_old

    def written(frame: Frame, run: RegionRun) -> Frame:
        kept = frame.where(pc.is_valid(frame.keys))
        write = None if store is None else rows_of_table(store, kept)

        def apply() -> None:
            task.drop(name, len(frame) - len(kept))
            if write is not None:
                write()

        run.effects.append(apply)
        if streams:
            return kept
        if sends_old and store is not None:
            return with_old(store, kept)
        return replace(kept, values=Changes(kept.values, pa.nulls(len(kept), kept.values.type)))

    return written, kinds._replace(changes=not streams)


def change_step(processor: Any, kinds: Kinds, streams: bool) -> Applied | None:
    """A step that gets the changes of a table. `streams`: its own changes go nowhere but to streams."""
    match processor:
        case stateless.ToStream():
            return (lambda frame, run: replace(frame, values=frame.values.new)), kinds._replace(changes=False)
        case TableGroupBy() if isinstance(processor.mapper, PairFunction) and not processor.versioned:
            key, value = processor.mapper.key.expression, processor.mapper.value.expression
            after = Kinds(*processor.mapper.kinds(kinds.key, kinds.value), changes=True)
            if after.key not in KEYS or after.value is None:
                return None
            return (lambda frame, run: regrouped(frame, key, value)), after
        case TableFilterProcessor() | TableMapProcessor():
            return _derived(processor.table, kinds)
        case TableAggregateProcessor():
            return _aggregate(processor, kinds, streams)
    return None


def _derived(table: Any, kinds: Kinds) -> Applied | None:
    """A filter or map_values of a table without a store of its own."""
    is_filter = isinstance(table, FilteredTable)
    function = table.predicate if is_filter else table.mapper
    if table.store is not None or not isinstance(function, ColumnFunction):
        return None
    expression = function.expression
    kind = type_of(expression, kinds.key, kinds.value)
    if kind is None or (is_filter and (kind != "boolean" or table.versioned)):
        return None
    if is_filter:
        return (lambda frame, run: filtered(frame, expression, table.negate, table.send_old)), kinds
    return (lambda frame, run: mapped(frame, expression, table.send_old)), kinds._replace(value=kind)


def _aggregate(processor: TableAggregateProcessor, kinds: Kinds, streams: bool) -> Applied | None:
    """An aggregate of a regrouped table: a count, or one whose functions are expressions."""
    table, store = processor.table, processor.values.store
    kind = store.value_serde.column_type
    if table.sending_old or not streams or kinds.key not in KEYS or not holds(store, kinds.key, kind):
        return None
    fold = _fold(table, kinds, kind)
    if fold is None:
        return None

    def aggregated(frame: Frame, run: RegionRun) -> Frame:
        result = folded(store, frame, fold)
        run.effects.append(result.write)
        return result.frame

    return aggregated, Kinds(kinds.key, kind)


def _fold(table: TableAggregate, kinds: Kinds, kind: Type) -> Fold | None:
    functions = (table.adder, table.subtractor)
    if all(getattr(function, "fold", None) == "count" for function in functions):
        return Fold(kind, table.initializer, *functions, ONE) if kind == "long" else None
    adder, subtractor = functions
    if not isinstance(adder, FoldFunction) or not isinstance(subtractor, FoldFunction):
        return None
    inputs = (kinds.key, kind, kinds.value)
    if None in inputs or adder.inputs != inputs or subtractor.inputs != inputs:
        return None
    if {adder.kind, subtractor.kind} != {kind} or (table.initializer is None and kind != kinds.value):
        return None
    added, subtracted = adder.change("add"), subtractor.change("subtract")
    # The first value of a reduce is the aggregate as it is.
    sums = table.initializer is not None or (added is not None and added.options == ("right",))
    changes = (added, subtracted) if sums and added is not None and subtracted is not None else None
    return Fold(kind, table.initializer, adder, subtractor, changes)


def join_step(task: Task, processor: Any, name: str, kinds: Kinds) -> Applied | None:
    """A stream-table join whose joiner is an expression or a batch function."""
    if not isinstance(processor, StreamTableJoin) or kinds.windowed or processor.waits:
        return None
    joiner, selector, left, table = processor.joiner, processor.selector, processor.left, processor.values
    if not isinstance(joiner, (JoinFunction, JoinBatch)) or joiner.inputs[:2] != (kinds.key, kinds.value):
        return None
    if selector is not None and not isinstance(selector, ColumnFunction):
        return None
    by = kinds.key if selector is None else type_of(selector.expression, kinds.key, kinds.value)
    right_kind, kind = joiner.inputs[2], joiner.kind
    if right_kind is None or kind is None or by not in KEYS or not can_look_up(table, by, right_kind):
        return None

    def joined(frame: Frame, run: RegionRun) -> Frame:
        kept = frame.where(pc.is_valid(frame.values))
        names = kept.keys if selector is None else evaluate(selector.expression, kept)
        if not left:
            has_name = pc.is_valid(names)
            kept, names = kept.where(has_name), names.filter(has_name)
        dropped = len(frame) - len(kept)
        right = look_up(table, right_kind, names, kept.timestamps)
        if not left:
            has_row = pc.is_valid(right)
            kept, right = kept.where(has_row), right.filter(has_row)
        run.effects.append(lambda: task.drop(name, dropped))
        return replace(kept, values=joiner.compute(kept, right))

    return joined, kinds._replace(value=kind)
