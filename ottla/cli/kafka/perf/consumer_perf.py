"""kafka-consumer-perf-test: measure how many records a second a consumer reads."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.java_date import DateFormat
from ottla.cli.kafka.program.match import pattern
from ottla.cli.kafka.program.metric import print_metrics
from ottla.cli.kafka.program.option import Given, Option, forbid, int32, int64, key_values, one_of, require
from ottla.cli.kafka.program.tool import Failed, command, load, settings_for
from ottla.cli.measure import MEBIBYTE

if TYPE_CHECKING:
    from ottla.client import Consumer, RebalanceListener

_POLL_S = 0.1


def whole(text: str) -> int:
    """Parse a number of digits only."""
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)


#: How long to read, and how to report.
RUN_OPTIONS = (
    Option(
        "timeout",
        "Stop when no record has arrived for this long (ms).",
        "milliseconds",
        int64,
        default=10000,
        optional=True,
    ),
    Option("messages", "Deprecated: use --num-records.", "count", int64),
    Option("num-records", "REQUIRED: number of records.", "count", int64),
    Option("reporting-interval", "Milliseconds between two reports.", "interval_ms", whole, default=5000),
    Option("date-format", "Format of times, as in Java.", "date format", default="yyyy-MM-dd HH:mm:ss:SSS"),
    Option("hide-header", "Print no header."),
)
OPTIONS = (
    Option("bootstrap-server", "REQUIRED: brokers to connect to first, HOST:PORT,HOST:PORT.", "server to connect to"),
    Option("topic", "Topic to read.", "topic"),
    Option("include", "Regular expression: read all topics whose names match.", "Java regex (String)"),
    Option("group", "Consumer group.", "gid"),
    Option("fetch-size", "Maximum bytes per partition in a fetch.", "size", int32, default=1048576),
    Option("command-property", "Setting of the consumer; may be repeated.", "prop1=val1"),
    Option("from-latest", "Start at the end, not at the beginning, if there is no committed offset."),
    Option("socket-buffer-size", "Ignored.", "size", int32, default=2097152),
    Option("consumer.config", "Deprecated: use --command-config.", "config file"),
    Option("command-config", "Properties file for the consumer.", "config file"),
    Option("print-metrics", "Print the client's metrics at the end."),
    Option("show-detailed-stats", "Print a line per interval instead of one at the end."),
    *RUN_OPTIONS,
)


def main() -> None:
    """The console script."""
    about = "This tool is used to verify the consumer performance."
    command(OPTIONS, about, _run, usage_when_refused=True)


def _run(given: Given) -> int:
    _check(given)
    from ottla.client import Consumer
    from ottla.client.settings.consumer import ConsumerSettings

    detailed = "show-detailed-stats" in given
    if "hide-header" not in given:
        first = "time, threadId" if detailed else "start.time, end.time"
        more = "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
        print(f"{first}, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, {more}")
    properties = _properties(given)
    with Consumer(settings_for(ConsumerSettings, properties)) as consumer:
        run = _Run(given)
        run.read(consumer)
        metrics = consumer.metrics()
    if not detailed:
        run.print_total()
    if "print-metrics" in given:
        print_metrics("consumer-metrics", str(properties["client.id"]), metrics)
    return 0


def _check(given: Given) -> None:
    require(given, "bootstrap-server")
    one_of(given, "topic", "include")
    check_run(given)


def check_run(given: Given) -> None:
    """Check the options that both consumer tools share."""
    one_of(given, "messages", "num-records")
    forbid(given, "consumer.config", ("command-config",))
    for older, newer in (("messages", "num-records"), ("consumer.config", "command-config")):
        if older in given:
            print(f"Warning: --{older} is deprecated. Use --{newer} instead.")
    if given["reporting-interval"] <= 0:
        raise Failed("Reporting interval must be greater than 0.")


def _properties(given: Given) -> dict[str, object]:
    file = given["consumer.config"] or given["command-config"]
    properties: dict[str, object] = {**(load(file) if file else {}), **key_values(given.values("command-property"))}
    properties["bootstrap.servers"] = given["bootstrap-server"]
    properties["group.id"] = given["group"] or f"perf-consumer-{random.randrange(100_000)}"
    properties["max.partition.fetch.bytes"] = str(given["fetch-size"])
    properties["auto.offset.reset"] = "latest" if "from-latest" in given else "earliest"
    properties["check.crcs"] = "false"
    properties.setdefault("client.id", "perf-consumer-client")
    return properties


class _Run:
    """A run that reads a topic, with its measurements."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._wanted: int = given["messages"] if "messages" in given else given["num-records"]
        self._shown = DateFormat(given["date-format"])
        self.rebalance_ms = 0
        self._rebalance_ms_now = 0
        self._began_ms = self._joining_ms = self._ended_ms = _now_ms()
        self._records = self._bytes = 0

    def read(self, consumer: Consumer) -> None:
        """Read until there are enough records, or the timeout passes without one."""
        given = self._given
        listener = self._listener()
        if "topic" in given:
            consumer.subscribe([given["topic"]], listener=listener)
        else:
            consumer.subscribe(pattern(given["include"]), listener=listener)
        timeout_ms, interval_ms = given["timeout"], given["reporting-interval"]
        self._began_ms = self._joining_ms = now = heard_ms = reported_ms = _now_ms()
        reported = (0, 0)
        while self._records < self._wanted and now - heard_ms <= timeout_ms:
            records = consumer.poll(_POLL_S)
            now = _now_ms()
            if not records:
                continue
            heard_ms = now
            self._records += len(records)
            self._bytes += sum(len(record.key or b"") + len(record.value or b"") for record in records)
            if now - reported_ms >= interval_ms:
                if "show-detailed-stats" in given:
                    self._print_progress(reported, reported_ms, now)
                self._rebalance_ms_now = 0
                reported_ms, reported = now, (self._records, self._bytes)
        if self._records < self._wanted:
            print(
                "WARNING: Exiting before consuming the expected number of records: timeout "
                f"({timeout_ms} ms) exceeded. You can use the --timeout option to increase the timeout."
            )
        self._ended_ms = _now_ms()

    def _listener(self) -> RebalanceListener:
        from ottla.client import RebalanceListener, TopicPartition

        run = self
        held: set[TopicPartition] = set()

        class Listener(RebalanceListener):
            """Measures how long no partition is assigned."""

            def assigned(self, partitions: list[TopicPartition]) -> None:
                if not held:
                    elapsed_ms = _now_ms() - run._joining_ms
                    run.rebalance_ms += elapsed_ms
                    run._rebalance_ms_now += elapsed_ms
                held.update(partitions)

            def revoked(self, partitions: list[TopicPartition]) -> None:
                held.difference_update(partitions)
                if not held:
                    run._joining_ms = _now_ms()

        return Listener()

    def _print_progress(self, reported: tuple[int, int], since_ms: int, now: int) -> None:
        elapsed_ms = now - since_ms
        records, mebibytes = self._records - reported[0], (self._bytes - reported[1]) / MEBIBYTE
        fetch_ms = elapsed_ms - self._rebalance_ms_now
        print(
            f"{self._shown(now)}, 0, {self._bytes / MEBIBYTE:.4f}, {1000 * mebibytes / elapsed_ms:.4f}, "
            f"{self._records}, "
            f"{1000 * records / elapsed_ms:.4f}, {self._rebalance_ms_now}, {fetch_ms}, "
            f"{1000 * mebibytes / fetch_ms if fetch_ms > 0 else 0:.4f}, "
            f"{1000 * records / fetch_ms if fetch_ms > 0 else 0:.4f}"
        )

    def print_total(self) -> None:
        """Print the line at the end."""
        elapsed_s = max(self._ended_ms - self._began_ms, 1) / 1000
        fetch_ms = self._ended_ms - self._began_ms - self.rebalance_ms
        fetch_s = max(fetch_ms, 1) / 1000
        mebibytes = self._bytes / MEBIBYTE
        print(
            f"{self._shown(self._began_ms)}, {self._shown(self._ended_ms)}, "
            f"{mebibytes:.4f}, {mebibytes / elapsed_s:.4f}, "
            f"{self._records}, {self._records / elapsed_s:.4f}, {self.rebalance_ms}, {fetch_ms}, "
            f"{mebibytes / fetch_s:.4f}, {self._records / fetch_s:.4f}"
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
