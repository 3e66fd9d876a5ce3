"""The Processor API: what a processor is, and the context through which it forwards, keeps state and asks for time.

    class Deduplicate(Processor):
        def init(self, context):
            self.context = context
            self.seen = context.get_state_store("seen")

        def process(self, record):
            if self.seen.put_if_absent(record.key, record.timestamp) is None:
                self.context.forward(record)

A supplier is a class or a function without arguments that makes a new processor for every task. One with a method or
attribute `stores` (store builders, see `ottla.streams.stores`) has them added and connected.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from ottla.flow.record import Headers, Record, RecordContext
from ottla.flow.serde import Serde
from ottla.flow.store.changelog import Cell


class PunctuationType(Enum):
    """The clock of a punctuator: the task's stream time, or the wall clock."""

    STREAM_TIME = "stream time"
    WALL_CLOCK_TIME = "wall-clock time"


class Cancellable(Protocol):
    """A scheduled punctuator."""

    def cancel(self) -> None: ...


class Context(Protocol):
    """What a processor may ask of its task. Valid from `init` to `close`."""

    application_id: str
    task_id: str

    def forward(self, record: Record, child: str | None = None) -> None:
        """Give a record to all children, or to one by its node's name: depth first, before the call returns."""

    def get_state_store(self, name: str) -> Any:
        """A store that is connected to this processor."""

    def schedule(
        self,
        interval: Any,
        kind: PunctuationType,
        punctuator: Callable[[int], None],
        start: int | None = None,
    ) -> Cancellable:
        """Call `punctuator(time in ms)` every `interval` (timedelta or ms), first at `start` (ms since 1970) where
        that is given. By stream time it is called once for a record, however many times were due.
        """

    def commit(self) -> None:
        """Ask for a commit as soon as possible."""

    def record_metadata(self) -> RecordContext | None:
        """Where the record came from; None outside of a record."""

    def current_stream_time_ms(self) -> int:
        """The newest timestamp that this task has seen; -1 before the first record."""

    def current_system_time_ms(self) -> int: ...

    def headers(self) -> Headers:
        """Headers of the record that is being processed."""

    @property
    def key_serde(self) -> Serde | None: ...

    @property
    def value_serde(self) -> Serde | None: ...

    @property
    def app_configs(self) -> dict[str, Any]: ...

    def cell(self, name: str, initial: int = -1) -> Cell:
        """A number that is kept with the task's state under the node's name."""

    def drop(self) -> None:
        """Count a record as dropped (Kafka Streams: dropped-records)."""


class Processor:
    """The base of processors; any object with these methods will do."""

    context: Context

    def init(self, context: Context) -> None:
        """Called once for a task, before its first record."""
        self.context = context

    def process(self, record: Record) -> None:
        """A record."""

    def close(self) -> None:
        """Called when the task ends."""


#: Makes a processor for each task.
Supplier = Callable[[], Any]
