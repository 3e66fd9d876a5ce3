"""Regions: the steps downstream of a source that process many records at once, as long as they are expressions, batch
functions, aggregates known by name, or tables.

    vectorize(task)         # once; records that arrive as columns are then processed as columns

Rules:
- After the last such step, records continue one by one, in order.
- Branches of a split stream process the records one branch after another. So they must not share a store that one of
  them writes, a topic or a later step; if they do, the records of that source are processed one by one.
- A step processes all records before the next step does. So records continue one by one at a step that writes a store
  which a later step reads, or reads one that a later step writes.
- Everything is computed before stores are written and outputs are added. If a computation fails, nothing has happened;
  the same records are then processed one by one, which finds the bad record and calls the handlers.
- Few records, and tasks with stream-time punctuators, are processed one by one as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from ottla.flow.column.expression import Expression
from ottla.flow.column.kind import Type, type_of
from ottla.flow.context import SinkNode
from ottla.flow.operator import stateless
from ottla.flow.operator.aggregate import _Aggregate
from ottla.flow.operator.stream_table_join import StreamTableJoin
from ottla.flow.operator.table_aggregate import ChangeSerde
from ottla.flow.operator.window_aggregate import _WindowAggregate
from ottla.flow.serde import Serde, TimeWindowedSerde
from ottla.flow.task.feed import feed_frame
from ottla.flow.vector.aggregate import WindowedKeys, by_key, by_window
from ottla.flow.vector.change import encode_changes
from ottla.flow.vector.columns import OutputColumns
from ottla.flow.vector.encode import encode, fixed
from ottla.flow.vector.evaluate import Frame, evaluate
from ottla.flow.vector.meet import Meeting, Merged, meetings, run_steps
from ottla.flow.vector.step import KEYS, Applied, Kinds, RegionRun, Step
from ottla.flow.vector.table_step import change_step, join_step, table_step
from ottla.flow.window import TimeWindows
from ottla.kernel.named import NamedTuple

if TYPE_CHECKING:
    from ottla.flow.engine import Task
    from ottla.flow.task.rows import Rows

#: Fewer records than this are cheaper one by one.
ROWS_MIN = 48


class Touched(NamedTuple):
    """The nodes, stores and topics that some nodes write, and the stores that they only read. `*`: any topic."""

    written: set[str]
    read: set[str]

    def conflicts(self, other: Touched) -> bool:
        """Whether one of them writes what the other touches."""
        return bool(self.written & (other.written | other.read) or self.read & other.written)

    def and_(self, other: Touched) -> Touched:
        return Touched(self.written | other.written, self.read | other.read)

    @property
    def stores(self) -> set[str]:
        return {name for name in self.written | self.read if name.startswith("store ")}


class Region:
    """The column steps downstream of one source, and the joins of streams that its records reach."""

    def __init__(self, task: Task, step: Step, joins: Sequence[Meeting]) -> None:
        self._task = task
        self.step = step
        self._joins = joins

    def takes(self, count: int) -> bool:
        """Whether so many rows are worth a run."""
        return count >= ROWS_MIN

    def run(self, rows: Rows, start: int, end: int) -> bool:
        """Process rows. False: nothing was done, and the caller processes them one by one."""
        if not self.takes(end - start) or rows.columns is None:
            return False
        keys, values, timestamps = rows.columns
        stamps, size = timestamps[start:end], end - start
        frame = Frame(keys.slice(start, size), values.slice(start, size), stamps, np.arange(size))
        newest = np.maximum.accumulate(np.maximum(stamps, self._task.time.value))
        headers = None if rows.headers is None else rows.headers[start:end]
        run = RegionRun([rows], None, np.arange(start, end), headers, newest)
        return run_steps(self._task, run, [(self.step, frame)], self._joins)


def vectorize(task: Task) -> None:
    """Set the region of each source of a task that has one, and how joins of streams take several sources at once."""
    joins = meetings(task)
    compiler = _Compiler(task, joins)
    while not compiler.compile():
        # A join that cannot work on columns changes what the sources' regions are.
        joins = meetings(task) if compiler.joins else []
        kept = {join.name for join in compiler.joins}
        compiler = _Compiler(task, [join for join in joins if join.name in kept])
    task.merged = Merged(task, compiler.joins) if compiler.joins else None


class _Compiler:
    """The regions of a task. `joins` are the joins of streams that may work on columns."""

    def __init__(self, task: Task, joins: Sequence[Meeting]) -> None:
        self._task = task
        self._topology = task.topology
        self.joins = list(joins)
        self._windowed = {name: join for join in joins for name in join.windowed}

    def compile(self) -> bool:
        """Set the regions of all sources. False: `joins` are now those that are left to try."""
        for receiver in self._task.receivers():
            receiver.region = self._region(receiver)
        failed = [join for join in self.joins if not self._follow(join)]
        if not failed and self._may_run_in_turn():
            return True
        self.joins = [join for join in self.joins if join not in failed] if failed else []
        return False

    def _follow(self, join: Meeting) -> bool:
        """Compile the steps downstream of a join. False if it does not work on columns."""
        kinds = join.result()
        if kinds is None or {f"store {store}" for store in join.stores} & self._reachable(join.name).stores:
            return False
        compiled = self._node(join.name, kinds)
        if compiled is None:
            return False
        join.following = compiled[0]
        return True

    def _may_run_in_turn(self) -> bool:
        """Whether sources and joins, each of which processes all its records before the next one, share nothing."""
        if not self.joins:
            return True
        seen = Touched(set(), set())
        own = [Touched({f"store {store}" for store in join.stores}, set()) for join in self.joins]
        parts = [each.and_(self._reachable(join.name)) for each, join in zip(own, self.joins, strict=True)]
        parts += [self._downstream(source) for source in sorted(Merged(self._task, self.joins).sources)]
        for part in parts:
            if seen.conflicts(part) or (len(parts) > 1 and "*" in part.written):
                return False
            seen = seen.and_(part)
        return True

    def _region(self, receiver: Any) -> Region | None:
        is_change = isinstance(receiver.value, ChangeSerde)
        value = receiver.value.inner if is_change else receiver.value
        kinds = Kinds(receiver.key.column_type, value.column_type, changes=is_change)
        if kinds.key is None or kinds.value is None or receiver.has_extractor:
            return None
        compiled = self._children(receiver.context.name, kinds)
        if compiled is None or not compiled[1]:
            return None
        return Region(self._task, compiled[0], self.joins)

    def _children(self, name: str, kinds: Kinds) -> tuple[Step, bool] | None:
        """A step for all children of a node, and whether any works on columns. None if they are not independent."""
        children = [child for child in self._topology.children(name) if child in self._task.subtopology.nodes]
        if len(children) > 1 and not self._are_independent(children):
            return None
        compiled = [self._node(child, kinds) for child in children]
        if any(child is None for child in compiled):
            return None
        steps = [child[0] for child in compiled if child is not None]
        columns = any(child[1] for child in compiled if child is not None)
        return (steps[0], columns) if len(steps) == 1 else (_in_turn(steps), columns)

    def _are_independent(self, children: Sequence[str]) -> bool:
        """Whether these branches share nothing but stores that they only read."""
        seen = Touched(set(), set())
        for child in children:
            touched = self._reachable(child)
            if seen.conflicts(touched) or "*" in touched.written:
                return False
            seen = seen.and_(touched)
        return True

    def _reachable(self, name: str) -> Touched:
        """What a node and the nodes downstream of it touch."""
        topology = self._topology
        if name in topology.sinks:
            topic = topology.sinks[name].topic
            return Touched({name, f"topic {topic}" if isinstance(topic, str) else "*"}, set())
        if name in self._windowed:
            return Touched({name}, set())
        return self._downstream(name).and_(self._stores(name)).and_(Touched({name}, set()))

    def _downstream(self, name: str) -> Touched:
        reached = Touched(set(), set())
        for child in self._topology.children(name):
            reached = reached.and_(self._reachable(child))
        return reached

    def _stores(self, name: str) -> Touched:
        """The stores of a node."""
        stores = {f"store {store}" for store in self._topology.processors[name].stores}
        processor = self._task.node(name).processor
        reads = isinstance(processor, StreamTableJoin) and not processor.waits
        return Touched(set(), stores) if reads else Touched(stores, set())

    def _node(self, name: str, kinds: Kinds) -> tuple[Step, bool] | None:
        node = self._task.node(name)
        if isinstance(node, SinkNode):
            return self._sink(node, kinds)
        processor = node.processor
        if name in self._windowed:
            return self._windowed[name].arrive(name, kinds), True
        if kinds.changes:
            compiled = change_step(processor, kinds, self._only_streams(name))
        else:
            compiled = (
                self._stateless(processor, kinds)
                or self._aggregate(processor, name, kinds)
                or table_step(self._task, processor, name, kinds, self._only_streams(name))
                or join_step(self._task, processor, name, kinds)
            )
        if compiled is None or self._stores(name).conflicts(self._downstream(name)):
            return (self._one_by_one(node), False) if not kinds.windowed else None
        apply, after = compiled
        rest = self._children(name, after)
        if rest is None:
            return (self._one_by_one(node), False) if not kinds.windowed else None
        if after.changes and not rest[1]:
            return self._one_by_one(node), False
        following = rest[0]

        def step(frame: Frame, run: RegionRun) -> None:
            following(apply(frame, run), run)

        return step, True

    def _stateless(self, processor: Any, kinds: Kinds) -> Applied | None:
        match processor:
            case stateless.PassThrough() | stateless.ToStream():
                return (lambda frame, run: frame), kinds
            case stateless.DropNullKeys() if not kinds.windowed:
                return (lambda frame, run: frame.where(pc.is_valid(frame.keys))), kinds
        if kinds.windowed:
            return None
        function = _columns(processor)
        if function is None:
            return None
        compute = function.compute
        match processor:
            case stateless.Filter():
                if function.kind(kinds) != "boolean":
                    return None
                negate = processor.negate

                def kept(frame: Frame, run: RegionRun) -> Frame:
                    mask = compute(frame).fill_null(False)
                    return frame.where(pc.invert(mask) if negate else mask)

                return kept, kinds
            case stateless.MapValues():
                kind = function.kind(kinds)
                return (lambda frame, run: replace(frame, values=compute(frame))), kinds._replace(value=kind)
            case stateless.SelectKey():
                kind = function.kind(kinds)
                if not isinstance(kind, str):
                    return None
                return (lambda frame, run: replace(frame, keys=compute(frame))), kinds._replace(key=kind)
            case stateless.FlatMap():
                return (lambda frame, run: function.flat(frame)), Kinds(*function.pair)
        return None

    def _aggregate(self, processor: Any, name: str, kinds: Kinds) -> Applied | None:
        if not isinstance(processor, (_Aggregate, _WindowAggregate)) or kinds.windowed:
            return None
        table = processor._table
        fold = getattr(table.aggregator, "fold", None)
        if fold is None or table.sending_old or not self._only_streams(name) or kinds.key not in KEYS:
            return None
        kind = "long" if fold == "count" else kinds.value
        if kind not in ("long", "double", "string") or (fold == "sum" and kind == "string"):
            return None
        windowed = isinstance(processor, _WindowAggregate)
        if isinstance(processor, _WindowAggregate):
            if processor._table.on_close or not isinstance(processor._windows, TimeWindows):
                return None
        elif processor._store.versioned:
            return None
        compute = by_window if windowed else by_key
        task = self._task

        def aggregated(frame: Frame, run: RegionRun) -> Frame:
            result = compute(processor, fold, frame, kind)

            def apply() -> None:
                task.drop(name, result.dropped)
                result.apply()

            run.effects.append(apply)
            return result.frame

        return aggregated, Kinds(kinds.key, kind, windowed)

    def _only_streams(self, name: str) -> bool:
        """Whether a table's changes go nowhere but to streams, which take only the new value of each."""
        children = [self._task.node(child) for child in self._topology.children(name)]
        return all(isinstance(getattr(child, "processor", None), stateless.ToStream) for child in children)

    def _sink(self, node: SinkNode, kinds: Kinds) -> tuple[Step, bool] | None:
        key, value = node.serdes
        inner = key.inner if kinds.windowed and isinstance(key, TimeWindowedSerde) else key
        content = value.inner if kinds.changes and isinstance(value, ChangeSerde) else value
        fits = inner is not None and inner.column_type == kinds.key
        fits = fits and content is not None and content.column_type == kinds.value
        fits = fits and kinds.changes is isinstance(value, ChangeSerde)
        if not node.is_fixed or not fits or kinds.windowed is not isinstance(key, TimeWindowedSerde):
            # Windowed keys have no conversion to Python objects here.
            return (self._one_by_one(node), False) if not kinds.windowed else None
        topic, task, changes = node.topic, self._task, kinds.changes
        assert inner is not None and content is not None

        def step(frame: Frame, run: RegionRun) -> None:
            keys, partition_keys = _encoded_keys(inner, frame.keys)
            values = encode_changes(content, frame.values) if changes else encode(content, frame.values)
            headers = run.headers
            own = None if headers is None else [headers[row] for row in frame.rows.tolist()]
            columns = OutputColumns(topic, keys, values, frame.timestamps, own, partition_keys)
            if len(frame):
                run.effects.append(lambda: task.outputs.append(columns))

        return step, True

    def _one_by_one(self, node: Any) -> Step:
        task, push = self._task, node.push

        def step(frame: Frame, run: RegionRun) -> None:
            run.effects.append(lambda: feed_frame(task, push, frame, run))

        return step


def _in_turn(steps: Sequence[Step]) -> Step:
    def step(frame: Frame, run: RegionRun) -> None:
        for step in steps:
            step(frame, run)

    return step


def _encoded_keys(serde: Serde, keys: Any) -> tuple[Any, Any]:
    """Keys as bytes, and the bytes to partition by if they differ."""
    if not isinstance(keys, WindowedKeys):
        return encode(serde, keys), None
    inner = encode(serde, keys.keys)
    starts = fixed(np.ascontiguousarray(keys.starts, dtype=">i8").view(np.uint8), 8, inner)
    return pc.binary_join_element_wise(inner, starts, b""), inner


class _Function(NamedTuple):
    """A user's function on columns."""

    compute: Callable[[Frame], Any]
    kind: Callable[[Kinds], Type]
    flat: Callable[[Frame], Frame]
    pair: tuple[Type, Type]


def _columns(processor: Any) -> _Function | None:
    """The column expression or batch function of an operator, or None."""
    given = getattr(processor, "function", None)
    expression: Expression | None = getattr(given, "expression", None)
    if expression is not None:
        known = expression
        return _Function(
            lambda frame: evaluate(known, frame),
            lambda kinds: type_of(known, kinds.key, kinds.value),
            lambda frame: frame,
            (None, None),
        )
    batch = getattr(given, "batch", None)
    if batch is None:
        return None
    return _Function(batch.compute, lambda kinds: batch.kind, batch.flat, batch.pair)
