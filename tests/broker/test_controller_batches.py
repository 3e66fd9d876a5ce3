"""A decision about more partitions than a batch of metadata may hold records is written as several batches."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.metadata import controller_driver
from ottla.kernel.ids import Uuid
from ottla.sim.node import NodeHost
from ottla.sim.world import World
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.api.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.wire.batch import read
from ottla.wire.record.metadata import PartitionChangeRecord, parse
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
    monkeypatch.setattr(controller_driver, "_BATCH_RECORDS_MAX", 40)
    scene = Scene()
    for broker_id in (1, 2):
        scene.start_broker(broker_id)
    assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=[1, 2]) for index in range(100)]
    topic = CreatableTopic(name="many", num_partitions=-1, replication_factor=-1, assignments=assignments)
    made = scene.ask(CreateTopicsRequest(topics=[topic]))
    assert made.topics[0].error_code == 0
    log = scene.quorum.raft.log
    before = log.end_offset
    assert not scene.beat(1, stops=True).should_shut_down
    assert {each.leader for each in scene.quorum.image.topics["many"].partitions} == {2}
    batches = list(read(log.read(before, 1 << 20, end_offset=log.end_offset, min_one_batch=True).bytes()))
    changes = [
        sum(isinstance(parse(record.value or b"")[0], PartitionChangeRecord) for record in batch.records())
        for batch in batches
    ]
    # The first is of the broker itself.
    assert [each for each in changes if each] == [39, 40, 21]
    # What must stand together does: a topic is one batch.
    created = list(read(log.read(0, 1 << 20, end_offset=before, min_one_batch=True).bytes()))
    assert max(len(list(batch.records())) for batch in created) == 101
