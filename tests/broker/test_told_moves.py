"""Moves between log directories as the controller hears of them: before the swap, and when they end without one."""

from __future__ import annotations

import errno
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from ottla.broker.partitions.log_dirs import LogDirs
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition
from ottla.sim.disk import Crashed
from ottla.wire.api.assign_replicas_to_dirs import (
    AssignReplicasToDirsResponse,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.disk_scene import TOPIC, Scene, about_to_move, held_before_its_swap

MOVED = TopicPartition(TOPIC, 1)


@pytest.mark.parametrize("breaks", ["source", "destination"])
def test_a_disk_that_dies_with_a_crash_in_a_move_has_no_empty_log_take_the_place_of_its_own(breaks: str) -> None:
    outcomes = set()
    for number in count():
        scene, to = about_to_move(number)
        # The metadata log is in /a, without which no node starts: /b dies.
        if to == ("/b" if breaks == "source" else "/a"):
            scene.move(1, to)
            scene.until_moved(1, to)
            to = scene.other(1)
        disk = scene.machine.disk
        disk.crash_at = disk.effects + number
        is_over = False
        with suppress(Crashed):
            scene.move(1, to)
            scene.until_moved(1, to)
            is_over = True
        scene.machine.power_off()
        has_log = str(MOVED) in disk.list("/a")
        disk.break_directory("/b")
        scene.machine.start()
        scene.machine.settle()
        known = list(scene.written[1])
        code = scene.write(1, b"again")
        outcomes.add((has_log, code))
        if code == "NONE":
            assert scene.read(1) == [*known, b"again"], number
        scene.machine.power_off()
        disk.mend_directory("/b")
        scene.machine.start()
        scene.machine.settle()
        assert scene.write(1, b"at last") == "NONE", number
        assert scene.read(1) == scene.written[1], number
        if is_over:
            break
    # A copy that was complete when the other disk died is the log now.
    kept = {(False, "NONE")} if breaks == "source" else set()
    assert outcomes == {(True, "NONE"), (False, "KAFKA_STORAGE_ERROR")} | kept


def _lose_b_at(scene: Scene, last: int, patch: pytest.MonkeyPatch) -> None:
    """Have /b fail, and the node hear of it, at this effect on the disk."""
    disk, effect = scene.machine.disk, scene.machine.disk.effect

    def failing() -> None:
        if disk.effects == last:
            disk.break_directory("/b")
            scene.node.loop.call_soon(scene.node.log_dirs.suspect, "/b", OSError(errno.EIO, "broken"))
        effect()

    patch.setattr(disk, "effect", failing)


def _moves_or_is_lost(scene: Scene) -> bool:
    """Move the log from /b to /a; False if its disk was faster to fail."""
    assert scene.move(1, "/a") == "NONE"
    scene.machine.run(lambda: bool(scene.node.failed_directories) or scene.lies_in(1) == "/a")
    return scene.node.store.get(MOVED) is not None


@pytest.mark.parametrize("is_told", [True, False])
def test_a_log_that_is_lost_with_its_disk_in_a_move_is_not_replaced_by_an_empty_one(
    is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller may just hear that the log is about to be in the other directory."""
    outcomes = set()
    for number in count(step=3):
        scene, to = about_to_move(number)
        if to == "/b":
            scene.move(1, to)
            scene.until_moved(1, to)
        with monkeypatch.context() as patch:
            _lose_b_at(scene, scene.machine.disk.effects + number, patch)
            if _moves_or_is_lost(scene):
                break
            if is_told:
                scene.machine.settle()
                assert scene.leader(1) == (-1, [1]), number
        for _ in range(2):
            scene.machine.kill()
            scene.machine.start()
            scene.machine.settle()
            known = list(scene.written[1])
            code = scene.write(1, b"again")
            assert code == "KAFKA_STORAGE_ERROR" or scene.read(1) == [*known, b"again"], number
            outcomes.add(code)
        scene.machine.kill()
        scene.machine.disk.mend_directory("/b")
        scene.machine.start()
        scene.machine.settle()
        assert scene.write(1, b"at last") == "NONE"
        assert scene.read(1) == scene.written[1], number
    assert outcomes == ({"KAFKA_STORAGE_ERROR"} if is_told else {"KAFKA_STORAGE_ERROR", "NONE"})


@pytest.mark.parametrize("after", ["a record", "a deletion of records", "a clean stop", "nothing"])
def test_a_complete_copy_is_used_without_its_log_only_if_it_lacks_nothing_of_it(
    after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, to = about_to_move(2)
    if to == "/b":
        scene.move(1, to)
        scene.until_moved(1, to)
    scene.delete_before(1, 2)
    with monkeypatch.context() as away:
        away.setattr(LogDirs, "_swap", lambda *_: None)
        assert scene.move(1, "/a") == "NONE"
        scene.machine.settle()
    if after == "a record":
        assert scene.write(1, b"after") == "NONE"
    elif after == "a deletion of records":
        scene.delete_before(1, 4)
    elif after == "a clean stop":
        scene.machine.stop()
    scene.machine.power_off()
    disk = scene.machine.disk
    disk.break_directory("/b")
    scene.machine.start()
    scene.machine.settle()
    is_complete = after in ("a clean stop", "nothing")
    assert scene.write(1, b"again") == ("NONE" if is_complete else "KAFKA_STORAGE_ERROR")
    scene.machine.stop()
    scene.machine.start()
    scene.machine.settle()
    assert scene.write(1, b"and again") == ("NONE" if is_complete else "KAFKA_STORAGE_ERROR"), "an empty log"
    if is_complete:
        assert scene.first_offset(1) == 2
        scene.machine.power_off()
        scene.machine.start()
        scene.machine.settle()
        assert scene.first_offset(1) == 2, "a crash after the start brings deleted records back"
    disk.mend_directory("/b")
    scene.machine.power_off()
    scene.machine.start()
    scene.machine.settle()
    assert scene.read(1, 2) == scene.written[1][2:]


def test_a_disk_that_fails_once_when_its_copy_becomes_incomplete_is_used_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy still says on the disk that it is complete, and lacks an acknowledged record."""
    scene, _ = about_to_move(1)
    if scene.lies_in(1) == "/b":
        scene.move(1, "/a")
        scene.until_moved(1, "/a")
    disk, home = scene.machine.disk, scene.node.log_dirs._id_of("/a")
    with monkeypatch.context() as failing:
        failing.setattr(LogDirs, "_swap", lambda *_: None)
        assert scene.move(1, "/b") == "NONE"
        scene.machine.settle()
        disk.break_directory("/b")
        scene.node.partitions[MOVED].log.on_change()
        disk.mend_directory("/b")
    assert scene.write(1, b"after") == "NONE"
    scene.machine.settle()
    assert scene.described()["/b"].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert scene.node.image.topics[TOPIC].partitions[1].directories == (home,)
    assert scene.read(1) == scene.written[1]


@pytest.mark.parametrize("why", ["the disk dies", "the disk is full", "taken back"])
def test_a_move_that_ends_when_the_controller_knows_of_it_is_told_as_ended(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, _ = about_to_move(1)
    if scene.lies_in(1) == "/b":
        scene.move(1, "/a")
        scene.until_moved(1, "/a")
    log_dirs, swap = scene.node.log_dirs, LogDirs._swap
    there = {path: scene.node.log_dirs._id_of(path) for path in ("/a", "/b")}
    before = scene.node.image.topics[TOPIC].partitions[1]
    named: list[Any] = []

    def ends(*swapped: Any) -> None:
        named.extend(scene.node.image.topics[TOPIC].partitions[1].directories)
        if why == "taken back":
            assert log_dirs.move(MOVED, "/a") is ErrorCode.NONE
            return
        if why == "the disk dies":
            scene.machine.disk.break_directory("/b")
            swap(*swapped)
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(LogDirs, "_swap", ends)
    assert scene.move(1, "/b") == "NONE"
    scene.machine.settle()
    assert named == [there["/b"]]
    after = scene.node.image.topics[TOPIC].partitions[1]
    assert after.directories == (there["/a"],)
    # No controller took it for offline meanwhile; Apache Kafka's would elect nobody before the next start.
    assert (after.leader, after.leader_epoch) == (1, before.leader_epoch)
    assert scene.write(1, b"after") == "NONE"
    assert scene.read(1) == scene.written[1]


@pytest.mark.parametrize("answered", [False, True])
def test_a_partition_that_the_controllers_answer_leaves_out_is_told_again(
    answered: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene, to = about_to_move(2)
    asked: list[Any] = []
    controllers = scene.node.log_dirs._controllers
    with monkeypatch.context() as away:
        away.setattr(controllers, "ask", lambda request, done: asked.append((request, done)))
        scene.move(1, to)
        scene.machine.settle()
        [(request, done)] = asked
        [directory] = request.directories
        partitions = [ResponsePartitionData(partition_index=1)] if answered else []
        topics = [ResponseTopicData(topic_id=directory.topics[0].topic_id, partitions=partitions)]
        done(AssignReplicasToDirsResponse(directories=[ResponseDirectoryData(id=directory.id, topics=topics)]))
        later_ms = scene.machine.clock.now_ms() + 1500
        scene.machine.run(lambda: scene.machine.clock.now_ms() >= later_ms)
    assert [request for request, _ in asked] == [request] * (1 if answered else 2)
    assert caplog.text.count("did not accept the directories of 1 logs: no answer") == (0 if answered else 1)
    if not answered:
        controllers.ask(*asked[-1])
        scene.until_moved(1, to)


def test_a_topic_that_is_deleted_while_the_controller_is_told_of_its_move_leaves_the_next_one_of_its_name_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, to = about_to_move(2)
    with monkeypatch.context() as away:
        away.setattr(scene.node.log_dirs, "_report_directories", lambda places: None)
        assert scene.move(1, to) == "NONE"
        scene.machine.settle()
    assert scene.lies_in(1) != to, "it moved without the controller's word"
    scene.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=1000), 6)
    scene.machine.settle()
    scene.create()
    to = scene.other(1)
    assert scene.move(1, to) == "NONE"
    scene.until_moved(1, to)


def test_a_new_topic_is_not_taken_for_the_one_whose_log_was_lost_in_a_move() -> None:
    scene, to = about_to_move(2)
    if to == "/b":
        scene.move(1, to)
        scene.until_moved(1, to)
    scene.slow_down(1)
    assert scene.move(1, "/a") == "NONE"
    scene.machine.disk.break_directory("/b")
    scene.node.log_dirs.suspect("/b", OSError(errno.EIO, "broken"))
    scene.machine.settle()
    scene.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=1000), 6)
    scene.machine.settle()
    scene.written.clear()
    scene.create()
    # An empty log may be lost with its name.
    scene.machine.power_off()
    if str(MOVED) in scene.machine.disk.list("/a"):
        scene.machine.disk.remove_tree(f"/a/{MOVED}")
    scene.machine.start()
    scene.machine.settle()
    assert scene.write(1, b"new") == "NONE"
    assert scene.read(1) == [b"new"]


def test_a_move_into_a_directory_that_fails_at_the_start_does_not_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = held_before_its_swap(4, "/a", "/b", monkeypatch)
    scene.machine.power_off()
    disk = scene.machine.disk
    remove = disk.remove

    def failing(path: str) -> None:
        if path.endswith("/complete-copy"):
            raise OSError(errno.EIO, "broken", path)
        remove(path)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "remove", failing)
        scene.machine.start()
        scene.machine.settle()
    assert list(scene.node.failed_directories) == ["/b"]
    assert scene.lies_in(1) == "/a"
    assert not scene.node.store._futures
