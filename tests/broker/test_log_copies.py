"""Copies of logs that move to another directory: what they keep of a log that changes meanwhile."""

from __future__ import annotations

from ottla.kernel.ids import TopicPartition
from ottla.log.log import Log
from ottla.wire.batch import build
from ottla.wire.record.metadata import PartitionChangeRecord
from tests.broker.disk_scene import TOPIC, Scene

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
