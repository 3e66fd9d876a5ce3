"""A log that is closed or killed and opened again: what it knew of its producers and their transactions is known."""

import errno
import random

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.log.log import Log, LogSettings, Origin
from ottla.sim.disk import SimDisk
from ottla.wire.batch import NewRecord, build

_NOW_MS = 1_000_000


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(5))
    disk.make_directory("/d")
    return disk


def _open(disk: SimDisk, *, clean: bool = False, recovery_point: int = 0, segment_bytes: int = 1 << 20) -> Log:
    settings = LogSettings(segment_index_bytes=1200, segment_bytes=segment_bytes)
    return Log.open(disk, "/d/t-0", settings, now_ms=_NOW_MS, clean=clean, recovery_point=recovery_point)


def _put(log: Log, count: int, **fields: int | bool) -> None:
    records: list[NewRecord] = [(_NOW_MS, b"k", b"v" * 50, [])] * count
    log.append(bytearray(build(records, **fields)), leader_epoch=0, now_ms=_NOW_MS)  # type: ignore[arg-type]


def _begin(log: Log, producer_id: int, count: int = 2, *, sequence: int = 0) -> None:
    _put(log, count, producer_id=producer_id, producer_epoch=3, base_sequence=sequence, transactional=True)


def _end(log: Log, producer_id: int, *, commit: bool) -> None:
    marker: NewRecord = (_NOW_MS, bytes([0, 0, 0, commit]), bytes(6), [])
    data = build([marker], producer_id=producer_id, producer_epoch=3, transactional=True, control=True)
    log.append(bytearray(data), leader_epoch=0, now_ms=_NOW_MS, origin=Origin.COORDINATOR)


def _again(disk: SimDisk, log: Log, how: str) -> Log:
    """The log after one end of its process: files closed in order, or left as they were."""
    if how == "closed":
        log.close()
        return _open(disk, clean=True)
    if how == "killed":
        log.discard()
        return _open(disk)
    # Killed when a snapshot of the producers was there, which covers the log up to the recovery point.
    log.roll(_NOW_MS)
    log.flush(_NOW_MS)
    point = log.recovery_point
    log.discard()
    return _open(disk, recovery_point=point)


HOW = pytest.mark.parametrize("how", ["closed", "killed", "killed after a snapshot"])


@HOW
@pytest.mark.parametrize("start", [0, 5])
def test_an_open_transaction_stays_open(disk: SimDisk, how: str, start: int) -> None:
    log = _open(disk)
    if start:
        _put(log, start)
    _begin(log, 9)
    _put(log, 1)
    for _ in range(3):
        log = _again(disk, log, how)
        assert (log.end_offset, log.last_stable_offset) == (start + 3, start)
        assert log.producers.has_ongoing_transaction(9, 3)
        with pytest.raises(KafkaError) as refused:
            _put(log, 1, producer_id=9, producer_epoch=3, base_sequence=2)
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
        log.producers.validate()
    _begin(log, 9, sequence=2)
    _end(log, 9, commit=False)
    assert log.last_stable_offset == log.end_offset
    # producer id, first offset, last offset, last stable offset then
    assert [tuple(each)[:3] for each in log.aborted(0, log.end_offset)] == [(9, start, start + 5)]


@HOW
def test_of_several_transactions_the_oldest_open_one_bounds_what_is_stable(disk: SimDisk, how: str) -> None:
    log = _open(disk)
    for producer_id in (1, 2, 3):
        _begin(log, producer_id)
    _end(log, 1, commit=True)
    log = _again(disk, log, how)
    assert log.last_stable_offset == 2
    _end(log, 3, commit=False)
    log = _again(disk, log, how)
    assert log.last_stable_offset == 2
    assert [each[:3] for each in log.aborted(0, log.end_offset)] == [(3, 4, 7)]
    _end(log, 2, commit=True)
    log = _again(disk, log, how)
    assert log.last_stable_offset == log.end_offset == 9
    assert [each[:3] for each in log.aborted(0, log.end_offset)] == [(3, 4, 7)]


@HOW
def test_sequences_epochs_and_duplicates_go_on_where_they_were(disk: SimDisk, how: str) -> None:
    log = _open(disk, segment_bytes=300)
    for number in range(7):
        _put(log, 2, producer_id=4, producer_epoch=1, base_sequence=2 * number)
    log = _again(disk, log, how)
    before = log.end_offset
    records: list[NewRecord] = [(_NOW_MS, b"k", b"v" * 50, [])] * 2
    # Kafka's snapshot holds the last batch of a producer; the log, read again, its last five.
    for number in range(2 if how == "killed" else 6, 7):
        data = build(records, producer_id=4, producer_epoch=1, base_sequence=2 * number)
        again = log.append(bytearray(data), leader_epoch=0, now_ms=_NOW_MS)
        assert (again.duplicate, again.base_offset) == (True, 2 * number)
    for sequence, epoch, code in (
        (2, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (15, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (14, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (14, 2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ):
        with pytest.raises(KafkaError) as refused:
            _put(log, 2, producer_id=4, producer_epoch=epoch, base_sequence=sequence)
        assert refused.value.code is code
    assert log.end_offset == before
    _put(log, 2, producer_id=4, producer_epoch=1, base_sequence=14)


@HOW
def test_a_coordinator_that_was_replaced_stays_locked_out(disk: SimDisk, how: str) -> None:
    log = _open(disk)
    _begin(log, 9)
    newer: NewRecord = (_NOW_MS, b"\0\0\0\1", b"\0\0" + (7).to_bytes(4, "big"), [])
    data = build([newer], producer_id=9, producer_epoch=3, transactional=True, control=True)
    log.append(bytearray(data), leader_epoch=0, now_ms=_NOW_MS, origin=Origin.COORDINATOR)
    log = _again(disk, log, how)
    with pytest.raises(KafkaError) as refused:
        _end(log, 9, commit=True)
    assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def _put_as(log: Log, producer_id: int, sequence: int, records: int = 1) -> None:
    _put(log, records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def _last_of(log: Log) -> dict[int, tuple[int, int]]:
    """The last sequence number and offset of each producer."""
    return {
        producer_id: (each.sent[-1].last_sequence, each.sent[-1].last_offset)
        for producer_id, each in log.producers.by_id.items()
    }


def _snapshots(disk: SimDisk) -> list[int]:
    return [int(name.partition(".")[0]) for name in disk.list("/d/t-0") if name.endswith(".snapshot")]


def test_a_stop_leaves_the_snapshot_that_a_start_can_read_on_from(disk: SimDisk) -> None:
    log = _open(disk)
    _put(log, 1)
    log = _again(disk, log, "closed")
    assert _snapshots(disk) == [], "no producers are to be noted"
    for number in range(3):
        _put_as(log, 7, number)
        log = _again(disk, log, "closed")
        assert _snapshots(disk) == [2]
        assert _last_of(log) == {7: (number, number + 1)}
    before = disk.effects
    _open(disk, clean=True)
    assert disk.effects == before, "a start neither writes nor removes one"
    while log.active.is_small:
        _put(log, 100)
    end = log.end_offset
    log = _again(disk, log, "closed")
    assert _snapshots(disk) == [end], "more than a small segment is not read again"
    _put_as(log, 7, 3)
    log.truncate(end - 100)
    log = _again(disk, log, "closed")
    assert _last_of(log) == {7: (2, 3)}


def test_producers_whose_records_are_all_deleted_are_noted_at_a_stop(disk: SimDisk) -> None:
    log = _open(disk)
    _put_as(log, 7, 0)
    log = _again(disk, log, "closed")
    _put(log, 2)
    log.high_watermark = 3
    log.advance_start_offset(2)
    log.close()
    log = Log.open(disk, "/d/t-0", log.settings, now_ms=_NOW_MS, clean=True, log_start_offset=2)
    assert (log.start_offset, _snapshots(disk)) == (2, [3])
    assert _last_of(log) == {7: (0, 0)}


@pytest.mark.parametrize("seed", range(20))
def test_a_snapshot_of_what_was_truncated_is_not_believed_after_a_power_failure(seed: int) -> None:
    disk = SimDisk(random.Random(seed))
    disk.make_directory("/d")
    disk.sync_directory("/")
    log = _open(disk)
    _put_as(log, 6, 0)
    _put_as(log, 7, 0)
    log = _again(disk, log, "closed")
    assert _snapshots(disk) == [2]
    log.truncate(1)
    _put_as(log, 8, 0, records=3)
    log.close()
    disk.crash()
    log = _open(disk, clean=True)
    assert _last_of(log) == {6: (0, 0), 8: (2, 3)}


@pytest.mark.parametrize("seed", range(20))
def test_a_snapshot_that_a_start_reads_on_from_survives_a_power_failure(seed: int) -> None:
    disk = SimDisk(random.Random(seed))
    disk.make_directory("/d")
    disk.sync_directory("/")
    log = _open(disk)
    _put(log, 2)
    log.roll(_NOW_MS)
    assert _snapshots(disk) == [2]
    log.flush(_NOW_MS)
    _put_as(log, 7, 0)
    log.close()
    assert _snapshots(disk) == [2]
    disk.crash()
    assert disk.open("/d/t-0/00000000000000000002.snapshot").size() == 10
    log = _open(disk, clean=True)
    assert _snapshots(disk) == [2]
    assert _last_of(log) == {7: (0, 2)}


@HOW
def test_leader_epochs_are_those_of_the_log(disk: SimDisk, how: str) -> None:
    log = _open(disk, segment_bytes=300)
    for epoch in (2, 2, 5, 6):
        log.append(bytearray(build([(_NOW_MS, b"k", b"v" * 100, [])])), leader_epoch=epoch, now_ms=_NOW_MS)
    log = _again(disk, log, how)
    assert log.epochs.entries() == [(2, 0), (5, 2), (6, 3)]
    log.high_watermark = 4
    log.advance_start_offset(3)
    assert log.epochs.entries() == [(6, 3)], "an epoch of which nothing is left is forgotten"


@pytest.mark.parametrize("cleaned", [None, 3])
def test_a_truncation_takes_the_points_back_before_anything_is_cut(disk: SimDisk, cleaned: int | None) -> None:
    log = _open(disk)
    for _ in range(4):
        _put(log, 1)
    log.flush(_NOW_MS)
    log.cleaner_offset = cleaned
    told: list[tuple[int, int | None, int]] = []
    log.on_recovery_point_lowered = lambda: told.append((log.recovery_point, log.cleaner_offset, log.end_offset))
    log.truncate(2)
    assert told == [(2, None if cleaned is None else 2, 4)]
    _put(log, 1)
    assert (log.recovery_point, log.end_offset) == (2, 3)
    log.truncate(2)
    assert len(told) == 1, "nothing below the points is gone"


def test_a_topic_that_is_only_compacted_keeps_its_segments_whatever_their_age(disk: SimDisk) -> None:
    settings = LogSettings(
        segment_index_bytes=1200,
        segment_bytes=200,
        retention_ms=1,
        retention_bytes=1,
        cleanup_policy=frozenset({"compact"}),
    )
    log = Log.open(disk, "/d/t-0", settings, now_ms=_NOW_MS)
    for _ in range(4):
        _put(log, 2)
    assert log.delete_old_segments(_NOW_MS + (1 << 40)) == 0
    assert log.start_offset == 0


def test_the_files_of_a_deleted_segment_stay_for_their_delay(disk: SimDisk) -> None:
    settings = LogSettings(segment_index_bytes=1200, segment_bytes=200, retention_ms=1, file_delete_delay_ms=50)
    log = Log.open(disk, "/d/t-0", settings, now_ms=_NOW_MS)
    for _ in range(4):
        _put(log, 2)
    assert log.delete_old_segments(_NOW_MS + 10) == 4

    def deleted() -> int:
        return sum(name.endswith(".log.deleted") for name in disk.list("/d/t-0"))

    assert deleted() == 4
    assert log.remove_deleted(_NOW_MS + 59) == []
    assert deleted() == 4
    assert len(log.remove_deleted(_NOW_MS + 60, 3)) == 3
    assert len(log.remove_deleted(_NOW_MS + 60, 3)) == 1
    assert deleted() == 0


def _replicate(log: Log, epoch: int, count: int) -> None:
    """Append what a leader of this epoch wrote."""
    for _ in range(count):
        data = bytearray(build([(_NOW_MS, b"k", b"v", [])]))
        data[:8] = log.end_offset.to_bytes(8, "big")
        data[12:16] = epoch.to_bytes(4, "big")
        log.append(data, leader_epoch=9, now_ms=_NOW_MS, origin=Origin.REPLICA)


def test_after_a_crash_the_epochs_are_those_of_the_batches_though_the_checkpoint_is_older(disk: SimDisk) -> None:
    log = _open(disk)
    _replicate(log, 4, 5)
    _replicate(log, 5, 3)
    log.flush(_NOW_MS)
    # The leader of epoch 6 did not have what the one of epoch 5 wrote, but more of epoch 4.
    log.truncate(5, _NOW_MS)
    _replicate(log, 4, 2)
    assert log.epochs.entries() == [(4, 0)]
    point = log.recovery_point
    log.discard()
    again = _open(disk, recovery_point=point)
    assert again.end_offset == 7
    assert again.epochs.entries() == [(4, 0)]
    _replicate(again, 6, 2)
    again.discard()
    assert _open(disk, recovery_point=point).epochs.entries() == [(4, 0), (6, 7)]


def test_a_truncation_that_could_not_lower_the_recovery_point_does_so_the_next_time(disk: SimDisk) -> None:
    log, lowered = _open(disk), []
    _put(log, 3)
    _put(log, 3)
    log.flush(_NOW_MS)
    log.cleaner_offset = 5

    def full() -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    log.on_recovery_point_lowered = full
    with pytest.raises(OSError, match="no space"):
        log.truncate(3, _NOW_MS)
    log.on_recovery_point_lowered = lambda: lowered.append((log.recovery_point, log.cleaner_offset))
    assert log.truncate(3, _NOW_MS)
    assert lowered == [(3, 3)]
