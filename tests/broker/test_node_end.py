"""What a node leaves behind when it ends, or when its start fails: no timer, no open log."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.broker.coordinators.topic_spec import new_topic
from ottla.broker.metadata.metadata_log import MetadataLog
from ottla.broker.metadata.raft_driver import RaftDriver
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.log.directory.store import Store
from ottla.log.log import Log, LogSettings
from ottla.sim.disk import SimDisk
from ottla.wire.api import init_producer_id, join_group
from ottla.wire.api.alter_client_quotas import AlterClientQuotasRequest, EntityData, OpData, RequestEntryData
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from tests.abuse.served import frame
from tests.broker.disk_scene import Scene
from tests.broker.test_controller_node import ControllerScene
from tests.controller.place import Place, create


def test_a_stopped_node_has_no_timer_left() -> None:
    scene = Scene(offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1")
    machine = scene.machine
    scene.create()
    for key_type in (0, 1):
        scene.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"]), 4)
        machine.settle()
    begin = init_producer_id.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    assert not scene.ask(begin, 4).error_code
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    join = join_group.JoinGroupRequest(
        group_id="x", session_timeout_ms=10_000, protocol_type="consumer", protocols=[protocol]
    )
    assert not scene.ask(join, 3).error_code
    assert any(not handle.cancelled() for _, _, handle in machine.loop._timers)
    machine.stop()
    machine.settle()
    left = [handle for _, _, handle in machine.loop._timers if not handle.cancelled()]
    assert not left


def test_a_log_that_opens_is_committed_and_one_that_does_not_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(SimDisk(Random(1)))
    place.format()
    with place.node() as log:
        create(log, "a")
    opened: list[Log] = []
    load = RaftDriver.load

    def loads(driver: RaftDriver) -> None:
        load(driver)
        # The first flush of the second start fails.
        place.disk.syncs_to_fail = len(opened)
        opened.append(driver.log)

    monkeypatch.setattr(RaftDriver, "load", loads)
    store = Store.open(place.disk, ["/data"], node_id=1, now_ms=1, settings_of=lambda _: LogSettings())
    log = MetadataLog.open(place.disk, place.settings, store, place.clock, place.rng)
    assert list(log.image.topics) == ["a"]
    assert log.image is log.decided
    log.close()
    with pytest.raises(OSError, match=r"."):
        MetadataLog.open(place.disk, place.settings, store, place.clock, place.rng)
    assert [each.closed for each in opened] == [True, True]
    store.abandon()


def test_a_controller_registers_again_until_the_active_one_has_taken_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = ControllerScene()
    node = scene.start()
    monkeypatch.setattr(MetadataLog, "is_controller_unregistered", True)
    asked: list[Any] = []
    monkeypatch.setattr(node.controllers, "ask", lambda _request, done: asked.append(done))
    node._register_controller()
    node._register_controller()
    assert len(asked) == 1, "one request at a time"
    asked[0](KafkaError(ErrorCode.NOT_CONTROLLER))
    while len(asked) < 2:
        assert scene.loop.turn()
    asked[1](object())
    node._register_controller()
    assert len(asked) == 3
    node.close()
    asked[2](KafkaError(ErrorCode.NOT_CONTROLLER))
    while scene.loop.turn():
        assert len(asked) == 3, "a node that has ended asks nothing"


def test_a_client_whose_change_is_decided_as_the_node_stops_loses_its_connection_and_gets_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.create()
    told: list[str] = []
    connection = scene.machine.connect(lambda reply: told.append("answer"), lambda: told.append("lost"))
    # The records are not on the disk before the end.
    monkeypatch.setattr(scene.node.quorum.raft.sync, "later", lambda: None)
    quota = RequestEntryData(
        entity=[EntityData(entity_type="user", entity_name="u")],
        ops=[OpData(key="producer_byte_rate", value=1.0, remove=False)],
    )
    connection.send(frame(AlterClientQuotasRequest(entries=[quota], validate_only=False), 1)[4:])
    scene.machine.settle()
    assert told == []
    scene.machine.stop()
    scene.machine.settle()
    assert told == ["lost"]


def test_a_topic_that_is_decided_as_its_node_stops_is_there_at_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    with monkeypatch.context() as away:
        away.setattr(scene.node.quorum.raft.sync, "later", lambda: None)
        scene.node.create_topics([new_topic("late", 2, {})], lambda answer: None)
        scene.machine.settle()
        assert "late" not in scene.node.image.topics
        scene.machine.stop()
        # Nothing is left to do that needs the logs, which are closed.
        scene.machine.settle()
    scene.machine.start()
    scene.machine.settle()
    assert [scene.node.store.get(TopicPartition("late", index)) is None for index in range(2)] == [False, False]
