"""Group commit: whom an fsync serves, and when a flush of several logs is done."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.partitions import flush
from ottla.broker.partitions.flush import Flusher
from ottla.kernel.ids import TopicPartition
from ottla.log.checkpoint import CLEAN_SHUTDOWN
from ottla.log.durability import OutOfResources
from ottla.log.log import Log, LogSettings
from ottla.sim.disk import SimDisk, SimFile
from ottla.wire.batch import build
from tests.broker.disk_scene import TOPIC, Scene

_NOW_MS = 1_700_000_000_000


class _Pool(Executor):
    """Does nothing until it is told to."""

    def __init__(self) -> None:
        self.due: list[tuple[Future[Any], Callable[..., Any]]] = []

    def submit(self, call: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.due.append((future, lambda: call(*args, **more)))
        return future


class _Scene:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.pool = _Pool()
        self.failures: list[OSError] = []
        self.flusher = Flusher(loop, self.pool, lambda: _NOW_MS, lambda log, error: self.failures.append(error))
        self.done: list[str] = []
        disk = self.disk = SimDisk(Random(1))
        self.logs = [Log.open(disk, f"/d/t-{each}", LogSettings(), now_ms=_NOW_MS) for each in range(2)]
        for log in self.logs:
            self.append(log)

    def append(self, log: Log) -> None:
        log.append(build([(_NOW_MS, None, b"v", ())]), leader_epoch=0, now_ms=_NOW_MS)

    def flush(self, name: str, *logs: Log) -> None:
        self.flusher.flush(logs, lambda: self.done.append(name))

    def turn(self) -> None:
        """The loop does what it has to do now."""
        self._loop.call_soon(self._loop.stop)
        self._loop.run_forever()

    def sync(self) -> None:
        """The fsync that was asked for first comes to its end."""
        future, call = self.pool.due.pop(0)
        try:
            future.set_result(call())
        except OSError as error:
            future.set_exception(error)
        self.turn()


@pytest.fixture
def scene() -> Iterator[_Scene]:
    loop = asyncio.new_event_loop()
    yield _Scene(loop)
    loop.close()


def test_a_flush_of_two_logs_is_done_when_both_are_on_the_disk(scene: _Scene) -> None:
    scene.flush("both", *scene.logs)
    scene.turn()
    scene.sync()
    assert scene.done == []
    scene.sync()
    assert scene.done == ["both"]
    assert not scene.pool.due


def test_who_comes_during_an_fsync_is_served_by_the_next(scene: _Scene) -> None:
    log = scene.logs[0]
    scene.flush("before", log)
    scene.turn()
    scene.append(log)
    scene.flush("during", log)
    scene.flush("during, too", log)
    scene.sync()
    assert scene.done == ["before"]
    scene.sync()
    assert scene.done == ["before", "during", "during, too"]
    assert not scene.pool.due


def test_who_comes_in_the_same_turn_shares_an_fsync(scene: _Scene) -> None:
    for name in ("first", "second"):
        scene.flush(name, scene.logs[0])
    scene.turn()
    scene.sync()
    assert scene.done == ["first", "second"]
    assert not scene.pool.due


def test_a_flush_without_room_for_the_epochs_waits_until_there_is_some(
    scene: _Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush, "_RETRY_SECONDS", 0)
    log = scene.logs[0]
    scene.disk.fill(scene.disk._used())
    scene.flush("late", log)
    scene.turn()
    for _ in range(2):
        scene.sync()
        scene.turn()
    assert (scene.done, scene.failures, log.recovery_point) == ([], [], 0)
    scene.disk.fill(None)
    scene.sync()
    assert (scene.done, scene.failures, log.recovery_point) == (["late"], [], 1)
    again = Log.open(scene.disk, log.path, LogSettings(), now_ms=_NOW_MS, recovery_point=1)
    assert again.epochs.entries() == [(0, 0)]


def test_a_flush_without_descriptors_waits_until_there_are_some(scene: _Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(flush, "_RETRY_SECONDS", 0)
    scene.flush("late", scene.logs[0])
    scene.turn()
    with monkeypatch.context() as patch:
        patch.setattr(scene.disk, "sync_directory", refused)
        scene.sync()
        scene.turn()
    assert (scene.done, scene.failures) == ([], [])
    scene.sync()
    assert (scene.done, scene.failures) == (["late"], [])


def test_a_sync_that_fails_without_room_is_not_tried_again(scene: _Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was about may be lost: the room was promised to the write."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    scene.flush("never", scene.logs[0])
    scene.turn()
    monkeypatch.setattr(SimFile, "sync", full)
    scene.sync()
    scene.turn()
    assert (scene.done, [error.errno for error in scene.failures]) == ([], [errno.ENOSPC])
    assert not scene.pool.due


@pytest.mark.parametrize(
    ("error", "is_flushed"),
    [(OSError(errno.EIO, "Input/output error"), False), (OutOfResources(errno.EMFILE, "too many open files"), True)],
)
def test_who_cannot_wait_is_told_of_the_sync_under_way_that_fails(
    scene: _Scene, error: OSError, is_flushed: bool
) -> None:
    """The kernel reports a failed sync once: the next one succeeds, although the records are lost."""
    log, told = scene.logs[0], []
    log.settings = replace(log.settings, flush_messages=1)
    partition: Any = SimpleNamespace(log=log, synced=lambda: told.append("synced"))
    scene.flush("never", log)
    scene.turn()
    scene.pool.due.pop()[0].set_exception(error)
    with nullcontext() if is_flushed else pytest.raises(OSError, match="Input/output error"):
        scene.flusher.flush_now(partition)
    assert (told, scene.failures) == ((["synced"], []) if is_flushed else ([], [error]))


def test_a_partition_that_a_full_disk_keeps_from_flushing_serves_when_there_is_room() -> None:
    scene = Scene(log_flush_interval_messages="9223372036854775807")
    scene.create()
    index, _ = scene.in_b()
    assert scene.write(index, b"unflushed") == "NONE"
    disk = scene.machine.disk
    disk.fill(disk._used())
    log = scene.node.store.get(TopicPartition(TOPIC, index))
    log.settings = replace(log.settings, flush_messages=1)
    partition = scene.node.partitions[TOPIC, index]
    assert not scene.node.leadership._flush(partition)
    assert scene.node.store.failed_directories == {}
    assert scene.write(index, b"refused") == "KAFKA_STORAGE_ERROR"
    disk.fill(None)
    scene.node.housekeeping.checkpoint()
    scene.machine.settle()
    assert scene.write(index, b"after") == "NONE"
    assert scene.read(index) == [b"unflushed", b"after"]


def test_a_node_that_a_failed_sync_ends_leaves_its_directory_to_be_checked() -> None:
    """The syncs of its stop succeed, since the kernel reports a failed one once."""
    scene = Scene()
    scene.create()
    _, in_a = scene.in_b()
    scene.machine.disk.syncs_to_fail = 1
    with pytest.raises(AssertionError, match="/a, which holds the metadata log, has failed"):
        scene.write(in_a, b"lost")
    scene.machine.stop()
    clean = {path for path in ("/a", "/b") if scene.machine.disk.exists(f"{path}/{CLEAN_SHUTDOWN}")}
    assert clean == {"/b"}
