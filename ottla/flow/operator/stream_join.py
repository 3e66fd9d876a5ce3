"""Joins of two streams within a window: inner, left, outer, and self-joins.

Rules (verified with Kafka Streams 4.3):
- Both sides share one stream time: the newest timestamp of all their records, including dropped ones.
- Each side looks into the other's window store, whose retention is `before + after + grace`.
- On an outer side, a record without a match is a candidate until its window closes; if the window has already closed,
  the result is emitted at once. Expired candidates are emitted when a record with the newest timestamp arrives, at most
  once per second of wall clock, by time, right side first, then by key. The results carry that record's headers.
- If the joiner fails on a candidate, the processing handler decides about the candidate, which is the dead letter, too.
  In Kafka Streams it decides about the record that arrived, and the candidate stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.flow.failure import Failed
from ottla.flow.operator.emit import JOIN_INTERVAL, interval_ms, is_early
from ottla.flow.processor import Context, Processor
from ottla.flow.record import TIME_MAX, Headers, Input, Record
from ottla.flow.store.changelog import Cell
from ottla.flow.store.unjoined import Candidate, UnjoinedStore
from ottla.flow.task.push import Fused, Node, Push
from ottla.flow.window import JoinWindows


class JoinWindow(Fused):
    """Passes a record to the join, then stores it for the other side."""

    def __init__(self, store: str) -> None:
        self._name = store

    def init(self, context: Context) -> None:
        self._store = context.get_state_store(self._name)

    def fused(self, node: Node) -> Push:
        emit, put, on_error = node.emit, self._store.put, node.on_error

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            emit(key, value, timestamp, headers)
            if key is not None:
                try:
                    put(key, value, timestamp, headers)
                except Exception as error:
                    on_error(key, value, timestamp, headers, error)

        return push


class JoinTimes:
    """The cells that both sides of a join share, and the interval between emissions in ms."""

    def __init__(self, task: Any, name: str, interval: int) -> None:
        self.interval = interval
        self.stream_time: Cell = task.cell(f"{name}/stream_time")
        self.oldest: Cell = task.cell(f"{name}/oldest_candidate", TIME_MAX)
        self.next_emit: Cell = task.cell(f"{name}/next_emit", 0)


class StreamJoin(Fused):
    """A side of a join. `joiner` takes (key, left value, right value); `outer`: this side's records need no match."""

    def __init__(
        self,
        name: str,
        other_store: str,
        windows: JoinWindows,
        joiner: Callable[[Any, Any, Any], Any],
        *,
        left: bool,
        outer: bool,
        candidates: str | None,
    ) -> None:
        self._name = name
        self._other_store = other_store
        self.windows = windows
        self.joiner = joiner
        self.left = left
        self.outer = outer
        self._candidates_name = candidates
        before, after = windows.before_ms, windows.after_ms
        self.before, self.after = (before, after) if left else (after, before)

    def init(self, context: Context) -> None:
        self.context = context
        self.other = context.get_state_store(self._other_store)
        interval = interval_ms(context.app_configs, JOIN_INTERVAL)
        self.clock = JoinTimes(context.task, self._name, interval)  # type: ignore[attr-defined]
        self.candidates: UnjoinedStore | None = None
        if self._candidates_name is not None:
            self.candidates = context.get_state_store(self._candidates_name)

    def fused(self, node: Node) -> Push:
        emit, emit_at, on_error, joined, outer = node.emit, node.emit_at, node.on_error, self._joined, self.outer
        find, joiner, candidates, clock = self.other.find, self.joiner, self.candidates, self.clock
        before, after, left, stream_time = self.before, self.after, self.left, clock.stream_time

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if timestamp > stream_time.value:
                stream_time.value = timestamp
            try:
                if key is None or value is None:
                    if outer and value is not None:
                        emit(key, joined(key, value, None), timestamp, headers)
                    else:
                        node.drop()
                    return
                if candidates is not None and timestamp == stream_time.value:
                    self._emit_expired(candidates, emit_at, headers, on_error)
                latest = max(0, timestamp + after)
                matches = find(key, max(0, timestamp - before), latest)
                for other_time, other in matches:
                    if candidates is not None:
                        candidates.remove(key, other_time, not left)
                    joined_value = joiner(key, value, other) if left else joiner(key, other, value)
                    if timestamp >= other_time:
                        emit(key, joined_value, timestamp, headers)
                    else:
                        emit_at(key, joined_value, other_time, headers)
                if outer and not matches:
                    if candidates is None or latest < stream_time.value:
                        emit(key, joined(key, value, None), timestamp, headers)
                    else:
                        clock.oldest.value = min(clock.oldest.value, timestamp)
                        candidates.put(key, timestamp, left, value)
            except Failed:
                raise
            except Exception as error:
                on_error(key, value, timestamp, headers, error)

        return push

    def _joined(self, key: Any, value: Any, other: Any) -> Any:
        return self.joiner(key, value, other) if self.left else self.joiner(key, other, value)

    def _emit_expired(
        self, candidates: UnjoinedStore, emit_at: Push, headers: Headers, on_error: Callable[..., None]
    ) -> None:
        clock, now = self.clock, self.context.current_system_time_ms()
        due = clock.oldest.value + self.after + self.windows.grace_ms
        # Without a candidate the sum overflows in Java and turns negative, so the interval starts; do the same.
        if (due if due <= TIME_MAX else due - (1 << 64)) >= clock.stream_time.value:
            return
        if is_early(now, clock.next_emit.value, clock.interval):
            return
        clock.next_emit.value = now + clock.interval
        clock.oldest.value = TIME_MAX
        open_sides: set[bool] = set()
        for candidate in candidates.all():
            clock.oldest.value = candidate.timestamp
            if len(open_sides) == 2:
                break
            if self._is_open(candidate):
                open_sides.add(candidate.left)
                continue
            left, right = (candidate.value, None) if candidate.left else (None, candidate.value)
            try:
                joined = self.joiner(candidate.key, left, right)
            except Exception as error:
                # Left in the store, it would fail all later records, which are not to blame.
                self._fail(candidates, candidate, error, on_error)
            else:
                emit_at(candidate.key, joined, candidate.timestamp, headers)
            candidates.remove_entry(candidate.entry_key)

    def _fail(
        self, candidates: UnjoinedStore, candidate: Candidate, error: Exception, on_error: Callable[..., None]
    ) -> None:
        """Call the handler with a candidate, whose position in its topic is not known any more."""
        task: Any = self.context.task  # type: ignore[attr-defined]
        name, value = candidate.entry_key[9:-4], candidates.entries.get(candidate.entry_key)
        arrived, task.current = task.current, Input("", task.partition, -1, candidate.timestamp, name, value)
        try:
            on_error(candidate.key, candidate.value, candidate.timestamp, (), error)
        finally:
            task.current = arrived

    def _is_open(self, candidate: Candidate) -> bool:
        reach = self.windows.after_ms if candidate.left else self.windows.before_ms
        return candidate.timestamp + reach + self.windows.grace_ms >= self.clock.stream_time.value


class SelfJoin(Processor):
    """A join of a stream with itself in one store (topology.optimization: single.store.self.join)."""

    def __init__(self, store: str, windows: JoinWindows, joiner: Callable[[Any, Any, Any], Any]) -> None:
        self._name = store
        self._windows = windows
        self._joiner = joiner

    def init(self, context: Context) -> None:
        self.context = context
        self._store = context.get_state_store(self._name)
        self._time = context.cell("stream_time")

    def process(self, record: Record) -> None:
        if record.key is None or record.value is None:
            self.context.drop()
            return
        key, value, time = record.key, record.value, record.timestamp
        before, after = self._windows.before_ms, self._windows.after_ms
        self._time.value = max(self._time.value, time)
        emit_self = time > self._time.value - (self._windows.size_ms + self._windows.grace_ms) + 1
        for other_time, other in self._store.find(key, max(0, time - before), max(0, time + after)):
            self._forward(record, self._joiner(key, value, other), max(time, other_time))
        for other_time, other in self._store.find(key, max(0, time - after), max(0, time + before)):
            if emit_self and time < other_time:
                emit_self = False
                self._forward(record, self._joiner(key, value, value), time)
            self._forward(record, self._joiner(key, other, value), max(time, other_time))
        if emit_self:
            self._forward(record, self._joiner(key, value, value), time)

    def _forward(self, record: Record, value: Any, time: int) -> None:
        self.context.forward(Record(record.key, value, time, record.headers))
