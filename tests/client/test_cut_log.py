"""An unclean election on three brokers, of Apache Kafka's and of ours, under Java's consumer and under ours (KIP-320).

Each consumer must get the same of each cluster, and each cluster must answer the same to the same bare requests.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from ottla.client import (
    Admin,
    CommittedOffset,
    Consumer,
    ErrorCode,
    KafkaError,
    LogTruncation,
    NewTopic,
    Producer,
    TopicPartition,
)
from ottla.client.admin.result import PartitionDescription
from tests.client.brokers import Brokers
from tests.client.conftest import eventually
from tests.interop import server as servers
from tests.interop import toolchain
from tests.interop.oracle.side import Side

pytestmark = pytest.mark.interop

ONE = TopicPartition("cut", 0)
#: What both replicas have, what only the lost leader had, and what was written after the election: more than was lost.
BOTH = [b"both %d" % number for number in range(4)]
LOST = [b"lost %d" % number for number in range(5)]
NEW = [b"new %d" % number for number in range(12)]
END = len(BOTH + NEW)
PATIENCE_S = 60


class Reader(Protocol):
    """A consumer of the partition. What it gives is JSON's."""

    def seek(self, offset: int, epoch: int | None = None) -> None: ...
    def poll(self, count: int) -> dict[str, Any]: ...
    def commit(self) -> None: ...
    def committed(self) -> list[int]: ...
    def close(self) -> None: ...


class Java:
    """Apache's consumer, of one of its two protocols."""

    def __init__(self, bootstrap: str, group: str, policy: str, protocol: str) -> None:
        command = [*toolchain.java_peer("Truncated"), bootstrap, ONE.topic, group, policy, protocol]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _ask(self, line: str) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def seek(self, offset: int, epoch: int | None = None) -> None:
        self._ask(f"seek {offset}" if epoch is None else f"seek {offset} {epoch}")

    def poll(self, count: int) -> dict[str, Any]:
        found: dict[str, Any] = self._ask(f"poll {count} {PATIENCE_S}")
        return found

    def commit(self) -> None:
        self._ask("commit")

    def committed(self) -> list[int]:
        found: list[int] = self._ask("committed")["committed"]
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Ours:
    """Our consumer."""

    def __init__(self, bootstrap: str, group: str, policy: str) -> None:
        self._consumer: Consumer[bytes, bytes] = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": policy},
            enable_auto_commit=False,
            fetch_max_wait_ms=200,
        )
        self._consumer.assign([ONE])

    def seek(self, offset: int, epoch: int | None = None) -> None:
        self._consumer.seek(ONE, CommittedOffset(offset, leader_epoch=epoch))

    def poll(self, count: int) -> dict[str, Any]:
        found: dict[str, Any] = {"records": []}

        def enough() -> bool:
            try:
                polled = self._consumer.poll(0.2)
            except LogTruncation as error:
                found["truncated"] = [error.offset, *(error.divergent or ())]
                return True
            found["records"] += [[one.offset, one.leader_epoch, one.value.decode()] for one in polled]
            return len(found["records"]) >= count

        eventually(enough, PATIENCE_S)
        return found

    def commit(self) -> None:
        self._consumer.commit()

    def committed(self) -> list[int]:
        found = self._consumer.committed([ONE])[ONE]
        assert found is not None
        return [found.offset, -1 if found.leader_epoch is None else found.leader_epoch]

    def close(self) -> None:
        self._consumer.close()


def reader(bootstrap: str, kind: str, policy: str, group: str | None = None) -> Reader:
    group = group or f"{kind}-{policy}"
    return Ours(bootstrap, group, policy) if kind == "ours" else Java(bootstrap, group, policy, kind)


KINDS = ("ours", "classic", "consumer")


@contextmanager
def readers(bootstrap: str, *asked: tuple[str, ...]) -> Iterator[dict[tuple[str, ...], Reader]]:
    with ExitStack() as open_ones:
        yield {one: open_ones.enter_context(closing(reader(bootstrap, *one))) for one in asked}


def partition(admin: Admin) -> PartitionDescription:
    return admin.describe_topics([ONE.topic])[ONE.topic].partitions[0]


def write(bootstrap: str, values: list[bytes]) -> None:
    with Producer(bootstrap) as producer:
        for value in values:
            producer.send(ONE.topic, value).result(PATIENCE_S)


def leads(admin: Admin, node_id: int) -> bool:
    try:
        leader = partition(admin).leader
    except KafkaError as error:
        # Right after its creation the broker that is asked may not know the topic.
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return False
    return leader is not None and leader.id == node_id


def answers(brokers: Brokers, latest: int) -> list[Any]:
    """What the leader says of epochs, and to fetches that name some."""
    side = Side(brokers.of[3])
    try:
        for current in (-1, latest - 1, latest, latest + 1):
            for epoch in range(-1, latest + 3):
                asked = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
                topics = [{"topic": ONE.topic, "partitions": [asked]}]
                side.ask("OffsetForLeaderEpoch", 4, replica_id=-1, topics=topics)
        for current in (-1, latest - 1, latest, latest + 1):
            for last in range(-1, latest + 2):
                for offset in (0, len(BOTH), len(BOTH) + 1, END, END + 1):
                    asked = {
                        "partition": 0,
                        "current_leader_epoch": current,
                        "last_fetched_epoch": last,
                        "fetch_offset": offset,
                        "partition_max_bytes": 1,
                    }
                    topics = [{"topic": ONE.topic, "partitions": [asked]}]
                    reply = side.ask(
                        "Fetch", 12, note=False, max_wait_ms=0, session_epoch=-1, max_bytes=1, topics=topics
                    )
                    (data,) = reply.responses[0].partitions
                    diverging = (data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                    side.note("Fetch", (data.error_code, data.high_watermark, diverging, len(data.records or b"")))
    finally:
        side.close()
    return side.transcript


def play(brokers: Brokers) -> dict[str, Any]:
    """An unclean election under the readers: what was told, by whom."""
    bootstrap = brokers.bootstrap
    told: dict[str, Any] = {}
    asked = [(kind, policy) for kind in KINDS for policy in ("latest", "none")]
    with Admin(bootstrap) as admin:
        configs = {"unclean.leader.election.enable": "true"}
        admin.create_topics([NewTopic(ONE.topic, assignments={0: [2, 3]}, configs=configs)]).check()
        eventually(lambda: leads(admin, 2))
        write(bootstrap, BOTH)
        brokers.of[3].kill()
        eventually(lambda: len(partition(admin).isr) == 1)
        write(bootstrap, LOST)
        with readers(bootstrap, *asked) as open_ones:
            for one in open_ones.values():
                one.seek(0)
            told["before"] = {one: each.poll(len(BOTH + LOST)) for one, each in open_ones.items()}
            for each in open_ones.values():
                each.commit()
            told["committed"] = {one: each.committed() for one, each in open_ones.items()}
            crossed = {("ours", "latest", "classic-latest"): None, ("classic", "latest", "ours-latest"): None}
            with readers(bootstrap, *crossed) as others:
                told["committed by the other"] = {one: each.committed() for one, each in others.items()}
            brokers.of[2].kill()
            # An epoch without a leader comes first: the leader epochs of both clusters are the same.
            eventually(lambda: partition(admin).leader is None)
            brokers.of[3].start()
            eventually(lambda: leads(admin, 3))
            write(bootstrap, NEW)
            brokers.of[2].start()
            eventually(lambda: len(partition(admin).isr) == 2)
            told["after"] = {one: each.poll(len(NEW)) for one, each in open_ones.items()}
        with readers(bootstrap, *asked, *crossed) as open_ones:
            told["from the commit"] = {one: each.poll(len(NEW)) for one, each in open_ones.items()}
            at, epoch = told["committed"]["ours", "latest"]
            for each in open_ones.values():
                each.seek(at)
            told["from the offset alone"] = {one: each.poll(END - at) for one, each in open_ones.items()}
            for each in open_ones.values():
                each.seek(at, epoch)
            told["from a seek"] = {one: each.poll(len(NEW)) for one, each in open_ones.items()}
        told["answers"] = answers(brokers, partition(admin).leader_epoch)
    return told


@pytest.mark.timeout(500)
def test_java_and_we_see_the_same_of_apache_and_of_us(tmp_path: Path) -> None:
    told = {}
    for name in ("apache", "ottla"):
        brokers = Brokers(tmp_path / name, servers.kind(name))
        try:
            brokers.start()
            told[name] = play(brokers)
        finally:
            brokers.stop()
    for name, found in told.items():
        for what, each in found.items():
            if what == "answers":
                continue
            by_policy: dict[str, dict[str, Any]] = {}
            for (kind, policy, *_), given in each.items():
                by_policy.setdefault(policy, {})[kind] = given
            for policy, given in by_policy.items():
                first, *others = given.values()
                assert all(one == first for one in others), f"{what}, {policy}, of {name}: {given}"
    for what in told["apache"]:
        assert told["ottla"][what] == told["apache"][what], what
    found = told["apache"]
    values = [value for _, _, value in found["after"]["ours", "latest"]["records"]]
    assert values == [value.decode() for value in NEW], "nothing that the new log holds was skipped"
    offset, epoch = found["committed"]["ours", "latest"]
    assert (offset, epoch >= 0) == (len(BOTH + LOST), True)
    assert found["after"]["ours", "none"]["truncated"][:2] == [offset, len(BOTH)]
