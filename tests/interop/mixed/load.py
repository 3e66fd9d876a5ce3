"""Clients at work on a mixed cluster while a story happens to its nodes, and the judgement of what they were told.

Ours are the clients of the simulated world. The Java client's producer and consumer are Apache's own verifiable ones,
processes of their own, librdkafka's a thread (`Librdkafka`). What every client was told is held against the topic as a
client reads it at the end.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from ottla.client import Admin, NewTopic
from ottla.kernel.error import KafkaError
from ottla.sim.checker import SentRecord, WorkloadLedger, check
from ottla.sim.workload import PARTITIONS, consume, produce, read_all, read_commits
from tests.interop import toolchain
from tests.interop.mixed.nodes import MixedCluster, until

_GROUP = "group"
#: Of the Java producer, at its end.
_IN_FLIGHT_MAX = 2000


class Load:
    """Two producers and two members of a group on one topic, in a thread."""

    def __init__(self, servers: str, topic: str, *, seed: int = 1) -> None:
        self._servers = servers
        self.ledger = WorkloadLedger(topic)
        self._seed = seed
        self._going = True
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._going = False
        self._thread.join()
        if kind is None and self._failure is not None:
            raise self._failure

    def wait_for(self, count: int) -> None:
        """Until this many records more than now are acknowledged to our producers."""
        goal = self.ledger.acknowledged + count
        until(
            lambda: self._failure is not None or self.ledger.acknowledged >= goal,
            lambda: f"{self.ledger.acknowledged} acknowledged of {goal}",
        )
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:
            self._failure = error

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(2):
                rng = Random(f"{self._seed} {number}")
                group.create_task(produce(f"p{number}", self._servers, self.ledger, rng, self._is_going))
                group.create_task(consume(f"c{number}", _GROUP, self._servers, self.ledger, rng, self._is_going))

    def _is_going(self) -> bool:
        return self._going


def create(cluster: MixedCluster, name: str, **settings: str) -> None:
    """A topic of as many replicas as there are brokers, three at most; everybody has it and its leaders."""
    with Admin(cluster.bootstrap_servers) as ask:
        replicas = min(3, len(cluster.brokers()))
        until(lambda: len(ask.describe_cluster().nodes) == len(cluster.brokers()), "all brokers")
        ask.create_topics([NewTopic(name, PARTITIONS, replicas, configs=settings)]).check()
    until_whole(cluster, name)


def until_whole(cluster: MixedCluster, *topics: str) -> None:
    """Until every partition has a leader and all replicas in sync."""

    def behind() -> str:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as ask:
            try:
                found = ask.describe_topics(list(topics)).check()
            except KafkaError as error:
                return str(error)
        return " ".join(
            f"{name}-{each.partition}: {each.leader and each.leader.id} {[node.id for node in each.isr]}"
            for name, topic in found.items()
            for each in topic.partitions
            if each.leader is None or len(each.isr) < len(each.replicas)
        )

    until(lambda: not behind(), behind)


def judge(cluster: MixedCluster, ledger: WorkloadLedger) -> int:
    """Hold what the clients were told against what the topic holds; how many records were acknowledged."""
    until_whole(cluster, ledger.topic)
    logs = asyncio.run(read_all(cluster.bootstrap_servers, ledger.topic))
    check(ledger, logs, asyncio.run(read_commits(cluster.bootstrap_servers, _GROUP, ledger.topic)))
    return ledger.acknowledged


def led_by(cluster: MixedCluster, topic: str) -> dict[int, int]:
    """Partition to the node that leads it."""
    with Admin(cluster.bootstrap_servers) as ask:
        partitions = ask.describe_topic(topic).partitions
    return {each.partition: -1 if each.leader is None else each.leader.id for each in partitions}


class JavaClients:
    """Apache's verifiable producer, which is idempotent here, and its verifiable consumer, at work in `with`."""

    def __init__(self, servers: str, topic: str, directory: Path) -> None:
        directory.mkdir()
        self._topic = topic
        self._produced, self._consumed = directory / "producer", directory / "consumer"
        settings = directory / "producer.properties"
        settings.write_text(
            "enable.idempotence=true\nretries=2147483647\ndelivery.timeout.ms=60000\nrequest.timeout.ms=10000\n"
        )
        common = ["--bootstrap-server", servers, "--topic", topic]
        produce = ["--throughput", "20", "--acks", "-1", "--value-prefix", "7", "--command-config", str(settings)]
        consume = ["--group-id", "java", "--reset-policy", "earliest"]
        self._processes = [
            _java("VerifiableProducer", [*common, *produce], self._produced),
            _java("VerifiableConsumer", [*common, *consume], self._consumed),
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()

    def sent(self) -> list[SentRecord]:
        """What the producer was told, as our own producers note it. AssertionError when a request of either failed."""
        sent = []
        for event in _events(self._produced):
            assert event["name"] != "producer_send_error", event
            if event["name"] == "producer_send_success":
                number = int(event["value"].partition(".")[2])
                record = SentRecord("java", number, event["value"].encode())
                record.partition, record.offset = event["partition"], event["offset"]
                sent.append(record)
        known = {each.number for each in sent}
        assert known, f"the Java producer was told nothing: {self._produced.read_text(errors='replace')[-2000:]}"
        # Those that it had sent without an answer when it was told to end.
        unknown = set(range(max(known) + _IN_FLIGHT_MAX)) - known
        return sent + [SentRecord("java", each, b"7.%d" % each) for each in sorted(unknown)]

    def consumed(self) -> int:
        """How many records the consumer got. AssertionError when a commit failed."""
        events = _events(self._consumed)
        failed = [each for each in events if each["name"] == "offsets_committed" and not each["success"]]
        assert not failed, failed
        return sum(each["count"] for each in events if each["name"] == "records_consumed")


def _java(name: str, words: list[str], output: Path) -> subprocess.Popen[bytes]:
    command = [*toolchain.java_peer()[:-1], f"org.apache.kafka.tools.{name}", *words]
    with output.open("wb") as said:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)


def _events(output: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in output.read_text(errors="replace").splitlines()
        if line.startswith("{") and line.endswith("}")
    ]
