"""kafka-producer-perf-test: measure how many records a second a producer writes, and their latency."""

from __future__ import annotations

import os
import random
import sys
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ottla.cli.kafka.program.argument import Words, tool, usage_error
from ottla.cli.kafka.program.metric import print_metrics
from ottla.cli.kafka.program.option import Option, double, int32, int64
from ottla.cli.kafka.program.tool import Failed, load, settings_for, tell
from ottla.cli.measure import Latencies, MeasuredWindow, Pace, now_ms

_TRANSACTION_MS = 3000

OPTIONS = (
    Option("bootstrap-server", "Brokers to connect to first.", "BOOTSTRAP-SERVER"),
    Option("topic", "Topic to write to.", "TOPIC", required=True),
    Option("num-records", "Number of records.", "NUM-RECORDS", int64, required=True),
    Option("payload-delimiter", "Separator of payloads in --payload-file.", "PAYLOAD-DELIMITER", default="\\n"),
    Option("throughput", "Limit in records a second; -1: no limit.", "THROUGHPUT", double, required=True),
    Option("producer-props", "Deprecated: use --command-property.", "PROP-NAME=PROP-VALUE", several=True),
    Option("command-property", "Settings of the producer.", "PROP-NAME=PROP-VALUE", several=True),
    Option("producer.config", "Deprecated: use --command-config.", "CONFIG-FILE"),
    Option("command-config", "Properties file for the producer.", "CONFIG-FILE"),
    Option("print-metrics", "Print the client's metrics at the end."),
    Option("transactional-id", "Write in transactions with this id.", "TRANSACTIONAL-ID"),
    Option("transaction-duration-ms", "Duration of each transaction (ms).", "TRANSACTION-DURATION", int64),
    Option("warmup-records", "Number of first records that do not count.", "WARMUP-RECORDS", int64, default=0),
    Option("reporting-interval", "Milliseconds between two reports.", "INTERVAL-MS", int64, default=5000),
)
PAYLOADS = (
    Option("record-size", "Bytes of a record.", "RECORD-SIZE", int32),
    Option("payload-file", "File with payloads; each record has one of them.", "PAYLOAD-FILE"),
    Option("payload-monotonic", "The value of a record is its number."),
)


def main() -> None:
    """The console script."""
    about = "This tool is used to verify the producer performance."
    name = "kafka-producer-perf-test"
    words = None if len(sys.argv) > 1 else ["-h"]
    tool(name, about, _run, options=OPTIONS, either=(PAYLOADS,), words=words)


def _run(words: Words) -> int:
    _check(words)
    payloads = _payloads(words)
    properties, duration_ms = _properties(words)
    from ottla.client import Producer
    from ottla.client.settings.producer import ProducerSettings

    warmup = max(words["warmup-records"], 0)
    if warmup:
        print(f"Warmup first {warmup} records. Steady state results will print after the complete test summary.")
    with Producer(settings_for(ProducerSettings, properties)) as producer:
        if duration_ms is not None:
            producer.init_transactions()
        stats = Stats(words["num-records"], words["reporting-interval"])
        steady = _produce(producer, words, payloads, stats, warmup, duration_ms)
        producer.flush()
        metrics = producer.metrics()
    stats.print_total()
    if steady is not None:
        steady.print_total()
    if words["print-metrics"]:
        print_metrics("producer-metrics", str(properties["client.id"]), metrics)
    return 0


def _produce(
    producer: Any, words: Words, payloads: Callable[[int], bytes], stats: Stats, warmup: int, duration_ms: int | None
) -> Stats | None:
    topic, count = words["topic"], words["num-records"]
    pace = Pace(words["throughput"])
    steady: Stats | None = None
    began_ms: int | None = None
    for number in range(count):
        payload = payloads(number)
        if duration_ms is not None and began_ms is None:
            producer.begin_transaction()
            began_ms = now_ms()
        sent_ms = now_ms()
        if warmup and number == warmup:
            steady = Stats(count - warmup, words["reporting-interval"], steady=True)
            stats.quiet = True
        producer.send(topic, payload).when_done(_on_done(sent_ms, len(payload), stats, steady))
        if began_ms is not None and duration_ms is not None and sent_ms - began_ms >= duration_ms:
            producer.commit_transaction()
            began_ms = None
        pace.wait(number + 1)
    if began_ms is not None:
        producer.commit_transaction()
    return steady


def _on_done(sent_ms: int, size: int, stats: Stats, steady: Stats | None) -> Callable[[Any, Any], None]:
    def on_done(_: Any, error: Any) -> None:
        if error is not None:
            tell(f"{error}")
            return
        latency_ms = now_ms() - sent_ms
        stats.add(latency_ms, size)
        if steady is not None:
            steady.add(latency_ms, size)

    return on_done


class Stats:
    """The reports of this tool: a line per interval, and one at the end."""

    def __init__(self, expected: int, interval_ms: int, *, steady: bool = False) -> None:
        self.quiet = False
        self._steady = steady
        self._interval_ms = interval_ms
        self._total = MeasuredWindow()
        self._window = MeasuredWindow()
        self._latencies = Latencies(expected)

    def add(self, latency_ms: int, size: int) -> None:
        """Count an acknowledged record."""
        self._total.add(latency_ms, size)
        self._window.add(latency_ms, size)
        self._latencies.add(latency_ms)
        if now_ms() - self._window.started_ms >= self._interval_ms:
            if self._steady and self._total.count == self._window.count:
                print("In steady state.")
            if not self.quiet:
                self._print_window()
            self._window = MeasuredWindow()

    def _print_window(self) -> None:
        window = self._window
        print(
            f"{window.count} records sent, {window.rate:.1f} records/sec ({window.mebibytes_rate:.2f} MB/sec), "
            f"{window.latency_ms_mean:.1f} ms avg latency, {float(window.latency_ms_max):.1f} ms max latency."
        )

    def print_total(self) -> None:
        """Print the last line."""
        total = self._total
        names = ("50th", "95th", "99th", "99.9th")
        percentiles = zip(names, self._latencies.percentiles(0.5, 0.95, 0.99, 0.999), strict=True)
        print(
            f"{total.count}{' steady state' if self._steady else ''} records sent, {total.rate:f} records/sec "
            f"({total.mebibytes_rate:.2f} MB/sec), {total.latency_ms_mean:.2f} ms avg latency, "
            f"{float(total.latency_ms_max):.2f} ms max latency, "
            f"{', '.join(f'{value} ms {name}' for name, value in percentiles)}."
        )


def _check(words: Words) -> None:
    def above_zero(name: str) -> None:
        if words[name] is not None and words[name] <= 0:
            raise usage_error(f"--{name} should be greater than zero.")

    above_zero("num-records")
    if words["warmup-records"] >= words["num-records"]:
        raise usage_error(
            "The value for --warmup-records must be strictly fewer than the number of records in the test, "
            "--num-records."
        )
    above_zero("record-size")
    if not words["payload-delimiter"]:
        raise usage_error("--payload-delimiter should not be empty.")
    sources = ("bootstrap-server", "command-property", "producer-props", "producer.config", "command-config")
    if all(words[source] is None for source in sources):
        raise usage_error(
            "At least one of --bootstrap-server, --command-property, --producer-props, --producer.config or "
            "--command-config must be specified."
        )
    for newer, older in (("command-property", "producer-props"), ("command-config", "producer.config")):
        if words[newer] is not None and words[older] is not None:
            raise usage_error(f"--{newer} and --{older} cannot be specified together.")
    above_zero("transaction-duration-ms")
    above_zero("reporting-interval")


def _payloads(words: Words) -> Callable[[int], bytes]:
    """Return the function from a record's number to its value."""
    chance = random.Random(0)
    if words["payload-file"] is not None:
        payloads_read = _read_payloads(words["payload-file"], words["payload-delimiter"])
        return lambda _: chance.choice(payloads_read)
    if words["payload-monotonic"]:
        return lambda number: str(number).encode()
    size = words["record-size"]
    # Letters, like Kafka: each value is a slice of one long text, because generating it would dominate the measurement.
    letters = bytes(chance.choices(range(65, 91), k=size + 65_536))

    def payload(_: int) -> bytes:
        first = chance.randrange(65_536)
        return letters[first : first + size]

    return payload


def _read_payloads(path: str, delimiter: str) -> list[bytes]:
    file = Path(path)
    print(f"Reading payloads from: {file.absolute()}")
    if not file.exists() or not file.stat().st_size:
        raise Failed("File does not exist or empty file provided.")
    parts = file.read_bytes().split(b"\n" if delimiter == "\\n" else os.fsencode(delimiter))
    payloads = parts if parts[-1] else parts[:-1]
    print(f"Number of records read: {len(payloads)}")
    return payloads


def _properties(words: Words) -> tuple[dict[str, object], int | None]:
    """Return (settings, duration of a transaction or None without transactions)."""
    for newer, older in (("command-property", "producer-props"), ("command-config", "producer.config")):
        if words[older] is not None:
            print(
                f"Option --{older} has been deprecated and will be removed in a future version. Use --{newer} instead."
            )
    file = words["command-config"] or words["producer.config"]
    properties: dict[str, object] = {**(load(file) if file else {})}
    properties |= read_pairs(words["command-property"] or words["producer-props"] or ())
    properties.setdefault("client.id", "perf-producer-client")
    if words["bootstrap-server"] is not None:
        properties["bootstrap.servers"] = words["bootstrap-server"]
    duration_ms, name = words["transaction-duration-ms"], words["transactional-id"]
    if duration_ms is None and name is None and "transactional.id" not in properties:
        return properties, None
    properties["transactional.id"] = (
        name or properties.get("transactional.id") or f"performance-producer-{uuid.uuid4()}"
    )
    return properties, _TRANSACTION_MS if duration_ms is None else duration_ms


def read_pairs(entries: Iterable[str]) -> dict[str, str]:
    """Parse entries of PROP-NAME=PROP-VALUE."""
    pairs = {}
    for entry in entries:
        pieces = entry.split("=")
        if len(pieces) != 2:
            raise Failed(f"Invalid property: {entry}")
        pairs[pieces[0]] = pieces[1]
    return pairs
