"""A stop that syncs the volume syncs nothing else, and only as often as it must."""

from __future__ import annotations

import random
from concurrent.futures import Executor, Future
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.kernel.ids import Uuid
from ottla.log import durability
from ottla.log.checkpoint import META_PROPERTIES, write_properties
from ottla.log.directory import closing
from ottla.log.directory.store import Store
from ottla.log.log import LogSettings
from ottla.sim.disk import SimDisk
from ottla.wire.batch import build


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SimDisk:
    monkeypatch.setattr(closing, "VOLUME_SYNC_LOGS_MIN", 3)
    disk = SimDisk(random.Random(1))
    disk.make_directory("/a")
    ids = {"version": "1", "node.id": "1", "cluster.id": "c", "directory.id": "a"}
    write_properties(disk, f"/a/{META_PROPERTIES}", ids)
    return disk


def _dirty(disk: SimDisk, logs: int, *, has_new_epoch: bool) -> Store:
    """A store with so many logs that have a record to sync, and perhaps epochs."""
    store = Store.open(disk, ["/a"], now_ms=1, settings_of=lambda _: LogSettings(), node_id=1)
    for number in range(logs):
        log = store.create("t", Uuid(bytes(15) + b"\1"), number)
        for epoch in (1, 2 if has_new_epoch else 1):
            log.flush()
            log.append(build([(1, b"k", b"v", [])]), leader_epoch=epoch, now_ms=1)
        if not has_new_epoch:
            log.flush()
            log.append(build([(1, b"k", b"v", [])]), leader_epoch=1, now_ms=1)
    return store


@pytest.mark.parametrize(("has_new_epoch", "syncs"), [(True, 2), (False, 1)])
@pytest.mark.parametrize("logs", [2, 3])
def test_the_logs_of_a_stop_are_synced_together_or_alone(
    logs: int, has_new_epoch: bool, syncs: int, disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _dirty(disk, logs, has_new_epoch=has_new_epoch)
    alone = Mock(side_effect=durability.sync_closed)
    monkeypatch.setattr(durability, "sync_closed", alone)
    store.close()
    assert (disk.volume_syncs, alone.call_count) == ((syncs, 0) if logs == 3 else (0, 2))
    store = Store.open(disk, ["/a"], now_ms=1, settings_of=lambda _: LogSettings(), node_id=1)
    assert [log.epochs.latest for log in store.logs().values()] == [2 if has_new_epoch else 1] * logs


@pytest.mark.parametrize(("logs", "tasks"), [(2, 2), (3, 1)])
def test_the_threads_of_the_pool_sync_what_is_closed(logs: int, tasks: int, disk: SimDisk) -> None:
    class Pool(Executor):
        taken = 0

        def submit(self, task: Any, /, *given: Any, **named: Any) -> Future[Any]:
            self.taken += 1
            done: Future[Any] = Future()
            done.set_result(task(*given, **named))
            return done

    store, pool = _dirty(disk, logs, has_new_epoch=False), Pool()
    store.close(pool=pool)
    assert pool.taken == tasks
