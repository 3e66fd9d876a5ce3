"""Many logs are created and deleted beside the loop, and coordinators are loaded while the node serves: by seeds."""

import errno
import re
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from ottla.broker.coordinators.driver import LOAD_BYTES
from ottla.broker.coordinators.topic_spec import new_topic
from ottla.broker.node import BrokerNode
from ottla.broker.partitions import leadership
from ottla.group.records.encode import offset_entry
from ottla.group.state.offsets import Committed
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import OFFSETS_TOPIC, TopicPartition
from ottla.log.directory.new_log import NewLog
from ottla.log.log import Origin
from ottla.sim.disk import Crashed
from ottla.sim.machine import Machine
from ottla.wire.api.create_topics import CreateTopicsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.batch import build

_MANY = 20


def _machine(seed: int) -> Machine:
    machine = Machine(Random(seed), {"offsets.topic.num.partitions": "1"})
    machine.start()
    return machine


def _node(machine: Machine) -> BrokerNode:
    assert machine.node is not None
    return machine.node


def _ask(node: BrokerNode, request: Any) -> None:
    """The controller decides, and it is committed; its followers have their turn later."""
    node.quorum.ask(request, lambda _: None)
    with suppress(OSError):
        node.quorum.raft.sync.now()


def _begin(node: BrokerNode, topic: str) -> None:
    """The topic is committed, and its logs are being made."""
    _ask(node, CreateTopicsRequest(topics=[new_topic(topic, _MANY)]))


def _led(machine: Machine, topic: str) -> int:
    """How many partitions of a topic are led, each by the log of that topic and no other."""
    node = _node(machine)
    found = [each for tp, each in node.partitions.items() if tp[0] == topic]
    assert all(each.log.topic_id == node.image.topics[topic].topic_id == each.topic_id for each in found)
    return len(found)


def test_the_loop_goes_on_while_many_logs_are_made() -> None:
    machine = _machine(1)
    node = _node(machine)
    machine.create_topic("small", 3)
    assert _led(machine, "small") == 3
    _begin(node, "many")
    assert _led(machine, "many") == 0
    with pytest.raises(KafkaError) as caught:
        node.leader_of("many", 0)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    made: list[int] = []
    node.leadership.on_created(["many", "small"], lambda: made.append(_led(machine, "many")))
    assert not made
    machine.settle()
    assert made == [_MANY]
    node.leadership.on_created(["many"], lambda: made.append(0))
    assert made == [_MANY, 0]


def test_a_turn_of_the_loop_takes_few_of_the_made_logs_over() -> None:
    machine = _machine(1)
    _begin(_node(machine), "many")
    seen = [0]
    while machine.loop.busy and seen[-1] < _MANY:
        machine.loop.turn()
        seen.append(_led(machine, "many"))
    assert seen[-1] == _MANY
    assert max(after - before for before, after in pairwise(seen)) < _MANY / 2


@pytest.mark.parametrize("seed", range(8))
def test_a_topic_that_is_deleted_and_made_again_while_its_logs_are_made_has_its_own(seed: int) -> None:
    machine = _machine(seed)
    node = _node(machine)
    for turns in range(12):
        _begin(node, "t")
        for _ in range(turns * 3):
            machine.loop.turn()
        _ask(node, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    _begin(node, "t")
    machine.settle()
    assert _led(machine, "t") == _MANY
    node.partitions["t", 3].append(build([(1, None, b"kept", ())]), 1)
    machine.stop()
    machine.start()
    assert _led(machine, "t") == _MANY
    assert _node(machine).partitions["t", 3].log.end_offset == 1


@pytest.mark.parametrize("seed", range(2))
def test_a_topic_whose_making_is_cut_short_anywhere_is_whole_after_the_start(seed: int) -> None:
    effects = 0
    for crash_after in range(0, 400, 5):
        machine = _machine(seed)
        node = _node(machine)
        began = machine.disk.effects
        machine.disk.crash_at = began + crash_after
        try:
            _begin(node, "t")
            machine.settle()
            effects = machine.disk.effects - began
        except Crashed:
            pass
        machine.power_off()
        machine.start()
        machine.settle()
        there = "t" in _node(machine).image.topics
        assert not there or _led(machine, "t") == _MANY
        if effects:
            assert there
            break
    assert effects, "the crash never came after the last effect"


@pytest.fixture
def few_deletions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn renames the directories of few deleted logs."""
    monkeypatch.setattr(leadership, "_DELETIONS_PER_TURN", 3)


def _delete(node: BrokerNode, topic: str) -> None:
    """The deletion is committed and followed."""
    _ask(node, DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)]))
    node.quorum.raft.sync.now()


def _lie_in(machine: Machine, suffix: str) -> int:
    """How many directories of partitions have this suffix, or none."""
    paths = [f"{path}/{name}" for path in _node(machine).store.directories for name in machine.disk.list(path)]
    return len([path for path in paths if re.fullmatch(r".*/t[-.0-9a-f]*" + suffix, path)])


@pytest.mark.usefixtures("few_deletions")
def test_a_deleted_topic_is_led_no_more_before_its_logs_are_renamed_some_a_turn() -> None:
    machine = _machine(1)
    node = _node(machine)
    machine.create_topic("t", _MANY)
    _delete(node, "t")
    while "t" in node.image.topics:
        machine.loop.turn()
    assert _led(machine, "t") == 0 and not [tp for tp in node.store.logs() if tp.topic == "t"]
    with pytest.raises(KafkaError) as caught:
        node.leader_of("t", 0)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    seen = [_lie_in(machine, "")]
    assert seen[0] >= _MANY - 3
    while machine.loop.busy and seen[-1]:
        machine.loop.turn()
        seen.append(_lie_in(machine, ""))
    assert seen[-1] == 0 and max(before - after for before, after in pairwise(seen)) == 3
    assert _lie_in(machine, "-delete") == _MANY


@pytest.mark.usefixtures("few_deletions")
@pytest.mark.parametrize("turns", range(8))
def test_a_node_that_stops_while_logs_are_deleted_leaves_no_strays(turns: int) -> None:
    machine = _machine(1)
    machine.create_topic("t", _MANY)
    _delete(_node(machine), "t")
    for _ in range(turns):
        machine.loop.turn()
    machine.stop()
    machine.start()
    machine.settle()
    assert (_lie_in(machine, ""), _lie_in(machine, "-stray"), _lie_in(machine, "-delete")) == (0, 0, 0)


@pytest.mark.usefixtures("few_deletions")
@pytest.mark.parametrize("seed", range(2))
def test_a_topic_made_again_while_an_earlier_one_is_deleted_has_its_own_logs_after_any_crash(seed: int) -> None:
    effects = 0
    for crash_after in range(0, 600, 5):
        machine = _machine(seed)
        node = _node(machine)
        machine.create_topic("t", _MANY)
        node.partitions["t", 3].append(build([(1, None, b"old", ())]), 1)
        began = machine.disk.effects
        machine.disk.crash_at = began + crash_after
        try:
            _delete(node, "t")
            _begin(node, "t")
            machine.settle()
            assert _led(machine, "t") == _MANY and node.partitions["t", 3].log.end_offset == 0
            assert _lie_in(machine, "-stray") == 0
            effects = machine.disk.effects - began
        except Crashed:
            pass
        if crash_after % 2:
            machine.kill()
        else:
            machine.power_off()
        machine.start()
        machine.settle()
        if "t" in _node(machine).image.topics:
            assert _led(machine, "t") == _MANY
        if effects:
            break
    assert effects, "the crash never came after the last effect"


def test_a_coordinators_topic_is_made_while_the_loop_goes_on() -> None:
    machine = _machine(1)
    node = _node(machine)
    there: list[int] = []
    for _ in range(2):
        node.groups.ensure_topic(lambda: there.append(_led(machine, OFFSETS_TOPIC)))
    assert there == []
    assert OFFSETS_TOPIC not in node.image.topics
    machine.settle()
    assert there == [1, 1]
    assert node.groups.driver_of("any") is node.groups.find(0)


def test_a_group_of_a_topic_that_is_being_made_is_found_when_it_is_made() -> None:
    machine = _machine(1)
    node = _node(machine)
    _ask(node, CreateTopicsRequest(topics=[node.groups.new_topic()]))
    assert not node.partitions
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        node.groups.driver_of("any")
    machine.settle()
    assert node.groups.driver_of("any").partition is node.partitions[TopicPartition(OFFSETS_TOPIC, 0)]


def test_a_topic_that_a_full_disk_does_not_take_is_tried_again_by_the_housekeeping() -> None:
    machine = _machine(1)
    node = _node(machine)
    tries: list[NewLog] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NewLog, "begin", lambda log: _full(tries, log))
        _begin(node, "t")
        machine.settle()
        assert (len(tries), _led(machine, "t")) == (_MANY, 0)
    node.leadership.retry_creation()
    machine.settle()
    assert _led(machine, "t") == _MANY


def _full(tries: list[NewLog], log: NewLog) -> NewLog:
    tries.append(log)
    raise OSError(errno.ENOSPC, "the disk is full")


def test_a_coordinator_is_loaded_while_the_node_serves() -> None:
    machine = _machine(3)
    node = _node(machine)
    _ask(node, CreateTopicsRequest(topics=[node.groups.new_topic()]))
    machine.settle()
    partition = node.partitions[TopicPartition(OFFSETS_TOPIC, 0)]
    number = 0
    while partition.log.size < 5 * LOAD_BYTES:
        entries = []
        for _ in range(50):
            key, value = offset_entry(f"group-{number}", "t", 0, Committed(number, -1, "", 1))
            entries.append((1, key, value, ()))
            number += 1
        partition.append(bytearray(build(entries)), 1, Origin.COORDINATOR)
    machine.stop()
    machine.start()
    node = _node(machine)
    for ask in (lambda: node.groups.driver_of("group-1"), lambda: node.groups.drivers()):
        with pytest.raises(KafkaError) as caught:
            ask()
        assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    machine.create_topic("while-it-loads", 1)
    machine.settle()
    assert len(node.groups.driver_of("group-1").machine.shard.groups) == number
    assert not node.groups.loading()
