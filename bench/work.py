"""The works: from a started system to figures. A work checks that no record is missing; none fails for being slow.

Works of one system run in the order of `WORKS`. A reading work reads what an earlier work wrote; if that work was not
selected, it writes the records first, uncounted.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.system import System, settle

Figures = dict[str, float]

#: The topics of the consuming works: name, bytes per record, producer settings.
SMALL = "small-6"
BIG = "big-6"
LIBRDKAFKA = "librdkafka-6"
PARTITIONS = 6
BIG_BATCHES = ("batch.size=131072", "acks=all")
FLUSHED: Mapping[str, str] = {"flush.messages": "1"}


@dataclass(frozen=True)
class Size:
    """The amount of each work."""

    small_records: int
    big_records: int
    librdkafka_records: int
    #: of 1 KiB, with each batch on the disk before it is acknowledged
    flushed_records: int
    #: one at a time, so at most a few per millisecond
    end_to_end_records: int
    #: written before the first work, so that compiled code is warm
    warmup_records: int
    seconds: float
    latency_s: float
    latency_warmup_s: float
    partitions: int


#: About 100 seconds per system on two cores, so 12 minutes for three rounds of both.
FULL = Size(2_000_000, 400_000, 600_000, 40_000, 2_000, 400_000, 5.0, 8.0, 2.0, 1_000)
#: Only checks that everything runs.
QUICK = Size(5_000, 1_000, 5_000, 500, 20, 0, 0.3, 0.5, 0.1, 50)


@dataclass(frozen=True)
class Work:
    """A work, with its row in the table."""

    name: str
    title: str
    run: Callable[[System, Size], Figures]
    #: whether a fresh server gives another figure than a used one
    warm: bool = True
    #: whether it runs in the first round only, because its preparation takes long
    once: bool = False


# ---------------------------------------------------------------------------------------------------- starts


def cold_start(system: System, size: Size) -> Figures:
    """The time measured at the system's start."""
    return {"cold_start_ms": system.cold_start_ms}


def format_and_start(system: System, size: Size) -> Figures:
    """The time of the two commands, format and start."""
    return {"cold_start_ms": system.format_ms + system.cold_start_ms}


def many_partitions(system: System, size: Size) -> Figures:
    """Restart the system with many partitions; its last work.

    Creating that many partitions and stopping cleanly takes thousands of flushes in either system, and is not measured.
    """
    topic = system.topic("many", size.partitions)
    return {"start_ms": system.restart_ms(topic, size.partitions)}


# ---------------------------------------------------------------------------------------------------- Kafka's own tools


def warm_up(system: System, size: Size) -> None:
    """Let code compile and the first record's objects be created. Not counted."""
    if size.warmup_records:
        java_produce(system, system.topic("warm-up", PARTITIONS), size.warmup_records, 100)
    settle()


def java_produce(system: System, topic: str, records: int, record_bytes: int, *settings: str) -> Figures:
    """ProducerPerformance without a rate limit."""
    said = system.tool(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes), "--throughput", "-1"),
        *("--bootstrap-server", system.bootstrap),
        *(("--command-property", *settings) if settings else ()),
    )
    # The last line: N records sent, R records/sec (M MB/sec), A ms avg latency, ..., B ms 99th, C ms 99.9th.
    last = re.findall(r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\)", said)[-1]
    if int(last[0]) != records:
        raise RuntimeError(f"{last[0]} of {records} records sent")
    system.written[topic] = system.written.get(topic, 0) + records
    return {"records": records, "records_per_s": float(last[1]), "mib_per_s": float(last[2])}


def java_consume(system: System, topic: str) -> Figures:
    """Read a whole topic with a new group. `total_per_s` includes joining the group, `records_per_s` does not."""
    records = system.written[topic]
    said = system.tool(
        "ConsumerPerformance",
        *("--topic", topic, "--num-records", str(records), "--bootstrap-server", system.bootstrap),
        *("--timeout", "60000", "--hide-header"),
    )
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
    row = [cell.strip() for cell in said.strip().splitlines()[-1].split(",")]
    if int(row[4]) < records:
        raise RuntimeError(f"{row[4]} of {records} records read")
    return {
        "records": int(row[4]),
        "records_per_s": float(row[9]),
        "mib_per_s": float(row[8]),
        "total_per_s": float(row[5]),
        "rebalance_ms": float(row[6]),
    }


def produce_one_partition(system: System, size: Size) -> Figures:
    """Small records into one log."""
    return java_produce(system, system.topic("small-1", 1), size.small_records, 100)


def produce_six_partitions(system: System, size: Size) -> Figures:
    """Small records into six logs."""
    return java_produce(system, system.topic(SMALL, PARTITIONS), size.small_records, 100)


def produce_big(system: System, size: Size) -> Figures:
    """Records of 1 KiB in batches of 128 KiB."""
    return java_produce(system, system.topic(BIG, PARTITIONS), size.big_records, 1024, *BIG_BATCHES)


def produce_flushed(system: System, size: Size) -> Figures:
    """Records of which every batch is on the disk before it is acknowledged."""
    topic = system.topic("flushed-6", PARTITIONS, FLUSHED)
    return java_produce(system, topic, size.flushed_records, 1024)


def consume_small(system: System, size: Size) -> Figures:
    """Read the records of `produce_six_partitions`."""
    if not system.written.get(SMALL):
        produce_six_partitions(system, size)
    return java_consume(system, SMALL)


def consume_big(system: System, size: Size) -> Figures:
    """Read the records of `produce_big`."""
    if not system.written.get(BIG):
        produce_big(system, size)
    return java_consume(system, BIG)


def end_to_end(system: System, size: Size) -> Figures:
    """EndToEndLatency: send one record, poll until it arrives."""
    said = system.tool(
        "EndToEndLatency",
        *("--bootstrap-server", system.bootstrap, "--topic", system.topic("end-to-end", 1)),
        *("--num-records", str(size.end_to_end_records), "--producer-acks", "all", "--record-size", "100"),
    )
    average = re.search(r"Avg latency: ([\d.]+) ms", said)
    found = re.search(r"50th = (\d+), 99th = (\d+), 99\.9th = (\d+)", said)
    if not average or not found:
        raise RuntimeError(f"EndToEndLatency says no percentiles: {said[-500:]}")
    # Its percentiles are whole milliseconds, too coarse for times below one; the mean is finer.
    return {
        "records": size.end_to_end_records,
        "mean_ms": float(average[1]),
        "p50_whole_ms": float(found[1]),
        "p99_whole_ms": float(found[2]),
        "p999_whole_ms": float(found[3]),
    }


# ---------------------------------------------------------------------------------------------------- librdkafka


def produce_librdkafka(system: System, size: Size) -> Figures:
    """Small records into six logs, through confluent-kafka."""
    topic = system.topic(LIBRDKAFKA, PARTITIONS)
    records = size.librdkafka_records
    figures = _json(system.program("bench.librdkafka", "produce", system.bootstrap, topic, str(records), "100"))
    system.written[topic] = system.written.get(topic, 0) + records
    return figures


def consume_librdkafka(system: System, size: Size) -> Figures:
    """Read the records of `produce_librdkafka`."""
    if not system.written.get(LIBRDKAFKA):
        produce_librdkafka(system, size)
    records = str(system.written[LIBRDKAFKA])
    return _json(system.program("bench.librdkafka", "consume", system.bootstrap, LIBRDKAFKA, records))


# ---------------------------------------------------------------------------------------------------- our own load


def _requests(system: System, topic: str, size: Size) -> Figures:
    numbers = (str(PARTITIONS), "50", str(size.seconds))
    return _json(system.program("bench.load", "requests", str(system.port), topic, *numbers))


def one_record_a_request(system: System, size: Size) -> Figures:
    """Requests of one record on many connections."""
    return _requests(system, system.topic("requests", PARTITIONS), size)


def one_record_a_request_flushed(system: System, size: Size) -> Figures:
    """Requests of one record that wait for the disk: here many requests can share a flush."""
    return _requests(system, system.topic("requests-flushed", PARTITIONS, FLUSHED), size)


def ack_latency(rate: int) -> Callable[[System, Size], Figures]:
    """Ack latencies at `rate` records per second."""

    def run(system: System, size: Size) -> Figures:
        settle()
        topic = system.topic(f"latency-{rate}", PARTITIONS)
        numbers = (str(PARTITIONS), str(rate), str(size.latency_s), str(size.latency_warmup_s))
        return _json(system.program("bench.load", "latency", str(system.port), topic, *numbers))

    return run


# ---------------------------------------------------------------------------------------------------- memory


def memory_idle(system: System, size: Size) -> Figures:
    """Resident memory a second after the first record."""
    return {"memory_bytes": system.idle_bytes}


def memory_loaded(system: System, size: Size) -> Figures:
    """The peak resident memory during the works before this one."""
    if not system.written.get(SMALL):
        produce_six_partitions(system, size)
    return {"memory_bytes": system.peak_bytes()}


def _json(said: str) -> Figures:
    figures: Figures = json.loads(said.strip().splitlines()[-1])
    return figures


WORKS = (
    Work("cold-start", "Cold start, empty formatted directory, to the first acknowledged record", cold_start, False),
    Work("format-start", "Format by its own command, and cold start", format_and_start, False),
    Work("memory-idle", "Memory, idle", memory_idle, False),
    Work("produce-100B-1", "Produce 100 B, client defaults, 1 partition (Java)", produce_one_partition),
    Work("produce-100B-6", "Produce 100 B, client defaults, 6 partitions (Java)", produce_six_partitions),
    Work("produce-1KiB", "Produce 1 KiB, batch.size=131072, acks=all, 6 partitions (Java)", produce_big),
    Work("produce-librdkafka", "Produce 100 B, client defaults, 6 partitions (librdkafka)", produce_librdkafka),
    Work("requests", "Produce one record a request, 50 connections", one_record_a_request),
    Work("produce-flushed", "Produce 1 KiB, flush.messages=1, 6 partitions (Java)", produce_flushed),
    Work("requests-flushed", "One record a request, 50 connections, flush.messages=1", one_record_a_request_flushed),
    Work("consume-100B", "Consume 100 B from the start (Java)", consume_small),
    Work("consume-1KiB", "Consume 1 KiB from the start (Java)", consume_big),
    Work("consume-librdkafka", "Consume 100 B from the start (librdkafka)", consume_librdkafka),
    Work("ack-5000", "Ack latency at 5,000 records/s of 1 KiB", ack_latency(5_000)),
    Work("ack-20000", "Ack latency at 20,000 records/s of 1 KiB", ack_latency(20_000)),
    Work("end-to-end", "From send to read, one record at a time (Java)", end_to_end),
    Work("memory-loaded", "Memory, most under load", memory_loaded),
    Work(
        "many-partitions",
        "Start with {partitions:,} partitions, until all have acknowledged",
        many_partitions,
        warm=False,
        once=True,
    ),
)
