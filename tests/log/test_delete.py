"""A log that is deleted on a disk that refuses something."""

import errno
import random
from typing import Any

import pytest

from ottla.kernel.ids import TopicPartition, Uuid
from ottla.log import checkpoint
from ottla.log.directory.store import Store
from ottla.log.log import LogSettings
from ottla.sim.disk import SimDisk
from ottla.wire.batch import build

_TP = TopicPartition("t", 0)


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(5))
    disk.make_directory("/a")
    properties = {"version": "1", "node.id": "1", "cluster.id": "c", "directory.id": "a"}
    checkpoint.write_properties(disk, "/a/meta.properties", properties)
    return disk


@pytest.fixture
def store(disk: SimDisk) -> Store:
    settings = LogSettings(segment_index_bytes=1200, file_delete_delay_ms=100)
    store = Store.open(disk, ("/a",), now_ms=1000, settings_of=lambda _: settings, node_id=1)
    store.create("t", Uuid(bytes(15) + b"\x09"), 0).append(build([(1, b"k", b"v", [])]), leader_epoch=2, now_ms=1)
    return store


def _full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "no space left on device")


def test_a_log_is_deleted_though_the_cleaners_offsets_cannot_be_written(
    disk: SimDisk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = store.get(_TP)
    assert log is not None
    log.cleaner_offset = 1
    monkeypatch.setattr(checkpoint, "write_offsets", _full)
    with pytest.raises(OSError, match="no space"):
        store.delete(_TP)
    assert not disk.exists("/a/t-0")
    store.remove_deleted(10_000)
    assert not [name for name in disk.list("/a") if name.startswith("t-0")]


def test_a_new_topic_does_not_begin_with_the_log_of_a_deleted_one(
    disk: SimDisk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(disk, "rename", _full)
        with pytest.raises(OSError, match="no space"):
            store.delete(_TP)
    other = Uuid(bytes(15) + b"\x0a")
    log = store.create("t", other, 0)
    assert (log.topic_id, log.end_offset) == (other, 0)
