"""The time until a node serves: `python -m bench.start [ROUNDS]`.

- cold: a new interpreter that only starts `ottla.Node()`; the process's CPU time beside the wall time.
- acknowledged: `ottla start` in a formatted directory, from its exec until a client that connects as soon as the port
  listens has created a topic and got a record acknowledged. The goal is 150 ms on an idle machine.
- fresh: in a warm process a node, a topic, one record written and read by our client, stopped: the cost per test of a
  test suite with a fresh node for each test.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ottla
from bench import SCRATCH, raw
from bench.system import START_TIMEOUT_S, System
from ottla.client import Consumer, Producer, TopicPartition

COLD = "import os, ottla; ottla.Node().start(); os._exit(0)"
BARE = "import os; os._exit(0)"


def cold(program: str, rounds: int) -> tuple[float, float]:
    """Medians of wall and CPU milliseconds of a program."""
    walls, cpus = [], []
    # Keep compiled modules, as in an installation.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(rounds):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        walls.append(time.perf_counter() - began)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return 1000 * statistics.median(walls), 1000 * statistics.median(cpus)


def acknowledged(rounds: int) -> tuple[float, float]:
    """Medians of wall and CPU milliseconds of a node's process until it has acknowledged its first record."""
    walls, cpus = [], []
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="start-", dir=SCRATCH) as directory:
            system = System("ottla", Path(directory))
            system.server.format()
            began = time.perf_counter()
            system.server.launch()
            try:
                raw.until_acknowledged(system.port, "first-record", 1, create=True, within_s=START_TIMEOUT_S)
                walls.append(time.perf_counter() - began)
                tasks = Path(f"/proc/{system.server.pid}/task").iterdir()
                cpus.append(sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9)
            finally:
                system.stop()
    return 1000 * statistics.median(walls), 1000 * statistics.median(cpus)


def fresh(with_clients: bool) -> None:
    """The node of one test."""
    with ottla.Node() as node:
        node.create_topic("t")
        if with_clients:
            with (
                Producer(node.bootstrap_servers, linger_ms=0) as producer,
                Consumer(node.bootstrap_servers, auto_offset_reset="earliest") as consumer,
            ):
                producer.send("t", b"v").result(60)
                consumer.assign([TopicPartition("t", 0)])
                while not consumer.poll(1):
                    pass


def warm(with_clients: bool, rounds: int) -> tuple[float, float]:
    """Wall and CPU milliseconds per node."""
    fresh(with_clients)
    cpu, began = time.process_time(), time.perf_counter()
    for _ in range(rounds):
        fresh(with_clients)
    return 1000 * (time.perf_counter() - began) / rounds, 1000 * (time.process_time() - cpu) / rounds


def main(rounds: int = 20) -> None:
    """Print the table."""
    print(f"{'':66}{'wall ms':>9}{'CPU ms':>9}")
    for name, (wall, cpu) in {
        "an interpreter that does nothing": cold(BARE, rounds),
        "a new interpreter, until ottla.Node() serves": cold(COLD, rounds),
        "ottla start, until the first record is acknowledged (goal 150 ms)": acknowledged(rounds),
        "a node and a topic, started and stopped": warm(False, 5 * rounds),
        "the same, a record written and read": warm(True, 5 * rounds),
    }.items():
        print(f"{name:66}{wall:9.1f}{cpu:9.1f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
