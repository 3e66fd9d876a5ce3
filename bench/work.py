"""The works: from a running system to figures. A work checks that every record came through."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from bench.system import System

Figures = dict[str, float]


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    small_records: int
    big_records: int
    librdkafka_records: int
    seconds: float
    warmup_s: float
    rate: int
    end_to_end_records: int


#: A few minutes on two cores for three rounds.
FULL = Size(2_000_000, 400_000, 500_000, 10.0, 5.0, 20_000, 2_000)
#: Only whether all of it runs.
QUICK = Size(20_000, 2_000, 5_000, 1.0, 0.5, 2_000, 50)


@dataclass(frozen=True)
class Work:
    """One work. Works of one system run in their order: some read what an earlier one wrote."""

    name: str
    title: str
    run: Callable[[System, Size], Figures]


def _java_produce(system: System, topic: str, records: int, record_bytes: int, *settings: str) -> Figures:
    said = system.tool(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes), "--throughput", "-1"),
        *("--bootstrap-server", system.bootstrap),
        *(("--command-property", *settings) if settings else ()),
    )
    # The last line: N records sent, R records/sec (M MB/sec), A ms avg latency, ..., B ms 99th, C ms 99.9th.
    last = re.findall(r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\)", said)[-1]
    assert int(last[0]) == records, f"{last[0]} of {records} records sent"
    return {"records_per_s": float(last[1]), "mib_per_s": float(last[2])}


def produce_one_partition(system: System, size: Size) -> Figures:
    """100 B, the client's defaults, one partition."""
    return _java_produce(system, system.topic("small-1", 1), size.small_records, 100)


def produce_six_partitions(system: System, size: Size) -> Figures:
    """100 B, the client's defaults, six partitions."""
    return _java_produce(system, system.topic("small-6", 6), size.small_records, 100)


def produce_big(system: System, size: Size) -> Figures:
    """1 KiB in batches of 128 KiB."""
    topic = system.topic("big-6", 6)
    return _java_produce(system, topic, size.big_records, 1024, "batch.size=131072", "acks=all", "linger.ms=5")


def produce_librdkafka(system: System, size: Size) -> Figures:
    """100 B, librdkafka's defaults, six partitions."""
    topic = system.topic("librdkafka-6", 6)
    records = str(size.librdkafka_records)
    return _json(system.program("bench.librdkafka", "produce", system.bootstrap, topic, records, "100"))


def one_record_a_request(system: System, size: Size) -> Figures:
    """One record a request on 50 connections."""
    topic = system.topic("requests-1", 1)
    return _json(system.program("bench.raw", "requests", str(system.server.port), topic, "50", str(size.seconds)))


def _java_consume(system: System, topic: str, records: int) -> Figures:
    said = system.tool(
        "ConsumerPerformance",
        *("--topic", topic, "--num-records", str(records), "--bootstrap-server", system.bootstrap),
        *("--timeout", "60000", "--hide-header"),
    )
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
    row = [cell.strip() for cell in said.strip().splitlines()[-1].split(",")]
    assert int(row[4]) >= records, f"{row[4]} of {records} records read"
    return {"records_per_s": float(row[9]), "mib_per_s": float(row[8])}


def consume_small(system: System, size: Size) -> Figures:
    """What `produce_six_partitions` wrote."""
    return _java_consume(system, "small-6", size.small_records)


def consume_big(system: System, size: Size) -> Figures:
    """What `produce_big` wrote."""
    return _java_consume(system, "big-6", size.big_records)


def consume_librdkafka(system: System, size: Size) -> Figures:
    """What `produce_librdkafka` wrote."""
    records = str(size.librdkafka_records)
    return _json(system.program("bench.librdkafka", "consume", system.bootstrap, "librdkafka-6", records))


def ack_latency(system: System, size: Size) -> Figures:
    """Open loop at a fixed rate."""
    topic = system.topic("latency-6", 6)
    numbers = (str(size.rate), str(size.seconds), str(size.warmup_s))
    return _json(system.program("bench.raw", "latency", str(system.server.port), topic, *numbers))


def end_to_end(system: System, size: Size) -> Figures:
    """One record at a time from a producer to a consumer."""
    topic = system.topic("end-to-end", 1)
    arguments = {
        "--bootstrap-server": system.bootstrap,
        "--topic": topic,
        "--num-records": str(size.end_to_end_records),
        "--producer-acks": "all",
        "--record-size": "100",
    }
    said = system.tool("EndToEndLatency", *(part for pair in arguments.items() for part in pair))
    found = re.search(r"50th = (\d+), 99th = (\d+), 99\.9th = (\d+)", said)
    assert found, said
    return {"p50_ms": float(found[1]), "p99_ms": float(found[2]), "p999_ms": float(found[3])}


def _json(said: str) -> Figures:
    figures: Figures = json.loads(said.strip().splitlines()[-1])
    return figures


WORKS = (
    Work("produce-100B-1", "produce, 100 B, default settings, 1 partition (Java)", produce_one_partition),
    Work("produce-100B-6", "produce, 100 B, default settings, 6 partitions (Java)", produce_six_partitions),
    Work("produce-1KiB", "produce, 1 KiB, batches of 128 KiB, acks=all (Java)", produce_big),
    Work("produce-librdkafka", "produce, 100 B, default settings, 6 partitions (librdkafka)", produce_librdkafka),
    Work("requests", "produce, one record a request, 50 connections", one_record_a_request),
    Work("consume-100B", "consume from the start, 100 B (Java)", consume_small),
    Work("consume-1KiB", "consume from the start, 1 KiB (Java)", consume_big),
    Work("consume-librdkafka", "consume from the start, 100 B (librdkafka)", consume_librdkafka),
    Work("ack-latency", "ack latency at a fixed rate, 1 KiB, acks=all, open loop", ack_latency),
    Work("end-to-end", "from send to read, one at a time, acks=all (Java)", end_to_end),
)
