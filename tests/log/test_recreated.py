"""A log of the same name as an earlier one: the checkpoints of the earlier one say nothing about it."""

import errno
import random
from unittest.mock import Mock

import pytest

from ottla.kernel.ids import TopicPartition, Uuid
from ottla.log.checkpoint import META_PROPERTIES, write_properties
from ottla.log.directory.store import Store
from ottla.log.log import Log, LogSettings
from ottla.log.segment.segment import Segment
from ottla.sim.disk import SimDisk
from ottla.wire.batch import build

_TP = TopicPartition("t", 0)


class _Node:
    """A store on a disk, and the processes that open it."""

    def __init__(self, seed: int = 1) -> None:
        self.disk = SimDisk(random.Random(seed))
        for number, path in enumerate(("/a", "/b")):
            self.disk.make_directory(path)
            ids = {"version": "1", "node.id": "1", "cluster.id": "c", "directory.id": str(number)}
            write_properties(self.disk, f"{path}/{META_PROPERTIES}", ids)
        self.disk.sync_directory("/")
        self.start()

    def start(self) -> None:
        self.store = Store.open(self.disk, ["/a", "/b"], node_id=1, now_ms=1, settings_of=lambda _: LogSettings())

    def restart(self) -> Log | None:
        self.store.abandon()
        self.disk.kill()
        self.start()
        return self.store.get(_TP)

    def create(self, number: int) -> Log:
        plan = self.store.plan([_TP], Uuid(bytes(15) + bytes([number])), {_TP: "/a"})
        return plan[0].begin().adopt()

    def earlier(self) -> Log:
        """The first log of the name, with a start offset within a segment, and its checkpoints."""
        log = self.create(1)
        append(log, 10)
        log.flush()
        log.advance_start_offset(8)
        self.store.checkpoint(1)
        return log


def append(log: Log, count: int) -> None:
    for _ in range(count):
        log.append(bytearray(build([(1, b"k", b"v", [])])), leader_epoch=0, now_ms=1)


def _check(node: _Node) -> None:
    """Nothing of the log that the node has now is lost with the process."""
    log = node.store.get(_TP)
    assert log is not None
    append(log, 3)
    log = node.restart()
    assert log is not None
    assert (log.start_offset, log.end_offset, log.recovery_point) == (0, 3, 0)
    assert not node.store.checkpointed_high_watermark(_TP)


def test_a_topic_that_is_deleted_and_created_again_keeps_its_records_in_a_kill() -> None:
    node = _Node()
    node.earlier()
    node.store.delete(_TP, 1)
    node.create(2)
    _check(node)


@pytest.mark.parametrize("stray", [False, True])
def test_a_topic_that_is_created_again_by_the_next_process_keeps_its_records_in_a_kill(stray: bool) -> None:
    node = _Node()
    node.earlier()
    if not stray:
        node.store.delete(_TP, 1)
    node.restart()
    if stray:
        node.store.delete_strays(lambda tp, log: True, Mock())
    node.create(2)
    assert not node.store.checkpointed_high_watermark(_TP)
    _check(node)


def test_a_checkpoint_that_is_written_late_says_nothing_about_a_deleted_log() -> None:
    node = _Node()
    node.earlier()
    late = node.store.checkpoint_tasks()
    node.store.delete(_TP, 1)
    node.create(2)
    for task in late:
        task()
    _check(node)


def test_a_checkpoint_that_is_written_late_does_not_say_that_a_later_log_is_forgotten() -> None:
    node = _Node()
    node.earlier()
    node.store.delete(_TP, 1)
    late = node.store.checkpoint_tasks()
    node.earlier()
    node.store.delete(_TP, 1)
    for task in late:
        task()
    node.create(2)
    _check(node)


def test_a_log_that_moves_to_where_an_earlier_one_was_has_nothing_of_its_checkpoints() -> None:
    node = _Node()
    node.earlier()
    node.store.delete(_TP, 1)
    node.store.plan([_TP], Uuid(bytes(15) + b"\2"), {_TP: "/b"})[0].begin().adopt()
    node.store.begin_move(_TP, "/a", 1)
    node.store.finish_move(_TP, 1)
    _check(node)


def test_checkpoints_are_written_once_for_many_logs_that_went() -> None:
    node = _Node()
    tps = [TopicPartition("t", index) for index in range(5)]
    for plan in node.store.plan(tps, Uuid(bytes(15) + b"\1"), dict.fromkeys(tps, "/a")):
        append(plan.begin().adopt(), 1)
    node.store.checkpoint(1)
    for tp in tps:
        node.store.delete(tp, 1)
    plans = node.store.plan(tps, Uuid(bytes(15) + b"\2"), dict.fromkeys(tps, "/a"))
    plans[0].begin()
    assert not plans[1]._directory.stale


def test_a_checkpoint_forgets_the_logs_that_went() -> None:
    node = _Node()
    node.earlier()
    node.store.delete(_TP, 1)
    late = node.store.checkpoint_tasks()
    directory = node.store._directory("/a")
    assert directory.stale == {_TP}
    for task in late:
        task()
    assert not directory.stale


def test_a_sync_that_ends_late_writes_no_epochs_of_a_deleted_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread waits for the disk while the topic is deleted and created again."""
    node = _Node()
    earlier = node.create(1)
    append(earlier, 10)
    earlier.append(bytearray(build([(1, b"k", b"v", [])])), leader_epoch=7, now_ms=1)
    segment_sync = Segment.sync

    def slow(segment: Segment) -> None:
        segment_sync(segment)
        if not earlier.closed:
            node.store.delete(_TP, 1)
            log = node.create(2)
            append(log, 12)
            log.flush()

    with monkeypatch.context() as patch:
        patch.setattr(Segment, "sync", slow)
        earlier.sync()
    node.store.close()
    node.start()
    log = node.store.get(_TP)
    assert log is not None and log.epochs.latest == 0


def test_a_replica_that_comes_back_to_a_log_that_could_not_be_renamed_trusts_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = _Node()
    log = node.create(1)
    append(log, 10)
    log.append(bytearray(build([(1, b"k", b"v", [])])), leader_epoch=7, now_ms=1)
    with monkeypatch.context() as patch:
        patch.setattr(node.disk, "rename", Mock(side_effect=OSError(errno.ENOSPC, "full")))
        with pytest.raises(OSError, match="full"):
            node.store.delete(_TP, 1)
    log = node.create(1)
    assert (log.end_offset, log.recovery_point, log.epochs.entries()) == (11, 0, [(0, 0), (7, 10)])
