"""Random brokers under the controller, by seed: what must always hold, and that no clean leader lacks a record.

The brokers' data is one set a partition: the replicas that hold every committed record. A commit needs the least ISR
and leaves only the ISR in it; a broker that registers after a crash is out of it; an unclean leader begins it again.
OTTLA_CONTROLLER_SIMULATIONS=2000 plays more seeds.
"""

import os
from contextlib import suppress
from random import Random

import pytest

from ottla.controller.topic_rules import may_be_unclean, min_isr
from ottla.kernel.error import KafkaError
from ottla.metadata.delta import MetadataReplayer
from ottla.metadata.image import NO_LEADER, TOPIC, Image, PartitionImage
from ottla.metadata.snapshot import snapshot_records
from ottla.wire.api import alter_partition_reassignments as reassign
from ottla.wire.api.alter_partition import BrokerState
from ottla.wire.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.api.unregister_broker import UnregisterBrokerRequest
from ottla.wire.record.metadata import PartitionChangeRecord, PartitionRecord
from tests.controller.fleet import Fleet
from tests.controller.scene import directory, without_place

SEEDS = int(os.environ.get("OTTLA_CONTROLLER_SIMULATIONS", "8"))
STEPS = 200
BROKERS = range(1, 6)
RECOVERING = 1
_STEPS = {
    "alter": 30,
    "beat": 10,
    "return_all": 6,
    "fence": 4,
    "stop": 5,
    "restart": 6,
    "silent": 4,
    "elect": 6,
    "move": 8,
    "create": 4,
    "configure": 3,
    "fail_directory": 2,
    "unregister": 1,
    "failover": 2,
    "time": 3,
}
_Place = tuple[str, int]


class Simulation(Fleet):
    """A fleet, what its brokers hold, and the checks after each decision."""

    def __init__(self, seed: int, features: dict[str, int] | None = None) -> None:
        self.rng = Random(seed)
        self.holds: dict[_Place, set[int]] = {}
        super().__init__(5, directories=2, features=features, broker_session_timeout_ms="9000")
        self.made = 0

    def append(self, records: list[object]) -> None:
        before = self.image
        super().append(records)
        self._check(before, records)

    # ---- what holds

    def _check(self, before: Image, records: list[object]) -> None:
        changed = {(record.topic_id, record.partition_id) for record in records if isinstance(record, _CHANGES)}
        for name, topic in self.image.topics.items():
            old = before.topics.get(name)
            for index, partition in enumerate(topic.partitions):
                was = old.partitions[index] if old is not None and index < len(old.partitions) else None
                if (topic.topic_id, index) in changed:
                    self._check_partition(before, (name, index), was, partition)
                else:
                    assert partition is was or not partition.eligible_leader_replicas
                self._check_members(partition)

    def _check_members(self, partition: PartitionImage) -> None:
        isr, elr = set(partition.isr), set(partition.eligible_leader_replicas)
        assert partition.leader == NO_LEADER or partition.leader in isr
        assert isr <= set(partition.replicas)
        assert not isr & elr
        assert elr <= set(partition.replicas)
        if self.image.has_elr:
            serving = {each.broker_id for each in self.image.brokers.values() if not each.fenced}
            assert isr <= serving, "a fenced broker is in sync"
            assert partition.leader != NO_LEADER or not isr, "someone is in sync and nobody leads"
            assert len(partition.last_known_elr) <= 1
            assert not (partition.last_known_elr and partition.leader != NO_LEADER)

    def _check_partition(
        self, before: Image, place: _Place, was: PartitionImage | None, partition: PartitionImage
    ) -> None:
        if was is None:
            self.holds[place] = set(partition.isr)
            return
        assert partition.partition_epoch > was.partition_epoch
        assert partition.leader_epoch >= was.leader_epoch
        if partition.leader != was.leader or not set(was.replicas) <= set(partition.replicas):
            assert partition.leader_epoch > was.leader_epoch
        topic = before.topics[place[0]]
        if partition.eligible_leader_replicas and partition.leader not in was.eligible_leader_replicas:
            assert len(partition.isr) < min_isr(before, self.settings, topic), "enough are in sync: nobody waits"
        if partition.leader in (was.leader, NO_LEADER):
            return
        unclean = partition.leader_recovery_state == RECOVERING and (
            partition.leader not in was.isr and partition.leader not in was.eligible_leader_replicas
        )
        if unclean:
            self.holds[place] = {partition.leader}
        elif self.image.has_elr:
            assert partition.leader in self.holds[place], f"{place}: {was} -> {partition}"

    def commit(self) -> None:
        """Leaders commit what they have, where enough are in sync."""
        for name, topic in self.image.topics.items():
            for index, partition in enumerate(topic.partitions):
                # A leader counts its own replicas, the controller those of partition 0.
                wanted = int(self.image.config(TOPIC, name)["min.insync.replicas"])
                enough = len(partition.isr) >= min(wanted, len(partition.replicas))
                if partition.leader != NO_LEADER and enough and self.rng.random() < 0.5:
                    self.holds[name, index] = set(partition.isr)

    # ---- steps

    def play(self) -> None:
        for _ in range(3):
            self.create_one()
        for _ in range(STEPS):
            [step] = self.rng.choices([*_STEPS], [*_STEPS.values()])
            with suppress(KafkaError):
                getattr(self, f"do_{step}")()
            self.commit()

    def create_one(self) -> None:
        self.made += 1
        factor = self.rng.randrange(1, 5)
        configs: dict[str, str | None] = {"min.insync.replicas": str(self.rng.randrange(1, 4))}
        if self.rng.random() < 0.2:
            configs["unclean.leader.election.enable"] = "true"
        partitions = self.rng.randrange(1, 4)
        self.create(f"topic-{self.made}", num_partitions=partitions, replication_factor=factor, configs=configs)

    do_create = create_one

    def do_alter(self) -> None:
        """Those that fetch are caught up when they come into the ISR."""
        name, index = self._place()
        partition = self.partition(name, index)
        asks = partition.leader if self.rng.random() < 0.9 else self.rng.choice(BROKERS)
        isr = [each for each in partition.replicas if each == asks or self.rng.random() < 0.7]
        epochs = [
            BrokerState(broker_id=each, broker_epoch=self.image.brokers[each].epoch - (self.rng.random() < 0.1))
            for each in isr
            if each in self.image.brokers
        ]
        if asks not in self.image.brokers:
            return
        if asks == partition.leader and asks in self.holds[name, index]:
            brokers = self.image.brokers
            self.holds[name, index] |= {
                each.broker_id for each in epochs if each.broker_epoch == brokers[each.broker_id].epoch
            }
        self.alter(name, isr, index=index, asks=asks, new_isr_with_epochs=epochs, leader_recovery_state=0)

    def do_beat(self) -> None:
        offset = self.image.offset - self.rng.choice([0, 0, 1, 5])
        self._live(offset=offset)

    def do_return_all(self) -> None:
        for broker_id in BROKERS:
            broker = self.image.brokers.get(broker_id)
            if broker is None or (broker.in_controlled_shutdown and broker.fenced):
                self.wait(9_001)
                self.register(broker_id)
            self._live_one(broker_id)

    def do_fence(self) -> None:
        self._live(want_fence=True)

    def do_stop(self) -> None:
        self._live(want_shut_down=True)

    def do_silent(self) -> None:
        broker_id = self._broker()
        if broker_id in self.image.brokers:
            self.silence(broker_id)

    def do_restart(self) -> None:
        """A broker dies and comes back; after a crash it may lack what it had."""
        broker_id, clean = self._broker(), self.rng.random() < 0.5
        if broker_id in self.image.brokers and not self.image.brokers[broker_id].fenced:
            self.silence(broker_id)
        self.wait(9_001)
        if not clean:
            for held in self.holds.values():
                held.discard(broker_id)
        self.register(broker_id, clean=clean)
        self._live_one(broker_id)

    def do_elect(self) -> None:
        name, index = self._place()
        wanted = TopicPartitions(topic=name, partitions=[index])
        self.ask(ElectLeadersRequest(election_type=self.rng.randrange(2), topic_partitions=[wanted]))

    def do_move(self) -> None:
        name, index = self._place()
        replicas = self.rng.sample(BROKERS, self.rng.randrange(1, 5)) if self.rng.random() < 0.8 else None
        if replicas is None and may_be_unclean(self.image, self.settings, self.image.topics[name]):
            return  # What is taken back without anyone in sync is as unclean as it can be, also in Apache Kafka.
        moved = reassign.ReassignablePartition(partition_index=index, replicas=replicas)
        topic = reassign.ReassignableTopic(name=name, partitions=[moved])
        self.ask(reassign.AlterPartitionReassignmentsRequest(topics=[topic]))

    def do_configure(self) -> None:
        name, _ = self._place()
        self.set(name, "unclean.leader.election.enable", self.rng.choice(["true", "false"]))

    def do_fail_directory(self) -> None:
        broker_id = self._broker()
        if broker_id in self.image.brokers:
            self._live_one(broker_id, offline_log_dirs=[directory(10 * broker_id)])

    def do_unregister(self) -> None:
        self.ask(UnregisterBrokerRequest(broker_id=self._broker()))

    def do_failover(self) -> None:
        self.controller.resign()
        self.controller.activate(self.image, self.now_ms)

    def do_time(self) -> None:
        self.wait(self.rng.choice([10, 1_000, 9_001, 300_000]))

    def _live(self, **fields: object) -> None:
        self._live_one(self._broker(), **fields)

    def _live_one(self, broker_id: int, **fields: object) -> None:
        """A broker that has begun to stop wants nothing else any more."""
        broker = self.image.brokers.get(broker_id)
        if broker is not None:
            self.beat(broker_id, **({"want_shut_down": True} if broker.in_controlled_shutdown else fields))

    def _broker(self) -> int:
        return self.rng.choice(BROKERS)

    def _place(self) -> _Place:
        name = self.rng.choice(sorted(self.image.topics))
        return name, self.rng.randrange(len(self.image.topics[name].partitions))


_CHANGES = (PartitionRecord, PartitionChangeRecord)
_LEVELS: list[dict[str, int] | None] = [None, {"metadata.version": 21}, {"metadata.version": 11}]


@pytest.mark.parametrize("features", _LEVELS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_clean_leader_lacks_a_committed_record(seed: int, features: dict[str, int] | None) -> None:
    simulation = Simulation(seed, features)
    simulation.play()
    replayed = MetadataReplayer(Image.empty())
    for offset, record in enumerate(simulation.log):
        replayed.replay(record, offset, 1, 0)
    image = replayed.publish(len(simulation.log) - 1, 1, 0)
    assert image == simulation.image
    snapshot = MetadataReplayer(Image.empty())
    for record in snapshot_records(image):
        snapshot.replay(record, 0, 1, 0)
    assert without_place(snapshot.publish(0, 1, 0)) == without_place(image)
