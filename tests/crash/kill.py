"""Kill a node under load, again and again, and check after every round what it promised.

Rules:
- A round has topics and groups of its own; the directories are the same for all rounds, so that what deleted topics
  and old segments leave behind is recovered again and again.
- Most ends are SIGKILL at a random moment, some of them while the node is still recovering from the last one; some are
  SIGTERM, and some are no end at all but SIGSTOP and SIGCONT.
- One start of ten is a process executed as a user does it. The others are forked from one that has its imports behind
  it: half of the time of a life would go into them. Only the first kind says how long a start takes.
- After every start the commits that were confirmed before are asked for.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event

from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from tests.broker.wire_client import WireClient
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
from tests.crash.load import GroupMember, IdempotentProducer, Reader, TransactionalProducer
from tests.interop import server as servers
from tests.interop.server import Server

PARTITIONS = 3
#: Kills between two checks of everything.
ROUND_KILLS = 25
#: A member that died with its node holds its group up until its session ends, 30 s behind the last start.
_PROGRESS_S = 180.0
#: A life goes on for up to so long after everybody got an answer.
_MORE_S = 0.15
#: The share of starts that are forked, and what a start is to take at most.
_FORKED = 0.9
_START_MS = 2000
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

    def _await_ready(self) -> None:
        if self.dies_after_s is None:
            super()._await_ready()
            return
        Event().wait(self.dies_after_s)
        self.kill()


@dataclass
class Report:
    """What happened, and what was found right."""

    kills: int = 0
    kills_in_recovery: int = 0
    stops: int = 0
    pauses: int = 0
    rounds: int = 0
    tally: Tally = field(default_factory=Tally)
    #: From the start of the process to the first answer; after a kill and after a clean stop, and of those forked.
    recovery_ms: list[float] = field(default_factory=list)
    restart_ms: list[float] = field(default_factory=list)
    forked_ms: list[float] = field(default_factory=list)

    def lines(self) -> list[str]:
        tally = self.tally
        return [
            (
                f"{self.kills} kills ({self.kills_in_recovery} of them in recovery), {self.stops} clean stops, "
                f"{self.pauses} pauses, {self.rounds} rounds"
            ),
            (
                f"{tally.acknowledged} acknowledged records, {tally.transactions} transactions, {tally.served} records "
                f"served on the way, {tally.commits} commits: all as promised"
            ),
            (
                f"start after a kill: {_spread(self.recovery_ms)}; after a clean stop: {_spread(self.restart_ms)}; "
                f"forked: {_spread(self.forked_ms)}"
            ),
        ]


def _spread(times_ms: list[float]) -> str:
    if not times_ms:
        return "none"
    late = sum(each > _START_MS for each in times_ms)
    nine = sorted(times_ms)[len(times_ms) * 99 // 100]
    return (
        f"{len(times_ms)} times, median {statistics.median(times_ms):.0f} ms, of 99% {nine:.0f} ms, "
        f"most {max(times_ms):.0f} ms, {late} over {_START_MS / 1000:.0f} s"
    )


class Torture:
    """One node in one directory, and what is done to it. Whoever makes it calls `close`."""

    def __init__(self, directory: Path, seed: int, say: Callable[[str], None] = lambda _: None) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.say = say
        self.report = Report()
        self._forker = Forker()
        self.server = Mortal(servers.ottla(), directory, _SETTINGS)
        self.server.start()

    def close(self) -> None:
        self.server.kill()
        self._forker.close()

    def run(self, kills: int) -> Report:
        """So many kills, in rounds."""
        while self.report.kills < kills:
            self._round(min(ROUND_KILLS, kills - self.report.kills))
            self.report.rounds += 1
            self.say(f"{self.report.kills}/{kills}: {'; '.join(self.report.lines()[1:])}")
        return self.report

    def _round(self, kills: int) -> None:
        number = self.report.rounds
        bootstrap = self.server.bootstrap
        records, transfers = f"records-{self.seed}-{number}", f"transfers-{self.seed}-{number}"
        with WireClient(bootstrap) as client:
            _create(client, records, PARTITIONS)
            _create(client, transfers, 2)
        producers = [
            IdempotentProducer(bootstrap, records, f"{self.seed}/{number}/{name}", PARTITIONS, name) for name in "ab"
        ]
        transactional = TransactionalProducer(bootstrap, transfers, f"{self.seed}/{number}/t")
        reader = Reader(bootstrap, records, 0)
        members = [GroupMember(bootstrap, records, f"{records}-{kind}", kind) for kind in ("classic", "consumer")]
        for worker in (*producers, transactional, reader, *members):
            worker.start()
        target = self.report.kills + kills
        while self.report.kills < target:
            self._await_progress([*producers, transactional])
            self._disturb()
            self._check_promises(members)
        for worker in (*producers, transactional):
            worker.finish()
        with WireClient(bootstrap) as client:
            logs = [partition_log(client, records, index) for index in range(PARTITIONS)]
            ends = {index: len(log) for index, log in enumerate(logs) if log}
            # What survived must also work: with nothing in the way everyone comes to the end.
            self._await(lambda: len(reader.served) == len(logs[0]), lambda: "the reader has not read to the end")
            for member in members:
                self._await(
                    partial(_is_at_end, client, member, ends), partial(_state_of, self.server.bootstrap, member, ends)
                )
            for worker in (reader, *members):
                worker.finish()
            self.report.tally.add(
                Tally(
                    acknowledged=check_producers(logs, producers),
                    transactions=check_transfers(client, transactional),
                    served=check_reader(logs[0], reader),
                    commits=sum(check_member(client, logs, member) for member in members),
                )
            )
            _delete(client, [records, transfers])

    def _await_progress(self, workers: list[IdempotentProducer | TransactionalProducer]) -> None:
        """Every producer gets an answer out of every life of the node, and then some more time."""
        before = [worker.answers for worker in workers]

        def all_were_answered() -> bool:
            for worker in workers:
                if worker.failure is not None:
                    raise worker.failure
            return all(worker.answers > was for worker, was in zip(workers, before, strict=True))

        self._await(all_were_answered, lambda: "a producer gets no answer")
        Event().wait(self.random.uniform(0, _MORE_S))

    def _await(self, done: Callable[[], bool], what: Callable[[], str]) -> None:
        deadline = time.monotonic() + _PROGRESS_S
        while not done():
            assert time.monotonic() < deadline, f"after {_PROGRESS_S:.0f} s {what()}\n{self.server.tail()}"
            Event().wait(0.005)

    def _disturb(self) -> None:
        match self.random.choices(["kill", "kill in recovery", "stop", "pause"], [70, 15, 10, 5])[0]:
            case "pause":
                self.report.pauses += 1
                os.kill(self.server.pid, signal.SIGSTOP)
                Event().wait(self.random.uniform(0.05, 0.5))
                os.kill(self.server.pid, signal.SIGCONT)
            case "stop":
                self.report.stops += 1
                self.server.stop()
                self._start(self.report.restart_ms)
            case what:
                self._kill()
                if what == "kill in recovery":
                    # Most of these fall between the first import, or the fork, and the first answer.
                    executed = self._choose_forked() is None
                    self.server.dies_after_s = (
                        self.random.uniform(0.05, 0.5) if executed else self.random.uniform(0, 0.15)
                    )
                    self.server.start()
                    self.server.dies_after_s = None
                    self.report.kills += 1
                    self.report.kills_in_recovery += 1
                self._start(self.report.recovery_ms)

    def _kill(self) -> None:
        assert self.server.process is not None
        assert self.server.process.poll() is None, f"the node has ended by itself\n{self.server.tail()}"
        self.server.kill()
        self.report.kills += 1

    def _choose_forked(self) -> Forker | None:
        self.server.forker = self._forker if self.random.random() < _FORKED else None
        return self.server.forker

    def _start(self, executed_ms: list[float]) -> None:
        forked = self._choose_forked()
        began = time.monotonic()
        self.server.start()
        (executed_ms if forked is None else self.report.forked_ms).append(1000 * (time.monotonic() - began))

    def _check_promises(self, members: list[GroupMember]) -> None:
        with WireClient(self.server.bootstrap) as client:
            for member in members:
                check_commits(client, member)


def _is_at_end(client: WireClient, member: GroupMember, ends: dict[int, int]) -> bool:
    """Has it committed everything? The node says so where its answer to the last commit was lost."""
    return member.committed == ends or committed_offsets(client, member, ends) == ends


def _state_of(bootstrap: str, member: GroupMember, ends: dict[int, int]) -> str:
    """What the node and the member say of a group that does not come to the end."""
    with WireClient(bootstrap) as client:
        classic = client.ask(DescribeGroupsRequest(groups=[member.group]), 6)
        modern = client.ask(ConsumerGroupDescribeRequest(group_ids=[member.group]), 1)
        offsets = committed_offsets(client, member, ends)
    return f"{member.group} is at {member.committed}, {offsets}, not at {ends}: {classic}, {modern}"


def _create(client: WireClient, topic: str, partitions: int) -> None:
    config = CreatableTopicConfig(name="min.insync.replicas", value="1")
    wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, configs=[config])
    answer = client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7)
    assert answer.topics[0].error_code == 0, answer


def _delete(client: WireClient, topics: list[str]) -> None:
    states = [DeleteTopicState(name=topic) for topic in topics]
    answer = client.ask(DeleteTopicsRequest(topics=states, timeout_ms=10_000), 6)
    assert not any(each.error_code for each in answer.responses), answer
