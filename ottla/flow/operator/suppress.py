"""Suppress: hold a table's updates back for a time, or until their windows close.

Rules (verified with Kafka Streams 4.3):
- By time, a key's slot opens with its first update and is emitted when stream time exceeds that update by the limit;
  later updates replace its content. By window, the slot's time is the window's end.
- The emitted timestamp and headers are those of the last update that was held back.
- The emitted old value is the one that was emitted before. Without a cache it is that of the last update that was held
  back, as Kafka Streams has it: there an aggregate downstream subtracts what it never added.
- Tombstones of windows are never emitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla.flow.error import StreamsError
from ottla.flow.operator.view import Getter, Values, View
from ottla.flow.processor import Context, Processor
from ottla.flow.record import Change, Input, Record, ValueAndTimestamp
from ottla.flow.setting import without_cache
from ottla.flow.store.buffer import SuppressBuffer


@dataclass(frozen=True, slots=True)
class SuppressRule:
    """When to emit a slot: `wait_ms` after its time (`by_window`: after the window's end). With more than `max_records`
    slots or `max_bytes` bytes, the oldest slot is emitted early or, if `shut_down`, the task fails.
    """

    wait_ms: int
    by_window: bool
    max_records: int | None
    max_bytes: int | None
    shut_down: bool


class SuppressedTable(View):
    """A table whose updates are held back in a buffer."""

    def __init__(self, parent: View, rule: SuppressRule, store: str) -> None:
        self.parent = parent
        self.rule = rule
        self.store = store
        parent.enable_old(True)

    def __call__(self) -> Processor:
        return _Suppress(self)

    def _enable_old(self, force: bool) -> bool:
        return self.parent.enable_old(force)

    def getter(self) -> Getter:
        parent = self.parent.getter()
        return Getter(
            (self.store, *parent.stores),
            lambda context: _SuppressedValues(context.get_state_store(self.store), parent.open(context)),
        )


class _SuppressedValues:
    """The values that downstream sees: for a key that is held back, the value from before."""

    versioned = False

    def __init__(self, buffer: SuppressBuffer, parent: Values) -> None:
        self._buffer = buffer
        self._parent = parent

    def get(self, key: Any) -> ValueAndTimestamp | None:
        held, prior = self._buffer.prior(key)
        if held:
            return None if prior is None else ValueAndTimestamp(prior, -1)
        return self._parent.get(key)

    def get_as_of(self, key: Any, timestamp: int) -> ValueAndTimestamp | None:
        return self.get(key)


class _Suppress(Processor):
    def __init__(self, table: SuppressedTable) -> None:
        self._table = table
        self._rule = table.rule

    def init(self, context: Context) -> None:
        self.context = context
        self._buffer: SuppressBuffer = context.get_state_store(self._table.store)
        self._time = context.cell("stream_time")
        self._sends_held = without_cache(context.app_configs)
        inside: Any = context
        self._task = inside.task

    def process(self, record: Record) -> None:
        self._time.value = max(self._time.value, record.timestamp)
        time = record.key.window.end if self._rule.by_window else record.timestamp
        self._buffer.put(time, record, self._task.origin)
        limit = self._time.value - self._rule.wait_ms
        while (first := self._buffer.first_time()) is not None and first <= limit:
            self._emit()
        while self._full():
            if self._rule.shut_down:
                raise StreamsError(
                    f"suppress buffer {self._table.store} is full: {len(self._buffer)} records, {self._buffer.size} "
                    f"bytes (limits: {self._rule.max_records} records, {self._rule.max_bytes} bytes)"
                )
            self._emit()

    def _full(self) -> bool:
        records, size = self._rule.max_records, self._rule.max_bytes
        return (records is not None and len(self._buffer) > records) or (size is not None and self._buffer.size > size)

    def _emit(self) -> None:
        held = self._buffer.pop(last_old=self._sends_held)
        change: Change = held.record.value
        if change.new is None and self._rule.by_window:
            return
        with _HeldRecordContext(self.context, held.context):
            self.context.forward(held.record)


class _HeldRecordContext:
    """Sets the task's record metadata to that of a held-back record while it is forwarded."""

    def __init__(self, context: Any, origin: Any) -> None:
        self._task = context.task
        self._origin = origin

    def __enter__(self) -> None:
        self._before = self._task.current, self._task.timestamp
        origin = self._origin
        self._task.timestamp = origin.timestamp
        self._task.current = Input(
            origin.topic, origin.partition, origin.offset, origin.timestamp, None, None, origin.headers
        )

    def __exit__(self, *error: object) -> None:
        self._task.current, self._task.timestamp = self._before
