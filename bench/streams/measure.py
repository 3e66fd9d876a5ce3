"""The measurements of a system and program: a rate, latencies, the time to recover from a loss of state."""

import subprocess
import sys
import tempfile
import threading
import time
from statistics import quantiles
from typing import Any

from bench import ROOT, SCRATCH
from bench.streams.system import PARTITIONS, Place, done, memory_mb, running, until
from ottla.client import Admin, Consumer, Producer, TopicPartition

#: The rate is measured between these shares of the results, which excludes the start and the last commit.
FIRST, LAST = 0.2, 0.95


def rate(system: str, place: Place, records: int, settings: tuple[str, ...] = ()) -> dict[str, float]:
    """Results per second, and the memory used. The input exists before the program starts."""
    if system == "pyspark":
        return {"rate": _by_hand(place, records)}
    with Admin(place.servers) as admin, running(system, place, settings) as process:
        first = until(admin, place.output, 1, process)
        begun = until(admin, place.output, int(records * FIRST), process)
        have = done(admin, place.output)
        begun = max(begun, first)
        last = until(admin, place.output, int(records * LAST), process)
        had = done(admin, place.output)
        return {"rate": (had - have) / max(last - begun, 1e-6), "memory_mb": memory_mb(process.pid)}


def _by_hand(place: Place, records: int) -> float:
    with tempfile.TemporaryDirectory(prefix="streams-", dir=SCRATCH) as checkpoint:
        words = [place.servers, place.program, checkpoint, place.source, place.other, place.output, str(records)]
        told = subprocess.run(
            [sys.executable, "-m", "bench.streams.spark", *words], cwd=ROOT, capture_output=True, text=True, timeout=900
        )
    lines = [line for line in told.stdout.splitlines() if line.startswith("rate ")]
    if not lines:
        raise RuntimeError(f"PySpark gave no rate: {told.stderr[-2000:]}")
    return float(lines[0].split()[1])


def latency(
    system: str, place: Place, per_second: int, seconds: float, settings: tuple[str, ...] = ()
) -> dict[str, float]:
    """The latency from the time in a record's header, set when it is sent, to its result at a read_committed consumer,
    in ms.

    The records due are sent every 10 ms; the first third is not counted.
    """
    waits: list[tuple[float, float]] = []
    with Admin(place.servers) as admin, running(system, place, settings) as process:
        with Producer(place.servers, linger_ms=0) as producer:
            producer.send(place.source, b"value-warm", b"key", headers=_sent()).result()
            until(admin, place.output, 1, process)
            stop = threading.Event()
            reader = threading.Thread(target=_read, args=(place, waits, stop))
            reader.start()
            began, sent = time.monotonic(), 0
            while (passed := time.monotonic() - began) < seconds:
                due = int(passed * per_second) - sent
                for number in range(sent, sent + due):
                    producer.send(place.source, b"value-%d" % number, b"key-%d" % (number % 1000), headers=_sent())
                sent += due
                time.sleep(max(0.0, 0.01 - (time.monotonic() - began - passed)))
            producer.flush()
        time.sleep(2)
        stop.set()
        reader.join()
    from_then = min(at for at, _ in waits) + seconds / 3 if waits else 0
    found = [wait for at, wait in waits if at >= from_then]
    cuts = quantiles(found, n=100)
    return {"p50_ms": cuts[49], "p99_ms": cuts[98], "received": len(waits) / max(1, sent)}


def _read(place: Place, waits: list[tuple[float, float]], stop: threading.Event) -> None:
    reading: dict[str, Any] = {"isolation_level": "read_committed", "auto_offset_reset": "latest"}
    with Consumer(place.servers, **reading) as consumer:
        consumer.assign([TopicPartition(place.output, number) for number in range(PARTITIONS)])
        while not stop.is_set():
            records = consumer.poll(0.1)
            now = time.time() * 1000
            waits += [(time.monotonic(), now - float(each.headers[0][1] or 0)) for each in records]


def recovery(system: str, place: Place, records: int, settings: tuple[str, ...] = ()) -> dict[str, float]:
    """Seconds from the start of a program that has lost its local state to its first new result."""
    with Admin(place.servers) as admin:
        with running(system, place, settings) as process:
            until(admin, place.output, records, process)
        time.sleep(1)
        before = done(admin, place.output)
        with Producer(place.servers) as producer:
            for partition in range(PARTITIONS):
                producer.send(
                    place.source, b"value-new", b"key-%d" % partition, partition=partition, timestamp=_now()
                ).result()
        began = time.monotonic()
        with running(system, place, settings) as process:
            return {"seconds": until(admin, place.output, before + 1, process) - began}


def _sent() -> list[tuple[str, bytes]]:
    # Not the timestamp, which the outputs of real-time mode do not keep.
    return [("sent", b"%.3f" % (time.time() * 1000))]


def _now() -> int:
    return time.time_ns() // 1_000_000
