"""Copies of logs that move to another directory: what they keep of a log that changes meanwhile."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any

import pytest

from ottla.broker.partitions import copy_flush, copy_piece, log_dirs
from ottla.kernel.ids import TopicPartition
from ottla.log import checkpoint
from ottla.log.log import Log, Origin
from ottla.sim.disk import SimFile
from ottla.wire.batch import build
from ottla.wire.record.metadata import PartitionChangeRecord
from tests.broker.disk_scene import TOPIC, Scene
from tests.log.compaction import records_of

MOVED = TopicPartition(TOPIC, 1)


def _five_records(**settings: Any) -> tuple[Scene, Log, str]:
    """A scene with five records in partition 1, its log, and the directory that it may move to."""
    scene = Scene(**settings)
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


def test_a_log_that_cannot_be_read_costs_its_own_directory_and_not_that_of_its_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unreadable sector: the error of a read names no file."""
    scene, log, to = _five_records()
    home = scene.lies_in(1)
    if home == "/a":
        scene.move(1, to)
        scene.until_moved(1, to)
        home, to, log = to, home, scene.node.partitions[MOVED].log
    read = SimFile.read

    def unreadable(file: SimFile, size: int, position: int) -> bytes:
        if file is log.active.file:
            raise OSError(errno.EIO, "Input/output error")
        return read(file, size, position)

    monkeypatch.setattr(SimFile, "read", unreadable)
    assert scene.move(1, to) == "NONE"
    scene.machine.settle()
    assert list(scene.node.failed_directories) == [home]
    assert scene.machine.failure is None


@pytest.mark.parametrize("error", [None, errno.ENOSPC, errno.EIO])
def test_a_move_whose_old_log_cannot_be_removed_says_so_and_ends(
    error: int | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene, _, to = _five_records()
    if to == "/b":
        scene.move(1, to)
        scene.until_moved(1, to)
    home, to = "/b", "/a"
    disk, rename = scene.machine.disk, scene.machine.disk.rename

    def refused(source: str, target: str) -> None:
        if error is not None and source == f"{home}/{MOVED}":
            raise OSError(error, "refused", source)
        rename(source, target)

    caplog.clear()
    with monkeypatch.context() as patch:
        patch.setattr(disk, "rename", refused)
        assert scene.move(1, to) == "NONE"
        scene.until_moved(1, to)
    said = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert [line.partition(":")[0] for line in said] == ([f"the old log of {MOVED} cannot be removed"] if error else [])
    assert list(scene.node.failed_directories) == ([home] if error == errno.EIO else [])
    assert scene.write(1, b"after") == "NONE"
    assert scene.read(1) == scene.written[1]


def test_a_piece_is_no_longer_than_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, _, to = _five_records()
    asked, copy = [], copy_piece.copy

    def noted(source: Log, future: Log, epoch: int, bytes_max: int, now_ms: int) -> int:
        asked.append(bytes_max)
        return copy(source, future, epoch, bytes_max, now_ms)

    monkeypatch.setattr(copy_piece, "copy", noted)
    scene.move(1, to)
    scene.until_moved(1, to)
    assert set(asked) == {log_dirs._PIECE_BYTES}


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
    scene.machine.run(lambda: MOVED in scene.node.log_dirs._flushed)
    scene.move(1, at)
    scene.move(1, to)
    assert MOVED not in scene.node.log_dirs._flushed
    scene.until_moved(1, to)


def _flushed_while_growing(
    scene: Scene, growth: Iterator[int], patch: pytest.MonkeyPatch, *, seconds: float = 0
) -> list[int]:
    """Have the log of partition 1 grow by so many records during each flush of its copy; the sizes flushed."""
    log, flush, flushed = scene.node.partitions[MOVED].log, scene.node.flusher.flush, list[int]()

    def slow(copies: list[Log], done: Callable[[], None]) -> None:
        flushed.append(copies[0].size)
        for _ in range(next(growth)):
            scene.node.partitions[MOVED].append(bytearray(build([(1, b"k", bytes(900), ())])), 1, Origin.CLIENT)
        assert copies[0] is not log
        scene.node.loop.call_later(seconds, flush, copies, done)

    patch.setattr(copy_flush, "_REST_BYTES", 4000)
    patch.setattr(scene.node.flusher, "flush", slow)
    return flushed


def test_a_move_ends_though_its_log_grows_by_more_than_the_loop_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk: each flush takes the time of its seek, and clients write 20 kB in it."""
    scene, _, to = _five_records()
    flushed = _flushed_while_growing(scene, chain([200], repeat(20)), monkeypatch)
    scene.node.partitions[MOVED].append(bytearray(build([(1, b"k", bytes(90_000), ())])), 1, Origin.CLIENT)
    scene.move(1, to)
    scene.until_moved(1, to)
    assert len(flushed) < 10
    assert scene.node.partitions[MOVED].log.end_offset == 6 + 200 + 20 * (len(flushed) - 1)


def test_a_move_flushes_beside_the_loop_while_its_disk_is_slow(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log grows by as much as the disk flushes, and later by less."""
    scene, _, to = _five_records()
    growth = chain(repeat(60, 20), [1], repeat(0))
    flushed = _flushed_while_growing(scene, growth, monkeypatch, seconds=1)
    scene.node.partitions[MOVED].append(bytearray(build([(1, b"k", bytes(90_000), ())])), 1, Origin.CLIENT)
    scene.move(1, to)
    scene.machine.run(lambda: len(flushed) == 21)
    assert scene.lies_in(1) != to
    scene.until_moved(1, to)
    assert len(flushed) == 21
    assert [each.getMessage() for each in caplog.records if "grows faster" in each.getMessage()] == [
        f"{MOVED} grows faster than its copy is flushed: it moves when it grows more slowly"
    ]


def test_the_loop_flushes_a_rest_that_takes_it_little_time() -> None:
    copy = copy_flush.CopyFlush()
    assert not copy.is_far(4 << 20) and copy.is_far((4 << 20) + 1)
    copy.begin(100 << 20, 1000)
    copy.end(1250)
    assert not copy.is_far(164 << 20) and copy.is_far((164 << 20) + 1), "at most 64 MiB"
    copy.begin(110 << 20, 2000)
    copy.end(2200)
    assert not copy.is_far((110 << 20) + (12 << 20)) and copy.is_far((110 << 20) + (13 << 20)), "at most 250 ms"
    copy.begin(111 << 20, 3000)
    copy.end(3251)
    assert copy.is_far(116 << 20), "a seek takes longer"


def test_a_move_flushes_beside_the_loop_while_it_catches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, _, to = _five_records()
    growth = chain(range(60, 5, -5), repeat(0))
    flushed = _flushed_while_growing(scene, growth, monkeypatch, seconds=1)
    scene.node.partitions[MOVED].append(bytearray(build([(1, b"k", bytes(90_000), ())])), 1, Origin.CLIENT)
    scene.move(1, to)
    scene.until_moved(1, to)
    assert scene.node.partitions[MOVED].log.size - flushed[-1] < 4000


def test_a_copy_that_begins_again_is_flushed_beside_the_loop_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention deletes what was next while the copy is flushed."""
    scene, log, to = _five_records(log_flush_interval_messages=str(1 << 40))
    flushed = _flushed_while_growing(scene, chain([30], repeat(0)), monkeypatch)
    for _ in range(30):
        scene.node.partitions[MOVED].append(bytearray(build([(1, b"k", bytes(900), ())])), 1, Origin.CLIENT)
    scene.move(1, to)
    scene.machine.run(lambda: bool(flushed))
    log.roll(1)
    log.advance_start_offset(log.end_offset)
    for _ in range(25):
        scene.node.partitions[MOVED].append(bytearray(build([(1, b"k", bytes(900), ())])), 1, Origin.CLIENT)
    scene.until_moved(1, to)
    assert len(flushed) == 2


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


# ---- the checkpoints of the directory that a log comes to


def _copied(start: int = 0) -> tuple[Scene, Log, str, Any]:
    """A log of five records whose copy in another directory is complete: the swap waits for the cleaner."""
    scene, log, to = _five_records()
    if start:
        scene.delete_before(1, start)
    log.being_cleaned = True
    scene.move(1, to)
    scene.machine.settle()
    return scene, log, to, scene.node.store


def _named(scene: Scene, directory: str, name: str = checkpoint.RECOVERY_POINTS) -> int | None:
    """What a checkpoint on disk says of the log."""
    return checkpoint.read_offsets(scene.machine.disk, f"{directory}/{name}").get(MOVED)


def test_the_swap_of_two_logs_writes_no_checkpoint_of_all_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread has written them before."""
    scene, _, to = _five_records()
    scene.delete_before(1, 3)
    store, write_offsets, written = scene.node.store, checkpoint.write_offsets, []
    finish_move = store.finish_move

    def swaps(tp: TopicPartition, now_ms: int) -> Log:
        written.append("swap begins")
        log: Log = finish_move(tp, now_ms)
        written.append("swap ends")
        return log

    def writes(disk: Any, path: str, offsets: Any) -> None:
        if path.startswith(f"{to}/"):
            written.append(path.rpartition("/")[2])
        write_offsets(disk, path, offsets)

    monkeypatch.setattr(store, "finish_move", swaps)
    monkeypatch.setattr(checkpoint, "write_offsets", writes)
    scene.move(1, to)
    scene.machine.run(lambda: "swap ends" in written)
    assert written == [checkpoint.RECOVERY_POINTS, checkpoint.START_OFFSETS, "swap begins", "swap ends"]
    scene.machine.kill()
    scene.machine.start()
    scene.machine.settle()
    assert (scene.lies_in(1), scene.first_offset(1), scene.read(1, 3)) == (to, 3, [b"3", b"4"])


def test_a_move_back_to_where_the_log_was_writes_no_checkpoint_of_all_logs_on_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The checkpoints there still name the log that was there."""
    scene, _, to = _five_records()
    scene.delete_before(1, 3)
    back, store = scene.lies_in(1), scene.node.store
    for task in store.checkpoint_tasks():
        task()
    scene.move(1, to)
    scene.until_moved(1, to)
    assert MOVED in store._directory(back).stale and _named(scene, back) is not None
    on_loop, write_offsets, written = list[bool](), checkpoint.write_offsets, list[str]()

    def on_the_loop(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any) -> Any:
            on_loop.append(True)
            try:
                return call(*given)
            finally:
                on_loop.pop()

        return called

    def writes(disk: Any, path: str, offsets: Any) -> None:
        assert not on_loop
        if path.startswith(f"{back}/"):
            written.append(path.rpartition("/")[2])
        write_offsets(disk, path, offsets)

    for name in ("begin_move", "keep_copy", "finish_move"):
        monkeypatch.setattr(store, name, on_the_loop(getattr(store, name)))
    monkeypatch.setattr(checkpoint, "write_offsets", writes)
    scene.move(1, back)
    scene.until_moved(1, back)
    assert {checkpoint.HIGH_WATERMARKS, checkpoint.RECOVERY_POINTS, checkpoint.START_OFFSETS} == set(written[:3])
    assert MOVED not in store._directory(back).stale


def test_a_checkpoint_that_is_written_before_the_swap_names_the_log_that_comes() -> None:
    scene, _, to, store = _copied()
    store.arrival_task(MOVED)()
    assert store.arrival_task(MOVED) is None
    scene.node.housekeeping.checkpoint()
    scene.machine.settle()
    assert _named(scene, to) is not None and _named(scene, to, checkpoint.START_OFFSETS) == 0


def test_a_copy_that_is_truncated_is_named_again() -> None:
    """Else what is appended after the swap, below the recovery point, would not be checked after a crash."""
    scene, _, to, store = _copied()
    copy = store.future(MOVED)[0]
    copy.flush()
    store.arrival_task(MOVED)()
    late = store.checkpoint_tasks()
    assert _named(scene, to) == 5
    copy.truncate(2, 1)
    again = store.arrival_task(MOVED)
    again()
    for task in late:
        task()
    assert store.arrival_task(MOVED) is None and _named(scene, to) == 2


def test_records_that_are_deleted_right_before_the_swap_stay_deleted_after_a_crash() -> None:
    scene, log, to, store = _copied()
    store.arrival_task(MOVED)()
    scene.delete_before(1, 3)
    # It is durable where the log lies.
    for task in store.checkpoint_tasks():
        task()
    assert _named(scene, scene.lies_in(1), checkpoint.START_OFFSETS) == 3
    log.being_cleaned = False
    scene.machine.run(lambda: scene.lies_in(1) == to)
    scene.machine.kill()
    scene.machine.start()
    scene.machine.settle()
    assert (scene.lies_in(1), scene.first_offset(1)) == (to, 3)


def test_a_checkpoint_that_is_written_after_the_swap_names_the_log_that_came() -> None:
    scene, log, to, store = _copied(start=3)
    store.arrival_task(MOVED)()
    late = store.checkpoint_tasks()
    log.being_cleaned = False
    scene.machine.run(lambda: scene.lies_in(1) == to)
    for task in late:
        task()
    assert (_named(scene, to), _named(scene, to, checkpoint.START_OFFSETS)) == (3, 3)


def test_a_checkpoint_from_before_the_copy_was_named_does_not_take_its_name_back() -> None:
    scene, _, to, store = _copied(start=3)
    late = [*store.checkpoint_tasks(), *store.changed_tasks(checkpoint.START_OFFSETS).values()]
    store.arrival_task(MOVED)()
    for task in late:
        task()
    assert (_named(scene, to), _named(scene, to, checkpoint.START_OFFSETS)) == (3, 3)


def test_a_copy_is_named_though_another_is_named_again_meanwhile() -> None:
    scene, _, to, store = _copied(start=3)
    other = next(TopicPartition(TOPIC, index) for index in (0, 2, 3) if scene.lies_in(index) != to)
    store.begin_move(other, to, 1)
    store.arrival_task(other)()
    late = store.arrival_task(MOVED)
    store.future(other)[0].restart_at(7, 1)
    again = store.arrival_task(other)
    late()
    assert _named(scene, to) == 3
    again()
    assert _named(scene, to) == 3


def test_a_copy_is_named_though_recovery_points_could_not_be_lowered_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, _, to, store = _copied(start=3)
    late = store.arrival_task(MOVED)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_offsets", full)
        with pytest.raises(OSError, match="No space"):
            store._points_lowered(store._directory(to))
    late()
    assert _named(scene, to) == 3


def test_a_cancelled_move_leaves_nothing_in_a_checkpoint() -> None:
    scene, _, to, store = _copied()
    store.arrival_task(MOVED)()
    late = store.checkpoint_tasks()
    store.cancel_move(MOVED)
    assert MOVED in store._directory(to).stale
    for task in late:
        task()
    assert _named(scene, to) is None and _named(scene, to, checkpoint.START_OFFSETS) is None
