"""Starts a program on one of the systems, and reads its progress and memory."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bench import SCRATCH
from ottla.client import Admin, OffsetSpec, Producer, TopicPartition
from tests.interop import toolchain
from tests.interop.made import maven_jars

JAVA = Path(__file__).resolve().parent / "java"
SYSTEMS = ("ottla-python", "ottla-columns", "ottla-real-time", "kafka-streams", "pyspark")
PARTITIONS = 2
WAIT_S = 600.0


class Place(NamedTuple):
    """The topics and the name of one run."""

    servers: str
    program: str
    application_id: str
    source: str
    other: str
    output: str


def command(system: str, place: Place, state: str, settings: tuple[str, ...] = ()) -> list[str]:
    """The program's command."""
    if system == "kafka-streams":
        words = [place.servers, place.program, place.application_id, state, place.source, place.other, place.output]
        return [*kafka_streams(), *words, *settings]
    lane = system.removeprefix("ottla-")
    words = [place.servers, place.program, lane, *place[2:]]
    return [sys.executable, "-m", "bench.streams.programs", *words]


def kafka_streams() -> list[str]:
    """The command of the Java programs, with the compiler and the heap of a server."""
    jars = maven_jars("bench-streams-jars", JAVA / "pom.xml")
    made = toolchain.java_program("bench-streams", JAVA, f"{jars}/*", "Topologies")
    slow = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    return [made[0], "-Xmx1g", *(word for word in made[1:] if word not in slow)]


@contextmanager
def running(system: str, place: Place, settings: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """Run the program until its standard input ends."""
    with tempfile.TemporaryDirectory(prefix="streams-", dir=SCRATCH, ignore_cleanup_errors=True) as state:
        log = Path(state) / "log"
        with log.open("wb") as said:
            process = subprocess.Popen(
                command(system, place, state, settings), stdin=subprocess.PIPE, stdout=said, stderr=said
            )
            try:
                yield process
            except TimeoutError as error:
                raise TimeoutError(f"{error}: {log.read_text()[-2000:]}") from error
            finally:
                with suppress(BrokenPipeError):
                    assert process.stdin is not None
                    process.stdin.close()
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def done(admin: Admin, topic: str) -> int:
    """The number of committed records in a topic, including transaction markers."""
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found = admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST), read_committed=True)
    return sum(one.offset for one in found.values())


def until(admin: Admin, topic: str, count: int, process: subprocess.Popen[bytes]) -> float:
    """Wait until a topic holds `count` records; returns the time."""
    deadline = time.monotonic() + WAIT_S
    while done(admin, topic) < count:
        if process.poll() is not None:
            raise TimeoutError(f"the program ended with status {process.returncode}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} holds {done(admin, topic)} records after {WAIT_S:.0f} s (expected {count})")
        time.sleep(0.02)
    return time.monotonic()


def memory_mb(pid: int) -> int:
    """The peak resident memory of a process and its descendants, in MB."""
    total, left, parents = 0, [pid], _parents()
    while left:
        each = left.pop()
        with suppress(OSError):
            status = Path(f"/proc/{each}/status").read_text()
            total += int(status.split("VmHWM:")[1].split()[0]) if "VmHWM:" in status else 0
        left += parents.get(each, [])
    return total // 1024


def _parents() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                after = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                found.setdefault(int(after[1]), []).append(int(entry))
    return found


def create(admin: Admin, *topics: str) -> None:
    """Topics that keep everything."""
    for topic in topics:
        admin.create_topic(topic, PARTITIONS, 1, {"retention.ms": -1})


def fill(servers: str, topic: str, records: int, keys: int, *, step_ms: int = 1, first_ms: int = 1) -> None:
    """Write records `key-N` to `value-N` with increasing times, cycling through the keys."""
    import pyarrow as pa

    with Producer(servers) as producer:
        for start in range(0, records, 100_000):
            some = range(start, min(records, start + 100_000))
            table = {
                "key": [f"key-{number % keys:07d}" for number in some],
                "value": [f"value-{number:09d}" for number in some],
                "timestamp": [first_ms + number * step_ms for number in some],
            }
            producer.send_table(topic, pa.table(table), key="key", timestamp="timestamp")
