"""A coordinator whose machine raises an unexpected exception: it is loaded again, and nobody else is held up."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.metadata.topic_view import TopicStep
from ottla.coordinator.contract import Called
from ottla.group.coordinator import GroupCoordinator
from ottla.group.event import TopicsChanged
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.list_groups import ListGroupsRequest
from tests.broker.disk_scene import TOPIC, Scene


def _coordinated() -> Scene:
    scene = Scene(1, log_dirs="/data", offsets_topic_num_partitions="2")
    scene.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    scene.create(1)
    return scene


def _break_at(monkeypatch: pytest.MonkeyPatch, partition: int, breaks: Any) -> list[Any]:
    """Steps of this partition's machine raise if `breaks` says so; returns the events of the other partition."""
    step, others = GroupCoordinator.step, list[Any]()

    def broken(self: GroupCoordinator, event: Any, now: Any) -> Any:
        if self.partition != partition:
            others.append(event)
        elif breaks(event):
            raise ValueError("a bug")
        return step(self, event, now)

    monkeypatch.setattr(GroupCoordinator, "step", broken)
    return others


def _settle(scene: Scene) -> None:
    """The bug comes to light in a turn of its own."""
    with pytest.raises(ValueError, match="a bug"):
        scene.machine.settle()
    scene.machine.run(lambda: scene.node.groups.find(0) is not None)


def test_a_bug_in_one_coordinator_keeps_a_change_of_the_metadata_from_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = _coordinated()
    groups = scene.node.groups
    before = groups.find(0)
    others = _break_at(monkeypatch, 0, lambda event: isinstance(event, TopicsChanged))
    groups.topics_changed(TopicStep([TOPIC], [], [], []))
    assert [type(each) for each in others] == [TopicsChanged]
    _settle(scene)
    assert groups.find(0) not in (None, before), "it was loaded again"


def test_a_request_that_meets_a_bug_is_not_to_be_retried_and_the_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = _coordinated()
    driver = scene.node.groups.find(0)
    told: list[tuple[str, Any]] = []
    join = JoinGroupRequest(
        group_id="waits",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    driver.ask(join, 3, lambda answer: told.append(("join", answer)))
    assert told == []
    _break_at(monkeypatch, 0, lambda event: isinstance(event, Called) and isinstance(event.request, ListGroupsRequest))
    driver.ask(ListGroupsRequest(), 4, lambda answer: told.append(("list", answer)))
    assert {name: answer.code for name, answer in told if isinstance(answer, KafkaError)} == {
        "join": ErrorCode.NOT_COORDINATOR,
        "list": ErrorCode.UNKNOWN_SERVER_ERROR,
    }
    _settle(scene)
    assert scene.node.groups.find(0) not in (None, driver)
