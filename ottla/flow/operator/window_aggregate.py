"""Aggregates in tumbling, hopping and unlimited windows.

Rules (Kafka Streams 4.3, tried):
- Stream time is the operator's own: the newest timestamp of the records with a key that reach it.
- A window takes records while its end is behind `stream time - grace`; each closed window that a record misses counts
  as dropped. A null key is dropped, a null value is aggregated.
- The result's timestamp is the newest in the window; a null result deletes the window.
- Emit on close: after the record's own update, the windows that have closed, by start, then key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.flow.operator.emit import CloseClock
from ottla.flow.operator.view import Getter, View, WindowValues, value_of
from ottla.flow.processor import Context, Processor
from ottla.flow.record import Change, Record, ValueAndTimestamp, Windowed
from ottla.flow.window import TimeWindows, UnlimitedWindows


class WindowAggregate(View):
    """`initializer` None is reduce."""

    def __init__(
        self,
        store: str,
        windows: TimeWindows | UnlimitedWindows,
        initializer: Callable[[], Any] | None,
        aggregator: Callable[[Any, Any, Any], Any],
        on_close: bool,
    ) -> None:
        self.store = store
        self.windows = windows
        self.initializer = initializer
        self.aggregator = aggregator
        self.on_close = on_close

    def __call__(self) -> Processor:
        return _WindowAggregate(self)

    def getter(self) -> Getter:
        return Getter((self.store,), lambda context: WindowValues(context, self.store))


class _WindowAggregate(Processor):
    def __init__(self, table: WindowAggregate) -> None:
        self._table = table
        self._windows = table.windows
        self._initializer = table.initializer or (lambda: None)
        self._aggregator = _reduced(table.aggregator) if table.initializer is None else table.aggregator

    def init(self, context: Context) -> None:
        self.context = context
        self._store = context.get_state_store(self._table.store)
        self._time = context.cell("stream_time")
        self._clock = CloseClock(context) if self._table.on_close else None

    def process(self, record: Record) -> None:
        if record.key is None:
            self.context.drop()
            return
        self._time.value = max(self._time.value, record.timestamp)
        close = self._time.value - self._windows.grace_ms
        for window in self._windows.windows_for(record.timestamp):
            if window.end > close:
                self._update(record, window)
            else:
                self.context.drop()
        if self._clock is not None:
            self._emit_closed(self._clock, record, close)

    def _update(self, record: Record, window: Any) -> None:
        found = self._store.fetch_one(record.key, window.start)
        old = value_of(found)
        if old is None:
            old, timestamp = self._initializer(), record.timestamp
        else:
            timestamp = max(record.timestamp, found[1])
        new = self._aggregator(record.key, record.value, old)
        self._store.put(record.key, ValueAndTimestamp(new, timestamp), window.start)
        if self._clock is None:
            change = Change(new, old if self._table.sending_old else None)
            self.context.forward(Record(Windowed(record.key, window), change, timestamp, record.headers))

    def _emit_closed(self, clock: CloseClock, record: Record, close: int) -> None:
        if not clock.due(close):
            return
        size = self._windows.size_ms
        latest = close - size
        if latest < 0:
            return
        earliest = 0 if clock.first else max(0, clock.last.value - size) + 1
        if not clock.first and self._windows.windows_for(latest) == self._windows.windows_for(earliest - 1):
            return
        for key, value in list(self._store.fetch_closed(earliest, latest)):
            self.context.forward(Record(key, Change(value[0], None), value[1], record.headers))
        clock.last.value = close


def _reduced(reducer: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """A reducer as an aggregator: without an aggregate the value itself is it."""
    return lambda key, value, aggregate: value if aggregate is None else reducer(key, value, aggregate)
