"""Group commit: whom an fsync serves, and when a flush of several logs is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from random import Random
from typing import Any

import pytest

from ottla.broker.partitions.flush import Flusher
from ottla.log.checkpoint import CLEAN_SHUTDOWN
from ottla.log.log import Log, LogSettings
from ottla.sim.disk import SimDisk
from ottla.wire.batch import build
from tests.broker.disk_scene import Scene

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
        self.flusher = Flusher(loop, self.pool, lambda: _NOW_MS, lambda log, error: None)
        self.done: list[str] = []
        disk = SimDisk(Random(1))
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
        future.set_result(call())
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
