"""Directories and files that fail while a node starts or moves on: what goes on, and what is left behind."""

import errno
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.log import checkpoint
from ottla.log.directory import closing
from ottla.log.directory.store import Store
from ottla.log.log import Log, LogSettings, Origin
from ottla.log.segment.index import OffsetIndex
from ottla.log.segment.segment import Segment
from ottla.log.validate import only_batch
from ottla.sim.disk import SimDisk
from ottla.wire.batch import build

_ID, _OTHER = (Uuid(bytes(15) + bytes([number])) for number in (9, 10))
_BATCH = build([(1, b"k", b"v", [])])
_FULL = OSError(errno.ENOSPC, "no space left on device")


def _head(length: int, magic: int) -> bytes:
    """The beginning of a batch, up to its magic."""
    return bytes(8) + length.to_bytes(4, "big", signed=True) + bytes(4) + magic.to_bytes(1, "big", signed=True)


def _disk(**clusters: str) -> SimDisk:
    disk = SimDisk(random.Random(5))
    for name, cluster in clusters.items():
        disk.make_directory(f"/{name}")
        properties = {"version": "1", "node.id": "1", "cluster.id": cluster, "directory.id": name}
        checkpoint.write_properties(disk, f"/{name}/meta.properties", properties)
    return disk


def _take(disk: SimDisk, *dirs: str) -> Store:
    settings = LogSettings(segment_index_bytes=1200)
    return Store.take(disk, list(dirs), settings_of=lambda _: settings, node_id=1)


def _open(disk: SimDisk, *dirs: str) -> Store:
    store = _take(disk, *dirs)
    store.load(1000)
    return store


def _write(store: Store, topic: str, count: int = 1) -> Log:
    log = store.create(topic, _ID, 0)
    for _ in range(count):
        log.append(build([(1, b"k", b"v", [])]), leader_epoch=2, now_ms=1)
    return log


def test_directories_of_two_clusters_stop_the_start_in_words() -> None:
    with pytest.raises(
        OttlaError, match=r"^the log directories belong to two clusters: /a to one, /b to two; remove one of them"
    ):
        _take(_disk(a="one", b="two"), "/a", "/b")


def test_a_start_without_any_directory_that_works_says_why() -> None:
    disk = _disk(a="one", b="one")
    disk.break_directory("/a")
    disk.break_directory("/b")
    with pytest.raises(OttlaError, match=r"^all log directories failed: .+; .+"):
        _take(disk, "/a", "/b")


@pytest.mark.parametrize("where", ["checkpoints", "logs"])
@pytest.mark.parametrize("threads", [False, True])
def test_a_directory_that_fails_while_its_logs_are_opened_leaves_the_others(
    where: str, threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = _disk(a="one", b="one")
    store = _open(disk, "/a", "/b")
    lies_in = {topic: _write(store, topic).path.split("/")[1] for topic in "tuvw"}
    assert set(lies_in.values()) == {"a", "b"}
    store.abandon()
    failing = "ottla.log.directory.store.read_checkpoints" if where == "checkpoints" else "ottla.log.log.Log.open"
    read = checkpoint.read_offsets if where == "checkpoints" else Log.open

    def fails(disk: Any, at: Any, *given: Any, **more: Any) -> Any:
        if "/b" in (at if isinstance(at, str) else at.path):
            raise OSError(errno.EIO, "Input/output error")
        return None if where == "checkpoints" else read(disk, at, *given, **more)

    monkeypatch.setattr(failing, fails)
    store = _take(disk, "/a", "/b")
    with ThreadPoolExecutor(2) as pool:
        store.load(1000, pool=pool if threads else None)
    assert set(store.failed_directories) == {"/b"} and store.directories == ["/a"]
    assert {tp.topic for tp in store.logs()} == {topic for topic, place in lies_in.items() if place == "a"}
    store.abandon()


@pytest.mark.parametrize("fails", [False, True])
def test_of_two_logs_of_one_partition_the_shorter_goes_aside(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = _disk(a="one", b="one")
    for place, count in (("/a", 2), ("/b", 1)):
        store = _open(disk, place)
        _write(store, "t", count)
        store.abandon()
    rename = disk.rename

    def renamed(source: str, target: str) -> None:
        if fails and source == "/b/t-0":
            raise OSError(errno.EIO, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(disk, "rename", renamed)
    store = _open(disk, "/a", "/b")
    log = store.get(TopicPartition("t", 0))
    assert log is not None and (log.path, log.end_offset) == ("/a/t-0", 2)
    assert set(store.failed_directories) == ({"/b"} if fails else set())
    assert [name.endswith("-stray") for name in disk.list("/b") if name.startswith("t-0")] == [not fails]
    store.abandon()


def test_the_log_of_another_topic_of_that_name_is_not_given_out() -> None:
    store = _open(_disk(a="one"), "/a")
    log = _write(store, "t")
    assert store.create("t", _ID, 0) is log
    with pytest.raises(KafkaError) as refused:
        store.create("t", _OTHER, 0)
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    store.abandon()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n", "is not version 0 or has no topic_id"),
        ("version: 0\n", "is not version 0 or has no topic_id"),
        ("version: 0\ntopic_id: x\n", "/a/partition.metadata: "),
    ],
)
def test_a_topic_id_that_cannot_be_read_is_corrupt(text: str, words: str) -> None:
    disk = _disk(a="one")
    file = disk.open("/a/partition.metadata", create=True)
    file.write(text.encode(), 0)
    with pytest.raises(checkpoint.CorruptCheckpoint, match=words):
        checkpoint.read_topic_id(disk, "/a")


def test_epochs_that_cannot_be_read_are_corrupt() -> None:
    disk = _disk(a="one")
    assert checkpoint.read_epochs(disk, "/a/leader-epoch-checkpoint") is None
    file = disk.open("/a/leader-epoch-checkpoint", create=True)
    file.write(b"0\n1\n3 x\n", 0)
    with pytest.raises(checkpoint.CorruptCheckpoint):
        checkpoint.read_epochs(disk, "/a/leader-epoch-checkpoint")
    file.write(b"0\n1\n3 7\n", 0)
    assert checkpoint.read_epochs(disk, "/a/leader-epoch-checkpoint") == [(3, 7)]


# ---- a new segment on a disk that refuses it


def test_a_segment_that_cannot_be_begun_leaves_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log goes on in the old segment, and its offsets would pass the base offset of a file that stayed."""
    disk = _disk(a="one")
    store = _open(disk, "/a")
    log = _write(store, "t", 3)

    def fails(index: OffsetIndex) -> None:
        raise _FULL

    with monkeypatch.context() as patch:
        patch.setattr(OffsetIndex, "reset", fails)
        with pytest.raises(OSError, match="no space"):
            log.roll(1000)
    assert [name for name in disk.list(log.path) if name.endswith(".log")] == ["00000000000000000000.log"]
    assert len(log.segments) == 1
    log.append(build([(1, b"k", b"v", [])]), leader_epoch=2, now_ms=1)
    log.roll(1000)
    assert [each.base_offset for each in log.segments] == [0, 4]
    store.abandon()


def test_a_segment_begins_empty_over_a_file_that_a_crash_left() -> None:
    disk = _disk(a="one")
    disk.open("/a/00000000000000000007.log", create=True).write(b"left over", 0)
    segment = Segment.create(disk, "/a", 7, LogSettings(segment_index_bytes=1200), 1)
    assert (segment.file.size(), segment.size) == (0, 0)


def test_a_log_that_cannot_begin_again_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = _disk(a="one")
    store = _open(disk, "/a")
    log = _write(store, "t", 3)
    before = sorted(disk.list(log.path))

    def fails(log: Log, offset: int) -> None:
        raise _FULL

    with monkeypatch.context() as patch:
        patch.setattr("ottla.log.retention._before_truncation", fails)
        with pytest.raises(OSError, match="no space"):
            log.restart_at(9, 1000)
    assert (sorted(disk.list(log.path)), log.start_offset, log.end_offset) == (before, 0, 3)
    log.restart_at(9, 1000)
    assert (log.start_offset, log.end_offset, len(log.segments)) == (9, 9, 1)
    store.abandon()


# ---- what a client may send


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (bytes(11), ErrorCode.INVALID_RECORD),
        (_head(13, 2)[:12], ErrorCode.CORRUPT_MESSAGE),
        (_head(-1, 2) + bytes(60), ErrorCode.CORRUPT_MESSAGE),
        (_head(14, 3)[:16], ErrorCode.INVALID_RECORD),
        (_head(65, 3) + bytes(60), ErrorCode.CORRUPT_MESSAGE),
        (_head(65, -1) + bytes(60), ErrorCode.CORRUPT_MESSAGE),
        (_head(66, 2) + bytes(60), ErrorCode.INVALID_RECORD),
        (_head(65, 1) + bytes(60), ErrorCode.INVALID_RECORD),
        (_BATCH + _BATCH, ErrorCode.INVALID_RECORD),
        # Apache's reader reads on where the first batch ends.
        (_BATCH + _head(13, 2), ErrorCode.CORRUPT_MESSAGE),
        (_BATCH + _head(14, 3), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_only_one_complete_batch_of_our_magic_is_taken(data: bytes, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        only_batch(data)
    assert refused.value.code is code


def test_of_a_batch_and_what_follows_it_only_the_batch_is_taken() -> None:
    # The last one claims more than there is.
    for rest in (b"", b"x", _BATCH[:11], _BATCH[:-1], _head(20, 2)):
        assert bytes(only_batch(_BATCH + rest)) == _BATCH


@pytest.mark.parametrize("many", [2, 100])
def test_a_stop_closes_the_files_of_all_logs(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that starts and stops nodes would run out of descriptors."""
    monkeypatch.setattr(closing, "VOLUME_SYNC_LOGS_MIN", many)
    disk, closed, close = _disk(a="one"), list[Segment](), Segment.close
    before = _open(disk, "/a")
    _write(before, "unchanged")
    before.close()
    store = _open(disk, "/a")
    unchanged = store.get(TopicPartition("unchanged", 0))
    assert unchanged is not None
    # One that is closed already is not touched again.
    _write(store, "closed").close()
    logs = [unchanged, *(_write(store, topic) for topic in "tuv")]
    segments = [segment for log in logs for segment in log.segments]

    def noted(segment: Segment) -> None:
        closed.append(segment)
        close(segment)

    monkeypatch.setattr(Segment, "close", noted)
    store.close()
    assert sorted(closed, key=id) == sorted(segments, key=id)
    assert all(log.closed for log in logs)
    assert ".kafka_cleanshutdown" in disk.list("/a")


@pytest.mark.parametrize("many", [2, 100])
def test_a_stop_leaves_the_recovery_points_even_if_the_pool_takes_no_more_work(
    many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash of the next run reads from there on. The interpreter's end shuts its pools down before the node stops."""
    monkeypatch.setattr(closing, "VOLUME_SYNC_LOGS_MIN", many)
    store = _open(disk := _disk(a="one"), "/a")
    for topic in ("t", "u"):
        _write(store, topic, count=3)
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    store.close(pool=pool)
    text = checkpoint.read_text(disk, "/a/recovery-point-offset-checkpoint")
    assert text is not None and sorted(text.splitlines()[2:]) == ["t 0 3", "u 0 3"]
    assert ".kafka_cleanshutdown" in disk.list("/a")


def test_what_could_not_be_removed_is_removed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = _disk(a="c")
    store = _open(disk, "/a")
    for topic in ("t", "u"):
        store.create(topic, _ID, 0)
        store.delete(TopicPartition(topic, 0), 0)
    log = store.create("v", _ID, 0)
    for _ in range(3):
        log.append(build([(1, b"k", b"v", [])]), leader_epoch=0, now_ms=1)
        log.roll(1)
    log.advance_start_offset(2)
    log.delete_old_segments(0)
    kept = disk.list("/a/v-0")
    remove_tree, remove = disk.remove_tree, disk.remove

    def refused(path: str) -> None:
        if path.startswith("/a/t-0") or ".deleted" in path:
            raise OSError(errno.EMFILE, "too many open files")
        (remove_tree if disk.is_directory(path) else remove)(path)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "remove_tree", refused)
        patch.setattr(disk, "remove", refused)
        with pytest.raises(OSError, match="too many"):
            store.remove_deleted(1 << 40)
    names = [name[:3] for name in disk.list("/a") if name.endswith("-delete")]
    assert (names, disk.list("/a/v-0")) == (["t-0"], kept)
    store.remove_deleted(1 << 40)
    assert not [name for name in disk.list("/a") if name.endswith("-delete")]
    assert not [name for name in disk.list("/a/v-0") if name.endswith(".deleted")]


def test_a_move_whose_log_does_not_open_leaves_nothing_in_the_way_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = _disk(a="one", b="one")
    store, tp = _open(disk, "/a", "/b"), TopicPartition("t", 0)
    log = _write(store, "t", 3)
    home = store.directory_of(tp)
    target = {"/a": "/b", "/b": "/a"}[home]
    data = log.read(0, 1 << 20, end_offset=3).bytes()

    def begin() -> None:
        future = store.begin_move(tp, target, 1)
        future.append(data, leader_epoch=2, now_ms=1, origin=Origin.REPLICA)

    begin()
    with monkeypatch.context() as patched:
        patched.setattr(Log, "open", Mock(side_effect=OSError(errno.EMFILE, "too many open files")))
        with pytest.raises(OSError, match="too many"):
            store.finish_move(tp, 1)
    assert store.get(tp) is log
    store.cancel_move(tp)
    assert not [name for name in disk.list(target) if name.startswith("t-0") and not name.endswith("-delete")]
    begin()
    assert store.finish_move(tp, 1) is store.get(tp)
    assert store.directory_of(tp) == target
    store.remove_deleted(1 << 40)
    assert [name for name in disk.list(target) if name.startswith("t-0")] == ["t-0"]


def _written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the checkpoints that are written from now on."""
    names: list[str] = []
    write = checkpoint.write_offsets

    def note(disk: Any, path: str, offsets: Any) -> None:
        names.append(path.rpartition("/")[2])
        write(disk, path, offsets)

    monkeypatch.setattr(checkpoint, "write_offsets", note)
    return names


@pytest.mark.parametrize("fails", [False, True])
def test_the_cleaner_offsets_of_many_deleted_logs_are_written_once(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = _disk(a="one")
    store = _open(disk, "/a")
    topics = [f"t{number}" for number in range(50)]
    for name in topics:
        _write(store, name).cleaner_offset = 1
    store.cleaner_task(TopicPartition("t0", 0))()
    names = _written(monkeypatch)
    with monkeypatch.context() as broken:
        if fails:
            broken.setattr(disk, "rename", Mock(side_effect=OSError(errno.EIO, "broken")))
        for name in topics:
            try:
                store.delete(TopicPartition(name, 0), 1)
            except OSError:
                assert fails
    assert names == [], "the loop waits for no disk"
    plans = store.plan([TopicPartition(name, 0) for name in topics], _OTHER)
    for plan in plans:
        assert plan.begin().adopt().cleaner_offset is None
    assert names.count(checkpoint.CLEANER_OFFSETS) == 1
    assert checkpoint.read_offsets(disk, f"/a/{checkpoint.CLEANER_OFFSETS}") == {}


def test_a_cleaner_offset_of_a_log_that_is_gone_at_a_start_is_written_away() -> None:
    disk = _disk(a="one")
    checkpoint.write_offsets(disk, f"/a/{checkpoint.CLEANER_OFFSETS}", {TopicPartition("t", 0): 5})
    store = _open(disk, "/a")
    assert _write(store, "t").cleaner_offset is None
    assert checkpoint.read_offsets(disk, f"/a/{checkpoint.CLEANER_OFFSETS}") == {}


def test_a_cleaner_offset_that_cannot_be_written_away_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = _disk(a="one")
    store = _open(disk, "/a")
    _write(store, "t").cleaner_offset = 1
    store.cleaner_task(TopicPartition("t", 0))()
    store.delete(TopicPartition("t", 0), 1)
    write = checkpoint.write_offsets

    def full(disk: Any, path: str, offsets: Any) -> None:
        if path.endswith(checkpoint.CLEANER_OFFSETS):
            raise _FULL
        write(disk, path, offsets)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "write_offsets", full)
        with pytest.raises(OSError, match="no space"):
            store.checkpoint(2)
    store.checkpoint(3)
    assert checkpoint.read_offsets(disk, f"/a/{checkpoint.CLEANER_OFFSETS}") == {}


def test_a_copy_that_cannot_be_removed_holds_up_nothing_and_is_removed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = _disk(a="one", b="one")
    store = _open(disk, "/a", "/b")
    for name in ("t", "u", "v", "w"):
        _write(store, name)
    moving = [tp for tp in store.logs() if store.directory_of(tp) == "/a"]
    for tp in moving:
        store.begin_move(tp, "/b", 1)
    with monkeypatch.context() as broken:
        broken.setattr(disk, "remove_tree", Mock(side_effect=OSError(errno.EIO, "broken")))
        for tp in moving:
            store.cancel_move(tp)
    copies = [name for name in disk.list("/b") if name.endswith("-delete")]
    assert len(copies) == len(moving) > 1
    store.remove_deleted(2000)
    assert not [name for name in disk.list("/b") if name.endswith(("-future", "-delete"))]


def test_strays_that_cannot_be_closed_or_moved_hold_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = _disk(a="one", b="one")
    store = _open(disk, "/a", "/b")
    for name in ("t", "u", "v", "w"):
        _write(store, name)
    homes = {tp: store.directory_of(tp) for tp in store.logs()}
    rename, told = disk.rename, list[tuple[str, OSError]]()

    def broken(path: str, target: str) -> None:
        if path.startswith("/a/"):
            raise OSError(errno.EIO, "broken")
        rename(path, target)

    monkeypatch.setattr(disk, "rename", broken)
    monkeypatch.setattr("ottla.log.durability.sync", Mock(side_effect=_FULL))
    strays = store.delete_strays(lambda tp, log: True, lambda path, error: told.append((path, error)))
    assert strays == sorted(homes) and {"/a", "/b"} == set(homes.values())
    assert [(path, error.errno) for path, error in told] == [("/a", errno.EIO)]
    aside = [name for name in disk.list("/b") if name.endswith("-stray")]
    assert len(aside) == list(homes.values()).count("/b")


def test_the_old_log_of_a_move_whose_disk_is_full_is_removed_later_unless_the_log_comes_back() -> None:
    for comes_back, is_gone in ((False, False), (True, False), (True, True)):
        disk = _disk(a="one", b="one")
        store = _open(disk, "/a", "/b")
        _write(store, "t", 3)
        tp, rename = TopicPartition("t", 0), disk.rename
        here = store.directory_of(tp)
        there = "/b" if here == "/a" else "/a"

        def move(store: Store = store, tp: TopicPartition = tp, **to: str) -> None:
            copy = store.begin_move(tp, to["path"], 1)
            log = store.get(tp)
            assert log is not None
            copy.append(log.read(0, 1 << 20, end_offset=3).bytes(), leader_epoch=2, now_ms=1, origin=Origin.REPLICA)
            store.finish_move(tp, 1)

        def full(source: str, target: str) -> None:
            raise _FULL

        def until_deleted(source: str, target: str, rename: Any = rename) -> None:
            (full if target.endswith("-delete") else rename)(source, target)

        disk.rename = until_deleted  # type: ignore[method-assign]
        with pytest.raises(OSError, match="no space left"):
            move(path=there)
        disk.rename = rename  # type: ignore[method-assign]
        (old,) = store.unrenamed()
        if is_gone:
            # An administrator in need of space has removed it.
            disk.remove_tree(old.path)
        if comes_back:
            move(path=here)
        store.rename_again(old, 2)
        assert store.unrenamed() == []
        assert [name for name in disk.list(here) if name.startswith("t-0")] and disk.exists(f"{here}/t-0") is comes_back
        log = store.get(tp)
        assert log is not None and log.end_offset == 3
        store.close()
