"""Joins of two streams in a window: inner, left, outer, and a stream with itself.

Rules (Kafka Streams 4.3, tried):
- One stream time for both sides: the newest timestamp of all their records, also of those that are dropped.
- Each side looks into the other's window store, which holds records back to `before + after + grace` behind its newest.
- A record of an outer side without a partner is a candidate until its window closes; if the window has closed
  already, its
  result goes out at once. Candidates are given up when a record with the newest timestamp arrives, at most once a
  second of wall clock, by time, right side first, then by key; the results carry that record's headers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.flow.operator.emit import JOIN_INTERVAL, interval_ms
from ottla.flow.processor import Context, Processor
from ottla.flow.record import TIME_MAX, Record
from ottla.flow.store.changelog import Cell
from ottla.flow.store.unjoined import Candidate, UnjoinedStore
from ottla.flow.window import JoinWindows


class JoinWindow(Processor):
    """Hands a record to the join, then keeps it for the other side."""

    def __init__(self, store: str) -> None:
        self._name = store

    def init(self, context: Context) -> None:
        self.context = context
        self._store = context.get_state_store(self._name)

    def process(self, record: Record) -> None:
        self.context.forward(record)
        if record.key is not None:
            self._store.put(record.key, record.value, record.timestamp)


class JoinClock:
    """The times that both sides of a join share."""

    def __init__(self, task: Any, name: str, interval: int) -> None:
        self.interval = interval
        self.stream_time: Cell = task.cell(f"{name}/stream_time")
        self.oldest: Cell = task.cell(f"{name}/oldest_candidate", TIME_MAX)
        self.next_emit: Cell = task.cell(f"{name}/next_emit", 0)


class StreamJoin(Processor):
    """A side. `joiner` takes (key, left value, right value)."""

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
        self._windows = windows
        self._joiner = joiner
        self._left = left
        self._outer = outer
        self._candidates_name = candidates
        before, after = windows.before_ms, windows.after_ms
        self._before, self._after = (before, after) if left else (after, before)

    def init(self, context: Context) -> None:
        self.context = context
        self._other = context.get_state_store(self._other_store)
        interval = interval_ms(context.app_configs, JOIN_INTERVAL)
        self._clock = JoinClock(context.task, self._name, interval)  # type: ignore[attr-defined]
        self._candidates: UnjoinedStore | None = None
        if self._candidates_name is not None:
            self._candidates = context.get_state_store(self._candidates_name)

    def process(self, record: Record) -> None:
        clock, time = self._clock, record.timestamp
        clock.stream_time.value = max(clock.stream_time.value, time)
        if self._outer and record.key is None and record.value is not None:
            self.context.forward(record.with_value(self._joined(record, None)))
            return
        if record.key is None or record.value is None:
            self.context.drop()
            return
        if self._candidates is not None and time == clock.stream_time.value:
            self._give_up(self._candidates, record)
        earliest, latest = max(0, time - self._before), max(0, time + self._after)
        found = list(self._other.fetch(record.key, earliest, latest))
        for other_time, other in found:
            if self._candidates is not None:
                self._candidates.remove(record.key, other_time, not self._left)
            value = self._joined(record, other)
            self.context.forward(Record(record.key, value, max(time, other_time), record.headers))
        if self._outer and not found:
            if self._candidates is None or latest < clock.stream_time.value:
                self.context.forward(record.with_value(self._joined(record, None)))
            else:
                clock.oldest.value = min(clock.oldest.value, time)
                self._candidates.put(record.key, time, self._left, record.value)

    def _joined(self, record: Record, other: Any) -> Any:
        left, right = (record.value, other) if self._left else (other, record.value)
        return self._joiner(record.key, left, right)

    def _give_up(self, candidates: UnjoinedStore, record: Record) -> None:
        clock, now = self._clock, self.context.current_system_time_ms()
        due = clock.oldest.value + self._after + self._windows.grace_ms
        # Without a candidate the sum overflows in Java, and the throttle starts.
        if (due if due <= TIME_MAX else due - (1 << 64)) >= clock.stream_time.value:
            return
        if now < clock.next_emit.value:
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
            value = self._joiner(candidate.key, left, right)
            self.context.forward(Record(candidate.key, value, candidate.timestamp, record.headers))
            candidates.give_up(candidate)

    def _is_open(self, candidate: Candidate) -> bool:
        reach = self._windows.after_ms if candidate.left else self._windows.before_ms
        return candidate.timestamp + reach + self._windows.grace_ms >= self._clock.stream_time.value


class SelfJoin(Processor):
    """A stream joined with itself in one store (`topology.optimization`)."""

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
        for other_time, other in list(self._store.fetch(key, max(0, time - before), max(0, time + after))):
            self._forward(record, self._joiner(key, value, other), max(time, other_time))
        for other_time, other in list(self._store.fetch(key, max(0, time - after), max(0, time + before))):
            if emit_self and time < other_time:
                emit_self = False
                self._forward(record, self._joiner(key, value, value), time)
            self._forward(record, self._joiner(key, other, value), max(time, other_time))
        if emit_self:
            self._forward(record, self._joiner(key, value, value), time)

    def _forward(self, record: Record, value: Any, time: int) -> None:
        self.context.forward(Record(record.key, value, time, record.headers))
