"""Several copies of one log, which failed directories and moves have left: a start takes no older one for the log."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence

import pytest

from ottla.kernel.ids import TopicPartition, Uuid
from ottla.log.checkpoint import META_PROPERTIES, write_properties
from ottla.log.directory.store import Store
from ottla.log.log import Log, LogSettings, Origin
from ottla.sim.disk import SimDisk
from ottla.wire.batch import build

_TP = TopicPartition("t", 0)
_ALL = ("/a", "/b", "/c")
_BROKEN = OSError(errno.EIO, "broken")


class _Node:
    """A log of three records in /a."""

    def __init__(self) -> None:
        self.disk = SimDisk(random.Random(1))
        for path in _ALL:
            self.disk.make_directory(path)
            ids = {"version": "1", "node.id": "1", "cluster.id": "c", "directory.id": path[1:]}
            write_properties(self.disk, f"{path}/{META_PROPERTIES}", ids)
        self.disk.sync_directory("/")
        self.now_ms = 0
        self.start(_ALL, None)
        self.store.plan([_TP], Uuid(bytes(15) + b"\1"), {_TP: "/a"})[0].begin().adopt()
        for _ in range(3):
            self.write()

    def start(self, online: Sequence[str], named: str | None) -> Log | None:
        """Start with these directories; the metadata names the last one for the log."""
        self.now_ms += 1
        for path in _ALL:
            (self.disk.mend_directory if path in online else self.disk.break_directory)(path)
        self.store = Store.take(self.disk, _ALL, node_id=1, settings_of=lambda _: LogSettings())
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
    assert node.copies("/b") == node.copies("/c") == []
