"""Aggregates in session windows: records of a key that are at most the gap apart share a session.

Rules (verified with Kafka Streams 4.3):
- Sessions that a record joins are removed, each with a tombstone, by end, then start; then the merged session is
  emitted.
- The old value of a session that keeps its bounds is what was emitted before; without a cache it is null.
- A result's timestamp is the session's end; results carry no headers.
- A record is dropped if its merged session ends before `stream time - grace - gap`.
"""

from __future__ import annotations

from typing import Any

from ottla.flow.operator.emit import EmitThrottle
from ottla.flow.operator.view import FIXED, Aggregator, SessionValues, WindowedAggregate
from ottla.flow.processor import Context, Processor
from ottla.flow.record import Change, Record, Window, Windowed
from ottla.flow.setting import without_cache
from ottla.flow.window import SessionWindows


class SessionAggregate(WindowedAggregate[SessionWindows]):
    """The table of an aggregate in session windows. For reduce, the merger is the reducer."""

    values = SessionValues

    def __init__(self, *shared: Any, merger: Aggregator) -> None:
        super().__init__(*shared)
        self.merger = merger

    def __call__(self) -> Processor:
        return _SessionAggregate(self)


class _SessionAggregate(Processor):
    def __init__(self, table: SessionAggregate) -> None:
        self._table = table
        self._windows = table.windows
        self._initializer = table.initializer
        self._aggregator = table.aggregator
        self._merger = table.merger

    def init(self, context: Context) -> None:
        self.context = context
        self._store = context.get_state_store(self._table.store)
        self._time = context.cell("stream_time")
        self._without_cache = without_cache(context.app_configs)
        self._clock = EmitThrottle(context, self._table.store) if self._table.on_close else None

    def process(self, record: Record) -> None:
        key, timestamp, gap = record.key, record.timestamp, self._windows.gap_ms
        if key is None:
            self.context.drop()
            return
        if timestamp > self._time.value:
            self._time.value = timestamp
        close = self._time.value - self._windows.grace_ms - gap
        merged = olds = list(self._store.find_sessions(key, timestamp - gap, timestamp + gap))
        if self._table.sending_old and any(value.__class__ not in FIXED for _, value in merged):
            olds = list(self._store.find_sessions(key, timestamp - gap, timestamp + gap))
        aggregate = self._initializer()
        window = Window(timestamp, timestamp)
        for session, value in merged:
            aggregate = self._merger(key, aggregate, value)
            window = Window(min(window.start, session.window.start), max(window.end, session.window.end))
        if window.end < close:
            self.context.drop()
        else:
            # Before the sessions are removed: they stay if the aggregator fails.
            aggregate = self._aggregator(key, record.value, aggregate)
            before = None
            if window != Window(timestamp, timestamp):
                for session, value in olds:
                    self._store.remove(session)
                    self._forward(session, value, None)
            elif merged and not self._without_cache:
                before = olds[0][1]
            session = Windowed(key, window)
            self._store.put(session, aggregate)
            self._forward(session, before, aggregate)
        if self._clock is not None:
            self._emit_closed(self._clock, record, close)

    def _forward(self, session: Windowed, old: Any, new: Any) -> None:
        if self._clock is None:
            change = Change(new, old if self._table.sending_old else None)
            self.context.forward(Record(session, change, session.window.end))

    def _emit_closed(self, clock: EmitThrottle, record: Record, close: int) -> None:
        if not clock.due(close) or close - 1 < 0:
            return
        earliest, latest = max(0, clock.last.value), close - 1
        if latest < earliest:
            return
        for session, value in list(self._store.find_closed(earliest, latest)):
            self.context.forward(Record(session, Change(value, None), session.window.end, record.headers))
        clock.last.value = close
