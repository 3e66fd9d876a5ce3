"""Logs that are deleted, or closed, on a disk that refuses something."""

import errno
import random
from contextlib import suppress
from typing import Any

import pytest

from ottla.kernel.ids import TopicPartition, Uuid
from ottla.log import checkpoint, durability
from ottla.log.directory.store import Store
from ottla.log.log import Log, LogSettings
from ottla.sim.disk import SimDisk
from ottla.wire.batch import build

_TP = TopicPartition("t", 0)


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(5))
    for path in ("/a", "/b"):
        disk.make_directory(path)
        properties = {"version": "1", "node.id": "1", "cluster.id": "c", "directory.id": path[1:]}
        checkpoint.write_properties(disk, f"{path}/meta.properties", properties)
    disk.sync_directory("/")
    return disk


def _open(disk: SimDisk, *dirs: str) -> Store:
    settings = LogSettings(segment_index_bytes=1200, file_delete_delay_ms=100)
    return Store.open(disk, dirs or ("/a",), now_ms=1000, settings_of=lambda _: settings, node_id=1)


def _write(store: Store, topic: str) -> None:
    store.create(topic, Uuid(bytes(15) + b"\x09"), 0).append(build([(1, b"k", b"v", [])]), leader_epoch=2, now_ms=1)


@pytest.fixture
def store(disk: SimDisk) -> Store:
    store = _open(disk)
    _write(store, "t")
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


@pytest.mark.parametrize("outcome", ["is created", "is not created", "fails with its directory"])
def test_a_deleted_log_that_kept_its_name_is_removed_later_though_a_new_one_of_the_name_is_not_created(
    outcome: str, disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _open(disk, "/a", "/b")
    _write(store, "t")
    home = store.directory_of(_TP)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "rename", _full)
        with pytest.raises(OSError, match="no space"):
            store.delete(_TP)
        [new] = store.plan([_TP], Uuid(bytes(15) + b"\x0a"), {_TP: home})
        with pytest.raises(OSError, match="no space"):
            new.begin()
    assert store.unrenamed() == [], "the new log may be about to have the name"
    if outcome == "is created":
        new.begin().adopt()
    elif outcome == "fails with its directory":
        store.fail(home, OSError(errno.EIO, "broken"))
        new.give_up()
    else:
        new.give_up()
    assert len(store.unrenamed()) == (outcome == "is not created")
    for log in store.unrenamed():
        store.rename_again(log, 1000)
        store.remove_deleted(2000)
        assert not [name for name in disk.list(home) if name.startswith("t-0")]
    assert store._directory(home).load == (outcome == "is created")


@pytest.mark.parametrize("step", range(9))
def test_a_move_that_could_not_begin_does_not_begin_with_the_next_start(
    step: int, disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _open(disk, "/a", "/b")
    _write(store, "t")
    to = "/b" if store.directory_of(_TP) == "/a" else "/a"
    refused, effect, has_begun = disk.effects + step, disk.effect, False

    def full_for_once() -> None:
        if disk.effects == refused:
            disk.effects += 1
            _full()
        effect()

    with monkeypatch.context() as patch, suppress(OSError):
        patch.setattr(disk, "effect", full_for_once)
        store.begin_move(_TP, to, 1)
        has_begun = True
    assert (store.future(_TP) is not None) == has_begun == (step > 7)
    store.abandon()
    disk.kill()
    assert _open(disk, "/a", "/b").unfinished_moves == ({_TP: to} if has_begun else {})


@pytest.mark.parametrize("room", range(0, 600, 12))
def test_a_stop_with_a_full_disk_says_so_in_one_line_and_loses_nothing(
    disk: SimDisk, store: Store, room: int, caplog: pytest.LogCaptureFixture
) -> None:
    _write(store, "u")
    # The index files may fit, or the checkpoints too, or the mark too, or nothing.
    disk.fill(disk._used() + room)
    store.close()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) <= 1 and all("/a" in line and "the simulated disk is full" in line for line in lines)
    assert lines or room
    assert disk.exists(f"/a/{checkpoint.CLEAN_SHUTDOWN}") is not bool(lines)
    disk.fill(None)
    again = _open(disk)
    for topic in ("t", "u"):
        log = again.get(TopicPartition(topic, 0))
        assert log is not None and (log.end_offset, log.epochs.latest) == (1, 2)


@pytest.mark.parametrize("step", ["begin_close", "sync_closed"])
def test_a_directory_that_cannot_be_closed_leaves_the_others_clean(
    step: str, disk: SimDisk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = _open(disk, "/a", "/b")
    for topic in ("t", "u"):
        _write(store, topic)
    failing, goes_on = store.directory_of(_TP), getattr(durability, step)

    def refused(log: Log) -> Any:
        if log.path.startswith(failing):
            raise OSError(errno.EIO, "the disk is broken")
        return goes_on(log)

    monkeypatch.setattr(durability, step, refused)
    store.close()
    [line] = [record.getMessage() for record in caplog.records]
    assert f"{failing}/{_TP}" in line and "the disk is broken" in line
    marked = {path for path in ("/a", "/b") if disk.exists(f"{path}/{checkpoint.CLEAN_SHUTDOWN}")}
    assert marked == {"/a", "/b"} - {failing}


def test_a_sync_without_descriptors_names_the_file(
    store: Store, disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str) -> None:
        raise OSError(errno.EMFILE, "too many open files", path)

    log = store.get(_TP)
    assert log is not None
    monkeypatch.setattr(disk, "sync_directory", refused)
    with pytest.raises(durability.OutOfResources, match="/a/t-0") as raised:
        log.sync()
    assert raised.value.filename == "/a/t-0"


@pytest.mark.parametrize("refused", range(6))
def test_segments_that_a_full_disk_does_not_let_be_renamed_are_deleted_when_there_is_room(
    disk: SimDisk, store: Store, refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = store.get(_TP)
    assert log is not None
    for _ in range(2):
        log.roll(1)
        _write(store, "t")
    log.roll(1)
    log.advance_start_offset(log.end_offset)
    rename, left = disk.rename, refused

    def full_after_some(source: str, target: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            _full()
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "rename", full_after_some)
        with pytest.raises(OSError, match="no space"):
            log.delete_old_segments(1)
    kept = log.segments[0]
    kept.time_index._first = None
    assert len(kept.time_index) == 1, "what was renamed can be read"
    assert log.start_offset == 3
    missing = [base for base in log.bases if not disk.exists(f"{log.path}/{base:020d}.log")]
    assert missing == [], "the cleaner opens the segments by their names"
    log.delete_old_segments(1)
    assert (len(log.segments), len(log.pending_removals), log.bases) == (1, 3, [3])
    log.remove_deleted(1000)
    assert {name.partition(".")[0] for name in disk.list("/a/t-0") if ".snapshot" not in name} - {
        "leader-epoch-checkpoint",
        "partition",
    } == {f"{3:020d}"}
