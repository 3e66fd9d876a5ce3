"""Copies of logs that move to another directory: what they keep of a log that changes meanwhile."""

from __future__ import annotations

import pytest

from ottla.kernel.ids import TopicPartition
from ottla.log.log import Log
from ottla.wire.batch import build
from ottla.wire.record.metadata import PartitionChangeRecord
from tests.broker.disk_scene import TOPIC, Scene
from tests.log.compaction import records_of

MOVED = TopicPartition(TOPIC, 1)


def _five_records() -> tuple[Scene, Log, str]:
    """A scene with five records in partition 1, its log, and the directory that it may move to."""
    scene = Scene()
    scene.create()
    for number in range(5):
        scene.write(1, b"%d" % number)
    return scene, scene.node.partitions[MOVED].log, scene.other(1)


def test_a_copy_takes_back_what_its_log_has_replaced() -> None:
    """A follower's log is truncated and grows again between two looks of the copy at it."""
    scene, log, to = _five_records()
    # The swap waits for the cleaner.
    log.being_cleaned = True
    scene.move(1, to)
    scene.machine.settle()
    assert scene.node.store.future(MOVED)[0].end_offset == 5
    change = PartitionChangeRecord(topic_id=scene.node.image.topics[TOPIC].topic_id, partition_id=1, leader=1)
    scene.node.quorum.append([change])
    scene.machine.settle()
    log.truncate(2, 1)
    for value in (b"new", b"newer", b"newest"):
        log.append(bytearray(build([(1, b"k", value, ())])), leader_epoch=1, now_ms=1)
    log.being_cleaned = False
    scene.until_moved(1, to)
    assert scene.read(1) == [b"0", b"1", b"new", b"newer", b"newest"]


def test_a_copy_keeps_its_records_though_the_log_has_none_at_its_end() -> None:
    scene, log, to = _five_records()
    log.roll(1)
    log.segments[0].truncate(3)
    scene.move(1, to)
    scene.until_moved(1, to)
    assert scene.node.partitions[MOVED].log.end_offset == 5
    assert scene.read(1) == [b"0", b"1", b"2"]


def test_a_move_that_begins_again_flushes_its_copy_beside_the_loop_again() -> None:
    scene = Scene()
    scene.create()
    for number in range(6):
        scene.write(1, b"%d" % number + bytes(900_000))
    at, to = scene.lies_in(1), scene.other(1)
    scene.move(1, to)
    scene.machine.run(lambda: MOVED in scene.node.log_dirs._synced_bytes)
    scene.move(1, at)
    scene.move(1, to)
    assert MOVED not in scene.node.log_dirs._synced_bytes
    scene.until_moved(1, to)


def _compacted() -> Scene:
    """A scene whose topics are cleaned each second."""
    scene = Scene(
        log_cleanup_policy="compact",
        log_cleaner_min_cleanable_ratio="0.0",
        log_cleaner_delete_retention_ms="1000",
        log_cleaner_backoff_ms="1000",
    )
    scene.create()
    return scene


def _key_of_a_deleted_record(scene: Scene) -> None:
    """A key with a value and then a tombstone in the log of partition 1, and other keys behind them."""
    log = scene.node.partitions[MOVED].log
    for key, value in ((b"gone", b"back"), (b"gone", None), *((b"%d" % number, bytes(4000)) for number in range(50))):
        now_ms = scene.machine.clock.now_ms()
        log.append(bytearray(build([(now_ms, key, value, ())])), leader_epoch=0, now_ms=now_ms)
    log.roll(scene.machine.clock.now_ms())


def _clean_for(scene: Scene, ms: int) -> None:
    """Let the cleaner look at the log again and again; each time one more segment is dirty."""
    clock = scene.machine.clock
    for until_ms in range(clock.now_ms(), clock.now_ms() + ms, 2000):
        scene.write(1, b"more")
        scene.node.partitions[MOVED].log.roll(clock.now_ms())
        scene.machine.run(lambda until_ms=until_ms: clock.now_ms() >= until_ms)  # type: ignore[misc]


def test_a_deleted_key_does_not_come_back_with_a_compacted_log_that_moves() -> None:
    """What the copy took before a cleaning would stay below the offset up to which the log is clean."""
    scene = _compacted()
    to = scene.other(1)
    scene.slow_down(1000)
    _key_of_a_deleted_record(scene)
    scene.move(1, to)
    _clean_for(scene, 30_000)
    scene.slow_down(1 << 30)
    scene.until_moved(1, to)
    _clean_for(scene, 20_000)
    log = scene.node.partitions[MOVED].log
    assert log.cleaner_offset > 52, "the log was cleaned after the move"
    assert b"gone" not in {record.key for record in records_of(log)}


@pytest.mark.parametrize("has_written", [False, True])
def test_a_cleaning_that_runs_when_a_move_begins_changes_the_log_no_more(has_written: bool) -> None:
    scene = _compacted()
    to, log = scene.other(1), scene.node.partitions[MOVED].log
    _key_of_a_deleted_record(scene)
    files = scene.machine.disk
    scene.machine.run(
        lambda: log.being_cleaned and (not has_written or any(".cleaned" in name for name in files.list(log.path)))
    )
    scene.node.log_dirs.move(MOVED, to)
    scene.until_moved(1, to)
    moved = scene.node.partitions[MOVED].log
    assert [record.value for record in records_of(moved)][:2] == [b"back", None]
    _clean_for(scene, 20_000)
    assert b"gone" not in {record.key for record in records_of(moved)}


def test_what_is_clean_of_a_log_is_so_after_its_move_and_after_a_crash() -> None:
    scene = _compacted()
    _key_of_a_deleted_record(scene)
    scene.machine.run(lambda: scene.node.partitions[MOVED].log.cleaner_offset is not None)
    cleaned = scene.node.partitions[MOVED].log.cleaner_offset
    to = scene.other(1)
    scene.move(1, to)
    scene.until_moved(1, to)
    assert scene.node.partitions[MOVED].log.cleaner_offset == cleaned == 52
    scene.machine.kill()
    scene.machine.start()
    assert scene.node.store.get(MOVED).cleaner_offset == cleaned
