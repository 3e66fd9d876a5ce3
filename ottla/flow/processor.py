"""The Processor API: processors, and the context through which they forward records, use stores and schedule calls.

    class Deduplicate(Processor):
        def init(self, context):
            self.context = context
            self.seen = context.get_state_store("seen")

        def process(self, record):
            if self.seen.put_if_absent(record.key, record.timestamp) is None:
                self.context.forward(record)

A supplier is a class or a function without arguments that makes a new processor for each task. It is called twice when
the program is built, to check that. The stores in its
attribute or method `stores` (see `ottla.streams.stores`), if it has one, are added and connected.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from ottla.flow.record import Headers, Record, RecordContext
from ottla.flow.serde import Serde
from ottla.flow.store.changelog import Cell


class PunctuationType(Enum):
    """The clock of a punctuator: the task's stream time, or the wall clock (Kafka Streams: PunctuationType)."""

    STREAM_TIME = "stream time"
    WALL_CLOCK_TIME = "wall-clock time"


class Cancellable(Protocol):
    """A scheduled punctuator (Kafka Streams: Cancellable)."""

    def cancel(self) -> None:
        """Cancel the punctuator."""


class Context(Protocol):
    """A processor's access to its task, valid from `init` to `close` (Kafka Streams: ProcessorContext)."""

    application_id: str
    task_id: str

    def forward(self, record: Record, child: str | None = None) -> None:
        """Pass a record to all children, or to the child with this node name. The call returns when they are done.

        StreamsError if there is no such child, or in `init`.
        """

    def get_state_store(self, name: str) -> Any:
        """The store with this name. StreamsError if it is not connected to this processor."""

    def schedule(
        self,
        interval: Any,
        kind: PunctuationType,
        punctuator: Callable[[int], None],
        start: Any = None,
    ) -> Cancellable:
        """Call `punctuator(time in ms)` every `interval` (a timedelta or ms), first at `start` (a datetime with a
        time zone, or ms since 1970).

        A punctuator that has missed several intervals is called once for them. One that is scheduled in `init` keeps
        its due times over a restart; one that is scheduled later ends with the task. TopologyError if the interval is
        less than 1 ms.
        """

    def commit(self) -> None:
        """Request a commit. It has no effect: every step of a task ends with a commit."""

    def record_metadata(self) -> RecordContext | None:
        """The source topic, partition and offset of the current record; None in a punctuator."""

    def current_stream_time_ms(self) -> int:
        """The newest timestamp that this task has seen; -1 before the first record."""

    def current_system_time_ms(self) -> int:
        """The task's wall clock, in ms since 1970."""

    def headers(self) -> Headers:
        """The headers of the record being processed."""

    @property
    def key_serde(self) -> Serde | None:
        """The application's default serde of keys."""

    @property
    def value_serde(self) -> Serde | None:
        """The application's default serde of values."""

    @property
    def app_configs(self) -> dict[str, Any]:
        """The `config` that the application was built with."""

    def cell(self, name: str, initial: int = -1) -> Cell:
        """A number that is part of the task's state, by its name within the node."""

    def drop(self) -> None:
        """Count a record as dropped (Kafka Streams: dropped-records)."""


class Processor:
    """The base class of processors (Kafka Streams: Processor). Any object with these methods will do."""

    context: Context

    def init(self, context: Context) -> None:
        """Initialize the processor, before the task's first record."""
        self.context = context

    def process(self, record: Record) -> None:
        """Process a record."""

    def close(self) -> None:
        """Release resources at the end of the task."""


#: Makes a new processor for each task.
Supplier = Callable[[], Any]
