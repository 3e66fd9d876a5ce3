"""The commit of a task's step: outputs, changelog entries and source offsets, in one transaction or in this order.

Rules:
- exactly_once_v2: one transaction with the transactional id `<application.id>-<task>`. Opening the id fences its
  earlier holders.
- at_least_once: outputs and changelog entries are delivered before the offsets are committed. After a failure, records
  are processed again.
- A record that a broker rejects for its content (too large, invalid) goes to the production handler. If the handler
  continues, everything else is written again without it, record by record. Its dead letter has no value if that was too
  large, and names no source, because several input records may have made one output.
- A changelog entry that is rejected ends the program: its state cannot be restored without the entry.
- What can never be written ends the program too: a value that is not bytes, a topic's name or a partition that cannot
  be. Reopening the task would only repeat it, forever if other tasks make progress.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ottla.client.admin.client import Admin
from ottla.client.membership.commit import CommittedOffset
from ottla.client.producer.sync import Producer
from ottla.flow.engine import Changes, Task
from ottla.flow.error import StreamsError
from ottla.flow.failure import failure_of, response_of
from ottla.flow.handler import Action, ErrorContext
from ottla.flow.record import Output
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.spark.streams.layout import Program, TaskPlan
from ottla.spark.streams.write import AnyOutput, by_topic, singles, write, write_changes, write_one

#: The errors of records that brokers (or the client) will never accept, because of their content or for any reason.
REFUSED_CONTENT = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD,
                   ErrorCode.INVALID_TIMESTAMP)  # fmt: skip
#: Seconds for which the number of partitions of an output topic is kept. The client looks it up less often.
RECOUNT_S = 60
REFUSED = (*REFUSED_CONTENT, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
Offsets = Mapping[TopicPartition, CommittedOffset]


class RefusedOutput(Exception):
    """A record was rejected. Nothing of its step has taken effect."""

    def __init__(self, output: Output, error: KafkaError) -> None:
        super().__init__(str(error))
        self.output = output
        self.error = error


class Committer:
    """The producer of one task. `commits` and `seconds` are the number and total duration of its commits."""

    def __init__(self, program: Program, plan: TaskPlan, admin: Admin) -> None:
        self._program = program
        self._plan = plan
        self._admin = admin
        self._once = program.guarantee == "exactly_once_v2"
        more = {"transactional_id": f"{program.application_id}-{plan.id}"} if self._once else {}
        # The brokers must not create a changelog again, with another number of partitions, after a reset deleted it.
        settings = program.connection(linger_ms=0, allow_auto_create_topics=program.creates_topics, **more)
        self._producer: Producer[Any, Any] = Producer(settings)
        topology = program.topology
        self._internal = {topology.topic(name, program.application_id) for name in topology.internal_topics}
        self._counts: dict[str, int] = {}
        self._recount_at = 0.0
        self.commits = 0
        self.seconds = 0.0

    def open(self) -> None:
        """Fence earlier holders of the task (exactly_once_v2 only)."""
        if self._once:
            self._producer.init_transactions()

    def commit(self, task: Task, outputs: list[AnyOutput], changes: Changes, offsets: Offsets) -> None:
        """Write and commit a step. StreamsError if a record is rejected and the production handler chooses to fail, or
        if the brokers do not accept so many cells.
        """
        began = time.perf_counter()
        try:
            self._commit(task, outputs, changes, offsets)
        except KafkaError as error:
            if error.code is ErrorCode.OFFSET_METADATA_TOO_LARGE:
                raise StreamsError(self._too_many_cells(offsets)) from error
            raise
        self.commits += 1
        self.seconds += time.perf_counter() - began

    def _commit(self, task: Task, outputs: list[AnyOutput], changes: Changes, offsets: Offsets) -> None:
        try:
            self._attempt(outputs, changes, offsets)
        except KafkaError as error:
            if error.code in REFUSED:
                return self._without_refused(task, singles(outputs), changes, offsets)
            if error.code is ErrorCode.INVALID_TOPIC_EXCEPTION or self._lacks_partition(error, outputs):
                raise StreamsError(f"task {self._plan.id} cannot write an output: {error}") from error
            raise

    def _lacks_partition(self, error: KafkaError, outputs: list[AnyOutput]) -> bool:
        """Whether a partitioner chose a partition that the topic does not have."""
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        given = {(output.topic, output.partition) for output in outputs if isinstance(output, Output)}
        sizes = {topic: len(self._producer.partitions_for(topic)) for topic, number in given if number is not None}
        return any(number is not None and number >= sizes[topic] for topic, number in given)

    def _too_many_cells(self, offsets: Offsets) -> str:
        size = max(len(offset.metadata) for offset in offsets.values())
        return (
            f"task {self._plan.id} keeps so many times and numbers of its steps that a commit needs {size} characters "
            "of metadata, more than the brokers accept: raise offset.metadata.max.bytes there, or split the program "
            "with repartition()"
        )

    def count(self, topic: str) -> int:
        """The number of partitions of a topic. An output topic may grow; a repartition topic keeps its number."""
        if time.monotonic() >= self._recount_at:
            self._recount_at = time.monotonic() + RECOUNT_S
            self._counts = {name: count for name, count in self._counts.items() if name in self._internal}
        if topic not in self._counts:
            self._counts[topic] = len(self._producer.partitions_for(topic))
        return self._counts[topic]

    def close(self) -> None:
        self._producer.close(flush=False)

    def _without_refused(self, task: Task, outputs: list[Output], changes: Changes, offsets: Offsets) -> None:
        while True:
            try:
                return self._attempt(list(outputs), changes, offsets, singly=True)
            except RefusedOutput as refused:
                outputs = [output for output in outputs if output is not refused.output]
                outputs += self._dead_letters(task, refused.output, refused.error)
            except KafkaError as error:
                if error.code not in REFUSED_CONTENT:
                    raise
                raise StreamsError(
                    f"task {self._plan.id} cannot write its state: {error}; keep less under a key, or raise "
                    "max.message.bytes of the changelog"
                ) from error

    def _dead_letters(self, task: Task, output: Output, error: KafkaError) -> tuple[Output, ...]:
        """Call the production handler for its dead letters. StreamsError if it chooses to fail."""
        handlers = task.settings.handlers
        sinks = (name for name, sink in self._program.topology.sinks.items() if sink.topic == output.topic)
        large = error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
        context = ErrorContext(
            *(task.id, next(sinks, output.topic), None, self._plan.partition, -1, output.timestamp, output.headers),
            *(output.key, None if large else output.value, output),
        )
        if output.topic == handlers.dead_letter_topic:
            raise failure_of(task.topology, context, error) from error
        response = response_of(task.topology, handlers, handlers.production, context, error)
        if response.action is Action.FAIL:
            raise failure_of(task.topology, context, error) from error
        task.dropped += 1
        return response.dead_letters

    def _attempt(self, outputs: list[AnyOutput], changes: Changes, offsets: Offsets, *, singly: bool = False) -> None:
        group = self._program.application_id
        if self._once:
            with self._producer.transaction() as transaction:
                self._write(outputs, changes, singly=singly)
                transaction.send_offsets(group, offsets)
            return
        self._write(outputs, changes, singly=singly)
        self._producer.flush()
        self._admin.alter_group_offsets(group, offsets).check()

    def _write(self, outputs: list[AnyOutput], changes: Changes, *, singly: bool) -> None:
        topic = ""
        try:
            if singly:
                for output in singles(outputs):
                    topic = output.topic
                    self._write_singly(output)
            else:
                for topic, topic_outputs in by_topic(outputs):
                    write(self._producer, topic, topic_outputs, self.count)
            for store in self._plan.stores:
                if entries := changes.stores.get(store):
                    topic = self._program.changelog(store)
                    write_changes(self._producer, topic, self._plan.partition, entries)
        except (TypeError, ValueError, OverflowError) as error:
            why = f"cannot write to topic {topic}: {type(error).__name__}: {error}"
            raise StreamsError(f"task {self._plan.id} {why}; look at the serdes and headers of its records") from error

    def _write_singly(self, output: Output) -> None:
        try:
            write_one(self._producer, output, self.count).result()
        except KafkaError as error:
            if error.code in REFUSED:
                raise RefusedOutput(output, error) from error
            raise
