"""`make bench-cluster`: three nodes of Ottla beside three of Apache Kafka, replication factor 3, acks=all, two in sync.

    python -m bench.cluster [--quick | --short] [--rounds 3] [--voters 3] [--only ottla] [--work rest]

`--short` is one round of a third of the work, about six minutes on an idle machine; `--work` selects works. Rounds
alternate between the two systems, each in empty directories on this machine. The load is librdkafka with its defaults
and the generator of `bench/load.py`. A complete run and a short one write bench/results/cluster.md.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import ROOT, SCRATCH
from bench.follower import fetch_us
from bench.report import facts
from bench.system import JVM, LOGGING, SERVER_HEAP, memory_bytes, run, settle
from ottla.client import Admin, KafkaError, NewTopic, Producer, TopicPartition
from ottla.kernel.error import OttlaError
from ottla.settings.properties import write
from tests.interop.server import free_ports
from tests.node_processes import NodeProcesses

RESULTS = ROOT / "bench" / "results" / "cluster.md"
SYSTEMS = ("apache", "ottla")
_CLUSTER_ID = "Ottla-Bench-Cluster-01"
_NODES = 3
_SESSION_S = 9.0
_START_S = 300.0
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
    """The amount of work."""

    small_records: int = 1_500_000
    large_records: int = 400_000
    latency_s: float = 15.0
    #: A closed loop before it: a young JVM answers slower than the requests come, and its acks are those of a backlog.
    warmup_s: float = 60.0
    partitions_at_rest: int = 1000
    rest_s: float = 20.0
    #: Records of 1 KiB that a new replica must copy.
    behind_records: int = 400_000
    partitions_fetched: int = 1000
    fetches: int = 5000


QUICK = Size(100_000, 30_000, 3.0, 1.0, 60, 3.0, 20_000, 50, 200)
SHORT = Size(500_000, 150_000, 8.0, 45.0, 1000, 10.0, 200_000, 1000, 2000)


@dataclass
class ClusterSystem:
    """Three nodes of one kind. The creator must call `stop`."""

    kind: str
    directory: Path
    voters: int
    ports: list[int] = field(default_factory=list)
    processes: NodeProcesses = field(init=False)

    def __post_init__(self) -> None:
        self.processes = NodeProcesses(self.directory, (*SERVER_HEAP, *JVM, LOGGING))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{each}" for each in self.ports)

    def format(self) -> None:
        """Write each node's file and format its directory."""
        ports = free_ports(2 * _NODES)
        self.ports, controllers = ports[:_NODES], ports[_NODES:]
        voters = ",".join(f"{n + 1}@127.0.0.1:{controllers[n]}" for n in range(self.voters))
        for index, port in enumerate(self.ports):
            home = self.processes.home(index + 1)
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
            self.processes.properties(index + 1).write_text(write({**_SETTINGS, **own}))
            self.processes.format(index + 1, self.kind, _CLUSTER_ID)

    def until_topic(self, topic: str, partitions: int, nodes: list[int] | None = None) -> None:
        """Create a topic with three replicas; wait until all are in sync and each partition has accepted a record.

        `nodes`: the replicas of all its partitions, the first of which leads.
        """
        new = NewTopic(topic, partitions, _NODES)
        if nodes is not None:
            new = NewTopic(topic, assignments=dict.fromkeys(range(partitions), nodes))
        wanted = _NODES if nodes is None else len(nodes)
        until = time.monotonic() + _START_S
        while True:
            try:
                with Admin({"bootstrap.servers": self.bootstrap, "default.api.timeout.ms": 5000}) as admin:
                    with suppress(KafkaError):
                        admin.create_topics([new]).check()
                    described = admin.describe_topic(topic)
                if all(each.leader is not None and len(each.isr) == wanted for each in described.partitions):
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

    def controller(self) -> int:
        """The active controller."""
        with Admin(self.bootstrap) as admin:
            return admin.describe_quorum().leader_id

    def cpu_s(self) -> float:
        """User and system time of all nodes so far."""
        ticks = 0
        for pid in self.processes.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        return sum(memory_bytes(pid, "VmRSS") for pid in self.processes.pids())

    def said(self) -> str:
        return "\n".join(self.processes.tail(n + 1, 6) for n in range(_NODES))


def _pass(kind: str, voters: int, size: Size, works: Collection[str]) -> dict[str, float]:
    """The works on one system, from empty directories."""
    settle()
    SCRATCH.mkdir(parents=True, exist_ok=True)
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix=f"{kind}-", dir=SCRATCH, ignore_cleanup_errors=True) as directory:
        system = ClusterSystem(kind, Path(directory), voters)
        try:
            system.format()
            began = time.perf_counter()
            for node in range(1, _NODES + 1):
                system.processes.start(node, kind)
            system.until_topic("first", 1)
            found["start_s"] = time.perf_counter() - began
            for name, work in WORKS.items():
                if name in works and (name != "controller" or voters == _NODES):
                    work(system, found, size)
        finally:
            system.processes.stop_all()
    return found


def _produce(system: ClusterSystem, found: dict[str, float], size: Size) -> None:
    for records, record_bytes in ((size.small_records, 100), (size.large_records, 1024)):
        for partitions in (1, 6):
            _produced(system, found, records, record_bytes, partitions)


def _produced(system: ClusterSystem, found: dict[str, float], records: int, record_bytes: int, partitions: int) -> None:
    topic = f"produce-{record_bytes}-{partitions}"
    system.until_topic(topic, partitions)
    before = system.cpu_s()
    program = [sys.executable, "-m", "bench.librdkafka", "produce", system.bootstrap, topic]
    figures = json.loads(run([*program, str(records), str(record_bytes)]))
    name = f"produce {record_bytes} B, {partitions} partition{'s' * (partitions != 1)}"
    found[f"{name}: records/s"] = figures["records_per_s"]
    found[f"{name}: broker CPU s/MiB"] = (system.cpu_s() - before) / (records * record_bytes / _MIB)


def _latency(system: ClusterSystem, found: dict[str, float], size: Size) -> None:
    for rate in (5_000, 20_000):
        topic = f"pace-{rate}"
        system.until_topic(topic, 1)
        port = str(system.ports[system.leader_of(topic) - 1])
        load = [sys.executable, "-m", "bench.load"]
        run([*load, "requests", port, topic, "1", "4", str(size.warmup_s)])
        figures = json.loads(run([*load, "latency", port, topic, "1", str(rate), str(size.latency_s), "2"]))
        for what in ("p50_ms", "p99_ms"):
            found[f"acks at {rate:,}/s: {what}"] = figures[what]


def _at_rest(system: ClusterSystem, found: dict[str, float], size: Size) -> None:
    """Measure a node's CPU with many idle partitions, a thousand per topic: Apache's controller accepts at most 10,000
    records at once.
    """
    for first in range(0, size.partitions_at_rest, 1000):
        system.until_topic(f"rest-{first}", min(1000, size.partitions_at_rest - first))
    time.sleep(2)
    before, began = system.cpu_s(), time.perf_counter()
    time.sleep(size.rest_s)
    share = (system.cpu_s() - before) / (time.perf_counter() - began) / _NODES
    found[f"at rest, {size.partitions_at_rest:,} partitions: % of a core a node"] = 100 * share
    found["memory_mib"] = system.memory() / _MIB


def _catch_up(system: ClusterSystem, found: dict[str, float], size: Size) -> None:
    """Add a third replica to a partition with many records of 1 KiB."""
    records = size.behind_records
    system.until_topic("behind", 1, [1, 2])
    run([sys.executable, "-m", "bench.librdkafka", "produce", system.bootstrap, "behind", str(records), "1024"])
    behind = TopicPartition("behind", 0)
    with Admin(system.bootstrap) as admin:
        began = time.perf_counter()
        admin.alter_partition_reassignments({behind: [1, 2, 3]}).check()
        while admin.list_partition_reassignments():
            if time.perf_counter() - began > _START_S:
                raise RuntimeError(f"{system.kind}: the third replica does not come into sync\n{system.said()}")
            time.sleep(_LOOK_S)
        found["a new replica catches up: MiB/s"] = records / 1024 / (time.perf_counter() - began)


@contextmanager
def _led(system: ClusterSystem, topic: str) -> Iterator[tuple[int, Producer]]:
    """A node that leads a new topic and is not the active controller, with a producer whose first record it accepted.

    At the end the node is restarted, and has caught up.
    """
    controller = system.controller()
    node = next(each for each in range(1, 1 + _NODES) if each != controller)
    others = [each for each in range(1, 1 + _NODES) if each != node]
    system.until_topic(topic, 1, [node, *others])
    with Producer(system.bootstrap, acks="all", linger_ms=0, retry_backoff_ms=10) as producer:
        producer.send(topic, b"before").result(30)
        yield node, producer
    system.processes.start(node, system.kind)
    system.until_topic(topic, 1)


def _fetch(system: ClusterSystem, found: dict[str, float], size: Size) -> None:
    """Measure a follower's fetch with one of many partitions changed; the bench is the follower (bench/follower.py)."""
    partitions, controller = size.partitions_fetched, system.controller()
    leader, follower = (each for each in range(1, 1 + _NODES) if each != controller)
    system.until_topic("followed", partitions, [leader, follower])
    system.until_topic("beside", partitions, [leader, follower])
    pid = system.processes.pid(leader)
    system.processes.kill(follower)
    cost = fetch_us(system.ports[leader - 1], pid, follower, "followed", partitions, "beside", size.fetches)
    found[f"a follower's fetch, 1 of {partitions:,} partitions changed: leader's CPU, us"] = cost
    system.processes.start(follower, system.kind)
    system.until_topic("followed", partitions, [leader, follower])


def _shutdown(system: ClusterSystem, found: dict[str, float], size: Size) -> None:
    """Stop a leader by SIGTERM, with a producer that has one record in flight at a time, and restart it."""
    with _led(system, "stopped") as (node, producer):
        began = last = time.perf_counter()
        longest = 0.0
        system.processes.signal(node, signal.SIGTERM)
        while system.processes.runs(node):
            producer.send("stopped", b"x").result(60)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
            if now - began > _STOP_S:
                raise RuntimeError(f"{system.kind}: node {node} does not stop\n{system.said()}")
    found["controlled shutdown of a leader: s"] = last - began
    found["controlled shutdown: longest wait for an ack, ms"] = 1000 * longest


def _failover(system: ClusterSystem, found: dict[str, float], size: Size) -> None:
    """Measure from kill -9 of a leader to the first acknowledged record, minus the session timeout."""
    with _led(system, "failover") as (node, producer):
        began = time.perf_counter()
        system.processes.kill(node)
        producer.send("failover", b"after").result(60)
        found["failover less session: s"] = time.perf_counter() - began - _SESSION_S


def _controller_failover(system: ClusterSystem, found: dict[str, float], size: Size) -> None:
    """Measure from kill -9 of the active controller to the first created topic, beside the idle partitions."""
    node, partitions = system.controller(), size.partitions_at_rest
    with Admin({"bootstrap.servers": system.bootstrap, "default.api.timeout.ms": 60_000}) as admin:
        admin.list_topics()
        began = time.perf_counter()
        system.processes.kill(node)
        admin.create_topics([NewTopic("changed", 1, 2)]).check()
        found[f"controller failover to a new topic, {partitions:,} partitions: s"] = time.perf_counter() - began


#: In order; "controller" needs "rest", and ends with one node less.
WORKS: Mapping[str, Callable[[ClusterSystem, dict[str, float], Size], None]] = {
    "produce": _produce,
    "latency": _latency,
    "rest": _at_rest,
    "behind": _catch_up,
    "fetch": _fetch,
    "shutdown": _shutdown,
    "failover": _failover,
    "controller": _controller_failover,
}


def _table(rounds: Mapping[str, list[dict[str, float]]], what: str) -> str:
    names = list(dict.fromkeys(name for passes in rounds.values() for each in passes for name in each))
    lines = ["# Three nodes beside three of Apache Kafka", ""]
    said = facts()
    lines += [", ".join(f"{key} {value}" for key, value in said.items()), ""]
    counted = ", ".join(f"{kind} {len(passes)}" for kind, passes in rounds.items())
    lines += [f"Medians of alternating rounds ({counted}){what}.", ""]
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
    """Run the rounds; the table goes to stdout, and for a complete run to bench/results."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster")
    parser.add_argument("--quick", action="store_true", help="run with tiny counts, to check that it works")
    parser.add_argument("--short", action="store_true", help="one round of a third of the work")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--voters", type=int, default=3)
    parser.add_argument("--only", choices=SYSTEMS)
    parser.add_argument("--work", action="append", choices=WORKS, help="run only this work (repeatable)")
    parser.add_argument("--partitions", type=int, metavar="N", help="number of idle partitions")
    asked = parser.parse_args()
    logging.getLogger("ottla").setLevel(logging.ERROR)
    size = QUICK if asked.quick else SHORT if asked.short else Size()
    if asked.partitions:
        size = replace(size, partitions_at_rest=asked.partitions)
    kinds = [asked.only] if asked.only else list(SYSTEMS)
    rounds: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    failures = []
    for number in range(asked.rounds or (1 if asked.quick or asked.short else 3)):
        for kind in kinds if number % 2 == 0 else kinds[::-1]:
            try:
                rounds[kind].append(_pass(kind, asked.voters, size, asked.work or WORKS))
            except (OSError, RuntimeError, AssertionError, OttlaError, KafkaError) as error:
                failures.append(f"round {number + 1}, {kind}: {error}")
    what = "; a quick run, of no weight" if asked.quick else "; a third of the work" if asked.short else ""
    text = _table(rounds, what)
    print(text)
    if not (asked.quick or asked.only or asked.work or asked.partitions or failures):
        RESULTS.write_text(text)
    for each in failures:
        print(f"bench: {each}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
