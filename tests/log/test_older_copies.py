"""Several copies of one log, which failed directories and moves have left: a start takes no older one for the log."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

import pytest

from ottla.kernel.ids import TopicPartition, Uuid
from ottla.log import checkpoint
from ottla.log.checkpoint import META_PROPERTIES, write_properties
from ottla.log.directory.left_behind import LeftBehind
from ottla.log.directory.store import Store
from ottla.log.log import Log, LogSettings, Origin
from ottla.sim.disk import Crashed, SimDisk
from ottla.wire.batch import build

_TP = TopicPartition("t", 0)
_ID = Uuid(bytes(15) + b"\1")
_ALL = ("/a", "/b", "/c")
_BROKEN = OSError(errno.EIO, "broken")


class _Node:
    """A log of three records in /a."""

    def __init__(self, seed: int = 1) -> None:
        self.disk = SimDisk(random.Random(seed))
        for path in (*_ALL, "/m"):
            self.disk.make_directory(path)
            ids = {"version": "1", "node.id": "1", "cluster.id": "c", "directory.id": path[1:]}
            write_properties(self.disk, f"{path}/{META_PROPERTIES}", ids)
        self.disk.sync_directory("/")
        self.now_ms = 0
        self.start(_ALL, None)
        self.store.plan([_TP], _ID, {_TP: "/a"})[0].begin().adopt()
        for _ in range(3):
            self.write()

    def start(self, online: Sequence[str], named: str | None) -> Log | None:
        """Start with these directories; the metadata names the last one for the log."""
        self.now_ms += 1
        for path in _ALL:
            (self.disk.mend_directory if path in online else self.disk.break_directory)(path)
        self.store = Store.take(self.disk, _ALL, node_id=1, settings_of=lambda _: LogSettings(), metadata_dir="/m")
        self.store.load(self.now_ms, named=lambda _: named)
        return self.store.get(_TP)

    def power_off(self) -> None:
        self.store.abandon()
        self.disk.crash()

    @property
    def log(self) -> Log:
        log = self.store.get(_TP)
        assert log is not None
        return log

    def write(self) -> None:
        self.log.append(bytearray(build([(1, b"k", b"v", [])])), leader_epoch=0, now_ms=1)
        self.log.sync()

    def copy(self, path: str, *, is_kept: bool = True) -> None:
        """Begin to move the log, and copy all of it."""
        self.now_ms += 1
        copy = self.store.begin_move(_TP, path, self.now_ms)
        while copy.end_offset < self.log.end_offset:
            piece = self.log.read(copy.end_offset, 1 << 20, end_offset=self.log.end_offset)
            copy.append(piece.bytes(), leader_epoch=0, now_ms=1, origin=Origin.REPLICA)
        if is_kept:
            self.store.keep_copy(_TP, lambda _: None)

    def fail(self, path: str) -> None:
        self.disk.break_directory(path)
        self.store.fail(path, _BROKEN)

    def copies(self, path: str) -> list[str]:
        return [name for name in self.disk.list(path) if name.startswith("t-0") and not name.endswith("-delete")]


def _with_an_older_copy_in_b() -> _Node:
    """The metadata names /c for the log in /a. The copy in /b lacks a record of the one in /c, and neither knows."""
    node = _Node()
    node.copy("/b")
    node.fail("/b")
    node.write()
    node.copy("/c")
    node.power_off()
    return node


def test_the_copies_of_a_log_whose_newer_copy_is_taken_for_it_are_removed() -> None:
    node = _with_an_older_copy_in_b()
    log = node.start(["/b", "/c"], "c")
    assert log is not None
    assert (log.path, log.end_offset) == ("/c/t-0", 4)
    assert node.copies("/b") == []


def test_an_older_copy_in_the_directory_of_the_next_move_is_not_taken_for_the_log() -> None:
    node = _with_an_older_copy_in_b()
    node.start(["/b", "/c"], "c")
    node.copy("/b")
    node.write()
    node.power_off()
    assert node.start(["/a", "/b"], "b") is None or node.log.path == "/a/t-0"
    node.power_off()
    assert node.start(["/b"], "b") is None, "a record is lost"


@pytest.mark.parametrize("named", ["a", None])
def test_a_copy_that_the_metadata_do_not_name_is_complete_no_more(named: str | None) -> None:
    node = _Node()
    node.copy("/b")
    node.fail("/b")
    node.write()
    node.power_off()
    assert node.start(["/b", "/c"], named) is None
    assert len(node.copies("/b")) == 1, "the next start must know of the move"
    node.power_off()
    assert node.start(["/b", "/c"], "b") is None


def test_a_move_does_not_begin_beside_a_copy_that_stays_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    node = _Node()
    node.copy("/b")

    def refuse(path: str) -> None:
        raise OSError(errno.EMFILE, "too many open files", path)

    with monkeypatch.context() as full:
        full.setattr(node.disk, "remove", refuse)
        node.store.cancel_move(_TP)
        with pytest.raises(OSError, match="too many open files"):
            node.copy("/c")
        assert node.store.future(_TP) is None
    node.copy("/c")
    node.write()
    node.power_off()
    assert node.start(["/b"], "b") is None, "a record is lost"


def test_a_failed_directory_takes_no_mark_of_another_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    node = _Node()
    node.copy("/b")

    def refuse(path: str) -> None:
        raise OSError(errno.EMFILE, "too many open files", path)

    with monkeypatch.context() as full:
        full.setattr(node.disk, "remove", refuse)
        node.store.cancel_move(_TP)
    node.copy("/c", is_kept=False)
    node.fail("/c")
    node.write()
    node.power_off()
    assert node.start(["/b"], "b") is None, "a record is lost"


@pytest.mark.parametrize("to", [("/b", "/c"), ("/c", "/b"), ("/b", "/b")])
def test_of_several_moves_the_latest_begins_again(to: tuple[str, str]) -> None:
    node = _Node()
    for path in to:
        node.copy(path, is_kept=False)
        node.store._take_move(_TP)
    node.power_off()
    assert node.start(_ALL, "a") is not None
    assert node.store.unfinished_moves == {_TP: to[1]}
    node.store.begin_move(_TP, to[1], 10)
    node.store.remove_deleted(10)
    assert len(node.copies(to[1])) == len(node.copies("/b") + node.copies("/c")) == 1


def test_a_copy_that_is_lost_with_its_directory_lacks_what_comes_after() -> None:
    """The controller may be away, and the metadata still name the directory of the copy."""
    node = _Node()
    node.copy("/b")
    node.fail("/b")
    node.write()
    node.power_off()
    for _ in range(2):
        assert node.start(["/b", "/c"], "b") is None, "a record is lost"
        assert node.store.was_moving(_TP, _ID), "an empty log would take its place"
        node.power_off()
    assert node.start(_ALL, "b") is not None
    assert (node.log.path, node.log.end_offset) == ("/a/t-0", 4)


def test_a_copy_whose_disk_does_not_let_it_be_unmarked_lacks_what_comes_after() -> None:
    node = _Node()
    node.copy("/b")
    node.disk.break_directory("/b")
    node.write()
    node.power_off()
    assert node.start(["/b", "/c"], "b") is None, "a record is lost"


@pytest.mark.parametrize("seed", range(5))
def test_a_crash_when_a_start_begins_a_move_again_forgets_no_move(seed: int) -> None:
    for number in count():
        node = _Node(seed)
        node.copy("/b")
        node.power_off()
        node.disk.crash_at = node.disk.effects + number
        is_over = False
        with suppress(Crashed):
            node.start(_ALL, "b")
            node.store.begin_move(_TP, "/b", 10)
            node.store.remove_deleted(10)
            is_over = True
        node.power_off()
        log = node.start(["/b", "/c"], "b")
        assert log is not None or node.store.was_moving(_TP, _ID), f"{number}: an empty log takes its place"
        node.power_off()
        assert node.start(_ALL, "b") is not None
        if log is None:
            assert node.store.unfinished_moves == {_TP: "/b"}, number
        if is_over:
            break
    assert number > 5


@pytest.mark.parametrize("seed", range(5))
def test_a_copy_that_a_start_leaves_is_not_complete_when_it_comes_back(seed: int) -> None:
    node = _Node(seed)
    node.copy("/b")
    node.power_off()
    assert node.start(_ALL, "b") is not None
    node.store.drop_unfinished(_TP)
    node.store.remove_deleted(10)
    node.write()
    node.power_off()
    assert node.start(["/b", "/c"], "b") is None, "a record is lost"
    assert node.store.was_moving(_TP, _ID), "an empty log would take its place"


@pytest.mark.parametrize("is_told", [False, True])
def test_a_start_without_the_log_of_a_cancelled_move_knows_if_the_metadata_may_be_wrong(is_told: bool) -> None:
    node = _Node()
    node.copy("/b")
    node.store.cancel_move(_TP, is_told=is_told)
    node.write()
    node.power_off()
    assert node.start(["/b", "/c"], "b") is None
    assert node.store.was_moving(_TP, _ID) == is_told


def test_a_new_log_where_an_older_one_stayed_is_used() -> None:
    node = _Node()
    node.store.left_behind.add("b", {str(_TP): _ID})
    node.store.delete(_TP, 1)
    node.store.plan([_TP], _ID, {_TP: "/b"})[0].begin().adopt()
    node.write()
    node.power_off()
    assert node.start(["/b"], "b") is not None


@pytest.mark.parametrize("named", ["a", "b", None])
def test_an_older_log_is_noted_until_the_metadata_names_its_directory_no_more(named: str | None) -> None:
    node = _Node()
    node.store.left_behind.add("b", {str(_TP): _ID, "t-0.1-future": _ID})
    node.power_off()
    assert node.start(_ALL, named) is not None
    assert [name for _, name, _ in node.store.left_behind.names()] == [str(_TP)] * (named == "b")


def test_names_that_cannot_be_noted_or_read_hold_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    node = _Node()
    node.disk.break_directory("/m")
    node.store.left_behind.add("b", {str(_TP): _ID})
    node.disk.mend_directory("/m")
    assert caplog.text.count("cannot note") == 1
    node.store.left_behind.add("b", {str(_TP): _ID})
    node.disk.open("/m/left-behind-checkpoint").write(b"?", 0)
    node.power_off()
    assert node.start(_ALL, "a") is not None
    assert caplog.text.count("cannot read which logs are not the latest") == 1


def test_a_log_whose_disk_was_replaced_in_a_move_is_not_made_again_where_its_copy_was() -> None:
    node = _Node()
    node.copy("/b")
    node.write()
    node.power_off()
    node.disk.remove_tree("/a/t-0")
    node.disk.sync_directory("/a")
    for _ in range(2):
        assert node.start(_ALL, "b") is None
        assert node.store.was_moving(_TP, _ID)
        node.disk.sync_directory("/b")
        node.power_off()
    assert node.copies("/b") == []


def test_what_is_noted_of_a_deleted_topic_holds_up_nothing_of_the_next_one_of_its_name() -> None:
    node = _Node()
    node.store.left_behind.add("a", {str(_TP): Uuid(bytes(15) + b"\2")})
    node.power_off()
    assert node.start(["/a", "/b"], "a") is not None
    node.store.left_behind.add("b", {str(_TP): Uuid(bytes(15) + b"\2")})
    node.power_off()
    assert node.start(["/b", "/c"], "a") is None
    assert not node.store.was_moving(_TP, _ID)


def test_nothing_is_written_until_something_stays_behind() -> None:
    node = _Node()
    node.store.left_behind.forget("a", str(_TP))
    node.store.left_behind.add("a", {})
    assert node.disk.list("/m") == [".lock", META_PROPERTIES]
    # The file is not known before the start reads it.
    unread, effects = LeftBehind(node.disk), node.disk.effects
    unread.add("a", {str(_TP): _ID})
    assert (unread.names(), node.disk.effects) == ([], effects)


def test_a_copy_is_taken_for_the_log_where_an_older_one_could_not_be_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    node = _Node()
    rename = node.disk.rename

    def refuse(source: str, target: str) -> None:
        if target.endswith("-delete"):
            raise OSError(errno.ENOSPC, "no space left", source)
        rename(source, target)

    node.copy("/b")
    with monkeypatch.context() as full:
        full.setattr(node.disk, "rename", refuse)
        with pytest.raises(OSError, match="no space left"):
            node.store.finish_move(_TP, node.now_ms)
    assert "t-0" in node.disk.list("/a"), "the older log"
    node.write()
    node.copy("/a")
    node.power_off()
    for _ in range(2):
        log = node.start(["/a", "/c"], "a")
        assert log is not None, node.store.failed_directories
        assert (log.path, log.end_offset) == ("/a/t-0", 4), "a record is lost"
        node.power_off()
    assert len(node.copies("/a")) == 2, "nothing is deleted"


def test_a_copy_beside_the_log_that_came_by_a_later_copy_is_removed() -> None:
    """The last run was killed before it removed the copy with which it did not go on."""
    node = _Node()
    node.copy("/b", is_kept=False)
    node.power_off()
    assert node.start(_ALL, "a") is not None
    node.copy("/b")
    node.store.finish_move(_TP, node.now_ms)
    assert len(node.copies("/b")) == 2
    node.power_off()
    assert node.start(_ALL, "b") is not None
    assert (node.store.unfinished_moves, node.copies("/b")) == ({}, ["t-0"])


def test_names_that_the_disk_does_not_let_be_read_hold_up_no_start(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = _Node()
    node.store.left_behind.add("b", {str(_TP): _ID})
    node.power_off()

    def refuse(disk: object, path: str) -> str:
        raise OSError(errno.EIO, "cannot read", path)

    with monkeypatch.context() as broken:
        broken.setattr(checkpoint, "read_text", refuse)
        node.store.left_behind.read("/m")
    assert caplog.text.count("cannot read which logs are not the latest") == 1


def test_a_directory_that_fails_at_the_choice_of_a_log_has_no_other_log_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    node = _Node()
    other = TopicPartition("t", 1)
    node.store.plan([other], _ID, {other: "/a"})[0].begin().adopt()
    node.disk.sync_directory("/a")
    rename = node.disk.rename

    def refuse(source: str, target: str) -> None:
        if target.endswith(("-delete", "-stray")):
            raise OSError(errno.EIO, "broken", source)
        rename(source, target)

    node.copy("/b")
    monkeypatch.setattr(node.disk, "rename", refuse)
    with pytest.raises(OSError, match="broken"):
        node.store.finish_move(_TP, node.now_ms)
    node.power_off()
    assert node.start(_ALL, "b") is not None
    assert [*node.store.failed_directories] == ["/a"]
    assert {*node.store.logs()} == {_TP}
