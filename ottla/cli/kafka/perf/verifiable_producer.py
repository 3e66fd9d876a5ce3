"""kafka-verifiable-producer: writes numbers, and a line of JSON for each that is written or not."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from ottla.cli.kafka.program.argument import Words, tool, usage_error
from ottla.cli.kafka.program.error import java_class, message
from ottla.cli.kafka.program.option import Option
from ottla.cli.kafka.program.tool import load, settings_for
from ottla.cli.measure import Pace
from ottla.kernel.error import KafkaError

if TYPE_CHECKING:
    from ottla.client import Producer

_SERVERS = "HOST1:PORT1[,HOST2:PORT2[...]]"
OPTIONS = (
    Option("topic", "The topic to write to.", "TOPIC", required=True),
    Option("bootstrap-server", "The brokers to ask first.", _SERVERS, required=True),
    Option("max-messages", "How many; -1: until it is stopped.", "MAX-MESSAGES", int, default=-1),
    Option("throughput", "At most so many a second; -1: as many as go.", "THROUGHPUT", int, default=-1),
    Option("acks", "Who must have a record.", "ACKS", int, default=-1, choices=(0, 1, -1)),
    Option("producer.config", "The older name of --command-config.", "CONFIG-FILE"),
    Option("message-create-time", "The timestamp of the first record.", "CREATE-TIME", int, default=-1),
    Option("value-prefix", "A number and a dot before each value.", "VALUE-PREFIX", int),
    Option("repeating-keys", "Keys from 0 up to this, again and again.", "REPEATING-KEYS", int),
    Option("command-config", "A file of settings of the producer.", "CONFIG-FILE"),
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
    """Lines of JSON on stdout, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def tell(self, name: str, **fields: Any) -> None:
        """An event."""
        event = {"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}
        line = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
        with self._lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


def settings_file(words: Words, older: str) -> dict[str, str]:
    """What --command-config, or its older name, says."""
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
    """Set when the process is asked to end."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        if threading.current_thread() is threading.main_thread():
            signal.signal(number, lambda *_: stopped.set())
    return stopped


def _run(words: Words) -> int:
    from ottla.client import Producer
    from ottla.client.settings.producer import ProducerSettings

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
        """Until there are enough, or it is asked to stop."""
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

        def told(metadata: Any, error: KafkaError | None) -> None:
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
            self._producer.send(topic, value, key, timestamp=self._timestamp).when_done(told)
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
        """Wait for what is under way; each record has told itself."""
        try:
            self._producer.flush()
        except KafkaError:
            return
