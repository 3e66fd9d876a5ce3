"""kafka-verifiable-consumer: read a topic as a member of a group, and print its events as JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ottla.cli.kafka.perf.verifiable_producer import Events, settings_file, stops
from ottla.cli.kafka.program.argument import Words, tool
from ottla.cli.kafka.program.error import message
from ottla.cli.kafka.program.option import Option, int32
from ottla.cli.kafka.program.tool import settings_for, tell
from ottla.kernel.error import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client import Consumer, ConsumerRecord, RebalanceListener, TopicPartition

_POLL_S = 0.2
_SERVERS = "HOST1:PORT1[,HOST2:PORT2[...]]"
_RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
#: Kafka's classes to the names of what they do.
_ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
OPTIONS = (
    Option("bootstrap-server", "Brokers to connect to first.", _SERVERS, required=True),
    Option("topic", "Topic to read.", "TOPIC", required=True),
    Option("group-protocol", "Protocol of the group: classic or consumer.", "GROUP-PROTOCOL", default="classic"),
    Option("group-remote-assignor", "Server-side assignor, with --group-protocol consumer.", "GROUP-REMOTE-ASSIGNOR"),
    Option("group-id", "Consumer group.", "GROUP-ID", required=True),
    Option("group-instance-id", "Instance id of a static member.", "GROUP-INSTANCE-ID"),
    Option("max-messages", "Number of records; -1: until stopped.", "MAX-MESSAGES", int32, default=-1),
    Option("session-timeout", "Session timeout (session.timeout.ms), with the classic protocol.", "TIMEOUT-MS", int32),
    Option("verbose", "Print a line for each record."),
    Option("enable-autocommit", "Commit periodically instead of after each poll."),
    Option(
        "reset-policy",
        "Start without a committed offset: earliest, latest or none.",
        "RESET-POLICY",
        default="earliest",
    ),
    Option("assignment-strategy", "Assignor, by Kafka's class.", "ASSIGNMENT-STRATEGY", default=_RANGE),
    Option("consumer.config", "Deprecated: use --command-config.", "CONFIG-FILE"),
    Option("command-config", "Properties file for the consumer.", "CONFIG-FILE"),
)


def main() -> None:
    """The console script."""
    about = (
        "This tool consumes messages from a specific topic and emits consumer events (e.g. group rebalances, received "
        "messages, and offsets committed) as JSON objects to STDOUT."
    )
    words = None if len(sys.argv) > 1 else ["-h"]
    tool("verifiable-consumer", about, _run, options=OPTIONS, words=words)


def _run(words: Words) -> int:
    from ottla.client import Consumer
    from ottla.client.settings.consumer import ConsumerSettings

    events, stopped = Events(), stops()
    with Consumer(settings_for(ConsumerSettings, _properties(words))) as consumer:
        events.tell("startup_complete")
        consumer.subscribe([words["topic"]], listener=_listener(events))
        reading = _Reading(words, events)
        try:
            while not stopped.is_set() and not reading.finished:
                if records := consumer.poll(_POLL_S):
                    offsets = reading.received(records)
                    if not words["enable-autocommit"]:
                        _commit(consumer, offsets, events)
            if stopped.is_set():
                events.tell("shutdown_requested")
        except KafkaError as error:
            tell(f"ERROR Error during processing, terminating consumer process: {message(error)}")
    events.tell("shutdown_complete")
    return 0


def _properties(words: Words) -> dict[str, object]:
    properties: dict[str, object] = {**settings_file(words, "consumer.config")}
    protocol = words["group-protocol"].lower()
    properties["group.protocol"] = protocol
    if protocol == "consumer":
        if words["group-remote-assignor"] is not None:
            properties["group.remote.assignor"] = words["group-remote-assignor"]
    else:
        names = [part.strip().rpartition(".")[2] for part in words["assignment-strategy"].split(",")]
        properties["partition.assignment.strategy"] = ",".join(_ASSIGNORS.get(name, name) for name in names)
    if words["session-timeout"] is not None:
        properties["session.timeout.ms"] = str(words["session-timeout"])
    properties["group.id"] = words["group-id"]
    if words["group-instance-id"] is not None:
        properties["group.instance.id"] = words["group-instance-id"]
    properties["bootstrap.servers"] = words["bootstrap-server"]
    properties["enable.auto.commit"] = str(words["enable-autocommit"]).lower()
    properties["auto.offset.reset"] = words["reset-policy"]
    return properties


def _listener(events: Events) -> RebalanceListener:
    from ottla.client import RebalanceListener

    def shown(partitions: list[TopicPartition]) -> list[dict[str, object]]:
        return [{"topic": partition.topic, "partition": partition.partition} for partition in partitions]

    class Listener(RebalanceListener):
        """Prints assigned and revoked partitions."""

        def assigned(self, partitions: list[TopicPartition]) -> None:
            events.tell("partitions_assigned", partitions=shown(partitions))

        def revoked(self, partitions: list[TopicPartition]) -> None:
            events.tell("partitions_revoked", partitions=shown(partitions))

    return Listener()


class _Reading:
    def __init__(self, words: Words, events: Events) -> None:
        self._most: int = words["max-messages"]
        self._verbose = words["verbose"]
        self._events = events
        self._count = 0

    @property
    def finished(self) -> bool:
        """Whether there are enough records."""
        return 0 <= self._most <= self._count

    def received(self, records: list[ConsumerRecord]) -> dict[TopicPartition, int]:
        """Print the records of one poll; returns the offsets to commit."""
        from ottla.client import TopicPartition

        parts: dict[TopicPartition, list[ConsumerRecord]] = {}
        for record in records:
            parts.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        offsets, summaries = {}, []
        for partition, batch in parts.items():
            counted = batch if self._most < 0 else batch[: self._most - self._count]
            offsets[partition] = counted[-1].offset + 1
            summaries.append(
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "count": len(counted),
                    "minOffset": counted[0].offset,
                    "maxOffset": counted[-1].offset,
                }
            )
            if self._verbose:
                for record in counted:
                    self._tell(record)
            self._count += len(counted)
            if self.finished:
                break
        self._events.tell("records_consumed", count=len(records), partitions=summaries)
        return offsets

    def _tell(self, record: ConsumerRecord) -> None:
        def text(content: Any) -> str | None:
            return None if content is None else bytes(content).decode(errors="replace")

        self._events.tell(
            "record_data",
            key=text(record.key),
            value=text(record.value),
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
        )


def _commit(consumer: Consumer, offsets: dict[TopicPartition, int], events: Events) -> None:
    shown = [
        {"topic": partition.topic, "partition": partition.partition, "offset": offset}
        for partition, offset in offsets.items()
    ]
    try:
        consumer.commit(offsets)
    except KafkaError as error:
        if error.code is ErrorCode.FENCED_INSTANCE_ID:
            raise
        events.tell("offsets_committed", offsets=shown, error=message(error), success=False)
    else:
        events.tell("offsets_committed", offsets=shown, success=True)
