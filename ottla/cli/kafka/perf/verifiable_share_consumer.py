"""kafka-verifiable-share-consumer: read a topic as a member of a share group, and print its events as JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ottla.cli.kafka.perf.verifiable_producer import Events, stops
from ottla.cli.kafka.program.argument import Words, tool, usage_error
from ottla.cli.kafka.program.error import message
from ottla.cli.kafka.program.option import Option, int32
from ottla.cli.kafka.program.tool import admin, load, settings_for, tell
from ottla.kernel.error import KafkaError

if TYPE_CHECKING:
    from ottla.client import ShareRecord, TopicPartition

_POLL_S = 0.2
_SERVERS = "HOST1:PORT1[,HOST2:PORT2[...]]"
OPTIONS = (
    Option("bootstrap-server", "Brokers to connect to first.", _SERVERS, required=True),
    Option("topic", "Topic to read.", "TOPIC", required=True),
    Option("group-id", "Share group.", "GROUP-ID", required=True),
    Option("max-messages", "Number of records; -1: until stopped.", "MAX-MESSAGES", int32, default=-1),
    Option("verbose", "Print a line for each record."),
    Option(
        "acknowledgement-mode", "Mode of acknowledgement: auto, sync or async.", "ACKNOWLEDGEMENT-MODE", default="auto"
    ),
    Option("offset-reset-strategy", "Where the group starts: earliest or latest.", "OFFSET-RESET-STRATEGY", default=""),
    Option("command-config", "Properties file for the clients.", "CONFIG-FILE"),
)


def main() -> None:
    """The console script."""
    about = (
        "This tool creates a share group and consumes messages from a specific topic and emits share consumer events "
        "(e.g. share consumer startup, received messages, and offsets acknowledged) as JSON objects to STDOUT."
    )
    words = None if len(sys.argv) > 1 else ["-h"]
    tool("verifiable-share-consumer", about, _run, options=OPTIONS, words=words)


def _run(words: Words) -> int:
    from ottla.client import ShareConsumer
    from ottla.client.settings.share import ShareConsumerSettings

    mode = words["acknowledgement-mode"].lower()
    if mode not in ("auto", "sync", "async"):
        raise usage_error(f"argument --acknowledgement-mode: {mode} is not one of auto, sync, async")
    properties = {
        **(load(words["command-config"]) if words["command-config"] else {}),
        "group.id": words["group-id"],
        "bootstrap.servers": words["bootstrap-server"],
    }
    events, stopped = Events(), stops()
    acknowledged = _Acknowledged(events)
    most = words["max-messages"]
    with ShareConsumer(settings_for(ShareConsumerSettings, properties)) as consumer:
        events.tell("startup_complete")
        try:
            if words["offset-reset-strategy"]:
                _begin_at(words, properties, events)
            consumer.subscribe([words["topic"]])
            consumer.on_acknowledged(acknowledged)
            while not stopped.is_set() and not 0 <= most <= acknowledged.count:
                if records := consumer.poll(_POLL_S):
                    _tell(events, records, verbose=words["verbose"])
                    if mode != "auto":
                        consumer.commit()
        except KafkaError as error:
            tell(f"ERROR Error during processing, terminating share consumer process: {message(error)}")
    events.tell("shutdown_complete")
    return 0


def _begin_at(words: Words, properties: dict[str, str], events: Events) -> None:
    from ottla.client import ConfigResource, ResourceType
    from ottla.settings.client.client import ClientSettings

    strategy = words["offset-reset-strategy"].lower()
    shared = {setting.name for setting in ClientSettings.declared.values()}
    common = {name: value for name, value in properties.items() if name in shared}
    with admin(words["bootstrap-server"], common) as client:
        group = ConfigResource(ResourceType.GROUP, words["group-id"])
        client.alter_config(group, {"share.auto.offset.reset": strategy})
    events.tell("offset_reset_strategy_set", offsetResetStrategy=strategy)


class _Acknowledged:
    """Counts and prints acknowledged records. Called on the client's thread."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.count = 0

    def __call__(self, partition: TopicPartition, offsets: list[int], error: KafkaError | None) -> None:
        shown = {"topic": partition.topic, "partition": partition.partition, "count": len(offsets), "offsets": offsets}
        why = {} if error is None else {"error": message(error)}
        self._events.tell("offsets_acknowledged", count=len(offsets), partitions=[shown], success=error is None, **why)
        if error is None:
            self.count += len(offsets)


def _tell(events: Events, records: list[ShareRecord], *, verbose: bool) -> None:
    parts: dict[tuple[str, int], list[ShareRecord]] = {}
    for record in records:
        parts.setdefault((record.topic, record.partition), []).append(record)
    if verbose:
        for part in parts.values():
            for record in part:
                _tell_record(events, record)
    partitions = [
        {
            "topic": topic,
            "partition": partition,
            "count": len(batch),
            "offsets": sorted(delivered.offset for delivered in batch),
        }
        for (topic, partition), batch in parts.items()
    ]
    events.tell("records_consumed", count=len(records), partitions=partitions)


def _tell_record(events: Events, record: ShareRecord) -> None:
    def text(content: bytes | None) -> str | None:
        return None if content is None else bytes(content).decode(errors="replace")

    events.tell(
        "record_data",
        key=text(record.key),
        value=text(record.value),
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
    )
