"""A decision about more partitions than a batch of metadata may hold records is written as several batches."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.metadata import controller_driver
from ottla.controller import decision
from ottla.controller.decision import Decision
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.sim.disk import SimDisk
from ottla.sim.node import NodeHost
from ottla.sim.world import World
from ottla.wire.api.alter_client_quotas import AlterClientQuotasRequest, EntityData, OpData, RequestEntryData
from ottla.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.api.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.wire.batch import read
from ottla.wire.record.metadata import NoOpRecord, PartitionChangeRecord, parse
from tests.controller.place import Place
from tests.controller.scene import directory, registration
from tests.world.cluster import cluster


class Scene:
    """A controller and brokers that are nothing but what they ask."""

    def __init__(self) -> None:
        self.world = World(1)
        self.host: NodeHost
        self.host, _ = cluster(self.world, 0, {"broker.session.timeout.ms": "600000"})
        self.host.start()
        assert self.host.running is not None
        self.quorum = self.host.running.quorum
        assert self.world.run_until(lambda: self.host.decides, limit_ms=10_000)
        self.world.run_for(100)

    def ask(self, request: Any) -> Any:
        told: list[Any] = []
        assert self.host.host.loop is not None
        self.host.host.loop.call_soon(lambda: self.quorum.ask(request, told.append))
        assert self.world.run_until(lambda: bool(told), limit_ms=10_000)
        return told[0]

    def start_broker(self, broker_id: int) -> None:
        request = registration(broker_id)
        request.cluster_id = self.host.running.cluster_id if self.host.running is not None else ""
        request.log_dirs = [Uuid(directory(100 + broker_id))]
        self.ask(request)
        self.beat(broker_id)

    def create(self, partitions: int) -> None:
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=[1, 2]) for index in range(partitions)
        ]
        topic = CreatableTopic(name="many", num_partitions=-1, replication_factor=-1, assignments=assignments)
        assert self.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code == 0

    def batches(self, offset: int) -> list[list[Any]]:
        """The records of each batch of the log from here on."""
        log = self.quorum.raft.log
        data = log.read(offset, 1 << 20, end_offset=log.end_offset, min_one_batch=True).bytes()
        return [list(batch.records()) for batch in read(data)]

    def changes(self, offset: int) -> list[int]:
        """The number of changed partitions in each batch that has any."""
        counts = [
            sum(isinstance(parse(record.value or b"")[0], PartitionChangeRecord) for record in batch)
            for batch in self.batches(offset)
        ]
        return [count for count in counts if count]

    def beat(self, broker_id: int, *, stops: bool = False) -> Any:
        return self.ask(
            BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=self.quorum.image.brokers[broker_id].epoch,
                current_metadata_offset=self.quorum.image.offset,
                want_shut_down=stops,
            )
        )


def test_a_broker_that_stops_and_leads_much_is_written_down_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    for broker_id in (1, 2):
        scene.start_broker(broker_id)
    scene.create(100)
    # What must stand together does: a topic is one batch.
    assert max(len(batch) for batch in scene.batches(0)) == 101
    monkeypatch.setattr(controller_driver, "RECORDS_MAX", 40)
    before = scene.quorum.raft.log.end_offset
    assert not scene.beat(1, stops=True).should_shut_down
    assert {each.leader for each in scene.quorum.image.topics["many"].partitions} == {2}
    # The first is of the broker itself.
    assert scene.changes(before) == [39, 40, 21]


def test_a_reassignment_of_many_partitions_is_written_down_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    for broker_id in (1, 2, 3):
        scene.start_broker(broker_id)
    scene.create(100)
    monkeypatch.setattr(controller_driver, "RECORDS_MAX", 40)
    before = scene.quorum.raft.log.end_offset
    partitions = [ReassignablePartition(partition_index=index, replicas=[1, 3]) for index in range(101)]
    answer = scene.ask(
        AlterPartitionReassignmentsRequest(
            timeout_ms=1000, topics=[ReassignableTopic(name="many", partitions=partitions)]
        )
    )
    codes = [each.error_code for each in answer.responses[0].partitions]
    assert codes == [ErrorCode.NONE] * 100 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert {tuple(each.adding_replicas) for each in scene.quorum.image.topics["many"].partitions} == {(3,)}
    assert scene.changes(before) == [40, 40, 20]


@pytest.mark.parametrize("entries", [40, 41])
def test_what_must_stand_together_and_is_too_large_for_a_batch_is_refused(
    entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()
    monkeypatch.setattr(decision, "RECORDS_MAX", 40)
    quotas = [
        RequestEntryData(
            entity=[EntityData(entity_type="user", entity_name=f"u{number}")],
            ops=[OpData(key="producer_byte_rate", value=1.0, remove=False)],
        )
        for number in range(entries)
    ]
    answer = scene.ask(AlterClientQuotasRequest(entries=quotas, validate_only=False))
    if entries == 40:
        assert {each.error_code for each in answer.entries} == {ErrorCode.NONE}
        assert len(scene.quorum.image.quotas) == 40
    else:
        assert isinstance(answer, KafkaError)
        assert answer.code is ErrorCode.POLICY_VIOLATION
        assert answer.message == "Unable to perform excessively large batch operation."
        assert not scene.quorum.image.quotas


@pytest.mark.parametrize("count", [10_000, 10_001])
def test_a_batch_of_metadata_has_at_most_as_many_records_as_with_apache_kafka(count: int) -> None:
    batches: list[list[Any]] = []
    raft: Any = SimpleNamespace(
        check_works=lambda: None, quorum=SimpleNamespace(leads=True), submit=lambda records: batches.append(records)
    )
    place = Place(SimDisk(Random(1)))
    driver = controller_driver.ControllerDriver(place.settings, place.clock, place.rng, raft, "cluster")
    driver.is_active = True
    driver._submit(Decision([NoOpRecord()] * count, None, atomic=False))
    assert [len(batch) for batch in batches] == ([10_000] if count == 10_000 else [10_000, 1])
    batches.clear()
    if count == 10_000:
        driver._submit(Decision([NoOpRecord()] * count, None))
        assert [len(batch) for batch in batches] == [10_000]
    else:
        with pytest.raises(KafkaError, match="excessively large"):
            driver._submit(Decision([NoOpRecord()] * count, None))
        assert batches == []
