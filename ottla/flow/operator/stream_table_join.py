"""Joins of a stream with a table, by key, or with a global table, by what a selector makes of key and value.

Rules (Kafka Streams 4.3, tried):
- The table side never emits. Its value is the latest by offset; of a versioned table the one at the record's time.
- A null value is dropped. A null key is dropped by an inner join and joined with null by a left one.
- With a grace period (versioned tables only) records wait in a buffer until stream time is so far past them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.flow.operator.suppress import _AsIfFrom
from ottla.flow.operator.view import Getter, value_of
from ottla.flow.processor import Context, Processor
from ottla.flow.record import Record
from ottla.flow.store.buffer import JoinBuffer


class StreamTableJoin(Processor):
    """`joiner` takes (key, stream value, table value); `selector` gives the table's key."""

    def __init__(
        self,
        table: Getter,
        selector: Callable[[Any, Any], Any] | None,
        joiner: Callable[[Any, Any, Any], Any],
        *,
        left: bool,
        buffer: str | None = None,
    ) -> None:
        self._table = table
        self._selector = selector
        self._joiner = joiner
        self._left = left
        self._buffer_name = buffer

    def init(self, context: Context) -> None:
        self.context = context
        self._values = self._table.open(context)
        self._buffer: JoinBuffer | None = None
        if self._buffer_name is not None:
            self._buffer = context.get_state_store(self._buffer_name)

    def process(self, record: Record) -> None:
        if self._drops(record):
            self.context.drop()
            return
        if self._buffer is None:
            self._join(record)
            return
        metadata = self.context.record_metadata()
        assert metadata is not None
        if not self._buffer.put(record, metadata):
            self._join(record)
            return
        for held in self._buffer.due():
            with _AsIfFrom(self.context, held.context):
                self._join(held.record)

    def _drops(self, record: Record) -> bool:
        if record.value is None:
            return True
        if self._left and (record.key is None or self._selector is not None):
            return False
        return self._key(record) is None

    def _key(self, record: Record) -> Any:
        return record.key if self._selector is None else self._selector(record.key, record.value)

    def _join(self, record: Record) -> None:
        key = self._key(record)
        found = None
        if key is not None:
            found = self._values.get_as_of(key, record.timestamp) if self._values.versioned else self._values.get(key)
        other = value_of(found)
        if self._left or other is not None:
            self.context.forward(record.with_value(self._joiner(record.key, record.value, other)))
