"""kafka-verifiable-producer: write numbers, and print a line of JSON for each one that is written or fails."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from ottla.cli.kafka.program.argument import Words, tool, usage_error
from ottla.cli.kafka.program.error import java_class, message
from ottla.cli.kafka.program.option import Option, int32, int64
from ottla.cli.kafka.program.tool import load, settings_for
from ottla.cli.measure import Pace
from ottla.kernel.error import KafkaError

if TYPE_CHECKING:
    from ottla.client import Producer

_SERVERS = "HOST1:PORT1[,HOST2:PORT2[...]]"
OPTIONS = (
    Option("topic", "Topic to write to.", "TOPIC", required=True),
    Option("bootstrap-server", "Brokers to connect to first.", _SERVERS, required=True),
    Option("max-messages", "Number of records; -1: until stopped.", "MAX-MESSAGES", int32, default=-1),
    Option("throughput", "Limit in records a second; -1: no limit.", "THROUGHPUT", int32, default=-1),
    Option("acks", "Acknowledgements to wait for.", "ACKS", int32, default=-1, choices=(0, 1, -1)),
    Option("producer.config", "Deprecated: use --command-config.", "CONFIG-FILE"),
    Option("message-create-time", "Timestamp of the first record.", "CREATE-TIME", int64, default=-1),
    Option("value-prefix", "Number that is put, with a dot, before each value.", "VALUE-PREFIX", int32),
    Option("repeating-keys", "Number of keys, from 0, that are used in turn.", "REPEATING-KEYS", int32),
    Option("command-config", "Properties file for the producer.", "CONFIG-FILE"),
)


def main() -> None:
    """The console script."""
    about = (
        "This tool produces increasing integers to the specified topic and prints JSON metadata to stdout on each "
        '"send" request, making externally visible which messages have been acked and which have not.'
    )
    words = None if len(sys.argv) > 1 else ["-h"]
    tool("verifiable-producer", about, _run, options=OPTIONS, words=words)


class Events:
    """A writer of JSON lines on stdout, safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def tell(self, name: str, **fields: Any) -> None:
        """Print an event."""
        event = {"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}
        line = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
        with self._lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


def settings_file(words: Words, older: str) -> dict[str, str]:
    """Return the properties of --command-config or its deprecated form."""
    if words["command-config"] is not None and words[older] is not None:
        raise usage_error(f"Options --{older} and --command-config are mutually exclusive.")
    if words[older] is not None:
        print(
            f"Option --{older} has been deprecated and will be removed in a future version. Use --command-config "
            "instead."
        )
    file = words["command-config"] or words[older]
    return load(file) if file else {}


def stops() -> threading.Event:
    """Return an event that SIGTERM or SIGINT sets."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        if threading.current_thread() is threading.main_thread():
            signal.signal(number, lambda *_: stopped.set())
    return stopped


def _run(words: Words) -> int:
    from ottla.client import Producer
    from ottla.client.settings.producer import ProducerSettings

    if words["repeating-keys"] is not None and words["repeating-keys"] <= 0:
        raise usage_error("argument --repeating-keys: must be greater than zero")
    properties: dict[str, object] = {
        "bootstrap.servers": words["bootstrap-server"],
        "acks": str(words["acks"]),
        "retries": "0",
        **settings_file(words, "producer.config"),
    }
    if str(properties["acks"]) not in ("-1", "all"):
        properties.setdefault("enable.idempotence", "false")
    events, stopped = Events(), stops()
    began = time.monotonic()
    with Producer(settings_for(ProducerSettings, properties)) as producer:
        events.tell("startup_complete")
        sending = _Sending(producer, words, events)
        try:
            sending.send_all(stopped)
        finally:
            sending.finish()
    events.tell("shutdown_complete")
    seconds = max(time.monotonic() - began, 1e-3)
    events.tell(
        "tool_data",
        sent=sending.sent,
        acked=sending.acked,
        target_throughput=words["throughput"],
        avg_throughput=sending.acked / seconds,
    )
    return 0


class _Sending:
    def __init__(self, producer: Producer, words: Words, events: Events) -> None:
        self.sent = self.acked = 0
        self._producer = producer
        self._words = words
        self._events = events
        self._timestamp = None if words["message-create-time"] == -1 else words["message-create-time"]
        self._began_ms = time.time_ns() // 1_000_000

    def send_all(self, stopped: threading.Event) -> None:
        """Send until there are enough records, or `stopped` is set."""
        words = self._words
        pace = Pace(words["throughput"])
        keys, prefix = words["repeating-keys"], words["value-prefix"]
        while not stopped.is_set() and (words["max-messages"] < 0 or self.sent < words["max-messages"]):
            value = str(self.sent) if prefix is None else f"{prefix}.{self.sent}"
            self._send(None if keys is None else str(self.sent % keys), value)
            pace.wait(self.sent)

    def _send(self, key: str | None, value: str) -> None:
        topic = self._words["topic"]
        self.sent += 1

        def on_done(metadata: Any, error: KafkaError | None) -> None:
            if error is not None:
                self._failed(key, value, error)
                return
            self.acked += 1
            self._events.tell(
                "producer_send_success",
                key=key,
                value=value,
                topic=topic,
                partition=metadata.partition,
                offset=metadata.offset,
            )

        try:
            self._producer.send(topic, value, key, timestamp=self._timestamp).when_done(on_done)
        except KafkaError as error:
            self._failed(key, value, error)
        if self._timestamp is not None:
            self._timestamp += time.time_ns() // 1_000_000 - self._began_ms

    def _failed(self, key: str | None, value: str, error: KafkaError) -> None:
        self._events.tell(
            "producer_send_error",
            key=key,
            value=value,
            topic=self._words["topic"],
            exception=f"class {java_class(error)}",
            message=message(error),
        )

    def finish(self) -> None:
        """Wait for the records in flight; each reports its own error."""
        try:
            self._producer.flush()
        except KafkaError:
            return
