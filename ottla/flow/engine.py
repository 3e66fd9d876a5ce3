"""A task: a sub-topology on one partition, `(state, ordered records, clock) -> (state, outputs)`.

A task is made from a topology, the number of a sub-topology and a partition. It reads that partition of all source
topics of the sub-topology and holds the sub-topology's stores.

    topology = builder.build(application_id="fraud").topology
    globals_ = GlobalTask(topology, settings)                       # all global stores; only if there are any
    task = Task(topology, 0, 3, settings, state=state, globals_=globals_)
    outputs = task.run(inputs, now)                                 # records in, records out
    state = task.snapshot()                                         # or: changes = task.take_changes()

**Inputs** are `record.Input`: topic, partition, offset, timestamp (ms), key and value (bytes or None), headers. Pass
the records of a partition in the order of their offsets. The task chooses between partitions as Kafka Streams does:
the partition whose first record has the lowest timestamp goes first; ties go to the source that was added first, then
to the lower topic name. Records of a partition are never reordered, even when timestamps go back. Pass the records of
all partitions that exist when a batch begins in one `run` call; otherwise results depend on how the input was cut.

**Outputs** are `record.Output` in the order in which they were forwarded: topic (its real name), key and value
(bytes), timestamp, headers. `partition` is set where the plan sets it; otherwise the host applies Kafka's default
partitioner to `partition_by` (None: any partition). Outputs to repartition topics (`topology.internal_topics`) are
inputs of other sub-topologies of the same plan. `runner.py` is the reference for connecting tasks.

**State** is everything that must outlive the task: `State.stores`, the entries of each store (bytes to bytes), and
`State.cells`, numbers by name (stream times, due times of punctuators, sequences). `snapshot()` copies all of it;
`take_changes()` returns the changes since the last call, in the same two parts (value None: deleted). Two tasks
with equal state and equal inputs give equal outputs and equal state. To keep stores elsewhere, pass `backend`, which
makes an `OrderedBytes` (store/ordered.py) for a store's name; then `snapshot()` and `take_changes()` hold only the
cells.

**Stores** are found by name: `task.store("counts")`; their classes are in `store/`.

**Changelogs**: with `settings.changelog`, every write to a logged store is also an output to
`<application.id>-<store>-changelog`, in Kafka Streams' format (suppress buffers, join buffers and outer-join stores:
in a format of our own).

**Time**: `run(inputs, now)` sets the wall clock (ms), processes all records, each followed by the stream-time
punctuators that it makes due, then calls the wall-clock punctuators that are due. `task.stream_time` is the newest
timestamp of the task's records, -1 before the first. `task.next_wall_clock()` is the time of the next `run([], now)`
for wall-clock punctuators.

**Errors**: `settings.handlers` decide (handler.py). When a task fails, `run` raises StreamsError. The failed record has
then taken partial effect: discard the task's state and the outputs of that call.

`task.dropped` counts dropped records (null keys, late records, errors whose handler continues); `task.dropped_at`
counts those with null keys, null values or late timestamps by the node that dropped them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.flow.context import NodeContext, SinkNode
from ottla.flow.error import StreamsError
from ottla.flow.failure import Failed, failure_of, response_of
from ottla.flow.handler import Action, ErrorContext, Handler, Handlers
from ottla.flow.make_store import bound, make_store
from ottla.flow.record import NO_TIMESTAMP, Headers, Input, Output, Record, RecordContext
from ottla.flow.serde import Serde
from ottla.flow.store.changelog import Cell
from ottla.flow.store.ordered import MemoryBytes, OrderedBytes
from ottla.flow.task.punctuation import Punctuators, Schedule
from ottla.flow.task.receive import Receiver
from ottla.flow.task.rows import Rows
from ottla.flow.task.waiting import Waiting
from ottla.flow.topology import Subtopology, Topology
from ottla.flow.where import Where
from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.flow.vector.columns import Batch


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a task. `configs`, by Kafka Streams' names, is what `context.app_configs` returns."""

    application_id: str = "application"
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    handlers: Handlers = field(default_factory=Handlers)
    #: Emit the records of the changelog topics.
    changelog: bool = False
    configs: Mapping[str, Any] = field(default_factory=dict)
    #: The number of partitions of a topic, for custom partitioners.
    partitions: Callable[[str], int] = lambda topic: 1

    @property
    def defaults(self) -> tuple[Serde | None, Serde | None]:
        return self.key_serde, self.value_serde

    def write_any_topic(self, topology: Topology) -> bool:
        """Whether records of this program may go to any topic: a sink or a handler of its own names it."""
        return topology.writes_any_topic or self.handlers.write_any_topic


@dataclass(slots=True)
class State:
    """The state of a task: everything that outlives it."""

    stores: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    cells: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Changes:
    """The changes of a task's state. Value None: the entry was deleted."""

    stores: dict[str, dict[bytes, bytes | None]] = field(default_factory=dict)
    cells: dict[str, int] = field(default_factory=dict)


class Task:
    """A sub-topology on one partition."""

    def __init__(
        self,
        topology: Topology,
        subtopology: Subtopology | int,
        partition: int,
        settings: Settings | None = None,
        *,
        state: State | None = None,
        backend: Callable[[str], OrderedBytes] | None = None,
        globals_: GlobalTask | None = None,
        now: int = 0,
        ties_by_heap: bool = False,
    ) -> None:
        """`now` is the initial wall-clock time in ms. `ties_by_heap` processes records of equal timestamps in the order
        of Java's heap, as TopologyTestDriver does. TopologyError if a serde is missing.
        """
        self.topology = topology
        self.settings = settings or Settings()
        if isinstance(subtopology, int):
            subtopology = topology.subtopologies()[subtopology]
        self.subtopology = subtopology
        self.partition = partition
        self.id = f"{subtopology.number}_{partition}"
        self.now = now
        self.outputs: list[Any] = []
        self.dropped = 0
        self.dropped_at: dict[str, int] = {}
        #: The record being processed: its rows and its index there; `received` is the single record, made on demand.
        self.rows: Rows | None = None
        self.row = 0
        self.received: Input | None = None
        self.timestamp = NO_TIMESTAMP
        self._state = state or State()
        self._cells: dict[str, Cell] = {}
        self._reported_cells: dict[str, int] = dict(self._state.cells)
        #: The stream time.
        self.time = self.cell("stream_time")
        self._globals = globals_
        self.by_stream_time, self._by_wall_clock = Punctuators(), Punctuators()
        self._backends: dict[str, OrderedBytes] = {}
        self._stores = {name: self._open(name, backend) for name in self._store_names()}
        self._contexts: dict[str, NodeContext] = {}
        self._nodes: dict[str, Any] = {}
        self._waiting = Waiting(self, ties_by_heap=ties_by_heap)
        #: Runs of several partitions at once, for joins of streams on columns (vector/meet.py), or None.
        self.merged: Any = None
        self._build()

    # ---- records

    def run(self, inputs: Iterable[Input], now: int | None = None) -> list[Any]:
        """Process records and the punctuators that become due. Returns the outputs in order."""
        if now is not None:
            self.now = max(self.now, now)
        self.add(inputs)
        self.drain()
        self.punctuate()
        return self.take_outputs()

    def punctuate(self) -> None:
        """Call the wall-clock punctuators that are due."""
        if self._by_wall_clock:
            self._by_wall_clock.run(self.now, self.call)

    def add(self, inputs: Iterable[Input]) -> None:
        """Queue records. `step` or `drain` processes them."""
        for record in inputs:
            self._waiting.add((record.topic, record.partition), record)

    def add_columns(self, batch: Batch, now: int | None = None) -> None:
        """Queue many records of one partition. They are deserialized together, or one by one if that fails. `now` is
        the wall clock: the timestamp of the first record may be extracted here.
        """
        if now is not None:
            self.now = max(self.now, now)
        rows = batch.rows(self._waiting.receiver(batch.topic))
        if rows is None:
            self.add(batch.inputs())
        else:
            self._waiting.add((batch.topic, batch.partition), rows)

    def queued(self, topic: str, partition: int) -> tuple[int, int | None]:
        """The number of queued records of a partition, and the offset of the first one."""
        return self._waiting.queued((topic, partition))

    def step(self) -> bool:
        """Process the next record by time, and the punctuators it makes due. False if no record is queued."""
        return self._waiting.step()

    def drain(self, lagging: Sequence[tuple[str, int]] = ()) -> int:
        """Process queued records, and return how many. Stop when one of the partitions `lagging` has no queued record:
        its next record, not yet read, could be the next by time.
        """
        return self._waiting.drain(lagging)

    def take_outputs(self) -> list[Any]:
        """Take the outputs since the last call: `Output`, or `vector.columns.OutputColumns` from regions."""
        outputs, self.outputs = self.outputs, []
        return outputs

    def node(self, name: str) -> Any:
        """The running node with this name: a NodeContext or a SinkNode."""
        return self._nodes[name]

    def receivers(self) -> list[Receiver]:
        return self._waiting.all()

    @property
    def stream_time(self) -> int:
        """The newest timestamp of the task's records, in ms; -1 before the first record."""
        return self.time.value

    def next_wall_clock(self) -> int | None:
        """The next due time of a wall-clock punctuator, in ms, or None."""
        return self._by_wall_clock.next_due()

    def store(self, name: str) -> Any:
        """The store of this task, or the global store, with this name. KeyError if there is none."""
        if name in self._stores:
            return self._stores[name]
        if self._globals is not None and name in self._globals._stores:
            return self._globals._stores[name]
        raise KeyError(
            f"task {self.id} has no state store {name} (it has: {', '.join(sorted(self._stores)) or 'none'})"
        )

    @property
    def store_names(self) -> list[str]:
        return list(self._stores)

    def close(self) -> None:
        """Close the processors."""
        for context in self._contexts.values():
            if hasattr(context.processor, "close"):
                context.processor.close()

    # ---- state

    def snapshot(self) -> State:
        """Copy the whole state."""
        stores = {
            name: entries.entries() for name, entries in self._backends.items() if isinstance(entries, MemoryBytes)
        }
        return State(stores, {name: cell.value for name, cell in self._cells.items()})

    def take_changes(self) -> Changes:
        """Take the changes of the state since the last call. The first call reports all new cells."""
        stores = {}
        for name, entries in self._backends.items():
            if isinstance(entries, MemoryBytes) and (changed := entries.take_changes()):
                stores[name] = changed
        cells = {name: cell.value for name, cell in self._cells.items() if self._reported_cells.get(name) != cell.value}
        self._reported_cells |= cells
        return Changes(stores, cells)

    def cell(self, name: str, initial: int = NO_TIMESTAMP) -> Cell:
        """The cell with this name, made with `initial` if there is none."""
        if name not in self._cells:
            self._cells[name] = Cell(self._state.cells.get(name, initial))
        return self._cells[name]

    def uses_cell(self, name: str) -> bool:
        """Whether a cell belongs to a node or store of this task; a changed program may have others."""
        owners = tuple(f"{owner}/" for owner in (*self.subtopology.nodes, *self._stores))
        return name in self._cells or name.startswith(owners)

    # ---- for contexts

    def schedule(self, schedule: Schedule, *, wall_clock: bool) -> None:
        (self._by_wall_clock if wall_clock else self.by_stream_time).add(schedule)

    @property
    def origin(self) -> tuple[str, int, int]:
        """Topic, partition and offset of the record being processed; ("", -1, -1) in a punctuator."""
        current = self.received
        if current is not None:
            return current.topic, current.partition, current.offset
        if self.rows is None:
            return "", -1, -1
        return self.rows.topic, self.rows.partition, int(self.rows.offsets[self.row])

    def context(self, record: Record | None) -> RecordContext | None:
        """The metadata of the record being processed, with the timestamp and headers of `record` if given."""
        current = self.current
        if current is None:
            return None
        timestamp = current.timestamp if record is None else record.timestamp
        headers = current.headers if record is None else record.headers
        return RecordContext(current.topic, current.partition, current.offset, timestamp, headers)

    def respond(self, handler: Handler, node: str, record: Any, error: BaseException) -> None:
        """Call a handler. Raises Failed if it chooses to fail. Its dead letters become outputs in any case."""
        current = self.current
        context = ErrorContext(
            self.id,
            node,
            current.topic or None if current else None,
            current.partition if current else self.partition,
            current.offset if current else -1,
            current.timestamp if current else self.stream_time,
            current.headers if current else (),
            current.key if current else None,
            current.value if current else None,
            record,
        )
        response = response_of(self.topology, self.settings.handlers, handler, context, error)
        self.outputs.extend(response.dead_letters)
        if response.action is Action.FAIL:
            raise failure_of(self.topology, context, error) from error
        self.dropped += 1

    # ---- inside

    def drop(self, node: str, count: int = 1) -> None:
        """Count records that a node dropped."""
        if count:
            self.dropped += count
            self.dropped_at[node] = self.dropped_at.get(node, 0) + count

    def process(self, receiver: Receiver, record: Record, received: Input) -> None:
        """Process a record, and the punctuators it makes due."""
        self.current = received
        self.timestamp = record.timestamp
        if record.timestamp > self.time.value:
            self.time.value = record.timestamp
        receiver.context.forward(record)
        if self.by_stream_time:
            self.by_stream_time.run(self.time.value, self.call)

    @property
    def current(self) -> Input | None:
        """The record being processed, as it was read."""
        if self.received is None and self.rows is not None:
            self.received = self.rows.input(self.row)
        return self.received

    @current.setter
    def current(self, received: Input | None) -> None:
        self.received = received

    def call(self, schedule: Schedule, time: int) -> None:
        """Call a punctuator, outside of any record. Its writes have its time, as in Kafka's StreamTask.punctuate."""
        before, self.received, self.rows = (self.received, self.rows), None, None
        self.timestamp = time
        try:
            schedule.call(time)
        except Failed:
            raise
        except Exception as error:
            self.respond(self.settings.handlers.processing, schedule.node, None, error)
        finally:
            self.received, self.rows = before

    def _store_names(self) -> list[str]:
        names: dict[str, None] = {}
        for node in self.subtopology.nodes:
            if node in self.topology.processors:
                for name in self.topology.processors[node].stores:
                    if name not in self.topology.global_stores:
                        names[name] = None
        return list(names)

    def _open(self, name: str, backend: Callable[[str], OrderedBytes] | None) -> Any:
        spec = self.topology.stores[name]
        entries = backend(name) if backend else MemoryBytes(self._state.stores.get(name))
        self._backends[name] = entries
        topic = f"{self.settings.application_id}-{name}-changelog"
        logged = self.settings.changelog and spec.logging and name not in self.topology.source_changelogs
        log = self._log if logged else None
        return make_store(spec, entries, self.settings.defaults, topic, log, lambda: self.timestamp, self.cell)

    def _log(self, store: str, key: bytes, value: bytes | None, timestamp: int, headers: Headers = (), /) -> None:
        topic = f"{self.settings.application_id}-{store}-changelog"
        self.outputs.append(Output(topic, key, value, max(timestamp, 0), headers, self.partition))

    def _build(self) -> None:
        topology = self.topology
        nodes = self._nodes
        for name in self.subtopology.nodes:
            if name in topology.sinks:
                nodes[name] = SinkNode(self, topology.sinks[name])
            elif name in topology.processors:
                node = topology.processors[name]
                with _opening(name, node.where):
                    nodes[name] = NodeContext(self, name, node.supplier(), node.stores)
                self._contexts[name] = nodes[name]
            else:
                self._read(name, nodes)
        for name in self.subtopology.nodes:
            if name not in topology.sinks:
                nodes[name].adopt({child: nodes[child] for child in topology.children(name)})
        for name, context in self._contexts.items():
            with _opening(name, topology.processors[name].where):
                context.start()
        for name in reversed(self.subtopology.nodes):
            if name not in topology.sinks:
                nodes[name].link()

    def _read(self, name: str, nodes: dict[str, Any]) -> None:
        source = self.topology.sources[name]
        nodes[name] = NodeContext(self, name, None, [])
        receivers, patterns = self._waiting.receivers, self._waiting.patterns
        # The topics of one source have one rank.
        rank = len({receiver.context.name for receiver in self.receivers()})
        defaults = self.settings.defaults
        key = bound(source.key, defaults, f"the key of source {name} ({source.where})", key=True)
        value = bound(source.value, defaults, f"the value of source {name} ({source.where})")
        if source.pattern is not None:
            receiver = Receiver(self, nodes[name], key, value, source.extractor, rank)
            patterns.append((re.compile(source.pattern), receiver))
        for topic in source.topics:
            real = self.topology.topic(topic, self.settings.application_id)
            receivers[real] = Receiver(self, nodes[name], key, value, source.extractor, rank)


@contextlib.contextmanager
def _opening(name: str, where: Where) -> Iterator[None]:
    """Raise an error of a processor's supplier or `init` as StreamsError."""
    try:
        yield
    except OttlaError:
        raise
    except Exception as error:
        raise StreamsError(f"{name} ({where}) could not be opened: {type(error).__name__}: {error}") from error


class GlobalTask(Task):
    """The task of all global stores. It reads all partitions of their topics."""

    def __init__(
        self,
        topology: Topology,
        settings: Settings | None = None,
        *,
        state: State | None = None,
        backend: Callable[[str], OrderedBytes] | None = None,
        now: int = 0,
    ) -> None:
        nodes = tuple(
            node for subtopology in topology.subtopologies() if subtopology.is_global for node in subtopology.nodes
        )
        super().__init__(topology, Subtopology(-1, nodes, True), -1, settings, state=state, backend=backend, now=now)
        self.id = "global"

    def _store_names(self) -> list[str]:
        return [
            self.topology.global_sources[node]
            for node in self.subtopology.nodes
            if node in self.topology.global_sources
        ]
