"""A node of a running task: whom it forwards to, and what its processor may ask for (`processor.Context`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ottla.flow.error import StreamsError, TopologyError
from ottla.flow.failure import Failed
from ottla.flow.make_store import bound
from ottla.flow.processor import PunctuationType
from ottla.flow.punctuation import Schedule
from ottla.flow.record import FixedKeyRecord, Headers, Output, Record, RecordContext
from ottla.flow.serde import Serde, SessionWindowedSerde, TimeWindowedSerde
from ottla.flow.store.changelog import Cell
from ottla.flow.topology import Sink
from ottla.flow.window import ms

if TYPE_CHECKING:
    from ottla.flow.engine import Task


class NodeContext:
    """A source or a processor."""

    def __init__(self, task: Task, name: str, processor: Any, stores: list[str]) -> None:
        self.task = task
        self.name = name
        self.processor = processor
        self.application_id = task.settings.application_id
        self.task_id = task.id
        self._stores = stores
        self._children: list[tuple[str, Callable[[Record], None]]] = []
        self._scheduled = 0
        self._record: Record | None = None

    def adopt(self, children: dict[str, Any]) -> None:
        """Set the nodes that records are forwarded to, in the order in which they were added."""
        for name, node in children.items():
            processor = node if isinstance(node, SinkNode) else node.processor
            process = getattr(processor, "process", None)
            if process is None:
                raise TopologyError(
                    f"the supplier of {name} gave {processor!r} (expected an object with process(record))",
                    self.task.topology.processors[name].where,
                )
            self._children.append((name, process))

    def start(self) -> None:
        if hasattr(self.processor, "init"):
            self.processor.init(self)

    def forward(self, record: Record, child: str | None = None) -> None:
        for name, process in self._children if child is None else self._named(child):
            try:
                process(record)
            except Failed:
                raise
            except Exception as error:
                self.task.respond(self.task.settings.handlers.processing, name, record, error)

    def get_state_store(self, name: str) -> Any:
        if name not in self._stores and name not in self.task.topology.global_stores:
            raise StreamsError(
                f"processor {self.name} has no access to state store {name}: connect it (stores it has: "
                f"{', '.join(self._stores) or 'none'})"
            )
        return self.task.store(name)

    def schedule(
        self, interval: Any, kind: PunctuationType, punctuator: Callable[[int], None], start: int | None = None
    ) -> Schedule:
        every = ms(interval, "punctuation interval")
        if every < 1:
            raise TopologyError(f"invalid punctuation interval: {interval} (expected at least 1 ms)")
        wall_clock = kind is PunctuationType.WALL_CLOCK_TIME
        first = start if start is not None else self.task.now + every if wall_clock else 0
        due = self.cell(f"punctuator/{self._scheduled}", first)
        self._scheduled += 1
        schedule = Schedule(self.name, due, every, punctuator)
        self.task.schedule(schedule, wall_clock=wall_clock)
        return schedule

    def commit(self) -> None:
        self.task.commit_requested = True

    def record_metadata(self) -> RecordContext | None:
        return self.task.context(None)

    def current_stream_time_ms(self) -> int:
        return self.task.stream_time

    def current_system_time_ms(self) -> int:
        return self.task.now

    def headers(self) -> Headers:
        return self.task.current.headers if self.task.current else ()

    @property
    def key_serde(self) -> Serde | None:
        return self.task.settings.key_serde

    @property
    def value_serde(self) -> Serde | None:
        return self.task.settings.value_serde

    @property
    def app_configs(self) -> dict[str, Any]:
        return dict(self.task.settings.configs)

    def cell(self, name: str, initial: int = -1) -> Cell:
        return self.task.cell(f"{self.name}/{name}", initial)

    def drop(self) -> None:
        self.task.dropped += 1

    def _named(self, child: str) -> list[tuple[str, Callable[[Record], None]]]:
        found = [each for each in self._children if each[0] == child]
        if not found:
            names = ", ".join(name for name, _ in self._children) or "none"
            raise StreamsError(f"processor {self.name} has no child {child} (its children: {names})")
        return found


class FixedKeyContext:
    """The context of a fixed-key processor: what it forwards must have the key it was given."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def forward(self, record: Record, child: str | None = None) -> None:
        if not isinstance(record, FixedKeyRecord):
            raise TypeError(
                "a fixed-key processor forwards records made from the one it was given, by with_value and so on"
            )
        self._context.forward(Record(record.key, record.value, record.timestamp, record.headers), child)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class SinkNode:
    """The end of a branch: values become bytes."""

    def __init__(self, task: Task, sink: Sink) -> None:
        self.name = sink.name
        self._task = task
        self._sink = sink
        settings = task.settings
        self._key = bound(sink.key, settings.defaults, f"the key of sink {sink.name} ({sink.where})", key=True)
        self._value = bound(sink.value, settings.defaults, f"the value of sink {sink.name} ({sink.where})")
        self._topic = (
            task.topology.topic(sink.topic, settings.application_id) if isinstance(sink.topic, str) else sink.topic
        )

    def process(self, record: Record) -> None:
        task = self._task
        topic = self._topic
        if not isinstance(topic, str):
            named: Any = topic(record.key, record.value, task.context(record))
            if not isinstance(named, str) or not named:
                raise StreamsError(f"the topic extractor of {self.name} gave {named!r} (expected a topic's name)")
            topic = named
        try:
            key = None if record.key is None else self._key.serialize(topic, record.key)
            value = None if record.value is None else self._value.serialize(topic, record.value)
        except Exception as error:
            task.respond(task.settings.handlers.production, self.name, record, error)
            return
        for partition in self._partitions(topic, record):
            by = key
            if (
                partition is None
                and isinstance(self._key, (TimeWindowedSerde, SessionWindowedSerde))
                and key is not None
            ):
                by = key[: -8 if isinstance(self._key, TimeWindowedSerde) else -16]
            task.outputs.append(Output(topic, key, value, record.timestamp, record.headers, partition, by))

    def _partitions(self, topic: str, record: Record) -> Iterable[int | None]:
        partitioner = self._sink.partitioner
        if partitioner is None:
            return (None,)
        chosen = partitioner(topic, record.key, record.value, self._task.settings.partitions(topic))
        if chosen is None or isinstance(chosen, int):
            return (chosen,)
        return sorted(set(chosen))
