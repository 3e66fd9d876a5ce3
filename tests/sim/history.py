"""One history of a simulated node by a seed: clients work, the node dies and comes back, and nothing promised is lost.

Rules:
- Every death is before some effect on the disk, or between two; some are in the recovery from the one before.
- Where the power may go, `log.flush.interval.messages=1` makes an acknowledgement a promise about the disk. A process
  that dies takes nothing that was acknowledged with it, whatever the settings.
- After each life everything that was promised so far is compared with what the node serves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.sim.disk import Crashed
from ottla.sim.machine import Machine
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.broker.wire_client import make_coordinators
from tests.crash.check import check_producers, check_transfers, partition_log
from tests.crash.inventory import Entry, marks, records
from tests.sim.actor import Actor, SimClient
from tests.sim.client import Administrator, Committer, Follower, IdempotentWriter, Member, Transactor
from tests.sim.streams_client import Instance

_SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.index.size.max.bytes": "4096",
    # Short lives: everything that happens from time to time happens in each of them.
    "log.roll.ms": "3000",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "log.retention.check.interval.ms": "900",
    "log.segment.delete.delay.ms": "500",
    "log.cleaner.backoff.ms": "400",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "5000",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "metadata.max.idle.interval.ms": "500",
}
_TOPICS = {
    "records": {},
    "compacted": {"cleanup.policy": "compact", "segment.ms": "1500", "min.cleanable.dirty.ratio": "0.01"},
    "transactions": {},
}
PARTITIONS = 2
_LIFE_MS_MAX = 8000
_EFFECTS_MAX = 400


class History:
    """The machine, its clients and what they know. `live` is one life of the node; `end` lets all come to an end."""

    def __init__(self, seed: int, *, power: bool, settings: Mapping[str, str] | None = None) -> None:
        self.random = Random(seed)
        self.power = power
        settings = _SETTINGS | dict(settings or {}) | ({"log.flush.interval.messages": "1"} if power else {})
        self.machine = machine = Machine(Random(seed), settings)
        self.records = IdempotentWriter("writer", machine, seed, "records", PARTITIONS)
        self.compacted = IdempotentWriter("keys", machine, seed, "compacted", PARTITIONS, keys=5)
        self.transactor = Transactor("transactor", machine, seed, "transactions")
        self.committer = Committer("committer", machine, seed, "records")
        self.member = Member("member", machine, seed, "records")
        self.follower = Follower("follower", machine, seed, "records")
        self.administrator = Administrator("administrator", machine, seed)
        self.actors: Sequence[Actor] = (
            self.records,
            self.compacted,
            self.transactor,
            self.committer,
            self.member,
            self.follower,
            self.administrator,
        )
        #: The topics that nobody deletes.
        self.topics = set(_TOPICS)
        #: How the lives ended, for people.
        self.deaths: list[str] = []
        machine.start()
        client = SimClient(machine)
        for name, configs in _TOPICS.items():
            entries = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
            topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1, configs=entries)
            answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
            assert answer.topics[0].error_code == 0, answer
        make_coordinators(client)
        for actor in self.actors:
            actor.begin()

    # ---- lives and deaths

    def live(self) -> None:
        """Work for a while, die, come back, and hold everything against what was promised."""
        machine, rng = self.machine, self.random
        how = rng.choice(["stop", "moment", "effect", "effect", "effect", *(["failed sync"] if self.power else [])])
        until_ms = machine.clock.monotonic_ms() + rng.randrange(_LIFE_MS_MAX)
        machine.disk.fails_when_killed = self.power
        if how == "effect":
            machine.disk.crash_at = machine.disk.effects + rng.randrange(_EFFECTS_MAX)
        try:
            machine.run(lambda: machine.clock.monotonic_ms() >= until_ms)
            if how == "failed sync":
                self._fail_a_sync()
            assert machine.failure is None or machine.disk.has_failed, machine.failure
            if how == "stop":
                machine.stop()
        except Crashed:
            how = "in an effect"
        self.deaths.append(how)
        self._die(how)
        self._come_back()
        self.check()
        for actor in self.actors:
            actor.come_back()

    def _fail_a_sync(self) -> None:
        """One sync fails, and what it was about is lost with the power. A node that notices ends itself."""
        machine = self.machine
        until_ms = machine.clock.monotonic_ms() + _LIFE_MS_MAX
        machine.disk.syncs_to_fail = 1
        machine.run(lambda: machine.clock.monotonic_ms() >= until_ms)

    def _die(self, how: str) -> None:
        if self.power and (how == "stop" or self.random.random() < 0.7):
            # What a clean stop leaves is durable: the power may go behind it.
            self.machine.power_off()
        else:
            self.machine.kill()

    def _come_back(self) -> None:
        machine, rng = self.machine, self.random
        while rng.random() < 0.3:
            machine.disk.crash_at = machine.disk.effects + rng.randrange(60)
            try:
                machine.start()
                machine.settle()
            except Crashed:
                self.deaths.append("in recovery")
            self._die("in recovery")
        machine.start()
        machine.settle()
        assert machine.failure is None, machine.failure

    def end(self) -> None:
        """Let every client come to the end of its turn, and check once more."""
        for actor in self.actors:
            actor.ending = True
        self.machine.run(lambda: all(actor.done for actor in self.actors))
        assert all(actor.done for actor in self.actors), "a client does not end"
        self.check()
        self.machine.stop()

    # ---- what must hold

    def check(self) -> None:
        client: Any = SimClient(self.machine)
        logs = [partition_log(client, "records", index) for index in range(PARTITIONS)]
        check_producers(logs, [self.records])
        assert self.follower.served == [(each.offset, each.value) for each in logs[0][: len(self.follower.served)]]
        check_transfers(client, self.transactor)
        self._check_compacted(client)
        self._check_offset(client, self.committer.group, "records", self.committer)
        self._check_offset(client, self.member.group, "records", self.member)
        self._check_offset(client, self.transactor.group, "transactions", self.transactor)
        self._check_topics(client)

    def _check_compacted(self, client: Any) -> None:
        found: dict[tuple[int, bytes], bytes] = {}
        for index in range(PARTITIONS):
            tp = ("compacted", index)
            entries: list[Entry] = list(records(client, tp, marks(client, tp)))
            offsets = [each.offset for each in entries]
            assert offsets == sorted(set(offsets)), "offsets are not in their order"
            found |= {(index, each.key): each.value for each in entries if each.key and each.value}
        for where, values in self.compacted.latest.items():
            known = found.get(where) in values or (where not in found and self._is_first(values))
            assert known, f"{where} is {found.get(where)!r}, not one of {values}"

    def _is_first(self, values: list[bytes]) -> bool:
        """Are these all of one batch, which nobody has acknowledged?"""
        last = self.compacted.sent[-1]
        return last.base_offset is None and set(values) <= set(last.values)

    def _check_offset(
        self, client: Any, group: str, topic: str, known: Committer | Member | Transactor | Instance
    ) -> None:
        wanted = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        )
        answer = client.ask(OffsetFetchRequest(groups=[wanted], require_stable=False), 8).groups[0]
        assert answer.error_code == 0, answer
        offset = answer.topics[0].partitions[0].committed_offset if answer.topics else -1
        assert offset in (known.committed, known.maybe), f"{group}: {offset}, not {known.committed} or {known.maybe}"

    def _check_topics(self, client: Any) -> None:
        answer = client.ask(MetadataRequest(topics=None), 12)
        found = {each.name: len(each.partitions) for each in answer.topics if not each.is_internal}
        for name, partitions in self.administrator.topics.items():
            if name != self.administrator.unsure:
                assert found.get(name) == partitions, f"{name}: {found.get(name)} partitions, not {partitions}"
        known = {*self.administrator.topics, self.administrator.unsure, *self.topics}
        assert set(found) <= known, f"topics that nobody made: {set(found) - known}"
        assert all(each.error_code == ErrorCode.NONE for each in answer.topics)


def run_history(seed: int, *, power: bool, lives: int = 4) -> History:
    """A history by a seed; AssertionError when a promise is broken."""
    history = History(seed, power=power)
    for _ in range(lives):
        history.live()
    history.end()
    return history
