"""Aggregates in tumbling, hopping and unlimited windows, and in windows of the program's own.

Rules (verified with Kafka Streams 4.3):
- Stream time is the operator's own: the newest timestamp of the records with a key that reach it.
- A window accepts records while its end is after `stream time - grace`; each closed window of a record counts as a
  dropped record. Null keys are dropped, null values are aggregated.
- The result's timestamp is the newest in the window; a null result deletes the window.
- The old value that goes downstream for a new window is null; without a cache it is the initializer's (reduce: null).
- Emit on close: after a record's own update, the windows that have closed are emitted by start, then key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.flow.failure import Failed
from ottla.flow.operator.emit import EmitThrottle
from ottla.flow.operator.view import FIXED, WindowedAggregate, value_of
from ottla.flow.processor import Context
from ottla.flow.record import Change, Headers, ValueAndTimestamp, Window, Windowed
from ottla.flow.setting import without_cache
from ottla.flow.task.push import Fused, Node, Push
from ottla.flow.window import TimeWindows, UnlimitedWindows, Windows

FixedWindows = TimeWindows | UnlimitedWindows | Windows


class WindowAggregate(WindowedAggregate[FixedWindows]):
    """The table of an aggregate in windows that the time of a record determines."""

    def __call__(self) -> Fused:
        return _WindowAggregate(self)


class _WindowAggregate(Fused):
    def __init__(self, table: WindowAggregate) -> None:
        self._table = table
        self._windows = table.windows

    def init(self, context: Context) -> None:
        self._store = context.get_state_store(self._table.store)
        self._time = context.cell("stream_time")
        self._sends_initial = without_cache(context.app_configs)
        self._clock = EmitThrottle(context, self._table.store) if self._table.on_close else None

    def fused(self, node: Node) -> Push:
        time, clock, grace, on_error = self._time, self._clock, self._windows.grace_ms, node.on_error
        windows_for, update = WindowCache(self._windows).windows_for, self._updater(node)

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                node.drop()
                return
            if timestamp > time.value:
                time.value = timestamp
            close = time.value - grace
            try:
                for window in windows_for(timestamp):
                    if window.end > close:
                        update(key, value, timestamp, headers, window)
                    else:
                        node.drop()
                if clock is not None:
                    self._emit_closed(clock, node.emit_at, headers, close)
            except Failed:
                raise
            except Exception as error:
                on_error(key, value, timestamp, headers, error)

        return push

    def _updater(self, node: Node) -> Callable[[Any, Any, int, Headers, Window], None]:
        """A function that updates one window with a record."""
        initializer, aggregator, make = self._table.initializer, self._table.aggregator, tuple.__new__
        emit, emit_at, send_initial = node.emit, node.emit_at, self._sends_initial
        fetch, put, quiet, send_old = (
            self._store.fetch_one, self._store.put, self._clock is not None, self._table.sending_old
        )  # fmt: skip

        def update(key: Any, value: Any, timestamp: int, headers: Headers, window: Window) -> None:
            start, send = window[0], emit
            stored = fetch(key, start)
            old = None if stored is None else stored[0]
            if old is None:
                before = initializer()
                old = before if send_initial else None
            else:
                before = old if not send_old or old.__class__ in FIXED else value_of(fetch(key, start))
                if stored[1] > timestamp:
                    timestamp, send = stored[1], emit_at
            new = aggregator(key, value, before)
            put(key, make(ValueAndTimestamp, (new, timestamp)), start)
            if not quiet:
                change = Change(new, old if send_old else None)
                send(make(Windowed, (key, window)), change, timestamp, headers)

        return update

    def _emit_closed(self, clock: EmitThrottle, emit_at: Push, headers: Headers, close: int) -> None:
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
            emit_at(key, Change(value[0], None), value[1], headers)
        clock.last.value = close


class WindowCache:
    """Caches the last result of `windows_for`: most records have the same windows as the record before."""

    def __init__(self, windows: FixedWindows) -> None:
        self._step = -1
        self._last: list[Window] = []
        if isinstance(windows, Windows):
            self.windows_for = windows.checked_windows  # type: ignore[method-assign]
        elif not isinstance(windows, TimeWindows) or windows.size_ms % windows.advance_ms:
            # If windows do not end where others start, a record's windows also change between two starts.
            self.windows_for = windows.windows_for  # type: ignore[method-assign]
        else:
            self._windows, self._advance = windows, windows.advance_ms

    def windows_for(self, timestamp: int) -> list[Window]:
        """The windows of a record with this timestamp, by ascending start."""
        step = timestamp // self._advance
        if step != self._step:
            self._step, self._last = step, self._windows.windows_for(timestamp)
        return self._last
