"""Kill a node under load, again and again, and check what it promised.

Rules:
- A stage has topics and groups of its own, and ends with a check of everything. The directories are the same for all
  stages, so that what deleted topics and old segments leave behind is recovered again and again.
- Most ends are SIGKILL at a random moment, some of them while the node is still recovering from the last one; some are
  SIGTERM, and some are no end at all but SIGSTOP and SIGCONT.
- One start of ten is a process executed as a user does it. The others are forked from one that has its imports behind
  it: half of the time of a life would go into them. Only the first kind says how long a start takes.
- After every start the commits that were confirmed before are asked for.
- A member of a group that says itself that it has long had no connection, while the node answers, is a client that
  hangs: a fresh one takes its place, and it is counted. One that does not get on for another reason gets a fresh one
  too, and is counted apart, with what it and the node say of it kept. A fresh one that does not come to the end either
  ends the run, and so does every difference.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from subprocess import TimeoutExpired

from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from tests.broker.wire_client import WireClient, make_coordinators
from tests.crash.check import (
    Tally,
    check_commits,
    check_member,
    check_producers,
    check_reader,
    check_transfers,
    committed_offsets,
    partition_log,
)
from tests.crash.forked import Forker
from tests.crash.load import IdempotentProducer, Reader, TransactionalProducer
from tests.crash.member import GroupMember
from tests.crash.pause import pause
from tests.crash.report import Report, Start
from tests.interop import server as servers
from tests.interop.server import Server

PARTITIONS = 3
#: Kills between two checks of everything.
STAGE_KILLS = 50
#: For what must happen, on a machine that does many other things.
_PATIENCE_S = 400.0
#: For a member of a group to come to the end, before its client is asked what is the matter.
_MEMBER_S = 90.0
#: A life goes on for up to so long after everybody got an answer.
_MORE_S = 0.1
#: The share of starts that are forked.
_FORKED = 0.9
#: Below these the kernel gives a port to nobody who does not ask for it: a dead node's stays free.
_PORTS = range(10_000, 32_000)
_TICKS_A_MS = os.sysconf("SC_CLK_TCK") / 1000
_SETTINGS = {
    # Segments roll, checkpoints move and snapshots are written several times in the life of a node of half a second.
    "log.segment.bytes": "1048576",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "log.segment.delete.delay.ms": "500",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


class Mortal(Server):
    """A node that may be killed before it serves."""

    dies_after_s: float | None = None
    #: Its process is forked, not executed, while there is one to fork it.
    forker: Forker | None = None

    def launch(self) -> None:
        if self.forker is None:
            super().launch()
            return
        self.process = self.forker.start(self.properties, self.output)
        self.starts += 1

    def choose_ports(self, count: int) -> list[int]:
        chosen: list[int] = []
        while len(chosen) < count:
            port = random.SystemRandom().choice(_PORTS)
            with socket.socket() as one, suppress(OSError):
                one.bind(("127.0.0.1", port))
                chosen.append(port)
        return chosen

    def _await_ready(self) -> None:
        if self.dies_after_s is None:
            super()._await_ready()
            return
        pause(self.dies_after_s)
        self.kill()

    @property
    def cpu_ms(self) -> float:
        """What all threads of its process have computed, in the kernel too."""
        after_name = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / _TICKS_A_MS

    def stacks(self) -> str:
        """Where its threads are. It is the end of it."""
        if self.process is None:
            return "there is no process\n" + self.tail(100)
        self.process.send_signal(signal.SIGABRT)
        with suppress(TimeoutExpired):
            self.process.wait(10)
        return self.tail(200)


class Torture:
    """One node in one directory, and what is done to it. Whoever makes it calls `close`."""

    def __init__(self, directory: Path, seed: str) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.directory = directory
        self.report = Report()
        self._forker = Forker()
        self.server = Mortal(servers.ottla(), directory, _SETTINGS)
        self.server.start()

    def close(self) -> None:
        self.server.kill()
        self._forker.close()

    def run(self, kills: int) -> Report:
        """So many kills, in stages."""
        while self.report.kills < kills:
            self._stage(min(STAGE_KILLS, kills - self.report.kills))
            self.report.checks += 1
        return self.report

    def _stage(self, kills: int) -> None:
        name = f"{self.seed}-{self.report.checks}"
        bootstrap = self.server.bootstrap
        topic, transfers = f"records-{name}", f"transfers-{name}"
        with WireClient(bootstrap) as client:
            _create(client, topic, PARTITIONS)
            _create(client, transfers, 2)
            make_coordinators(client)
        producers = [IdempotentProducer(bootstrap, topic, f"{name}/{label}", PARTITIONS, label) for label in "ab"]
        transactional = TransactionalProducer(bootstrap, transfers, f"{name}/t")
        reader = Reader(bootstrap, topic, 0)
        members = [GroupMember(bootstrap, topic, f"{topic}-{kind}", kind) for kind in ("classic", "consumer")]
        for worker in (*producers, transactional, reader, *members):
            worker.start()
        target = self.report.kills + kills
        while self.report.kills < target:
            with self._timed("work"):
                self._await_progress([*producers, transactional])
            self._disturb()
            with self._timed("commits asked for"):
                self._check_promises(members)
        with self._timed("end"):
            for worker in (*producers, transactional):
                worker.finish()
            with WireClient(bootstrap) as client:
                logs = [partition_log(client, topic, index) for index in range(PARTITIONS)]
            ends = {index: len(log) for index, log in enumerate(logs) if log}
            # What survived must also work: with nothing in the way everyone comes to the end.
            self._await(lambda: len(reader.served) == len(logs[0]), lambda: "the reader has not read to the end")
            members = [self._bring_to_end(member, ends) for member in members]
            for worker in (reader, *members):
                worker.finish()
        with self._timed("check"), WireClient(bootstrap) as client:
            self.report.tally.add(
                Tally(
                    acknowledged=check_producers(logs, producers),
                    transactions=check_transfers(client, transactional),
                    served=check_reader(logs[0], reader),
                    commits=sum(check_member(client, logs, member) for member in members),
                )
            )
            _delete(client, [topic, transfers])

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        seconds = self.report.seconds
        seconds[what] = seconds.get(what, 0.0) + time.monotonic() - began

    def _bring_to_end(self, member: GroupMember, ends: dict[int, int]) -> GroupMember:
        """Wait for it to commit everything; who did so, it or the one in its place."""
        deadline = time.monotonic() + _MEMBER_S
        while time.monotonic() < deadline:
            if self._is_at_end(member, ends):
                return member
            pause(0.02)
        if member.lost():
            self.report.replaced += 1
        else:
            self.report.unexplained += 1
        evidence = f"{self._state_of(member, ends)}\n{member.evidence()}\n"
        with (self.directory / "members.txt").open("a") as file:
            file.write(evidence)
        fresh = member.successor()
        fresh.start()
        self._await(
            partial(self._is_at_end, fresh, ends),
            lambda: f"a fresh member is not at the end: {self._state_of(fresh, ends)}\n{fresh.evidence()}\n{evidence}",
        )
        return fresh

    def _is_at_end(self, member: GroupMember, ends: dict[int, int]) -> bool:
        """Has it committed everything? The node says so where its answer to the last commit was lost."""
        if member.failure is not None:
            raise member.failure
        if member.committed == ends:
            return True
        with WireClient(self.server.bootstrap) as client:
            return committed_offsets(client, member, ends) == ends

    def _state_of(self, member: GroupMember, ends: dict[int, int]) -> str:
        """What the node and the member say of a group that does not come to the end."""
        with WireClient(self.server.bootstrap) as client:
            classic = client.ask(DescribeGroupsRequest(groups=[member.group]), 6)
            modern = client.ask(ConsumerGroupDescribeRequest(group_ids=[member.group]), 1)
            offsets = committed_offsets(client, member, ends)
        return f"{member.group} is at {member.committed}, {offsets}, not at {ends}: {classic}, {modern}"

    def _await_progress(self, workers: list[IdempotentProducer | TransactionalProducer]) -> None:
        """Every producer gets an answer out of every life of the node, and then some more time."""
        before = [worker.answers for worker in workers]

        def all_were_answered() -> bool:
            for worker in workers:
                if worker.failure is not None:
                    raise worker.failure
            return all(worker.answers > was for worker, was in zip(workers, before, strict=True))

        self._await(all_were_answered, lambda: "a producer gets no answer")
        pause(self.random.uniform(0, _MORE_S))

    def _await(self, done: Callable[[], bool], what: Callable[[], str]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, f"after {_PATIENCE_S:.0f} s {what()}\n{self.server.stacks()}"
            pause(0.005)

    def _disturb(self) -> None:
        match self.random.choices(["kill", "kill in recovery", "stop", "pause"], [70, 15, 10, 5])[0]:
            case "pause":
                self.report.pauses += 1
                os.kill(self.server.pid, signal.SIGSTOP)
                pause(self.random.uniform(0.05, 0.5))
                os.kill(self.server.pid, signal.SIGCONT)
            case "stop":
                self.report.stops += 1
                self.server.stop()
                self._start(self.report.stopped)
            case what:
                self._kill()
                if what == "kill in recovery":
                    # Most of these fall between the first import, or the fork, and the first answer.
                    executed = self._choose_forked() is None
                    self.server.dies_after_s = (
                        self.random.uniform(0.05, 0.5) if executed else self.random.uniform(0, 0.15)
                    )
                    with self._timed("start"):
                        self.server.start()
                    self.server.dies_after_s = None
                    self.report.kills += 1
                    self.report.kills_in_recovery += 1
                self._start(self.report.killed)

    def _kill(self) -> None:
        assert self.server.process is not None
        assert self.server.process.poll() is None, f"the node has ended by itself\n{self.server.tail()}"
        self.server.kill()
        self.report.kills += 1

    def _choose_forked(self) -> Forker | None:
        self.server.forker = self._forker if self.random.random() < _FORKED else None
        return self.server.forker

    def _start(self, executed: list[Start]) -> None:
        forked = self._choose_forked()
        began = time.monotonic()
        with self._timed("start"):
            self.server.start()
        wall_ms = 1000 * (time.monotonic() - began)
        (executed if forked is None else self.report.forked).append(Start(wall_ms, self.server.cpu_ms))

    def _check_promises(self, members: list[GroupMember]) -> None:
        with WireClient(self.server.bootstrap) as client:
            for member in members:
                check_commits(client, member)


def _create(client: WireClient, topic: str, partitions: int) -> None:
    config = CreatableTopicConfig(name="min.insync.replicas", value="1")
    wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, configs=[config])
    answer = client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7)
    assert answer.topics[0].error_code == 0, answer


def _delete(client: WireClient, topics: list[str]) -> None:
    states = [DeleteTopicState(name=topic) for topic in topics]
    answer = client.ask(DeleteTopicsRequest(topics=states, timeout_ms=10_000), 6)
    assert not any(each.error_code for each in answer.responses), answer
