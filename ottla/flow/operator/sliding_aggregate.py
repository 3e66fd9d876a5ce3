"""Aggregates in sliding windows (KIP-450): a window for every set of a key's records that are within the time
difference.

A record at t creates the window [t - difference, t] and, for each earlier record within that window, the window that
starts right after that record. A record's left window ends at the record; its right window starts 1 ms after it.
Records before time `difference` have no room for a left window and share [0, difference].
"""

from __future__ import annotations

from typing import Any

from ottla.flow.operator.emit import EmitThrottle
from ottla.flow.operator.view import FIXED, WindowedAggregate, value_of
from ottla.flow.processor import Context, Processor
from ottla.flow.record import Change, Record, ValueAndTimestamp, Window, Windowed
from ottla.flow.setting import without_cache
from ottla.flow.window import SlidingWindows


class SlidingAggregate(WindowedAggregate[SlidingWindows]):
    """The table of an aggregate in sliding windows."""

    def __call__(self) -> Processor:
        return _SlidingAggregate(self)


class _SlidingAggregate(Processor):
    def __init__(self, table: SlidingAggregate) -> None:
        self._table = table
        self._difference = table.windows.difference_ms
        self._initializer = table.initializer
        self._aggregator = table.aggregator

    def init(self, context: Context) -> None:
        self.context = context
        self._store = context.get_state_store(self._table.store)
        self._time = context.cell("stream_time")
        self._sends_initial = without_cache(context.app_configs)
        self._clock = EmitThrottle(context, self._table.store) if self._table.on_close else None

    def process(self, record: Record) -> None:
        if record.key is None or record.value is None:
            self.context.drop()
            return
        self._time.value = max(self._time.value, record.timestamp)
        close = self._time.value - self._table.windows.grace_ms
        # Kafka Streams 4.3 drops a record only when its right window has closed too.
        if record.timestamp + 1 + self._difference <= close:
            self.context.drop()
            return
        if record.timestamp < self._difference:
            # Kafka Streams emits no closed windows after such a record.
            self._process_early(record, close)
            return
        self._process_usual(record, close)
        if self._clock is not None:
            self._emit_closed(self._clock, record, close)

    def _process_usual(self, record: Record, close: int) -> None:
        timestamp, difference = record.timestamp, self._difference
        left_value: ValueAndTimestamp | None = None
        right_value: ValueAndTimestamp | None = None
        left_made = right_made = False
        previous: int | None = None
        starts: set[int] = set()
        earliest = max(0, timestamp - 2 * difference)
        for start, stored in list(self._store.backward_fetch(record.key, earliest, timestamp + 1)):
            starts.add(start)
            end = start + difference
            if start == timestamp + 1:
                right_made = True
            elif end > timestamp:
                right_value = right_value or stored
                self._update(Window(start, end), stored, record, close)
            elif end == timestamp:
                left_made = True
                self._update(Window(start, end), stored, record, close)
                if stored[1] >= timestamp:
                    return
                previous = stored[1]
            else:
                left_value, previous = stored, stored[1]
                break
        if previous is not None and previous + 1 not in starts and previous + 1 + difference >= timestamp:
            self._open(previous + 1, record, close)
        if not left_made:
            if previous is not None and left_value is not None and timestamp - difference <= previous:
                value = ValueAndTimestamp(left_value[0], timestamp)
            else:
                value = ValueAndTimestamp(self._initializer(), timestamp)
            self._update(Window(timestamp - difference, timestamp), value, record, close, is_new=True)
        if not right_made and right_value is not None and right_value[1] > timestamp:
            self._copy_right(timestamp, right_value, record)

    def _process_early(self, record: Record, close: int) -> None:
        timestamp, difference = record.timestamp, self._difference
        combined: ValueAndTimestamp | None = None
        right_value: ValueAndTimestamp | None = None
        right_made = False
        previous: int | None = None
        starts: set[int] = set()
        for start, stored in list(self._store.fetch(record.key, 0, timestamp + 1)):
            starts.add(start)
            if start == 0:
                combined = stored
                if stored[1] < timestamp:
                    previous = stored[1]
            elif start <= timestamp:
                right_value = stored
                self._update(Window(start, start + difference), stored, record, close)
            else:
                right_made = True
        if right_value is None and combined is not None and combined[1] > timestamp:
            right_value = combined
        if not right_made and right_value is not None and right_value[1] > timestamp:
            self._copy_right(timestamp, right_value, record)
        if previous is not None and previous + 1 not in starts:
            self._open(previous + 1, record, close)
        value = combined or ValueAndTimestamp(self._initializer(), timestamp)
        self._update(Window(0, difference), value, record, close, is_new=combined is None)

    def _open(self, start: int, record: Record, close: int) -> None:
        """Create the right window of the previous record, with this record."""
        value = ValueAndTimestamp(self._initializer(), record.timestamp)
        self._update(Window(start, start + self._difference), value, record, close, is_new=True)

    def _copy_right(self, timestamp: int, value: ValueAndTimestamp, record: Record) -> None:
        """Create the record's right window from the later records' aggregate."""
        window = Window(timestamp + 1, timestamp + 1 + self._difference)
        self._store.put(record.key, value, window.start)
        self._forward(record, window, None, value[0], value[1])

    def _update(
        self, window: Window, stored: ValueAndTimestamp, record: Record, close: int, *, is_new: bool = False
    ) -> None:
        """Update a window, or create one (`is_new`) from the value that it starts with."""
        if window.end < close:
            self.context.drop()
            return
        old = stored[0]
        own = old
        if not is_new and old.__class__ not in FIXED:
            # The record's right window may begin with the old value.
            own = value_of(self._store.fetch_one(record.key, window.start) or stored)
        new = self._aggregator(record.key, record.value, own)
        timestamp = record.timestamp if old is None else max(record.timestamp, stored[1])
        if is_new and self._table.sending_old and not self._sends_initial:
            # A record may begin a window twice: as the one after an earlier record, and as its own left window.
            known = self._store.fetch_one(record.key, window.start)
            old = None if known is None else known[0]
        self._store.put(record.key, ValueAndTimestamp(new, timestamp), window.start)
        self._forward(record, window, old, new, timestamp)

    def _forward(self, record: Record, window: Window, old: Any, new: Any, timestamp: int) -> None:
        if self._clock is None:
            change = Change(new, old if self._table.sending_old else None)
            self.context.forward(Record(Windowed(record.key, window), change, timestamp, record.headers))

    def _emit_closed(self, clock: EmitThrottle, record: Record, close: int) -> None:
        if not clock.due(close):
            return
        latest = close - self._difference - 1
        if latest < 0:
            return
        earliest = 0 if clock.first else max(0, clock.last.value - self._difference)
        for key, value in list(self._store.fetch_closed(earliest, latest)):
            self.context.forward(Record(key, Change(value[0], None), value[1], record.headers))
        clock.last.value = close
