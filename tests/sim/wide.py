"""A history on two log directories: besides the rest, records are deleted, topics grow, partitions move, and an
instance of a Kafka Streams application runs.
"""

from __future__ import annotations

from typing import Any

from ottla.kernel.ids import Uuid
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.metadata import MetadataRequest
from tests.broker.wire_client import SHARE, make_coordinators
from tests.crash.inventory import marks, records
from tests.sim.actor import SimClient
from tests.sim.client import IdempotentWriter
from tests.sim.history import PARTITIONS, History
from tests.sim.storage_client import DIRECTORIES, Grower, Mover, StateKeeper, Trimmer
from tests.sim.streams_client import CHANGELOG, Instance

_SETTINGS = {
    "log.dirs": ",".join(DIRECTORIES),
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.streams.initial.rebalance.delay.ms": "0",
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
}
_TOPICS = {
    "trimmed": {"retention.bytes": "3000", "segment.ms": "700"},
    "growing": {},
}


class WideHistory(History):
    """Its own topics and actors come on top of those of every history."""

    def __init__(self, seed: int, *, power: bool) -> None:
        super().__init__(seed, power=power, settings=_SETTINGS)
        machine = self.machine
        client = SimClient(machine)
        for name, configs in _TOPICS.items():
            entries = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
            topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1, configs=entries)
            answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
            assert answer.topics[0].error_code == 0, answer
        make_coordinators(client, SHARE)
        found = client.ask(MetadataRequest(topics=None), 12)
        topic_id = next(Uuid(each.topic_id) for each in found.topics if each.name == "records")
        self.trimmed = IdempotentWriter("trimmed writer", machine, seed, "trimmed", PARTITIONS)
        self.grower = Grower("grower", machine, seed, "growing", PARTITIONS)
        self.keeper = StateKeeper("keeper", machine, seed, topic_id)
        mover = Mover("mover", machine, seed, ["records", "compacted", "transactions", "trimmed"])
        self.instance = Instance("instance", machine, seed, "records")
        trimmer = Trimmer("trimmer", machine, seed, self.trimmed)
        more = (self.trimmed, trimmer, self.grower, self.keeper, mover, self.instance)
        self.topics |= {*_TOPICS, CHANGELOG}
        self.actors = (*self.actors, *more)
        for actor in more:
            actor.begin()

    def check(self) -> None:
        super().check()
        client: Any = SimClient(self.machine)
        for index in range(PARTITIONS):
            self._check_trimmed(client, index)
        found = client.ask(MetadataRequest(topics=None), 12)
        count = next(len(each.partitions) for each in found.topics if each.name == "growing")
        assert count in (self.grower.partitions, self.grower.maybe), f"{count} partitions"
        self._check_offset(client, self.instance.group, self.instance.topic, self.instance)
        if self.instance.tasks:
            assert any(each.name == CHANGELOG and len(each.partitions) == PARTITIONS for each in found.topics)
        self.keeper.check(client.ask(*self.keeper.question()).results[0].partitions[0])

    def _check_trimmed(self, client: Any, index: int) -> None:
        tp = ("trimmed", index)
        found = marks(client, tp)
        there = {each.offset: each.value for each in records(client, tp, found)}
        assert sorted(there) == list(range(found.earliest, found.latest))
        mine = [each for each in self.trimmed.sent if each.partition == index]
        for batch in mine:
            if batch.base_offset is None:
                continue
            assert batch.base_offset + len(batch.values) <= found.latest, f"what was acknowledged is gone: {batch}"
            for offset, value in enumerate(batch.values, batch.base_offset):
                assert offset < found.earliest or there[offset] == value
        assert {value for batch in mine for value in batch.values} >= set(there.values())


def run_wide_history(seed: int, *, power: bool, lives: int = 4) -> WideHistory:
    """A wide history by a seed; AssertionError when a promise is broken."""
    history = WideHistory(seed, power=power)
    for _ in range(lives):
        history.live()
    history.end()
    return history
