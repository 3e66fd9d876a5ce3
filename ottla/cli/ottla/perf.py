"""`ottla perf`: the throughput of producing and consuming, and the end-to-end latency.

Ctrl-C ends a measurement with the figures until then.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from ottla.cli.client_kind import settings_of
from ottla.cli.measure import MEBIBYTE, Latencies, MeasuredWindow, Pace
from ottla.cli.option import Commands, F, admin, as_json, client_settings, cluster, complete_topic, pairs
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.operations.reading import never_creating

if TYPE_CHECKING:
    from ottla.client import Consumer, Producer, TopicPartition

_STRIDE = 1_000
_POLL_S = 0.2
_SHARES = (0.5, 0.95, 0.99, 0.999)
_NAMES = ("p50", "p95", "p99", "p99.9")
_topic = click.argument("topic", shell_complete=complete_topic)
_create = click.option("--create", is_flag=True, help="Create the topic if it does not exist.")


@click.group(cls=Commands)
@cluster
def perf(bootstrap: str, client: tuple[str, ...]) -> None:
    """Measure throughput and latency of a cluster. -X sets the client's settings, e.g. -X linger.ms=10."""


def _count(default: int) -> Callable[[F], F]:
    return click.option(
        "-n", "--count", type=click.IntRange(1), default=default, show_default=True, help="Number of records."
    )


@perf.command()
@cluster
@_topic
@_count(1_000_000)
@click.option("-s", "--size", type=click.IntRange(1), default=100, show_default=True, help="Bytes per record.")
@click.option("-r", "--rate", type=float, default=0.0, help="Limit in records a second (0: no limit).")
@click.option("-z", "--compression", default="none", help="Compression: none (default), gzip, snappy, lz4 or zstd.")
@click.option(
    "--acks", type=click.Choice(["all", "1", "0"]), default="all", help="Acknowledgements to wait for (default: all)."
)
@_create
@as_json
def produce(
    bootstrap: str,
    client: tuple[str, ...],
    topic: str,
    count: int,
    size: int,
    rate: float,
    compression: str,
    acks: str,
    create: bool,
    as_json: bool,
) -> None:
    """Measure how fast records of random letters are written to TOPIC."""
    from ottla.cli import screen
    from ottla.cli.records.write import ensure_topic

    settings = never_creating(client_settings(bootstrap, client))
    settings.setdefault("compression.type", compression)
    settings.setdefault("acks", acks)
    from ottla.client import Producer

    window, latencies, refusals = MeasuredWindow(), Latencies(count), _Unwritten()
    letters = bytes(random.Random(0).choices(range(65, 91), k=size + 65_536))
    with Producer(settings_of("producer", settings)) as producer:
        ensure_topic(bootstrap, client, topic, create=create)
        with screen.progress(topic, count) as bar:
            window = MeasuredWindow()
            pace = Pace(rate)
            with _until_interrupted() as ended:
                for number in range(count):
                    first = number * 17 % 65_536
                    _send(producer, topic, letters[first : first + size], window, latencies, refusals)
                    if number % _STRIDE == 0:
                        speed = f"{window.mebibytes_rate:,.1f} MiB/s"
                        bar.update(bar.task_ids[0], completed=number, count=number, rate=speed)
                    pace.wait(number + 1)
                producer.flush()
            seconds = window.seconds
    result = {
        "records": window.count,
        "seconds": round(seconds, 3),
        "records_per_second": round(window.count / seconds),
        "mebibytes_per_second": round(window.size / seconds / MEBIBYTE, 2),
        "latency_ms": _spread(latencies, 1, window.latency_ms_mean, window.latency_ms_max),
    }
    _report(result, as_json=as_json)
    ended()
    refusals.check()


@contextmanager
def _until_interrupted() -> Iterator[Callable[[], None]]:
    """Let Ctrl-C end the block. Yields the function that raises KeyboardInterrupt again, if there was one."""
    caught: list[KeyboardInterrupt] = []

    def ended() -> None:
        if caught:
            raise caught[0]

    try:
        yield ended
    except KeyboardInterrupt as interrupt:
        caught.append(interrupt)


class _Unwritten:
    """The records that were not written."""

    def __init__(self) -> None:
        self._count = 0
        self._first: KafkaError | None = None

    def add(self, error: KafkaError) -> None:
        """Count a record."""
        self._count += 1
        self._first = self._first or error

    def check(self) -> None:
        """Raise OttlaError if there is any."""
        from ottla.cli.screen import counted, in_words

        if self._first is not None:
            verb = "was" if self._count == 1 else "were"
            raise OttlaError(
                f"{counted(self._count, 'record')} {verb} not written: {in_words(self._first)}"
            ) from self._first


def _send(
    producer: Producer,
    topic: str,
    payload: bytes,
    window: MeasuredWindow,
    latencies: Latencies,
    refusals: _Unwritten,
) -> None:
    sent = time.monotonic_ns()

    def on_done(_: object, error: KafkaError | None) -> None:
        if error is not None:
            refusals.add(error)
            return
        latency_ms = (time.monotonic_ns() - sent) // 1_000_000
        window.add(latency_ms, len(payload))
        latencies.add(latency_ms)

    producer.send(topic, payload).when_done(on_done)


def _spread(latencies: Latencies, unit: float, mean: float, most: float) -> dict[str, float]:
    percentiles = dict(
        zip(_NAMES, (round(latency / unit, 3) for latency in latencies.percentiles(*_SHARES)), strict=True)
    )
    return {"mean": round(mean, 3), **percentiles, "most": round(most, 3)}


@perf.command()
@cluster
@_topic
@_count(1_000_000)
@click.option("-g", "--group", help="Read as a member of this group (default: every partition from its beginning).")
@as_json
def consume(bootstrap: str, client: tuple[str, ...], topic: str, count: int, group: str | None, as_json: bool) -> None:
    """Measure how fast records of TOPIC are read from its beginning, up to --count or its end."""
    from ottla.cli import screen
    from ottla.client import Consumer, OffsetSpec, TopicPartition

    with admin(bootstrap, client) as ask:
        partitions = [TopicPartition(topic, partition.partition) for partition in ask.describe_topic(topic).partitions]
        latest = ask.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST)).check()
        ends = {partition: end.offset for partition, end in latest.items()}
        starts = ask.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST)).check()
    wanted = min(count, sum(ends.values()) - sum(start.offset for start in starts.values()))
    settings = never_creating(client_settings(bootstrap, client)) | {"auto.offset.reset": "earliest"}
    if group:
        settings["group.id"] = group
    size = read = 0
    with Consumer(settings_of("consumer", settings)) as consumer, screen.progress(topic, wanted) as bar:
        began = time.monotonic()
        if group:
            consumer.subscribe([topic])
        else:
            consumer.assign(partitions)
            consumer.seek_to_beginning(partitions)
        first: float | None = None
        with _until_interrupted() as ended:
            while read < wanted:
                records = consumer.poll(_POLL_S, max_records=min(5_000, wanted - read))
                if not records and _is_at(consumer, ends):
                    break
                if records and first is None:
                    first = time.monotonic()
                read += len(records)
                size += sum(len(record.value or b"") + len(record.key or b"") for record in records)
                seconds = max(time.monotonic() - began, 1e-6)
                bar.update(bar.task_ids[0], completed=read, count=read, rate=f"{size / seconds / MEBIBYTE:,.1f} MiB/s")
        seconds = max(time.monotonic() - began, 1e-6)
    result = {
        "records": read,
        "seconds": round(seconds, 3),
        "records_per_second": round(read / seconds),
        "mebibytes_per_second": round(size / seconds / MEBIBYTE, 2),
        "first_record_after_ms": None if first is None else round((first - began) * 1000, 1),
    }
    _report(result, as_json=as_json)
    ended()


def _is_at(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    """Whether all that the consumer reads has been read: not every offset has a record that a consumer gets."""
    reads = consumer.assignment()
    return bool(reads) and all(consumer.position(partition) >= ends[partition] for partition in reads)


@perf.command()
@cluster
@click.argument("topic", required=False, shell_complete=complete_topic)
@_count(1_000)
@click.option("-s", "--size", type=click.IntRange(1), default=100, show_default=True, help="Bytes per record.")
@click.option(
    "--acks", type=click.Choice(["all", "1"]), default="all", help="Acknowledgements to wait for (default: all)."
)
@_create
@as_json
def latency(
    bootstrap: str,
    client: tuple[str, ...],
    topic: str | None,
    count: int,
    size: int,
    acks: str,
    create: bool,
    as_json: bool,
) -> None:
    """Measure how long one record at a time takes from a producer to a consumer.

    Without TOPIC, it creates a topic with one partition and deletes it at the end.
    """
    from ottla.cli import screen
    from ottla.cli.records.write import ensure_topic
    from ottla.client.settings.reference import CLIENTS

    settings, given = never_creating(client_settings(bootstrap, client)), pairs(client, "-X")
    usual = {name: value for name, value in (("linger.ms", 0), ("acks", acks)) if name not in given}
    reads, writes = settings_of("consumer", settings), settings_of("producer", settings | usual)
    CLIENTS["producer"].read(writes, {})  # before --create: invalid settings leave no topic behind
    if topic is not None:
        ensure_topic(bootstrap, client, topic, create=create)
    with admin(bootstrap, client) as ask:
        own = topic is None
        name = topic or f"ottla-perf-{uuid4().hex[:8]}"
        if own:
            ask.create_topic(name, 1)
        try:
            with screen.progress(name, count) as bar:
                latencies, total_ns, most_ns, ended = _round_trips(reads, writes, name, count, size, bar)
        finally:
            if own:
                ask.delete_topic(name)
    mean_ms = total_ns / max(latencies.seen, 1) / 1e6
    result = {"records": latencies.seen, "latency_ms": _spread(latencies, 1e6, mean_ms, most_ns / 1e6)}
    _report(result, as_json=as_json)
    ended()


def _round_trips(
    reads: dict[str, object], writes: dict[str, object], topic: str, count: int, size: int, bar: Any
) -> tuple[Latencies, int, int, Callable[[], None]]:
    from ottla.client import Consumer, Producer, TopicPartition

    latencies, total_ns, most_ns = Latencies(count), 0, 0
    payload = b"x" * size
    with Consumer(reads) as consumer, Producer(writes) as producer:
        partitions = [TopicPartition(topic, index) for index in consumer.partitions_for(topic)]
        consumer.assign(partitions)
        consumer.seek_to_end(partitions)
        for partition in partitions:
            consumer.position(partition)
        with _until_interrupted() as ended:
            for number in range(count):
                began = time.perf_counter_ns()
                producer.send(topic, payload).result()
                if not consumer.poll(30.0):
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the record did not come back within 30 s")
                elapsed_ns = time.perf_counter_ns() - began
                latencies.add(elapsed_ns)
                total_ns += elapsed_ns
                most_ns = max(most_ns, elapsed_ns)
                if number % 20 == 0:
                    bar.update(bar.task_ids[0], completed=number, count=number, rate=f"{elapsed_ns / 1e6:.2f} ms")
    return latencies, total_ns, most_ns, ended


def _report(result: dict[str, Any], *, as_json: bool) -> None:
    from ottla.cli import screen

    if as_json:
        screen.document(result)
        return
    rows: list[tuple[str, object]] = []
    for name, value in result.items():
        if isinstance(value, dict):
            rows += [
                (f"{name.removesuffix('_ms').replace('_', ' ')} {share}", f"{latency:,} ms")
                for share, latency in value.items()
            ]
        elif value is not None:
            unit = {"seconds": " s", "first_record_after_ms": " ms", "mebibytes_per_second": " MiB/s"}.get(name, "")
            rows.append((_LABELS[name], f"{value:,}{unit}"))
    if screen.on_terminal():
        screen.table([screen.Column("", "dim"), screen.Column("", numeric=True)], rows, headless=True)
    else:
        for label, value in rows:
            click.echo(f"{label}\t{value}")


_LABELS = {
    "records": "records",
    "seconds": "time",
    "records_per_second": "records a second",
    "mebibytes_per_second": "throughput",
    "first_record_after_ms": "first record after",
}
