"""A bug in what one client waits for: the others get their answers, and the node follows its metadata."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from tests.broker.disk_scene import TOPIC, Scene


def _breaks(*_: Any) -> None:
    raise ValueError("a bug")


@pytest.fixture
def scene() -> Scene:
    scene = Scene(1, log_dirs="/data", offsets_topic_num_partitions="1")
    scene.create(2)
    return scene


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
