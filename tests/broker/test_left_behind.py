"""What a move leaves in a directory whose disk fails: no later start takes it for the log."""

from __future__ import annotations

import errno

import pytest

from ottla.controller.placement import UNASSIGNED_DIRECTORY
from ottla.kernel.ids import TopicPartition
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.disk_scene import TOPIC, Scene, held_before_its_swap
from tests.broker.test_offline import change, keep_in_b, replace_b


def _in_b(code: int, monkeypatch: pytest.MonkeyPatch, *, stays_up: bool = False) -> Scene:
    """A log has moved from /b to /c, and has grown there; the old one stays in /b."""
    scene = Scene(3, **{"log.dirs": "/a,/b,/c"})
    scene.create(1)
    if scene.lies_in(0) != "/b":
        assert scene.move(0, "/b") == "NONE"
        scene.until_moved(0, "/b")
    assert scene.write(0, b"one") == "NONE"
    with monkeypatch.context() as patch:
        keep_in_b(scene, 0, code, patch)
        assert scene.move(0, "/c") == "NONE"
        scene.machine.settle()
        assert scene.lies_in(0) == "/c"
        assert scene.write(0, b"two") == "NONE"
        if not stays_up:
            scene.machine.power_off()
    return scene


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_the_old_log_of_a_move_is_not_taken_for_the_log_when_the_directory_of_that_fails(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = _in_b(code, monkeypatch)
    disk = scene.machine.disk
    disk.break_directory("/c")
    scene.machine.start()
    scene.machine.settle()
    assert scene.leader(0) == (-1, [1])
    assert scene.write(0, b"three") == "KAFKA_STORAGE_ERROR"
    scene.machine.power_off()
    disk.mend_directory("/c")
    scene.machine.start()
    scene.machine.settle()
    assert scene.write(0, b"three") == "NONE"
    assert scene.read(0) == [b"one", b"two", b"three"]


def test_a_new_disk_in_the_place_of_a_moving_log_leads_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata names the directory of a copy that lacks a record."""
    scene = held_before_its_swap(1, "/b", "/a", monkeypatch)
    assert scene.write(1, b"after") == "NONE"
    scene.machine.power_off()
    replace_b(scene)
    for _ in range(2):
        scene.machine.start()
        scene.machine.settle()
        assert scene.write(1, b"again") == "KAFKA_STORAGE_ERROR", "an empty log"
        scene.machine.power_off()


def test_a_replica_that_is_assigned_again_is_a_new_one_also_if_it_was_moving(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = held_before_its_swap(1, "/b", "/a", monkeypatch)
    assert scene.write(1, b"after") == "NONE"
    scene.machine.power_off()
    scene.machine.disk.break_directory("/b")
    scene.machine.start()
    scene.machine.settle()
    assert scene.write(1, b"again") == "KAFKA_STORAGE_ERROR"
    tp = TopicPartition(TOPIC, 1)
    assert tp not in scene.node.store.logs(), "an empty log"
    change(scene, 1, replicas=[2], isr=[2], leader=2, directories=[UNASSIGNED_DIRECTORY])
    change(scene, 1, replicas=[2, 1], isr=[2], leader=2, directories=[UNASSIGNED_DIRECTORY, UNASSIGNED_DIRECTORY])
    assert tp in scene.node.store.logs()


def test_a_log_that_moves_back_to_where_its_old_one_stayed_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = _in_b(errno.ENOSPC, monkeypatch, stays_up=True)
    assert scene.move(0, "/b") == "NONE"
    scene.until_moved(0, "/b")
    assert scene.write(0, b"three") == "NONE"
    scene.machine.power_off()
    scene.machine.disk.break_directory("/c")
    scene.machine.start()
    scene.machine.settle()
    assert scene.read(0) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("is_deleted_again", [False, True])
def test_a_deleted_log_that_kept_its_name_does_not_stop_the_start_with_that_of_the_next_topic(
    is_deleted_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()
    scene.create(1)
    assert scene.write(0, b"old") == "NONE"
    here, there = scene.lies_in(0), scene.other(0)

    def full(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "no space left", source)

    def delete() -> None:
        rename = scene.machine.disk.rename
        with monkeypatch.context() as patch:
            patch.setattr(
                scene.machine.disk, "rename", lambda *names: (full if names[1].endswith("-delete") else rename)(*names)
            )
            scene.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=1000), 6)
            scene.machine.settle()

    delete()
    scene.written.clear()
    assert scene.move(0, there) != "NONE", "the directory is only preferred"
    scene.create(1)
    assert scene.lies_in(0) == there
    assert scene.write(0, b"new") == "NONE"
    if is_deleted_again:
        delete()
    disk = scene.machine.disk
    assert "t-0" in disk.list(here) and "t-0" in disk.list(there)
    scene.machine.kill()
    scene.machine.start()
    scene.machine.settle()
    assert scene.machine.failure is None
    strays = {path: [name for name in disk.list(path) if name.endswith("-stray")] for path in (here, there)}
    assert (len(strays[here]), len(strays[there])) == (1, is_deleted_again), "nothing is deleted"
    if not is_deleted_again:
        assert scene.read(0) == [b"new"]
