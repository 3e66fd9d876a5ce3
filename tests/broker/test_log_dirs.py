"""Several log directories on a simulated machine: where logs lie, how they move, and disks that fail."""

from __future__ import annotations

import errno
import shutil
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

import ottla
from ottla.client import Admin, NewTopic, Producer
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.sim.disk import Crashed
from ottla.sim.machine import Machine
from ottla.wire.api import create_topics, incremental_alter_configs
from ottla.wire.api.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.disk_scene import TOPIC, Scene, about_to_move

MOVED = TopicPartition(TOPIC, 1)


def test_new_partitions_go_where_the_fewest_are_and_the_controller_is_told() -> None:
    scene = Scene()
    scene.create()
    assert sorted(scene.lies_in(index) for index in range(4)) == ["/a", "/a", "/b", "/b"]
    for index, partition in enumerate(scene.node.image.topics[TOPIC].partitions):
        [directory] = partition.directories
        assert scene.node.log_dirs._id_of(scene.lies_in(index)) == directory


def test_topics_that_are_created_together_are_spread_over_the_directories() -> None:
    scene = Scene()
    topics = [create_topics.CreatableTopic(name=f"t{number}", num_partitions=1) for number in range(30)]
    for topic in topics:
        topic.replication_factor = 1
    scene.ask(create_topics.CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
    scene.machine.settle()
    homes = [scene.node.store.directory_of(TopicPartition(topic.name, 0)) for topic in topics]
    assert homes.count("/a") == homes.count("/b") == 15


def test_the_controller_is_told_of_logs_that_threads_have_made() -> None:
    scene = Scene()
    topic = create_topics.CreatableTopic(name=TOPIC, num_partitions=40, replication_factor=1)
    scene.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    scene.machine.settle()
    for index, partition in enumerate(scene.node.image.topics[TOPIC].partitions):
        assert partition.directories == (scene.node.log_dirs._id_of(scene.lies_in(index)),)


def test_the_controller_hears_of_the_directories_when_the_level_brings_them() -> None:
    settings = {"log.dirs": "/a,/b", "controller.quorum.voters": "1@localhost:9093"}
    machine = Machine(Random(1), settings, release="3.7-IV1")
    machine.start()
    machine.create_topic(TOPIC, 4)
    machine.settle()
    node = machine.node
    assert node is not None
    before = node.image.brokers[1]
    assert before.log_dirs == ()
    raised = FeatureUpdateKey(feature="metadata.version", max_version_level=17, upgrade_type=1)
    machine.ask(UpdateFeaturesRequest(feature_updates=[raised]))
    machine.settle()
    after = node.image.brokers[1]
    assert set(after.log_dirs) == set(node.log_dirs.online_ids())
    assert (after.epoch, after.incarnation_id, after.fenced) == (before.epoch, before.incarnation_id, False)
    for partition, known in enumerate(node.image.topics[TOPIC].partitions):
        place = node.store.directory_of(TopicPartition(TOPIC, partition))
        assert known.directories == (node.log_dirs._id_of(place),)


@pytest.mark.parametrize("refuses_all", [True, False])
def test_the_controller_is_told_again_what_it_has_refused(refuses_all: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    node, refused = scene.node, 0
    ask = node.controllers.ask

    def refusing(request: Any, done: Any, *more: Any, **named: Any) -> None:
        nonlocal refused
        if not isinstance(request, AssignReplicasToDirsRequest) or refused == 3:
            ask(request, done, *more, **named)
            return
        refused += 1
        if refuses_all:
            done(KafkaError(ErrorCode.STALE_BROKER_EPOCH))
            return
        answer = AssignReplicasToDirsResponse(
            directories=[
                ResponseDirectoryData(
                    id=directory.id,
                    topics=[
                        ResponseTopicData(
                            topic_id=topic.topic_id,
                            partitions=[
                                ResponsePartitionData(
                                    partition_index=each.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_ID
                                )
                                for each in topic.partitions
                            ],
                        )
                        for topic in directory.topics
                    ],
                )
                for directory in request.directories
            ]
        )
        done(answer)

    monkeypatch.setattr(node.controllers, "ask", refusing)

    def known(index: int) -> bool:
        [directory] = node.image.topics[TOPIC].partitions[index].directories
        return bool(node.log_dirs._id_of(scene.lies_in(index)) == directory)

    scene.create()
    assert refused
    assert not any(known(index) for index in range(4))
    scene.machine.run(lambda: all(known(index) for index in range(4)))
    assert refused == 3


def test_what_was_refused_of_a_deleted_topic_is_left_out_though_one_of_its_name_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    node, ask, refused = scene.node, scene.node.controllers.ask, 0

    def refusing(request: Any, done: Any, *more: Any, **named: Any) -> None:
        nonlocal refused
        if isinstance(request, AssignReplicasToDirsRequest) and not refused:
            refused += 1
            done(KafkaError(ErrorCode.STALE_BROKER_EPOCH))
        else:
            ask(request, done, *more, **named)

    monkeypatch.setattr(node.controllers, "ask", refusing)
    scene.create(4)
    assert refused
    scene.machine.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=1000))
    scene.machine.settle()
    scene.create(1)
    end_ms = scene.machine.clock.monotonic_ms() + 5000
    scene.machine.run(lambda: scene.machine.clock.monotonic_ms() >= end_ms)
    [directory] = node.image.topics[TOPIC].partitions[0].directories
    assert directory == node.log_dirs._id_of(scene.lies_in(0))


def test_a_partition_moves_while_it_is_written_and_stays_there() -> None:
    scene = Scene()
    scene.create()
    for number in range(20):
        assert scene.write(1, b"%d " % number + bytes(100_000)) == "NONE"
    scene.slow_down(100_000)
    to = scene.other(1)
    assert scene.move(1, to) == "NONE"
    topic = next(each for each in scene.described()[to].topics if each.name == TOPIC)
    future = next(each for each in topic.partitions if each.partition_index == 1)
    assert future.is_future_key
    assert future.offset_lag > 0
    for number in range(20, 25):
        assert scene.write(1, b"%d" % number) == "NONE"
    scene.until_moved(1, to)
    assert not any(each.is_future_key for topic in scene.described()[to].topics for each in topic.partitions)
    assert scene.write(1, b"after") == "NONE"
    assert scene.read(1) == scene.written[1]
    assert scene.node.image.topics[TOPIC].partitions[1].directories == (scene.node.log_dirs._id_of(to),)
    scene.machine.stop()
    scene.machine.start()
    assert scene.lies_in(1) == to
    assert scene.read(1) == scene.written[1]


def test_a_move_begins_at_the_start_of_the_log_and_keeps_it() -> None:
    scene = Scene()
    scene.create()
    for number in range(6):
        scene.write(1, b"%d" % number)
    scene.node.partitions[MOVED].log.advance_start_offset(4)
    to = scene.other(1)
    scene.move(1, to)
    scene.until_moved(1, to)
    assert scene.node.partitions[MOVED].log.start_offset == 4
    scene.machine.power_off()
    scene.machine.start()
    log = scene.node.partitions[MOVED].log
    assert (log.start_offset, log.end_offset) == (4, 6)


def test_a_move_that_is_taken_back_or_goes_nowhere_changes_nothing() -> None:
    scene = Scene()
    scene.create()
    scene.write(1, b"x" * 3_000)
    at = scene.lies_in(1)
    assert scene.move(1, at) == "NONE"
    assert scene.move(1, "/c") == "LOG_DIR_NOT_FOUND"
    assert scene.move(9, scene.other(1)) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert scene.move(1, scene.other(1)) == "NONE"
    assert scene.move(1, at) == "NONE"
    scene.machine.settle()
    assert scene.lies_in(1) == at
    assert not [name for name in scene.machine.disk.list(scene.other(1)) if name.endswith("-future")]


def effects_of_a_move() -> int:
    scene, to = about_to_move(0)
    before = scene.machine.disk.effects
    assert scene.move(1, to) == "NONE"
    scene.until_moved(1, to)
    return scene.machine.disk.effects - before


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.long)])
def test_a_crash_at_any_point_of_a_move_loses_nothing(step: int) -> None:
    for number in range(0, effects_of_a_move() + 2, step):
        scene, to = about_to_move(number)
        disk = scene.machine.disk
        disk.crash_at = disk.effects + number
        try:
            scene.move(1, to)
            scene.until_moved(1, to)
            scene.write(1, b"after")
        except Crashed:
            pass
        scene.machine.power_off()
        scene.machine.start()
        found, known = scene.read(1), scene.written[1]
        assert found[: len(known)] == known, number
        assert set(found[len(known) :]) <= {b"after"}, number
        assert scene.write(1, b"again") == "NONE"
        scene.machine.settle()
        assert scene.read(1)[-1] == b"again", number
        homes = [path for path in ("/a", "/b") if str(MOVED) in disk.list(path)]
        assert homes == [scene.lies_in(1)], number


def test_a_move_that_was_interrupted_goes_on_after_the_start() -> None:
    scene, to = about_to_move(4)
    for number in range(30):
        scene.write(1, b"%d " % number + bytes(200_000))
    scene.slow_down(100_000)
    assert scene.move(1, to) == "NONE"
    assert scene.lies_in(1) != to
    scene.machine.power_off()
    scene.machine.start()
    scene.until_moved(1, to)
    assert scene.read(1) == scene.written[1]


def test_a_failed_disk_takes_only_its_own_partitions_offline() -> None:
    scene = Scene()
    scene.create()
    lost, kept = scene.in_b()
    for index in (lost, kept):
        assert scene.write(index, b"before") == "NONE"
    scene.machine.disk.break_directory("/b")
    assert scene.write(lost, b"into the dark") == "KAFKA_STORAGE_ERROR"
    assert scene.write(kept, b"after") == "NONE"
    assert scene.read(kept) == [b"before", b"after"]
    assert scene.leader(lost) == (-1, [1])
    assert scene.leader(kept) == (1, [])
    assert ErrorCode(scene.described()["/b"].error_code) is ErrorCode.KAFKA_STORAGE_ERROR
    assert scene.described()["/a"].error_code == 0
    assert scene.move(kept, "/b") == "KAFKA_STORAGE_ERROR"
    assert scene.machine.failure is None


def test_what_was_offline_is_there_again_when_the_disk_is() -> None:
    scene = Scene()
    scene.create()
    lost, kept = scene.in_b()
    scene.write(lost, b"one")
    scene.machine.disk.break_directory("/b")
    scene.write(lost, b"two")
    scene.machine.stop()
    scene.machine.start()
    assert scene.write(lost, b"three") == "KAFKA_STORAGE_ERROR"
    assert scene.write(kept, b"three") == "NONE"
    scene.machine.stop()
    scene.machine.disk.mend_directory("/b")
    scene.machine.start()
    assert scene.leader(lost) == (1, [])
    assert scene.write(lost, b"four") == "NONE"
    assert scene.read(lost) == [b"one", b"four"]


def test_a_sync_that_fails_is_told_to_whom_it_concerns_and_ends_the_directory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.create()
    lost, kept = scene.in_b()
    scene.write(lost, b"before")
    scene.machine.disk.syncs_to_fail = 1
    assert scene.write(lost, b"not on the disk") == "KAFKA_STORAGE_ERROR"
    assert scene.write(lost, b"nor this") == "KAFKA_STORAGE_ERROR"
    assert scene.write(kept, b"after") == "NONE"
    scene.node.log_dirs.failed("/b", OSError(errno.EIO, "once more"))
    assert "once more" not in caplog.text


def test_a_node_without_its_metadata_ends() -> None:
    scene = Scene()
    scene.create()
    _, in_a = scene.in_b()
    scene.machine.disk.break_directory("/a")
    with pytest.raises(AssertionError, match="which holds the metadata log"):
        scene.write(in_a, b"x")
    assert scene.machine.failure is not None


def test_a_destination_that_fails_leaves_the_partition_where_it_is() -> None:
    scene = Scene()
    scene.create()
    _, moved = scene.in_b()
    for number in range(5):
        scene.write(moved, b"%d" % number + bytes(900_000))
    assert scene.move(moved, "/b") == "NONE"
    scene.machine.disk.break_directory("/b")
    scene.machine.settle()
    assert scene.lies_in(moved) == "/a"
    assert scene.write(moved, b"after") == "NONE"
    assert scene.read(moved) == scene.written[moved]


@pytest.mark.parametrize(("path", "failed"), [("/b/t-0/x.log", "/b"), (None, "/c"), ("/bb/x", "/c")])
def test_a_copy_that_fails_takes_the_directory_offline_that_its_error_names(
    path: str | None, failed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(log_dirs="/a,/b,/c")
    scene.create(6)
    moved = next(index for index in range(6) if scene.lies_in(index) == "/b")

    def fails(*_: Any) -> None:
        raise OSError(errno.EIO, "the disk says no", *([] if path is None else [path]))

    monkeypatch.setattr(scene.node.log_dirs, "_copy_piece", fails)
    assert scene.move(moved, "/c") == "NONE"
    scene.machine.settle()
    assert list(scene.node.failed_directories) == [failed]


def test_a_move_that_ends_by_a_bug_is_dropped_and_can_be_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene, to = about_to_move(3)
    with monkeypatch.context() as broken:
        broken.setattr(scene.node.log_dirs, "_copy_piece", Mock(side_effect=ValueError("a bug")))
        assert scene.move(1, to) == "NONE"
        scene.machine.settle()
    assert "the move is dropped" in caplog.text and "a bug" in caplog.text
    [described] = [each for each in scene.described()[to].topics[0].partitions if each.is_future_key] or [None]
    assert described is None, "no move goes on that does not"
    assert scene.move(1, to) == "NONE"
    scene.until_moved(1, to)
    assert scene.read(1) == scene.written[1]


@pytest.mark.parametrize("lost", ["a removal that fails", "the power before a removal"])
def test_a_move_that_is_taken_back_does_not_begin_again_with_the_next_start(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, to = about_to_move(3)
    at = scene.lies_in(1)
    scene.write(1, bytes(900_000))
    scene.slow_down(1000)
    assert scene.move(1, to) == "NONE"
    disk = scene.machine.disk
    failure = Crashed() if lost == "the power before a removal" else OSError(errno.EIO, "broken")
    with monkeypatch.context() as broken:
        broken.setattr(disk, "remove_tree", Mock(side_effect=failure))
        with suppress(Crashed):
            scene.node.log_dirs.move(MOVED, at)
    scene.machine.power_off()
    scene.machine.start()
    scene.machine.settle()
    assert scene.lies_in(1) == at
    assert not [name for name in disk.list(to) if name.startswith("t-1.")]


def test_a_topic_that_is_deleted_while_it_moves_leaves_nothing_behind() -> None:
    scene, to = about_to_move(3)
    scene.write(1, bytes(900_000))
    scene.write(1, bytes(900_000))
    assert scene.move(1, to) == "NONE"
    scene.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=1000), 6)
    scene.machine.settle()
    assert scene.machine.failure is None
    names = scene.machine.disk.list("/a") + scene.machine.disk.list("/b")
    assert not [name for name in names if name.endswith("-future")]


def test_a_topic_that_is_deleted_while_it_moves_to_a_broken_disk_fails_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, to = about_to_move(3)
    scene.write(1, bytes(900_000))
    scene.write(1, bytes(900_000))
    scene.slow_down(1000)
    assert scene.move(1, to) == "NONE"
    with monkeypatch.context() as broken:
        broken.setattr(scene.machine.disk, "remove_tree", Mock(side_effect=OSError(errno.EIO, "broken")))
        scene.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=1000), 6)
        with pytest.raises(OSError, match="broken"):
            scene.node.store.remove_deleted(scene.machine.clock.now_ms())
    assert list(scene.node.failed_directories) == [], "the log itself lay on the other disk"
    scene.node.store.remove_deleted(scene.machine.clock.now_ms())
    assert not [name for name in scene.machine.disk.list(to) if name.startswith("t-1.")]


def test_a_directory_that_a_file_has_replaced_has_failed(tmp_path: Path) -> None:
    """On a real disk: what is to be made there ends in ENOTDIR."""
    kept, lost = tmp_path / "kept", tmp_path / "lost"
    with ottla.Node(kept, settings={"log.dirs": f"{kept},{lost}", "metadata.log.dir": str(kept)}) as node:
        shutil.rmtree(lost)
        lost.touch()
        with Admin(node.bootstrap_servers) as admin:
            # It is answered, though half of its logs cannot be made.
            admin.create_topics([NewTopic("new", 4)])
            (found,) = admin.describe_log_dirs().values()
            errors = {each.path: each.error.code if each.error else None for each in found}
            assert errors == {str(kept): None, str(lost): ErrorCode.KAFKA_STORAGE_ERROR}
        # They are made in the other directory then.
        with Producer(node.bootstrap_servers) as producer:
            assert [producer.send("new", b"v", partition=index).result().offset for index in range(4)] == [0] * 4


def deleted(scene: Scene) -> None:
    state = DeleteTopicState(name=TOPIC)
    response = scene.ask(DeleteTopicsRequest(topics=[state], timeout_ms=1000), 6)
    assert response.responses[0].error_code == 0
    scene.machine.settle()


def test_a_topic_whose_disk_has_failed_unnoticed_is_deleted_and_the_node_goes_on() -> None:
    scene = Scene()
    scene.create()
    scene.machine.disk.break_directory("/b")
    deleted(scene)
    assert scene.machine.failure is None
    assert list(scene.node.failed_directories) == ["/b"]
    scene.written.clear()
    scene.create()
    assert scene.write(0, b"again") == "NONE"


def test_a_sync_that_new_settings_ask_for_fails_its_own_directory() -> None:
    scene = Scene(log_flush_interval_messages="9223372036854775807")
    scene.create()
    lost, kept = scene.in_b()
    for index in (lost, kept):
        assert scene.write(index, b"before") == "NONE"
    scene.machine.disk.break_directory("/b")
    change = incremental_alter_configs.AlterableConfig(name="flush.messages", config_operation=0, value="1")
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[change])
    scene.ask(incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource]), 1)
    scene.machine.settle()
    assert scene.machine.failure is None
    assert list(scene.node.failed_directories) == ["/b"]
    assert scene.write(lost, b"after") == "KAFKA_STORAGE_ERROR"
    assert scene.write(kept, b"after") == "NONE"


def test_a_move_to_a_third_directory_replaces_the_one_that_is_under_way() -> None:
    scene = Scene(3, **{"log.dirs": "/a,/b,/c"})
    scene.create(1)
    for number in range(20):
        scene.write(0, bytes([number]) * 50_000)
    first, second = (path for path in ("/a", "/b", "/c") if path != scene.lies_in(0))
    scene.slow_down(200_000)
    assert scene.move(0, first) == "NONE"
    assert scene.move(0, second) == "NONE"
    scene.until_moved(0, second)
    assert scene.read(0) == scene.written[0]
    assert scene.machine.disk.list(first).count("t-0") == 0
    assert not [name for name in scene.machine.disk.list(first) if name.endswith("-future")]


@pytest.mark.parametrize(("length", "code"), [(213, "NONE"), (214, "INVALID_TOPIC_EXCEPTION")])
def test_a_log_moves_if_the_name_of_its_copy_is_one_that_a_file_may_have(length: int, code: str) -> None:
    """At most 255 bytes: the partition's name, and `.`, 32 digits and `-future`."""
    scene, topic = Scene(3), "n" * length
    scene.machine.create_topic(topic, 1)
    scene.machine.settle()
    tp = TopicPartition(topic, 0)
    other = "/b" if scene.node.store.directory_of(tp) == "/a" else "/a"
    assert scene.node.log_dirs.move(tp, other).name == code
