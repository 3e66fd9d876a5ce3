"""Java's exactly-once programs on three Ottla brokers, while the brokers that coordinate them are killed.

A program of Java's client reads one topic with read_committed and writes it into another, in transactions that hold its
group's offsets. The leaders of its part of `__transaction_state` and of `__consumer_offsets` die in turn; every record
is moved once, in its order.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from ottla.client import Admin
from ottla.kernel.error import KafkaError
from ottla.sim.workload import PARTITIONS, read_all
from tests.interop import toolchain
from tests.interop.mixed.load import Load, create, until_whole
from tests.interop.mixed.nodes import MixedCluster, until
from tests.interop.mixed.test_brokers import assert_replicas_are_the_same, cluster, stop_all

pytestmark = pytest.mark.timeout(900)

_SOURCE, _TARGET, _GROUP, _ID = "records", "moved", "movers", "mover"
_A_PIECE = 30


class Mover:
    """The program (java/Mover.java) at work in `with`."""

    def __init__(self, servers: str, directory: Path) -> None:
        self._said = directory / "mover"
        self._end = directory / "end"
        words = [servers, _SOURCE, _TARGET, _GROUP, _ID, str(self._end)]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [*toolchain.java_peer("Mover"), *words], stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def _lines(self) -> list[str]:
        return self._said.read_text(errors="replace").splitlines()

    @property
    def moved(self) -> int:
        """Records of transactions that were confirmed."""
        return sum(int(each.split()[1]) for each in self._lines() if each.startswith("moved "))

    def wait_for(self, count: int) -> None:
        """Until this many records more than now are moved."""
        goal = self.moved + count
        until(lambda: self.moved >= goal, lambda: f"{self.moved} of {goal}: {self._lines()[-5:]}")

    def end(self) -> None:
        """Let it move what is left, and end."""
        self._end.touch()
        until(lambda: self._process.poll() is not None, lambda: f"the mover does not end: {self._lines()[-5:]}")
        assert self._lines()[-1] == "end", self._lines()[-20:]


def coordinators(nodes: MixedCluster) -> list[int]:
    """(of the transactions, of the group), as long as there are both."""
    found: list[int] = []

    def known() -> bool:
        with Admin(nodes.bootstrap_servers) as ask:
            try:
                transaction = ask.describe_transactions([_ID]).check()[_ID]
                group = ask.describe_groups([_GROUP]).check()[_GROUP]
            except KafkaError:
                return False
        found[:] = [transaction.coordinator.id, group.coordinator.id]
        return True

    until(known, "the coordinators")
    return found


def assert_moved_once(nodes: MixedCluster) -> int:
    """Both topics hold the same records in the same order, partition by partition; how many."""
    until_whole(nodes, _SOURCE, _TARGET)
    sent = asyncio.run(read_all(nodes.bootstrap_servers, _SOURCE))
    moved = asyncio.run(read_all(nodes.bootstrap_servers, _TARGET, committed=True))
    for partition in range(PARTITIONS):
        assert [value for _, value in moved[partition]] == [value for _, value in sent[partition]]
    return sum(map(len, sent.values()))


@pytest.mark.parametrize("rounds", [1, pytest.param(6, marks=pytest.mark.long)])
def test_every_record_is_moved_once_though_both_coordinators_die(tmp_path: Path, rounds: int) -> None:
    with cluster(tmp_path, "o", "ooo") as nodes:
        create(nodes, _SOURCE)
        create(nodes, _TARGET)
        servers = nodes.bootstrap_servers
        with Mover(servers, tmp_path) as mover:
            with Load(servers, _SOURCE) as load:
                mover.wait_for(_A_PIECE)
                for number in range(2 * rounds):
                    victim = coordinators(nodes)[number % 2]
                    nodes.kill(victim)
                    mover.wait_for(_A_PIECE)
                    nodes.start(victim)
                    nodes.until_ready(victim)
                    until_whole(nodes, _SOURCE, _TARGET, "__transaction_state", "__consumer_offsets")
            mover.end()
        assert assert_moved_once(nodes) >= load.ledger.acknowledged > _A_PIECE
        stop_all(nodes)
        assert_replicas_are_the_same(nodes, _TARGET)
