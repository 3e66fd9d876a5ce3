"""A bug in what one client waits for: the others get their answers, and the node follows its metadata."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from unittest.mock import Mock, patch

import pytest

from ottla.broker.metadata.metadata_log import MetadataLog
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import OFFSETS_TOPIC, TopicPartition
from ottla.raft.effect import Answer, Commit, LeaderChanged, Send, Sync
from ottla.raft.event import TimerExpired
from ottla.share.state import SharePartitionKey
from ottla.sim.disk import SimDisk
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from tests.broker.disk_scene import TOPIC, Scene
from tests.controller.place import Place, create


def _breaks(*_: Any) -> None:
    raise ValueError("a bug")


@pytest.fixture
def scene() -> Scene:
    scene = Scene(1, log_dirs="/data", offsets_topic_num_partitions="1")
    scene.create(2)
    return scene


@pytest.fixture
def quorum() -> Iterator[tuple[MetadataLog, list[Exception]]]:
    """The metadata of a node on its own, and the errors that its loop gets."""
    place, errors = Place(SimDisk(Random(1))), list[Exception]()
    place.format()
    with place.node() as log:
        log.raft.images.on_error = errors.append
        yield log, errors


def test_a_step_of_the_quorum_is_carried_out_to_its_end(quorum: tuple[MetadataLog, list[Exception]]) -> None:
    log, errors = quorum
    told: list[str] = []
    for subscribe in (log.subscribe_step, log.subscribe_leader):
        subscribe(_breaks)
        subscribe(lambda: told.append("other"))
    assert create(log, "t") == [0]
    assert "t" in log.image.topics
    log.raft.network.answer = _breaks  # type: ignore[assignment]
    told.clear()
    errors.clear()
    high_watermark, flushes = log.log.high_watermark, Mock()
    log.raft.sync.want = flushes  # type: ignore[method-assign]
    effects = [LeaderChanged(9, 1, ()), Commit(high_watermark), Answer(1, None), Send(1, Mock(), Mock(), 1), Sync()]
    log.raft.network.send = _breaks  # type: ignore[assignment]
    log.raft.on_commit = _breaks
    with patch.object(log.raft.quorum, "step", return_value=effects):
        log.raft.step(TimerExpired())
    assert flushes.called, "what is behind them must be on the disk"
    assert told == ["other", "other"], "of the leader, and of the step"
    assert [str(error) for error in errors] == ["a bug"] * 3


def test_an_error_of_the_timer_does_not_end_it(quorum: tuple[MetadataLog, list[Exception]]) -> None:
    log, _ = quorum
    loop = Mock()
    log._loop = loop
    with patch.object(log, "deadline_ms", return_value=0):
        log._plan()
        with patch.object(log, "time_passed", _breaks), pytest.raises(ValueError, match="a bug"):
            log._due()
        log._loop = None
    assert [call.args[0] for call in loop.call_later.call_args_list] == [0, 1]


def _settle(scene: Scene) -> None:
    with pytest.raises(ValueError, match="a bug"):
        scene.machine.settle()
    scene.machine.settle()


def test_each_waiting_fetch_is_woken(scene: Scene) -> None:
    woken: list[str] = []
    partition = scene.node.partitions[TopicPartition(TOPIC, 0)]
    partition.waiting = {_breaks: None, lambda: woken.append("other"): None}
    scene.node.wake_later(partition)
    _settle(scene)
    assert woken == ["other"]


def test_each_who_waits_for_a_flush_goes_on(scene: Scene) -> None:
    flushed: list[str] = []
    log = scene.node.partitions[TopicPartition(TOPIC, 0)].log
    scene.node.flusher.flush([log], _breaks)
    scene.node.flusher.flush([log], lambda: flushed.append("other"))
    _settle(scene)
    assert flushed == ["other"]


def test_a_change_of_the_metadata_is_followed(scene: Scene) -> None:
    told: list[KafkaError | None] = []
    tps = [TopicPartition(TOPIC, index) for index in range(2)]
    first = scene.node.partitions[tps[0]]
    first.commits.add(9, _breaks)
    first.commits.add(9, told.append)
    first.deletions.add(9, told.append)
    woken: list[str] = []
    first.waiting = {lambda: woken.append("fetch"): None}
    for tp in tps:
        scene.node.leadership.resign(tp)
    _settle(scene)
    assert not scene.node.partitions.keys() & set(tps)
    assert [error and error.code for error in told] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert woken == ["fetch"]


def test_a_coordinator_that_gives_up_answers_all_and_is_replaced(scene: Scene) -> None:
    scene.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    driver = scene.node.groups.find(0)
    told: list[KafkaError] = []
    driver._waiting = {1: _breaks, 2: told.append}
    with pytest.raises(ValueError, match="a bug"):
        driver._fail()
    assert [error.code for error in told] == [ErrorCode.NOT_COORDINATOR]
    scene.machine.run(lambda: scene.node.groups.find(0) is not None)
    assert scene.node.groups.find(0) not in (None, driver)


def test_a_deleted_topic_goes_whole_though_a_coordinator_meets_a_bug_at_its_end() -> None:
    scene = Scene(1, log_dirs="/data", offsets_topic_num_partitions="2")
    scene.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    node, tps = scene.node, [TopicPartition(OFFSETS_TOPIC, index) for index in range(2)]
    first, told = node.partitions[tps[0]], list[Any]()
    first.commits.add(9, told.append)
    first.waiting = {lambda: told.append("fetch"): None}
    node.groups.find(0)._waiting = {1: _breaks}
    with patch.object(node.shares, "resign") as shares:
        node.leadership.drop(node.image.topics[OFFSETS_TOPIC])
    assert [getattr(each, "code", each) for each in told] == [ErrorCode.NOT_LEADER_OR_FOLLOWER, "fetch"]
    assert [call.args[0].tp for call in shares.call_args_list] == tps
    assert node.groups.loaded() == []
    assert [node.store.get(tp) for tp in tps] == [None, None]
    assert not node.hosted.keys() & set(tps)
    _settle(scene)


def test_each_share_partition_ends_with_its_leader(scene: Scene) -> None:
    partition, ended = scene.node.partitions[TopicPartition(TOPIC, 0)], list[str]()
    for group, waiting in (("a", [_breaks, lambda: ended.append("a")]), ("b", [lambda: ended.append("b")])):
        key = SharePartitionKey(group, partition.topic_id, 0)
        scene.node.shares.lead(key, partition).waiting = dict.fromkeys(waiting)
    scene.node.leadership.resign(partition.tp)
    _settle(scene)
    assert ended == ["a", "b"]
    assert not scene.node.shares._leaders


def test_each_coordinator_is_closed() -> None:
    scene = Scene(1, log_dirs="/data", offsets_topic_num_partitions="2")
    scene.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    drivers = scene.node.groups.loaded()
    drivers[0]._waiting = {1: _breaks}
    with pytest.raises(ValueError, match="a bug"):
        scene.node.groups.close()
    assert [driver.failed for driver in drivers] == [True, True]


def test_markers_are_forgotten_though_their_coordinator_meets_a_bug_at_its_end() -> None:
    scene = Scene(1, log_dirs="/data", transaction_state_log_num_partitions="1")
    scene.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)
    transactions = scene.node.transactions
    driver = transactions.find(0)
    driver._waiting = {1: _breaks}
    with patch.object(transactions.markers, "forget") as forget, pytest.raises(ValueError, match="a bug"):
        transactions.resign(0)
    forget.assert_called_once_with(driver)
