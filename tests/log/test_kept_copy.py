"""The complete copy of a move: what makes it incomplete, and when a start takes it for the log."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count

import pytest

from ottla.kernel.ids import TopicPartition, Uuid
from ottla.log.checkpoint import META_PROPERTIES, write_properties
from ottla.log.directory.store import Store
from ottla.log.log import Log, LogSettings, Origin
from ottla.sim.disk import Crashed, SimDisk
from ottla.wire.batch import build

_TP = TopicPartition("t", 0)
_SETTINGS = LogSettings(segment_bytes=300)
_RECORDS = 9
_START = 4


class _Node:
    """A log in /b, and its complete copy in /a."""

    def __init__(self, seed: int = 1) -> None:
        self.disk = SimDisk(random.Random(seed))
        for path in ("/a", "/b", "/m"):
            self.disk.make_directory(path)
            ids = {"version": "1", "node.id": "1", "cluster.id": "c", "directory.id": path[1:]}
            write_properties(self.disk, f"{path}/{META_PROPERTIES}", ids)
        self.disk.sync_directory("/")
        self.start()
        self.log = self.store.plan([_TP], Uuid(bytes(15) + b"\1"), {_TP: "/b"})[0].begin().adopt()
        for number in range(_RECORDS):
            append(self.log, b"%d" % number)
        copy = self.store.begin_move(_TP, "/a", 1)
        while copy.end_offset < self.log.end_offset:
            piece = self.log.read(copy.end_offset, 1 << 20, end_offset=self.log.end_offset)
            copy.append(piece.bytes(), leader_epoch=0, now_ms=1, origin=Origin.REPLICA)
        self.log.advance_start_offset(_START)
        #: The errors of the copy's disk.
        self.failures: list[OSError] = []
        self.store.keep_copy(_TP, self.failures.append)
        self.copy = copy

    def start(self, paths: Sequence[str] = ("/a", "/b"), named: str | None = "a") -> Log | None:
        self.store = Store.take(self.disk, paths, node_id=1, settings_of=lambda _: _SETTINGS, metadata_dir="/m")
        self.store.load(1, named=lambda _: named)
        return self.store.get(_TP)

    def power_off(self) -> None:
        self.store.abandon()
        self.disk.crash()

    def is_marked(self) -> bool:
        """Whether a later start may take a copy for the log."""
        copies = [name for name in self.disk.list("/a") if name.startswith("t-0")]
        return any("complete-copy" in self.disk.list(f"/a/{name}") for name in copies)

    def suffixes(self) -> list[str]:
        return [name.rpartition("-")[2] for name in self.disk.list("/a") if name.startswith("t-0")]


def append(log: Log, value: bytes) -> None:
    log.append(bytearray(build([(1, b"k", value, [])])), leader_epoch=0, now_ms=1)


def _fetch(log: Log) -> None:
    data = bytearray(build([(1, b"k", b"v", [])]))
    data[:8] = log.end_offset.to_bytes(8, "big")
    log.append(data, leader_epoch=0, now_ms=1, origin=Origin.REPLICA)


_CHANGES: dict[str, Callable[[Log], object]] = {
    "a record": lambda log: append(log, b"v"),
    "a fetched record": _fetch,
    "a truncation": lambda log: log.truncate(_RECORDS - 1),
    "a restart": lambda log: log.restart_at(_RECORDS, 1),
    "a deletion of records": lambda log: log.advance_start_offset(_START + 1),
    "retention": lambda log: log.delete_old_segments(1 << 60),
}
_NO_CHANGES: dict[str, Callable[[Log], object]] = {
    "nothing": lambda _: None,
    "a new segment": lambda log: log.roll(1),
    "a flush": lambda log: log.flush(),
    "an old truncation": lambda log: log.truncate(_RECORDS),
    "an old deletion of records": lambda log: log.advance_start_offset(_START),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("what", [*_CHANGES, *_NO_CHANGES])
def test_a_copy_is_taken_for_a_log_that_is_away_unless_the_log_changed(what: str, seed: int) -> None:
    node = _Node(seed)
    (_CHANGES | _NO_CHANGES)[what](node.log)
    node.power_off()
    log = node.start(["/a"])
    if what in _CHANGES:
        assert log is None
        assert not node.suffixes(), "the incomplete copy stays"
        assert node.store.unfinished_moves == {_TP: "/a"}
    else:
        assert log is not None
        assert (log.start_offset, log.end_offset, log.path) == (_START, _RECORDS, "/a/t-0")
        assert not node.store.unfinished_moves
        assert "complete-copy" not in node.disk.list("/a/t-0")


@pytest.mark.parametrize("named", ["b", None])
def test_a_copy_that_the_metadata_does_not_name_is_removed(named: str | None) -> None:
    node = _Node()
    node.power_off()
    assert node.start(["/a"], named) is None
    assert not node.suffixes()


def test_a_log_that_is_there_goes_on_without_its_copy() -> None:
    node = _Node()
    node.power_off()
    log = node.start()
    assert log is not None
    assert log.path == "/b/t-0"
    assert not node.is_marked()
    assert node.store.unfinished_moves == {_TP: "/a"}, "the move begins again"


@pytest.mark.parametrize("named", ["a", "b", None])
@pytest.mark.parametrize("is_complete", [True, False])
def test_the_copy_of_a_log_that_is_lost_stays_until_the_disk_is_back(is_complete: bool, named: str | None) -> None:
    node = _Node()
    if not is_complete:
        append(node.log, b"v")
    node.disk.break_directory("/b")
    assert node.store.fail("/b", OSError(errno.EIO, "broken")) == [_TP]
    assert node.store.future(_TP) is None
    for _ in range(2):
        node.power_off()
        log = node.start(named=named)
        if is_complete and named == "a":
            assert log is not None
            assert (log.start_offset, log.end_offset) == (_START, _RECORDS)
        else:
            assert (log, node.suffixes()) == (None, ["future"])
            assert node.store.unfinished_moves == {_TP: "/a"}
    node.power_off()
    node.disk.mend_directory("/b")
    assert node.start(named=named) is not None
    assert not node.is_marked()


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_copy_is_that_of_its_topic(is_damaged: bool) -> None:
    node = _Node()
    append(node.log, b"v")
    if is_damaged:
        file = node.disk.open(f"{node.copy.path}/partition.metadata")
        file.write(b"?" * file.size(), 0)
        file.sync()
    node.power_off()
    node.disk.break_directory("/b")
    assert node.start() is None
    assert node.store.was_moving(_TP, Uuid(bytes(15) + b"\1"))
    assert node.store.was_moving(_TP, Uuid(bytes(15) + b"\2")) is is_damaged
    assert not node.store.was_moving(TopicPartition("t", 1), Uuid(bytes(15) + b"\1"))


def test_a_move_that_is_cancelled_leaves_no_copy_and_a_log_that_can_change(caplog: pytest.LogCaptureFixture) -> None:
    node = _Node()
    node.store.cancel_move(_TP)
    append(node.log, b"v")
    assert not caplog.text
    node.power_off()
    assert node.start(["/a"]) is None
    assert not node.suffixes()


def test_a_move_that_ends_leaves_no_mark() -> None:
    node = _Node()
    log = node.store.finish_move(_TP, 1)
    assert "complete-copy" not in node.disk.list("/a/t-0")
    append(log, b"v")
    node.power_off()
    taken = node.start(["/a"])
    assert taken is not None
    assert taken.start_offset == _START


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("damage", ["its end is lost", "its mark is cut", "its mark is no text"])
def test_a_damaged_copy_is_kept_aside_and_not_taken(damage: str, is_lost: bool) -> None:
    node = _Node()
    mark = node.disk.open(f"{node.copy.path}/complete-copy")
    if damage == "its end is lost":
        node.copy.active.file.truncate(node.copy.active.size - 1)
        node.copy.active.file.sync()
    elif damage == "its mark is cut":
        mark.truncate(20)
        mark.sync()
    else:
        mark.write(b"\xff" * mark.size(), 0)
        mark.sync()
    node.power_off()
    if not is_lost:
        assert node.start(["/a"]) is None
        assert node.suffixes() == ["stray"]
        return
    node.disk.break_directory("/b")
    for _ in range(2):
        assert node.start() is None
        # Else the next start would make an empty log: the metadata names this directory.
        assert node.store.unfinished_moves == {_TP: "/a"}
        node.power_off()
    node.disk.mend_directory("/b")
    assert node.start() is not None
    assert not node.is_marked()


@pytest.mark.parametrize("seed", range(3))
def test_a_power_loss_while_a_copy_is_taken_loses_nothing(seed: int) -> None:
    for number in count():
        node = _Node(seed)
        node.power_off()
        node.disk.crash_at = node.disk.effects + number
        is_over = False
        with suppress(Crashed):
            node.start(["/a"])
            is_over = True
        node.power_off()
        node.disk.crash_at = None
        log = node.start(["/a"])
        assert log is not None, number
        assert (log.start_offset, log.end_offset) == (_START, _RECORDS), number
        if is_over:
            break
    assert number > 5


@pytest.mark.parametrize("seed", range(3))
def test_a_change_waits_for_a_mark_that_cannot_be_removed_for_lack_of_files(seed: int) -> None:
    node = _Node(seed)
    sync = node.disk.sync_directory

    def refuse(path: str) -> None:
        raise OSError(errno.EMFILE, "too many open files", path)

    node.disk.sync_directory = refuse  # type: ignore[method-assign]
    with pytest.raises(OSError, match="too many open files"):
        append(node.log, b"v")
    assert node.log.end_offset == _RECORDS
    node.disk.sync_directory = sync  # type: ignore[method-assign]
    append(node.log, b"v")
    assert node.log.end_offset == _RECORDS + 1
    node.power_off()
    assert node.start(["/a"]) is None


def test_a_failed_disk_of_a_copy_keeps_no_record_from_the_log(caplog: pytest.LogCaptureFixture) -> None:
    node = _Node()
    node.disk.break_directory("/a")
    append(node.log, b"v")
    append(node.log, b"v")
    assert node.log.end_offset == _RECORDS + 2
    assert caplog.text.count("cannot change the copy") == len(node.failures) == 1


def test_a_copy_whose_directory_has_failed_is_no_matter_of_the_log_any_more(caplog: pytest.LogCaptureFixture) -> None:
    node = _Node()
    node.disk.break_directory("/a")
    node.store.fail("/a", OSError(errno.EIO, "failed"))
    append(node.log, b"v")
    assert not caplog.text


def test_a_cancelled_copy_that_cannot_be_renamed_is_taken_for_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    node = _Node()

    def refuse(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "no space left", source)

    with monkeypatch.context() as full:
        full.setattr(node.disk, "rename", refuse)
        node.store.cancel_move(_TP)
    append(node.log, b"v")
    node.power_off()
    assert node.start(["/a"]) is None


def _cancelled_with_too_many_files_open(monkeypatch: pytest.MonkeyPatch) -> _Node:
    node = _Node()

    def refuse(path: str) -> None:
        raise OSError(errno.EMFILE, "too many open files", path)

    with monkeypatch.context() as full:
        full.setattr(node.disk, "remove", refuse)
        node.store.cancel_move(_TP)
    return node


def test_a_cancelled_copy_that_stays_marked_loses_its_mark_before_the_log_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = _cancelled_with_too_many_files_open(monkeypatch)
    append(node.log, b"v")
    node.power_off()
    assert node.start(["/a"]) is None


def test_a_log_can_change_after_a_cancelled_copy_is_removed_late(monkeypatch: pytest.MonkeyPatch) -> None:
    node = _cancelled_with_too_many_files_open(monkeypatch)
    node.store.remove_deleted(1 << 60)
    assert not node.suffixes()
    append(node.log, b"v")
    assert node.log.end_offset == _RECORDS + 1
    assert not node.failures
