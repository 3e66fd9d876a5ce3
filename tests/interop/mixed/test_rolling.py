"""One node becomes three in place, and all are restarted one by one: no request of any client fails.

The clients are ours, Java's, librdkafka's and franz-go's, each with producers and with members of a group (franz-go:
producers).
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from ottla.client import Admin, NewTopic
from ottla.embedded.cluster.change import grow, roll
from ottla.embedded.cluster.local import LocalCluster
from ottla.sim.checker import SentRecord, check
from ottla.sim.workload import PARTITIONS, read_all, read_commits
from tests.interop.mixed.librdkafka import Librdkafka
from tests.interop.mixed.load import JavaClients, Load
from tests.interop.mixed.nodes import until
from tests.interop.peer import KINDS, Crew, Peer, Record
from tests.replicas_on_disk import assert_same

pytestmark = pytest.mark.timeout(600)

_TOPIC = "records"
_BURST = 20


class Franz:
    """franz-go's idempotent producer at work in `with`, a new client for each burst; `failure` ends it."""

    def __init__(self, servers: str, crew: Crew) -> None:
        self._peer = Peer(KINDS["franz-go"], servers, crew)
        self.sent: list[SentRecord] = []
        self.failure: BaseException | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="franz")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self._burst()
        except BaseException as error:
            self.failure = error

    def _burst(self) -> None:
        first = len(self.sent)
        burst = [SentRecord("franz", number, b"franz %d" % number) for number in range(first, first + _BURST)]
        self.sent += burst
        records = [Record(each.number % PARTITIONS, 1, None, each.value) for each in burst]
        told = self._peer.produce(_TOPIC, records, idempotent=True)
        for each, record, offset in zip(burst, records, told, strict=True):
            each.partition, each.offset = record.partition, offset


def assert_nothing_failed(load: Load) -> None:
    """Of our own clients: every record acknowledged, no consumer began again."""
    assert [each for each in load.ledger.sent if each.offset is None] == []
    assert {name: seen.count(None) for name, seen in load.ledger.seen.items()} == {"c0": 1, "c1": 1}


def judge(cluster: LocalCluster, load: Load) -> None:
    servers = cluster.plan.bootstrap_servers
    check(load.ledger, asyncio.run(read_all(servers, _TOPIC)), asyncio.run(read_commits(servers, "group", _TOPIC)))
    cluster.stop()
    homes = [cluster.directory / f"node-{each.node_id}" / "data" for each in cluster.plan.nodes]
    for partition in range(PARTITIONS):
        assert assert_same(homes, f"{_TOPIC}-{partition}") > 0


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.long)])
def test_a_node_grows_and_rolls_without_one_failed_request(tmp_path: Path, rounds: int) -> None:
    crew = Crew(tmp_path)
    cluster = LocalCluster.create(tmp_path / "cluster", 1, settings={"offsets.topic.num.partitions": "4"})
    try:
        cluster.start()
        with Admin(cluster.plan.bootstrap_servers) as ask:
            ask.create_topics([NewTopic(_TOPIC, PARTITIONS, 1)]).check()
        # The first node is all that ours know at first.
        with Load(cluster.plan.bootstrap_servers, _TOPIC) as load:
            load.wait_for(20)
            assert grow(cluster, 3) == [2, 3]
            servers = cluster.plan.bootstrap_servers
            with (
                JavaClients(servers, _TOPIC, tmp_path / "java") as java,
                Librdkafka(servers, _TOPIC) as rdkafka,
                Franz(servers, crew) as franz,
            ):
                until(lambda: min(java.consumed(), rdkafka.consumed, len(franz.sent)) > 0, "all clients at work")
                for _ in range(rounds):
                    assert sorted(roll(cluster)) == [1, 2, 3]
                    load.wait_for(20)
        assert_nothing_failed(load)
        assert rdkafka.failures == []
        assert franz.failure is None
        load.ledger.sent += [*java.sent(), *rdkafka.sent, *franz.sent]
        judge(cluster, load)
    finally:
        for each in cluster.running():
            cluster.kill(each)
        crew.close()
