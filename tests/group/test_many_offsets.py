"""Very many offsets and groups: others have their turns while they are deleted, and while they are answered."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.sim.machine import Machine
from ottla.wire.api import offset_fetch as fetched
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tests.group.test_wide_requests import _MANY, _NAMES, _Client


@pytest.fixture
def machine() -> Machine:
    machine = Machine(Random(1), {"offsets.topic.num.partitions": "1"})
    machine.start()
    answer = _Client(machine).ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6)
    assert answer.coordinators[0].error_code == 0
    return machine


def _commit(client: _Client, group: str, topic: str, count: int) -> None:
    parts = [OffsetCommitRequestPartition(partition_index=each, committed_offset=1) for each in range(count)]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=parts)]
    request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
    assert {each.error_code for each in client.ask(request, 8).topics[0].partitions} == {0}


@pytest.mark.parametrize("asks", ["offsets", "groups"])
def test_others_have_their_turns_during_a_long_answer_to_a_short_request(machine: Machine, asks: str) -> None:
    machine.create_topic("wide", 2 * _MANY)
    wide, other = _Client(machine), _Client(machine)
    for number in range(1 if asks == "offsets" else _MANY):
        _commit(wide, f"group-{number}", "wide", 2 * _MANY if asks == "offsets" else 1)
    request: Any = ListGroupsRequest()
    if asks == "offsets":
        request = fetched.OffsetFetchRequest(groups=[fetched.OffsetFetchRequestGroup(group_id="group-0", topics=None)])
    version = 8 if asks == "offsets" else 5
    wide.send(request, version)
    other.send(MetadataRequest(topics=[]), 9)
    machine.run(lambda: bool(other.answers))
    assert wide.answers == [], "the other one is answered first"
    answer = wide.answer(request, version)
    if asks == "offsets":
        offsets_ = answer.groups[0].topics[0].partitions
        assert [(each.partition_index, each.committed_offset) for each in offsets_] == [(at, 1) for at in range(600)]
    else:
        assert sorted(each.group_id for each in answer.groups) == sorted(_NAMES)


@pytest.mark.parametrize("deletes", ["groups", "a topic"])
def test_others_have_their_turns_while_the_offsets_of_many_groups_are_deleted(machine: Machine, deletes: str) -> None:
    machine.create_topic("wide", 400)
    client = _Client(machine)
    names = [f"group-{number}" for number in range(7)]
    for name in names:
        _commit(client, name, "wide", 400)
    assert machine.node is not None
    machine.settle()
    (driver,) = machine.node.groups.loaded()
    committed = driver.machine.shard.offsets.committed
    request: Any = DeleteGroupsRequest(groups_names=names)
    if deletes == "a topic":
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="wide")], timeout_ms=1000)
    client.send(request, 2 if deletes == "groups" else 6)
    left = [len(committed)]
    began_ms = machine.clock.now_ms()
    while committed:
        assert machine.loop.turn() and machine.clock.now_ms() < began_ms + 1000, "long before they expire"
        left += [len(committed)] if len(committed) != left[-1] else []
    # One group at a time, or those that have about a thousand offsets together.
    assert left == ([7, 6, 5, 4, 3, 2, 1, 0] if deletes == "groups" else [7, 4, 1, 0])
    answer = client.answer(request, 2 if deletes == "groups" else 6)
    assert {each.error_code for each in (answer.results if deletes == "groups" else answer.responses)} == {0}
