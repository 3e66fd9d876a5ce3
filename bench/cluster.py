"""`make bench-cluster`: three nodes of Ottla beside three of Apache Kafka, replication factor 3, acks=all, two in sync.

    python -m bench.cluster [--quick] [--rounds 3] [--voters 3] [--only ottla]

Rounds alternate between the two systems, each in empty directories on this machine, one after the other. The load is
librdkafka with its defaults and the generator of `bench/load.py`. Written to bench/results/cluster.md by a whole run.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.report import facts
from bench.system import JVM, LOGGING, SERVER_HEAP, memory_bytes, run, settle
from ottla.client import Admin, KafkaError, NewTopic, Producer
from ottla.kernel.error import OttlaError
from ottla.settings.properties import write
from tests.interop import toolchain
from tests.interop.server import free_ports

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = ROOT / "build" / "bench"
RESULTS = ROOT / "bench" / "results" / "cluster.md"
SYSTEMS = ("apache", "ottla")
_CLUSTER_ID = "Ottla-Bench-Cluster-01"
_NODES = 3
_SESSION_S = 9.0
_START_S = 120.0
_STOP_S = 60.0
_LOOK_S = 0.002
_MIB = 1 << 20
_SETTINGS: Mapping[str, str] = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
}


@dataclass
class Size:
    """How much is done."""

    small_records: int = 1_500_000
    large_records: int = 400_000
    latency_s: float = 15.0
    partitions_at_rest: int = 1000
    rest_s: float = 20.0


QUICK = Size(100_000, 30_000, 3.0, 60, 3.0)


@dataclass
class ClusterSystem:
    """Three nodes of one kind. Who makes it calls `stop`."""

    kind: str
    directory: Path
    voters: int
    ports: list[int] = field(default_factory=list)
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{each}" for each in self.ports)

    def format(self) -> None:
        """Write each node's file and format its directory."""
        ports = free_ports(2 * _NODES)
        self.ports, controllers = ports[:_NODES], ports[_NODES:]
        voters = ",".join(f"{n + 1}@127.0.0.1:{controllers[n]}" for n in range(self.voters))
        for index, port in enumerate(self.ports):
            home = self.directory / f"node-{index + 1}"
            home.mkdir(parents=True)
            votes = index < self.voters
            own = {
                "process.roles": "broker,controller" if votes else "broker",
                "node.id": str(index + 1),
                "listeners": f"PLAINTEXT://127.0.0.1:{port}"
                + (f",CONTROLLER://127.0.0.1:{controllers[index]}" if votes else ""),
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "controller.quorum.voters": voters,
                "log.dirs": str(home / "data"),
            }
            (home / "server.properties").write_text(write({**_SETTINGS, **own}))
            storage = ["storage"] if self.kind == "ottla" else ["kafka.tools.StorageTool"]
            run([*self._program(), *storage, "format", "-t", _CLUSTER_ID, "-c", str(home / "server.properties")])

    def launch(self, node: int) -> None:
        """Start a node and return at once."""
        home = self.directory / f"node-{node}"
        start = ["start"] if self.kind == "ottla" else ["kafka.Kafka"]
        with (home / "output").open("ab") as said:
            command = [*self._program(), *start, str(home / "server.properties")]
            self.processes[node] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    def until_topic(self, topic: str, partitions: int) -> None:
        """Make a topic of three replicas and return when all are in sync and each partition took a record."""
        until = time.monotonic() + _START_S
        while True:
            try:
                with Admin({"bootstrap.servers": self.bootstrap, "default.api.timeout.ms": 5000}) as admin:
                    with suppress(KafkaError):
                        admin.create_topics([NewTopic(topic, partitions, _NODES)]).check()
                    described = admin.describe_topic(topic)
                if all(each.leader is not None and len(each.isr) == _NODES for each in described.partitions):
                    break
            except (OttlaError, KafkaError) as error:
                if time.monotonic() > until:
                    raise RuntimeError(f"{self.kind} does not serve: {error}\n{self.said()}") from error
            if time.monotonic() > until:
                raise RuntimeError(f"{self.kind}: {topic} is not in sync\n{self.said()}")
            time.sleep(_LOOK_S)
        with Producer(self.bootstrap, acks="all") as producer:
            for partition in range(partitions):
                producer.send(topic, b"first", partition=partition)
            producer.flush()

    def leader_of(self, topic: str) -> int:
        """The node that leads partition 0."""
        with Admin(self.bootstrap) as admin:
            leader = admin.describe_topic(topic).partitions[0].leader
        assert leader is not None
        return leader.id

    def cpu_s(self) -> float:
        """User and system time of all nodes so far."""
        ticks = 0
        for process in self.processes.values():
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        return sum(memory_bytes(process.pid, "VmRSS") for process in self.processes.values())

    def said(self) -> str:
        outputs = (self.directory / f"node-{n + 1}" / "output" for n in range(_NODES))
        return "\n".join("\n".join(each.read_text(errors="replace").splitlines()[-6:]) for each in outputs)

    def stop(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    def _program(self) -> list[str]:
        if self.kind == "ottla":
            return [sys.executable, "-m", "ottla.cli"]
        return ["java", *SERVER_HEAP, *JVM, LOGGING, "-cp", toolchain.classpath()]


def _pass(kind: str, voters: int, size: Size) -> dict[str, float]:
    """All works on one system, from empty directories."""
    settle()
    SCRATCH.mkdir(parents=True, exist_ok=True)
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix=f"{kind}-", dir=SCRATCH, ignore_cleanup_errors=True) as directory:
        system = ClusterSystem(kind, Path(directory), voters)
        try:
            system.format()
            began = time.perf_counter()
            for node in range(1, _NODES + 1):
                system.launch(node)
            system.until_topic("first", 1)
            found["start_s"] = time.perf_counter() - began
            for records, record_bytes, partitions in (
                (size.small_records, 100, 1),
                (size.small_records, 100, 6),
                (size.large_records, 1024, 1),
                (size.large_records, 1024, 6),
            ):
                _produce(system, found, records, record_bytes, partitions)
            for rate in (5_000, 20_000):
                _latency(system, found, rate, size.latency_s)
            _at_rest(system, found, size)
            found["memory_mib"] = system.memory() / _MIB
            _failover(system, found)
        finally:
            system.stop()
    return found


def _produce(system: ClusterSystem, found: dict[str, float], records: int, record_bytes: int, partitions: int) -> None:
    topic = f"produce-{record_bytes}-{partitions}"
    system.until_topic(topic, partitions)
    before = system.cpu_s()
    program = [sys.executable, "-m", "bench.librdkafka", "produce", system.bootstrap, topic]
    figures = json.loads(run([*program, str(records), str(record_bytes)]))
    name = f"produce {record_bytes} B, {partitions} partition{'s' * (partitions != 1)}"
    found[f"{name}: records/s"] = figures["records_per_s"]
    found[f"{name}: broker CPU s/MiB"] = (system.cpu_s() - before) / (records * record_bytes / _MIB)


def _latency(system: ClusterSystem, found: dict[str, float], rate: int, seconds: float) -> None:
    topic = f"pace-{rate}"
    system.until_topic(topic, 1)
    port = system.ports[system.leader_of(topic) - 1]
    program = [sys.executable, "-m", "bench.load", "latency", str(port), topic, "1", str(rate), str(seconds), "2"]
    figures = json.loads(run(program))
    for what in ("p50_ms", "p99_ms"):
        found[f"acks at {rate:,}/s: {what}"] = figures[what]


def _at_rest(system: ClusterSystem, found: dict[str, float], size: Size) -> None:
    """CPU of a node while nothing happens to many partitions."""
    system.until_topic("rest", size.partitions_at_rest)
    time.sleep(2)
    before, began = system.cpu_s(), time.perf_counter()
    time.sleep(size.rest_s)
    share = (system.cpu_s() - before) / (time.perf_counter() - began) / _NODES
    found[f"at rest, {size.partitions_at_rest:,} partitions: % of a core a node"] = 100 * share


def _failover(system: ClusterSystem, found: dict[str, float]) -> None:
    """From kill -9 of a leader to the first record that is acknowledged, less the session's timeout."""
    system.until_topic("failover", 1)
    node = system.leader_of("failover")
    with Producer(system.bootstrap, acks="all", linger_ms=0, retry_backoff_ms=10) as producer:
        producer.send("failover", b"before").result(30)
        process = system.processes.pop(node)
        began = time.perf_counter()
        process.kill()
        process.wait()
        producer.send("failover", b"after").result(60)
        found["failover less session: s"] = time.perf_counter() - began - _SESSION_S


def _table(rounds: Mapping[str, list[dict[str, float]]], quick: bool) -> str:
    names = list(dict.fromkeys(name for passes in rounds.values() for each in passes for name in each))
    lines = ["# Three nodes beside three of Apache Kafka", ""]
    said = facts()
    lines += [", ".join(f"{key} {value}" for key, value in said.items()), ""]
    counted = ", ".join(f"{kind} {len(passes)}" for kind, passes in rounds.items())
    lines += [f"Medians of alternating rounds ({counted}){'; a quick run, of no weight' if quick else ''}.", ""]
    lines += ["| work | Ottla | Apache Kafka | ratio |", "|---|---|---|---|"]
    for name in names:
        medians = {
            kind: statistics.median([each[name] for each in passes if name in each])
            for kind, passes in rounds.items()
            if any(name in each for each in passes)
        }
        ours, theirs = medians.get("ottla"), medians.get("apache")
        ratio = f"{ours / theirs:.2f}" if ours is not None and theirs else ""
        shown = [f"{each:,.4g}" if each is not None else "" for each in (ours, theirs)]
        lines.append(f"| {name} | {shown[0]} | {shown[1]} | {ratio} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the rounds; the table goes to stdout, and to bench/results from a whole run."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--voters", type=int, default=3)
    parser.add_argument("--only", choices=SYSTEMS)
    asked = parser.parse_args()
    logging.getLogger("ottla").setLevel(logging.ERROR)
    size = QUICK if asked.quick else Size()
    kinds = [asked.only] if asked.only else list(SYSTEMS)
    rounds: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    failures = []
    for number in range(asked.rounds or (1 if asked.quick else 3)):
        for kind in kinds if number % 2 == 0 else kinds[::-1]:
            try:
                rounds[kind].append(_pass(kind, asked.voters, size))
            except (OSError, RuntimeError, AssertionError, OttlaError, KafkaError) as error:
                failures.append(f"round {number + 1}, {kind}: {error}")
    text = _table(rounds, asked.quick)
    print(text)
    if not asked.quick and not asked.only and not failures:
        RESULTS.write_text(text)
    for each in failures:
        print(f"bench: {each}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
