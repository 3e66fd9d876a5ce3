"""A runner of all tasks of a topology in one process: outputs to repartition topics become inputs of other tasks.

`drain="record"` works like TopologyTestDriver: one task holds all sub-topologies on one partition, and every input runs
to its end, through internal topics and back, before the next one. `drain="batch"` works like a host with batches: a
task for each sub-topology and partition, one stage after another in the order of the data flow. It is the reference
for `ottla.spark`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from ottla.flow.engine import GlobalTask, Settings, State, Task
from ottla.flow.error import TopologyError
from ottla.flow.record import Input, Output
from ottla.flow.topology import Subtopology, Topology

#: (key bytes or None, number of partitions) -> partition.
DefaultPartitioner = Callable[[bytes | None, int], int]


class Runner:
    """Runs a topology. `partitions`: the number of partitions of each source topic (default 1). `partitioner`: places
    records without a partition. Offsets of internal topics start at 0.
    """

    def __init__(
        self,
        topology: Topology,
        settings: Settings,
        *,
        partitions: Mapping[str, int] | None = None,
        partitioner: DefaultPartitioner = lambda key, count: 0,
        drain: Literal["record", "batch"] = "record",
        now: int = 0,
        state: Mapping[str, State] | None = None,
    ) -> None:
        self.topology = topology
        self.settings = settings
        self.now = now
        self._partitioner = partitioner
        self._drain = drain
        self._partitions = dict(partitions or {})
        topology.check_partitions(self._partitions)
        states = state or {}
        self.globals_: GlobalTask | None = None
        if topology.global_stores:
            self.globals_ = GlobalTask(topology, settings, state=states.get("global"), now=now)
        self.stages = [stage for stage in topology.subtopologies() if not stage.is_global]
        self.tasks: dict[str, Task] = {}
        if drain == "record":
            nodes = tuple(node for node in topology.order if any(node in stage.nodes for stage in self.stages))
            whole = Subtopology(0, nodes, False)
            task = Task(
                topology,
                whole,
                0,
                settings,
                state=states.get("0_0"),
                globals_=self.globals_,
                now=now,
                ties_by_heap=True,
            )
            self.tasks[task.id] = task
        else:
            for stage in self._by_depth():
                for partition in range(self.partitions_of(stage)):
                    key = f"{stage.number}_{partition}"
                    task = Task(
                        topology, stage, partition, settings, state=states.get(key), globals_=self.globals_, now=now
                    )
                    self.tasks[key] = task
        self._offsets: dict[tuple[str, int], int] = {}
        #: The outputs of the current call of `run`, also after it has failed.
        self.outputs: list[Output] = []

    def run(self, inputs: Iterable[Input], now: int | None = None) -> list[Output]:
        """Process records. Returns all outputs in order, those to internal topics included."""
        if now is not None:
            self.now = max(self.now, now)
        inputs = list(inputs)
        if self.globals_ is not None:
            topics = self.sources(global_=True)
            self.globals_.run([record for record in inputs if record.topic in topics], self.now)
        return self._record(inputs) if self._drain == "record" else self._batch(inputs)

    def state(self) -> dict[str, State]:
        """The states of all tasks, by task id."""
        states = {key: task.snapshot() for key, task in self.tasks.items()}
        if self.globals_ is not None:
            states["global"] = self.globals_.snapshot()
        return states

    def sources(self, *, global_: bool = False) -> set[str]:
        """The real names of all source topics."""
        application = self.settings.application_id
        return {
            self.topology.topic(topic, application)
            for name, source in self.topology.sources.items()
            if (name in self.topology.global_sources) is global_
            for topic in source.topics
        }

    def partitions_of(self, stage: Subtopology) -> int:
        """The number of a sub-topology's tasks: the largest number of partitions among its source topics."""
        topics = [topic for node in stage.nodes if node in self.topology.sources for topic in self._topics(node)]
        return max((self.count(topic) for topic in topics), default=1)

    def count(self, topic: str) -> int:
        """The number of partitions of a topic, by its real name. A repartition topic has the number set in the plan, or
        as many as its largest writer has tasks.
        """
        if topic in self._partitions:
            return self._partitions[topic]
        internal = {
            self.topology.topic(name, self.settings.application_id): name for name in self.topology.internal_topics
        }
        if topic not in internal:
            return 1
        partitions = self.topology.internal_topics[internal[topic]].partitions
        self._partitions[topic] = partitions or 1
        if partitions is None:
            writers = [
                stage
                for stage in self.stages
                if any(
                    node in self.topology.sinks and self.topology.sinks[node].topic == internal[topic]
                    for node in stage.nodes
                )
            ]
            self._partitions[topic] = max((self.partitions_of(stage) for stage in writers), default=1)
        return self._partitions[topic]

    def _topics(self, source: str) -> list[str]:
        return [
            self.topology.topic(topic, self.settings.application_id) for topic in self.topology.sources[source].topics
        ]

    def _by_depth(self) -> list[Subtopology]:
        """The sub-topologies, writers of a topic before its readers."""
        readers = {
            topic: stage
            for stage in self.stages
            for node in stage.nodes
            if node in self.topology.sources
            for topic in self._topics(node)
        }
        depth = {stage.number: 0 for stage in self.stages}
        for _ in self.stages:
            for stage in self.stages:
                for node in stage.nodes:
                    sink = self.topology.sinks.get(node)
                    if sink is None or not isinstance(sink.topic, str):
                        continue
                    reader = readers.get(self.topology.topic(sink.topic, self.settings.application_id))
                    if reader is not None and reader is not stage:
                        depth[reader.number] = max(depth[reader.number], depth[stage.number] + 1)
        return sorted(self.stages, key=lambda stage: (depth[stage.number], stage.number))

    def _record(self, inputs: list[Input]) -> list[Output]:
        (task,) = self.tasks.values()
        topics, global_topics = self.sources(), self.sources(global_=True)
        task.now = max(task.now, self.now)
        outputs = self.outputs = []
        for record in inputs:
            if record.topic in global_topics:
                continue
            task.add((record,))
            while task.step():
                outputs += self._requeue(task, topics)
        task.punctuate()
        outputs += self._requeue(task, topics)
        while task.step():
            outputs += self._requeue(task, topics)
        return outputs

    def _requeue(self, task: Task, topics: set[str]) -> list[Output]:
        """Take the task's outputs and queue those that the topology reads itself."""
        outputs = task.take_outputs()
        task.add(self._input(output) for output in outputs if output.topic in topics)
        return outputs

    def _batch(self, inputs: list[Input]) -> list[Output]:
        waiting: dict[str, list[Input]] = {key: [] for key in self.tasks}
        readers = {
            topic: stage.number
            for stage in self.stages
            for node in stage.nodes
            if node in self.topology.sources
            for topic in self._topics(node)
        }
        global_topics = self.sources(global_=True)

        def enqueue(record: Input) -> None:
            if record.topic in global_topics:
                return
            if record.topic not in readers:
                raise TopologyError(f"no source reads topic {record.topic}")
            waiting[f"{readers[record.topic]}_{record.partition}"].append(record)

        for record in inputs:
            enqueue(record)
        outputs: list[Output] = []
        pending = True
        while pending:
            pending = False
            for key, task in self.tasks.items():
                records, waiting[key] = waiting[key], []
                produced = self._run_task(task, records)
                outputs += produced
                for output in produced:
                    if output.topic in readers:
                        pending = True
                        enqueue(self._input(output))
        return outputs

    def _run_task(self, task: Task, inputs: list[Input]) -> list[Output]:
        return task.run(inputs, self.now)

    def _input(self, output: Output) -> Input:
        partition = output.partition
        if partition is None:
            partition = self._partitioner(output.partition_by, self.count(output.topic))
        offset = self._offsets.get((output.topic, partition), 0)
        self._offsets[output.topic, partition] = offset + 1
        return Input(output.topic, partition, offset, output.timestamp, output.key, output.value, output.headers)
