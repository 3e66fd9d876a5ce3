"""Changes of the metadata while the loop goes on: what is answered is durable, and what is not is not acted on."""

import errno
from random import Random
from typing import Any

import pytest

from ottla.broker.metadata.file import MetadataFiles
from ottla.broker.node import BrokerNode
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.log.log import Log
from ottla.sim.machine import Machine
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest


@pytest.fixture
def machine() -> Machine:
    one = Machine(Random(1))
    one.start()
    one.settle()
    return one


def _node(machine: Machine) -> BrokerNode:
    assert machine.node is not None
    return machine.node


def _create(machine: Machine, name: str, answered: list[Any]) -> None:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    _node(machine).quorum.ask(CreateTopicsRequest(topics=[topic]), answered.append)


def _codes(answered: list[Any]) -> list[tuple[str, int]]:
    return [(each.name, each.error_code) for answer in answered for each in answer.topics]


def test_a_topic_is_there_for_everyone_when_it_is_durable(machine: Machine) -> None:
    answered: list[Any] = []
    _create(machine, "t", answered)
    quorum = _node(machine).quorum
    assert not answered
    assert "t" in quorum.decided.topics
    assert "t" not in quorum.image.topics
    machine.settle()
    assert _codes(answered) == [("t", 0)]
    assert quorum.image is quorum.decided is _node(machine).image


def test_an_answer_without_records_waits_for_what_it_saw(machine: Machine) -> None:
    answered: list[Any] = []
    _create(machine, "t", answered)
    _create(machine, "t", answered)
    assert not answered
    machine.settle()
    assert _codes(answered) == [("t", 0), ("t", ErrorCode.TOPIC_ALREADY_EXISTS)]
    _create(machine, "t", answered)
    assert len(answered) == 3, "nothing is uncommitted, so nothing is waited for"


def test_what_comes_during_a_sync_shares_the_next(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = []
    log, sync = _node(machine).quorum.log, Log.sync

    def counted(one: Log) -> None:
        syncs.append(one is log)
        sync(one)

    monkeypatch.setattr(Log, "sync", counted)
    answered: list[Any] = []
    for number in range(5):
        _create(machine, f"t{number}", answered)
    machine.settle()
    assert _codes(answered) == [(f"t{number}", 0) for number in range(5)]
    assert syncs.count(True) == 2


def test_each_step_of_the_image_is_what_was_committed(machine: Machine) -> None:
    node, steps = _node(machine), []
    node.quorum.subscribe(lambda old, new: steps.append((set(old.topics), set(new.topics))))
    answered: list[Any] = []
    _create(machine, "a", answered)
    _create(machine, "b", answered)
    machine.settle()
    # The first sync began when only "a" was written.
    assert steps == [(set(), {"a"}), ({"a"}, {"a", "b"})]


def test_a_sync_that_fails_commits_nothing(machine: Machine) -> None:
    answered: list[Any] = []
    node = _node(machine)
    _create(machine, "a", answered)
    machine.disk.syncs_to_fail = 1
    _create(machine, "b", answered)
    machine.settle()
    assert [type(each) for each in answered] == [KafkaError, KafkaError]
    assert {each.code for each in answered} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert not node.quorum.image.topics
    assert machine.failure is not None
    _create(machine, "c", answered)
    assert [each.code for each in answered] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3


def test_a_stop_commits_what_was_decided(machine: Machine) -> None:
    answered: list[Any] = []
    _create(machine, "a", answered)
    machine.stop()
    assert _codes(answered) == [("a", 0)]
    machine.start()
    assert "a" in _node(machine).image.topics


@pytest.mark.parametrize("seed", range(40))
def test_what_was_answered_is_there_after_a_power_failure(seed: int) -> None:
    rng = Random(seed)
    machine = Machine(rng)
    machine.start()
    answered: list[Any] = []
    for number in range(rng.randrange(1, 8)):
        _create(machine, f"t{number}", answered)
        for _ in range(rng.randrange(4)):
            machine.loop.turn()
    known = set(_node(machine).image.topics)
    told = {name for name, code in _codes(answered) if not code}
    assert told <= known, "nobody is told what the node has not followed"
    machine.power_off()
    machine.start()
    assert known <= set(_node(machine).image.topics)


def test_producer_ids_are_given_once_and_the_next_block_comes_while_the_loop_goes_on(machine: Machine) -> None:
    ids = _node(machine).producer_ids
    given: list[int | None] = []
    for _ in range(2):
        ids.when_available(lambda: given.append(ids.next()))
    assert not given, "the first block is not durable yet"
    machine.settle()
    assert given == [0, 1]
    blocks, refused = _node(machine).quorum, 0
    while len(given) < 2500:
        given.append(ids.next())
        if given[-1] is None:
            # Nothing waits for the disk: the block that was asked for comes with the loop.
            given.pop()
            refused += 1
            machine.settle()
        if len(given) == 899:
            assert blocks.decided.next_producer_id == 1000
        if len(given) == 900:
            assert blocks.decided.next_producer_id == 2000
            assert blocks.image.next_producer_id == 1000
    assert given == list(range(2500))
    assert refused == 2
    machine.power_off()
    machine.start()
    machine.settle()
    ids = _node(machine).producer_ids
    ids.when_available(lambda: given.append(ids.next()))
    machine.settle()
    assert given[-1] is not None
    assert given[-1] >= 2500


def test_who_waits_for_a_producer_id_is_told_that_there_is_none_when_the_disk_failed(machine: Machine) -> None:
    ids = _node(machine).producer_ids
    told: list[int | None] = []
    machine.disk.syncs_to_fail = 1
    ids.when_available(lambda: told.append(ids.next()))
    machine.settle()
    ids.when_available(lambda: told.append(ids.next()))
    assert told == [None, None]


def _snapshots(machine: Machine) -> list[str]:
    return [name for name in machine.disk.list("/data/__cluster_metadata-0") if name.endswith(".checkpoint")]


def test_a_snapshot_is_written_while_the_loop_goes_on() -> None:
    machine = Machine(Random(2), {"metadata.log.max.record.bytes.between.snapshots": "1500"})
    machine.start()
    machine.settle()
    before, answered = len(_snapshots(machine)), list[Any]()
    while not answered or len(_snapshots(machine)) == before:
        _create(machine, f"t{len(answered)}", answered)
        machine.settle()
    assert len(answered) > 1
    topics = _node(machine).image.topics
    machine.power_off()
    machine.start()
    assert _node(machine).image.topics.keys() == topics.keys()


def test_a_snapshot_that_cannot_be_written_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(Random(3), {"metadata.log.max.record.bytes.between.snapshots": "1500"})
    machine.start()
    machine.settle()
    before, answered = _snapshots(machine), list[Any]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MetadataFiles, "write_image", _full_disk)
        for _ in range(20):
            _create(machine, f"t{len(answered)}", answered)
            machine.settle()
    assert "cannot write a metadata snapshot" in caplog.text
    assert _codes(answered) == [(f"t{number}", 0) for number in range(20)]
    assert _snapshots(machine) == before
    for _ in range(20):
        _create(machine, f"t{len(answered)}", answered)
        machine.settle()
    assert _snapshots(machine) != before
    assert machine.failure is None


def _full_disk(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "the disk is full")
