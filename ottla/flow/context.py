"""The nodes of a running task: where they forward to, and the context of their processors (`processor.Context`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ottla.flow.check import named, takes
from ottla.flow.error import StreamsError, TopologyError
from ottla.flow.failure import Failed
from ottla.flow.make_store import bound
from ottla.flow.processor import PunctuationType
from ottla.flow.record import FixedKeyRecord, Headers, Output, Record, RecordContext
from ottla.flow.serde import Serde, SessionWindowedSerde, TimeWindowedSerde
from ottla.flow.store.changelog import Cell
from ottla.flow.task.punctuation import CANCELLED, Schedule
from ottla.flow.task.push import Fused, Push, at, call_all
from ottla.flow.topology import Sink
from ottla.flow.where import here
from ottla.flow.window import Time, ms, time_ms
from ottla.kernel.topic_name import is_legal_name

if TYPE_CHECKING:
    from ottla.flow.engine import Task


class NodeContext:
    """A source or a processor of a running task."""

    def __init__(self, task: Task, name: str, processor: Any, stores: list[str]) -> None:
        self.task = task
        self.name = name
        self.processor = processor
        self.application_id = task.settings.application_id
        self.task_id = task.id
        #: `emit` calls all children, `push` is the node itself as a function. `link` sets both.
        self.emit: Push = call_all(())
        self.emit_at: Push = self.emit
        self.push: Push = self.emit
        self._stores = stores
        self._children: list[tuple[str, Any]] = []
        self._scheduled = 0
        self._starting = False

    def adopt(self, children: dict[str, Any]) -> None:
        """Set the children, in the order in which they were added."""
        for name, node in children.items():
            processor = node if isinstance(node, SinkNode) else node.processor
            if not isinstance(processor, (Fused, SinkNode)) and getattr(processor, "process", None) is None:
                raise TopologyError(
                    f"the supplier of {name} returned {processor!r} (expected an object with process(record))",
                    self.task.topology.processors[name].where,
                )
            self._children.append((name, node))

    def start(self) -> None:
        self._starting = True
        if hasattr(self.processor, "init"):
            self.forward = self._forward_early  # type: ignore[method-assign]
            self.processor.init(self)
            del self.forward
        self._starting = False

    def link(self) -> None:
        """Make the functions of this node. Those of its children must exist."""
        self.emit = call_all([node.push for _, node in self._children])
        self.emit_at = at(self.task, self.emit)
        if isinstance(self.processor, Fused):
            self.push = self.processor.fused(self)
        elif self.processor is not None:
            self.push = self._call_processor(self.processor.process)

    def _call_processor(self, process: Callable[[Record], Any]) -> Push:
        """A function that calls a processor with a Record."""
        on_error = self.on_error

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                process(Record(key, value, timestamp, headers))
            except Failed:
                raise
            except Exception as error:
                on_error(key, value, timestamp, headers, error)

        return push

    def forward(self, record: Record, child: str | None = None) -> None:
        emit = self.emit_at if child is None else at(self.task, self.child(child))
        emit(record.key, record.value, record.timestamp, record.headers)

    def _forward_early(self, record: Record, child: str | None = None) -> None:
        if not self._starting:
            # A processor has kept the method.
            self.forward(record, child)
            return
        where = self.task.topology.processors[self.name].where
        raise StreamsError(
            f"{self.name} ({where}) forwards a record in init, before the nodes downstream are open; forward it in "
            "process, or in a punctuator"
        )

    def child(self, name: str) -> Push:
        pushes: list[Push] = [node.push for child, node in self._children if child == name]
        if not pushes:
            names = ", ".join(child for child, _ in self._children) or "none"
            raise StreamsError(f"processor {self.name} has no child {name} (its children: {names})")
        return pushes[0]

    def on_error(self, key: Any, value: Any, timestamp: int, headers: Headers, error: Exception) -> None:
        record = Record(key, value, timestamp, headers)
        self.task.respond(self.task.settings.handlers.processing, self.name, record, error)

    def get_state_store(self, name: str) -> Any:
        if name not in self._stores and name not in self.task.topology.global_stores:
            raise StreamsError(
                f"processor {self.name} has no access to state store {name}; connect it (connected: "
                f"{', '.join(self._stores) or 'none'})"
            )
        return self.task.store(name)

    def schedule(
        self, interval: Any, kind: PunctuationType, punctuator: Callable[[int], None], start: Time | None = None
    ) -> Schedule:
        every = ms(interval, "punctuation interval")
        if every < 1:
            raise TopologyError(f"invalid punctuation interval: {interval} (expected at least 1 ms)", here())
        known: tuple[Any, ...] = tuple(PunctuationType)
        if kind not in known or not takes(punctuator, 1):
            raise TopologyError(
                f"invalid schedule: {kind!r}, {named(punctuator)} (expected a PunctuationType and a function of time)",
                here(),
            )
        if start is not None:
            start = time_ms(start, "start of a punctuator")
        wall_clock = kind is PunctuationType.WALL_CLOCK_TIME
        now = self.task.now if wall_clock else self.task.stream_time
        first = start if start is not None else now + every if wall_clock else 0
        schedule = Schedule(self.name, self._due(first, max(first, now + every)), every, punctuator)
        self.task.schedule(schedule, wall_clock=wall_clock)
        return schedule

    def _due(self, first: int, latest: int) -> Cell:
        """The due time of a new schedule. It outlives the task if the schedule is made in `init`, which makes the same
        ones after a restart.

        A stored due time that was cancelled, or is after `latest` (another clock or interval), begins again.
        """
        if not self._starting:
            return Cell(first)
        due = self.cell(f"punctuator/{self._scheduled}", first)
        self._scheduled += 1
        if due.value == CANCELLED or due.value > latest:
            due.value = first
        return due

    def commit(self) -> None:
        """Do nothing: every step of a task ends with a commit."""

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
        self.task.drop(self.name)


class FixedKeyContext:
    """The context of a fixed-key processor, which may not change the key of its record."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def forward(self, record: Record, child: str | None = None) -> None:
        if not isinstance(record, FixedKeyRecord):
            raise TypeError(
                "a fixed-key processor can only forward its record or a copy made by with_value, with_timestamp or "
                "with_headers"
            )
        self._context.forward(Record(record.key, record.value, record.timestamp, record.headers), child)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class SinkNode:
    """A sink of a running task: serializes records into outputs."""

    def __init__(self, task: Task, sink: Sink) -> None:
        self.name = sink.name
        self._task = task
        self._sink = sink
        settings = task.settings
        self._key = bound(sink.key, settings.defaults, f"the key of sink {sink.name} ({sink.where})", key=True)
        self._value = bound(sink.value, settings.defaults, f"the value of sink {sink.name} ({sink.where})")
        self._windowed = {TimeWindowedSerde: -8, SessionWindowedSerde: -16}.get(type(self._key))
        self._topic = (
            task.topology.topic(sink.topic, settings.application_id) if isinstance(sink.topic, str) else sink.topic
        )
        #: The sink has one topic and the default partitioner.
        self.is_fixed = isinstance(self._topic, str) and sink.partitioner is None
        self.push: Push = self._make_push(self.topic) if self.is_fixed else self._push_routed

    @property
    def topic(self) -> str:
        return str(self._topic)

    @property
    def serdes(self) -> tuple[Serde, Serde]:
        """The serdes of keys and values."""
        return self._key, self._value

    def _make_push(self, topic: str) -> Push:
        task, windowed, make = self._task, self._windowed, tuple.__new__
        write_key, write_value = self._key.writer(topic), self._value.writer(topic)

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                name = None if key is None else write_key(key)
                data = None if value is None else write_value(value)
            except Exception:
                self._write(topic, key, value, timestamp, headers)
                return
            by = name if windowed is None or name is None else name[:windowed]
            task.outputs.append(make(Output, (topic, name, data, timestamp, headers, None, by)))

        return push

    def _push_routed(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Choose the topic or the partition for each record."""
        topic = self._topic
        try:
            if not isinstance(topic, str):
                topic = self._extract_topic(topic, Record(key, value, timestamp, headers))
            self._write(topic, key, value, timestamp, headers)
        except Failed:
            raise
        except Exception as error:
            record = Record(key, value, timestamp, headers)
            self._task.respond(self._task.settings.handlers.processing, self.name, record, error)

    def _extract_topic(self, extractor: Callable[..., str], record: Record) -> str:
        named: Any = extractor(record.key, record.value, self._task.context(record))
        if not isinstance(named, str) or not is_legal_name(named):
            raise StreamsError(
                f"the topic extractor of {self.name} returned {named!r} (expected a topic name: 1 to 249 letters, "
                "digits, '.', '_' and '-')"
            )
        return named

    def _write(self, topic: str, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        task = self._task
        try:
            name = None if key is None else self._key.serialize(topic, key)
            data = None if value is None else self._value.serialize(topic, value)
        except Exception as error:
            record = Record(key, value, timestamp, headers)
            task.respond(task.settings.handlers.production, self.name, record, error)
            return
        by = name if self._windowed is None or name is None else name[: self._windowed]
        for partition in self._partitions(topic, key, value):
            task.outputs.append(
                Output(topic, name, data, timestamp, headers, partition, by if partition is None else name)
            )

    def _partitions(self, topic: str, key: Any, value: Any) -> Iterable[int | None]:
        partitioner = self._sink.partitioner
        if partitioner is None:
            return (None,)
        chosen = partitioner(topic, key, value, self._task.settings.partitions(topic))
        if chosen is None:
            return (None,)
        numbers: list[Any] = [chosen] if isinstance(chosen, int) else sorted(set(chosen))
        if any(not isinstance(number, int) or number < 0 for number in numbers):
            raise StreamsError(f"the partitioner of {self.name} returned {chosen!r} (expected None, or 0 or more)")
        return numbers
