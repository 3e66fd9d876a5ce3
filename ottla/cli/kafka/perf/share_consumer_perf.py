"""kafka-share-consumer-perf-test: measure how many records a second the members of a share group read (KIP-932)."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ottla.cli.kafka.perf.consumer_perf import RUN_OPTIONS, check_run
from ottla.cli.kafka.program.java_date import DateFormat
from ottla.cli.kafka.program.option import BOOTSTRAP, Given, Option, int32, key_values, require
from ottla.cli.kafka.program.tool import command, load, settings_for, tell
from ottla.cli.measure import MEBIBYTE

if TYPE_CHECKING:
    from ottla.client import ShareConsumer

_POLL_S = 0.1
OPTIONS = (
    BOOTSTRAP,
    Option("topic", "REQUIRED: topic to read.", "topic"),
    Option("group", "Share group.", "gid", default="perf-share-consumer"),
    Option("fetch-size", "Maximum bytes in a fetch.", "size", int32, default=1048576),
    Option("command-property", "Setting of the consumers; may be repeated.", "prop1=val1"),
    Option("socket-buffer-size", "Ignored.", "size", int32, default=2097152),
    Option("consumer.config", "Deprecated: use --command-config.", "config file"),
    Option("command-config", "Properties file for the consumers.", "config file"),
    Option("print-metrics", "Ignored: the share consumer keeps no metrics."),
    Option("show-detailed-stats", "Also print a line per interval."),
    *RUN_OPTIONS,
    Option("threads", "Number of members.", "count", int32, default=1),
    Option("show-consumer-stats", "Print a line for each member."),
)


def main() -> None:
    """The console script."""
    command(OPTIONS, "This tool is used to verify the share consumer performance.", _run, usage_when_refused=True)


def _run(given: Given) -> int:
    _check(given)
    from ottla.client import ShareConsumer
    from ottla.client.settings.share import ShareConsumerSettings

    if "hide-header" not in given:
        print("start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms")
    run = _Run(given)
    properties = _properties(given)
    names = [str(properties["client.id"])]
    if given["threads"] > 1:
        names = [f"{names[0]}-{number + 1}" for number in range(given["threads"])]
    with ExitStack() as stack:
        consumers = [
            stack.enter_context(ShareConsumer(settings_for(ShareConsumerSettings, {**properties, "client.id": name})))
            for name in names
        ]
        run.read(consumers, names)
    if "print-metrics" in given:
        tell("WARN the share consumer keeps no metrics: there are none to print")
    return 0


def _check(given: Given) -> None:
    require(given, "topic", "bootstrap-server")
    check_run(given)


def _properties(given: Given) -> dict[str, object]:
    file = given["consumer.config"] or given["command-config"]
    properties: dict[str, object] = {**(load(file) if file else {}), **key_values(given.values("command-property"))}
    properties["bootstrap.servers"] = given["bootstrap-server"]
    properties["group.id"] = given["group"]
    properties["fetch.max.bytes"] = str(given["fetch-size"])
    properties["check.crcs"] = "false"
    properties.setdefault("client.id", "perf-share-consumer-client")
    return properties


class _Member:
    """The records and bytes that one consumer has read."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.records = self.bytes = 0


class _Run:
    """A run in which all members read a topic."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._wanted: int = given["messages"] if "messages" in given else given["num-records"]
        self._shown = DateFormat(given["date-format"])
        self._lock = threading.Lock()
        self._records = 0
        self._has_ended = False

    def read(self, consumers: list[ShareConsumer], names: list[str]) -> None:
        """Read until there are enough records, or the timeout passes without one; then print the totals."""
        began_ms = _now_ms()
        for consumer in consumers:
            consumer.subscribe([self._given["topic"]])
        members = [_Member(number + 1) for number in range(len(consumers))]
        with ThreadPoolExecutor(len(consumers)) as pool:
            try:
                list(pool.map(self._read_one, consumers, members))
            finally:
                # Ctrl-C, or an error of one member, ends all of them: the pool waits for its threads.
                self._has_ended = True
        ended_ms = _now_ms()
        if "show-consumer-stats" in self._given:
            for member, name in zip(members, names, strict=True):
                figures = self._figures(member.bytes, member.records, began_ms, ended_ms)
                print(f"Share consumer {member.number} having client id {name} consumption metrics- {figures}")
        if self._records < self._wanted:
            print(
                "WARNING: Exiting before consuming the expected number of records: timeout "
                f"({self._given['timeout']} ms) exceeded. You can use the --timeout option to increase the timeout."
            )
        for consumer in consumers:
            consumer.commit()
        print(self._figures(sum(reader.bytes for reader in members), self._records, began_ms, ended_ms))

    def _read_one(self, consumer: ShareConsumer, member: _Member) -> None:
        timeout_ms, interval_ms = self._given["timeout"], self._given["reporting-interval"]
        now = heard_ms = reported_ms = _now_ms()
        reported = (0, 0)
        while self._records < self._wanted and now - heard_ms <= timeout_ms and not self._has_ended:
            records = consumer.poll(_POLL_S)
            now = _now_ms()
            if not records:
                continue
            heard_ms = now
            member.records += len(records)
            member.bytes += sum(len(record.key or b"") + len(record.value or b"") for record in records)
            with self._lock:
                self._records += len(records)
            if now - reported_ms >= interval_ms:
                if "show-detailed-stats" in self._given:
                    self._print_progress(member, reported, reported_ms, now)
                reported_ms, reported = now, (member.records, member.bytes)

    def _print_progress(self, member: _Member, reported: tuple[int, int], since_ms: int, now: int) -> None:
        elapsed_ms = now - since_ms
        records, mebibytes = member.records - reported[0], (member.bytes - reported[1]) / MEBIBYTE
        print(
            f"{self._shown(since_ms)}, {self._shown(now)}, {member.bytes / MEBIBYTE:.4f}, "
            f"{1000 * mebibytes / elapsed_ms:.4f}, {1000 * records / elapsed_ms:.4f}, {member.records}, {elapsed_ms} "
            f"for share consumer {member.number}"
        )

    def _figures(self, size: int, records: int, began_ms: int, ended_ms: int) -> str:
        mebibytes, elapsed_s = size / MEBIBYTE, max(ended_ms - began_ms, 1) / 1000
        return (
            f"{self._shown(began_ms)}, {self._shown(ended_ms)}, {mebibytes:.4f}, {mebibytes / elapsed_s:.4f}, "
            f"{records / elapsed_s:.4f}, {records}, {ended_ms - began_ms}"
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
