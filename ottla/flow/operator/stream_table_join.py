"""Joins of a stream with a table by key, or with a global table by a selected key.

Rules (verified with Kafka Streams 4.3):
- The table side never emits. Its value is the latest by offset or, for a versioned table, the one at the record's time.
- A null value is dropped. A null key is dropped by an inner join and joined with null by a left join.
- With a grace period (versioned tables only), records wait in a buffer until stream time is that far past them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.flow.failure import Failed
from ottla.flow.operator.suppress import _HeldRecordContext
from ottla.flow.operator.view import Getter
from ottla.flow.processor import Context
from ottla.flow.record import Headers, Record
from ottla.flow.store.buffer import JoinBuffer
from ottla.flow.task.push import Fused, Node, Push


class StreamTableJoin(Fused):
    """A stream-table join. `joiner` takes (key, stream value, table value); `selector` returns a global table's key."""

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
        self.selector = selector
        self.joiner = joiner
        self.left = left
        self._buffer_name = buffer

    @property
    def waits(self) -> bool:
        """Whether records wait for their grace period."""
        return self._buffer_name is not None

    def init(self, context: Context) -> None:
        self.context = context
        self.values = self._table.open(context)
        self._buffer: JoinBuffer | None = None
        if self._buffer_name is not None:
            self._buffer = context.get_state_store(self._buffer_name)

    def fused(self, node: Node) -> Push:
        join, buffer, on_error = self._joins(node.emit), self._buffer, node.on_error
        always, on_null_key = not self.left, self.left and self.selector is not None
        selector = self.selector

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                name = key if selector is None or value is None else selector(key, value)
                if value is None or (name is None and (always or not (key is None or on_null_key))):
                    node.drop()
                elif buffer is None:
                    join(name, key, value, timestamp, headers)
                else:
                    self._wait(buffer, name, Record(key, value, timestamp, headers), join, on_error)
            except Failed:
                raise
            except Exception as error:
                on_error(key, value, timestamp, headers, error)

        return push

    def _joins(self, emit: Push) -> Callable[[Any, Any, Any, int, Headers], None]:
        """A function that joins a record with the table's row under the key `name`."""
        get, get_as_of, versioned = self.values.get, self.values.get_as_of, self.values.versioned
        joiner, left = self.joiner, self.left

        def join(name: Any, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            row = None
            if name is not None:
                row = get_as_of(name, timestamp) if versioned else get(name)
            if row is not None:
                other = row[0]
                if left or other is not None:
                    emit(key, joiner(key, value, other), timestamp, headers)
            elif left:
                emit(key, joiner(key, value, None), timestamp, headers)

        return join

    def _wait(
        self, buffer: JoinBuffer, name: Any, record: Record, join: Callable[..., None], on_error: Callable[..., None]
    ) -> None:
        metadata = self.context.record_metadata()
        assert metadata is not None
        if not buffer.put(record, metadata):
            join(name, record.key, record.value, record.timestamp, record.headers)
            return
        for held in buffer.due():
            due = held.record
            with _HeldRecordContext(self.context, held.context):
                try:
                    selected = due.key if self.selector is None else self.selector(due.key, due.value)
                    join(selected, due.key, due.value, due.timestamp, due.headers)
                except Failed:
                    raise
                except Exception as error:  # an error of this record, not of the one that made it due
                    on_error(due.key, due.value, due.timestamp, due.headers, error)
