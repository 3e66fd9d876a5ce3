"""One log on the simulated disk: what is taken, refused, read, kept and dropped."""

import errno
import random
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.log.log import Log, LogSettings, Origin
from ottla.sim.disk import SimDisk
from ottla.wire.batch import LOG_APPEND_TIME, Batch, build, check, header_at, read, rewrite
from ottla.wire.codec import Codec

_NOW = 1_000_000


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(3))
    disk.make_directory("/d")
    return disk


def _open(disk: SimDisk, **settings: Any) -> Log:
    return Log.open(disk, "/d/t-0", LogSettings(segment_index_bytes=1200, **settings), now_ms=_NOW)


def _batch(count: int = 1, *, timestamp: int = _NOW, size: int = 10, key: bytes | None = b"k", **more: Any) -> bytes:
    return build([(timestamp, key, b"v" * size, []) for _ in range(count)], **more)


def _append(log: Log, data: bytes, *, epoch: int = 0, now_ms: int = _NOW, origin: Origin = Origin.CLIENT) -> Any:
    return log.append(bytearray(data), leader_epoch=epoch, now_ms=now_ms, origin=origin)


def _refused(log: Log, data: bytes, **more: Any) -> ErrorCode:
    size, end = log.size, log.end_offset
    with pytest.raises(KafkaError) as caught:
        _append(log, data, **more)
    assert (log.size, log.end_offset) == (size, end), "a refused batch leaves nothing behind"
    return caught.value.code


def _all(log: Log) -> list[Batch]:
    found: list[Batch] = []
    offset = log.start_offset
    while offset < log.end_offset:
        found += read(log.read(offset, 1 << 20, end_offset=log.end_offset).bytes())
        offset = found[-1].header.last_offset + 1
    return found


# ---- what is refused


def test_a_batch_that_is_wrong_is_refused_with_kafkas_code(disk: SimDisk) -> None:
    log = _open(disk, max_message_bytes=500)
    good = _batch(2)
    assert _refused(log, b"") is ErrorCode.INVALID_RECORD
    assert _refused(log, good[:60]) is ErrorCode.INVALID_RECORD
    assert _refused(log, good[:-1]) is ErrorCode.INVALID_RECORD
    assert _refused(log, good + good) is ErrorCode.INVALID_RECORD
    assert _refused(log, good[:-1] + b"\xff") is ErrorCode.CORRUPT_MESSAGE
    assert _refused(log, good[:16] + b"\x01" + good[17:]) is ErrorCode.INVALID_RECORD
    assert _refused(log, _batch(base_offset=5)) is ErrorCode.INVALID_RECORD
    assert _refused(log, _batch(size=600)) is ErrorCode.MESSAGE_TOO_LARGE
    assert _refused(log, _batch(control=True)) is ErrorCode.INVALID_RECORD
    assert _refused(log, _batch(producer_id=5, producer_epoch=0)) is ErrorCode.INVALID_RECORD
    assert _refused(log, _with_count(good, 3)) is ErrorCode.INVALID_RECORD
    assert _refused(log, _with_attributes(good, 5)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def _with_attributes(data: bytes, attributes: int) -> bytes:
    header = header_at(data)
    return rewrite(data, header, attributes=attributes, max_timestamp=header.max_timestamp)


def _with_count(data: bytes, count: int) -> bytes:
    header = header_at(data)._replace(count=count)
    return rewrite(data, header, attributes=header.attributes, max_timestamp=header.max_timestamp)


def test_the_rest_of_a_batch_behind_the_first_is_left_away(disk: SimDisk) -> None:
    log = _open(disk)
    data = _batch(2)
    assert _append(log, data + data[:50]).last_offset == 1
    assert log.size == len(data)


def test_a_batch_larger_than_a_segment_is_refused(disk: SimDisk) -> None:
    log = _open(disk, segment_bytes=200)
    assert _refused(log, _batch(size=300)) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_timestamps_too_far_off_are_refused(disk: SimDisk) -> None:
    log = _open(disk, timestamp_before_max_ms=1000, timestamp_after_max_ms=100)
    assert _refused(log, _batch(timestamp=_NOW + 101)) is ErrorCode.INVALID_TIMESTAMP
    assert _refused(log, _batch(timestamp=_NOW - 1001)) is ErrorCode.INVALID_TIMESTAMP
    # The first record's is in order, the second's is not.
    mixed = build([(_NOW, b"k", b"v", []), (_NOW - 2000, b"k", b"v", [])], codec=Codec.ZSTD)
    assert _refused(log, mixed) is ErrorCode.INVALID_TIMESTAMP
    _append(log, _batch(timestamp=_NOW + 100))
    _append(log, _batch(timestamp=_NOW - 1000))
    _append(log, _batch(timestamp=-1))


def test_a_compacted_topic_needs_keys_in_every_record(disk: SimDisk) -> None:
    log = _open(disk, cleanup_policy=frozenset({"compact"}))
    for codec in Codec:
        mixed = build([(_NOW, b"k", b"v", []), (_NOW, None, b"v", [])], codec=codec)
        assert _refused(log, mixed) is ErrorCode.INVALID_RECORD
    _append(log, _batch())


# ---- what is changed


@pytest.mark.parametrize("writable", [True, False])
def test_offsets_and_epoch_are_stamped_outside_the_crc(disk: SimDisk, writable: bool) -> None:
    log = _open(disk)
    for epoch in (4, 4, 7):
        data = _batch(3)
        log.append(bytearray(data) if writable else memoryview(data), leader_epoch=epoch, now_ms=_NOW)
    headers = [check(batch.data) for batch in _all(log)]
    assert [(each.base_offset, each.partition_leader_epoch) for each in headers] == [(0, 4), (3, 4), (6, 7)]
    assert log.epochs.entries() == [(4, 0), (7, 6)]
    assert log.end_offset_for_epoch(4) == (4, 6)
    assert log.end_offset_for_epoch(5) == (4, 6)
    assert log.end_offset_for_epoch(7) == (7, 9)
    assert log.end_offset_for_epoch(9) == (-1, -1)
    assert log.end_offset_for_epoch(1) == (1, 0)


def test_log_append_time_overrides_the_producers(disk: SimDisk) -> None:
    log = _open(disk, log_append_time=True)
    appended = _append(log, _batch(2, timestamp=5))
    assert (appended.log_append_time_ms, appended.max_timestamp) == (_NOW, _NOW)
    (batch,) = _all(log)
    assert check(batch.data).is_log_append_time
    assert [each.timestamp for each in batch.records()] == [_NOW, _NOW]
    assert _refused(log, _with_attributes(_batch(), LOG_APPEND_TIME)) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("target", list(Codec))
def test_the_topics_codec_is_applied_to_what_comes_in_another(disk: SimDisk, target: Codec) -> None:
    log = _open(disk, codec=target)
    for codec in Codec:
        _append(log, _batch(5, codec=codec))
    for batch in _all(log):
        assert check(batch.data).codec is target
        assert [each.value for each in batch.records()] == [b"v" * 10] * 5


def test_a_coordinator_appends_several_batches_at_once(disk: SimDisk) -> None:
    log = _open(disk)
    appended = _append(log, _batch(2) + _batch(3, control=True), origin=Origin.COORDINATOR)
    assert (appended.base_offset, appended.last_offset) == (0, 4)
    assert [check(batch.data).is_control for batch in _all(log)] == [False, True]
    with pytest.raises(KafkaError):
        _append(log, _batch(2) + _batch(3)[:-1], origin=Origin.COORDINATOR)


# ---- producers


def _idempotent(sequence: int, count: int = 1, epoch: int = 0, **more: Any) -> bytes:
    return _batch(count, producer_id=9, producer_epoch=epoch, base_sequence=sequence, **more)


def test_one_of_the_last_five_batches_again_gets_its_first_offsets(disk: SimDisk) -> None:
    log = _open(disk)
    for number in range(6):
        _append(log, _idempotent(2 * number, 2))
    for number in range(1, 6):
        again = _append(log, _idempotent(2 * number, 2))
        assert again.duplicate
        assert (again.base_offset, again.last_offset) == (2 * number, 2 * number + 1)
    assert log.end_offset == 12
    assert _refused(log, _idempotent(0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_follow_and_epochs_rise(disk: SimDisk) -> None:
    log = _open(disk)
    _append(log, _idempotent(40))
    assert _refused(log, _idempotent(42)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    _append(log, _idempotent(41))
    assert _refused(log, _idempotent(3, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    _append(log, _idempotent(0, epoch=1))
    assert _refused(log, _idempotent(42)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_wrap_at_the_end_of_int32(disk: SimDisk) -> None:
    log = _open(disk)
    _append(log, _idempotent((1 << 31) - 2, 2))
    _append(log, _idempotent(0))
    assert _append(log, _idempotent((1 << 31) - 2, 2)).duplicate


def test_a_silent_producer_is_forgotten_and_may_go_on(disk: SimDisk) -> None:
    log = _open(disk, producer_expiration_ms=1000)
    _append(log, _idempotent(7))
    log.producers.expire(_NOW + 999, log.settings.producer_expiration_ms)
    assert 9 in log.producers.by_id
    log.producers.expire(_NOW + 1000, log.settings.producer_expiration_ms)
    assert not log.producers.by_id
    _append(log, _idempotent(70))


def _marker(*, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> bytes:
    key = b"\0\0\0\1" if commit else b"\0\0\0\0"
    value = b"\0\0" + coordinator_epoch.to_bytes(4, "big")
    return build([(_NOW, key, value, [])], producer_id=9, producer_epoch=epoch, transactional=True, control=True)


def test_the_last_stable_offset_waits_for_the_marker_below_the_high_watermark(disk: SimDisk) -> None:
    log = _open(disk)
    _append(log, _batch(3))
    log.high_watermark = 3
    _append(log, _idempotent(0, 2, transactional=True))
    _append(log, _batch(1))
    log.high_watermark = 6
    assert log.last_stable_offset == 3
    assert _refused(log, _idempotent(2)) is ErrorCode.INVALID_TXN_STATE
    assert log.producers.has_ongoing_transaction(9, 0)
    _append(log, _marker(commit=False), origin=Origin.COORDINATOR)
    assert log.last_stable_offset == 3, "the marker is not replicated yet"
    log.high_watermark = 7
    assert log.last_stable_offset == 7
    (aborted,) = log.aborted(0, 7)
    assert aborted == (9, 3, 6, 7)
    assert log.aborted(7, 9) == []
    _append(log, _idempotent(2, transactional=True))
    _append(log, _marker(commit=True), origin=Origin.COORDINATOR)
    assert len(log.aborted(0, log.end_offset)) == 1


def test_a_marker_that_is_not_flushed_decides_no_transaction(disk: SimDisk) -> None:
    """A lone replica with `flush.messages` shows the marker, and so the transaction, once it is flushed."""
    log = _open(disk, flush_messages=1)
    for _ in range(2):
        start = log.end_offset
        _append(log, _idempotent(0 if not start else 2, 2, transactional=True))
        log.flush(_NOW)
        _append(log, _marker(commit=True), origin=Origin.COORDINATOR)
        log.limit_visible_end(start + 2)
        assert log.last_stable_offset == start == log.last_stable_offset
        log.flush(_NOW)
        assert log.last_stable_offset == start + 3 == log.end_offset


def test_markers_of_old_coordinators_and_epochs_are_refused(disk: SimDisk) -> None:
    log = _open(disk)
    _append(log, _idempotent(0, epoch=3, transactional=True))
    old_epoch = _marker(commit=True, epoch=2)
    assert _refused(log, old_epoch, origin=Origin.COORDINATOR) is ErrorCode.INVALID_PRODUCER_EPOCH
    _append(log, _marker(commit=True, epoch=3, coordinator_epoch=5), origin=Origin.COORDINATOR)
    older = _marker(commit=True, epoch=3, coordinator_epoch=4)
    assert _refused(log, older, origin=Origin.COORDINATOR) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


# ---- reading


def test_a_read_starts_with_the_batch_that_holds_the_offset_and_keeps_to_its_bounds(disk: SimDisk) -> None:
    log = _open(disk)
    size = len(_batch(3))
    for _ in range(4):
        _append(log, _batch(3))
    found = log.read(4, 10_000, end_offset=12)
    assert (found.first_offset, found.position, len(found)) == (3, size, 3 * size)
    assert len(log.read(4, 1, end_offset=12)) == size
    assert len(log.read(4, 1, end_offset=12, min_one_batch=False)) == 0
    assert len(log.read(4, 10_000, end_offset=9)) == 2 * size
    assert len(log.read(4, 10_000, end_offset=8)) == size
    assert len(log.read(9, 10_000, end_offset=9)) == 0
    assert len(log.read(12, 10_000, end_offset=12)) == 0
    assert log.end_of(log.read(4, size + 1, end_offset=12)) == 9
    for outside in (-1, 13):
        with pytest.raises(KafkaError) as caught:
            log.read(outside, 1, end_offset=12)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_timestamps_are_found_across_segments(disk: SimDisk) -> None:
    log = _open(disk, segment_bytes=400)
    for timestamp in (10, 30, 20, 50, 40, 60, 60):
        _append(log, build([(timestamp, b"k", b"v" * 100, []), (timestamp + 1, b"k", b"v", [])]))
    assert len(log.segments) > 2
    end = log.end_offset
    assert log.offset_for_timestamp(0, end) == (10, 0, 0)
    assert log.offset_for_timestamp(11, end) == (11, 1, 0)
    assert log.offset_for_timestamp(21, end) == (30, 2, 0)
    assert log.offset_for_timestamp(45, end) == (50, 6, 0)
    assert log.offset_for_timestamp(62, end) is None
    assert log.offset_for_timestamp(45, 6) is None
    assert log.max_timestamp() == (61, 11, 0)
    assert _open(SimDisk(random.Random(1))).max_timestamp() is None


# ---- segments and retention


def test_a_segment_is_left_when_it_is_full_old_or_its_offsets_run_out(disk: SimDisk) -> None:
    log = _open(disk, segment_bytes=300, segment_ms=1000)
    _append(log, _batch(size=100))
    _append(log, _batch(size=100))
    assert log.bases == [0, 1]
    _append(log, _batch(timestamp=_NOW + 1001, size=1))
    assert log.bases == [0, 1, 2]
    far = _batch(base_offset=(1 << 31) + 3, leader_epoch=0)
    _append(log, far, origin=Origin.REPLICA)
    assert log.bases == [0, 1, 2, (1 << 31) + 3]
    names = disk.list("/d/t-0")
    assert "00000000002147483651.log" in names
    assert "00000000000000000002.snapshot" in names


def test_retention_deletes_whole_segments_below_the_high_watermark(disk: SimDisk) -> None:
    log = _open(disk, segment_bytes=200, retention_ms=1000, file_delete_delay_ms=50)
    for number in range(4):
        _append(log, _batch(timestamp=_NOW + number, size=100))
    log.high_watermark = 2
    assert log.delete_old_segments(_NOW + 5000) == 2
    assert log.start_offset == 2
    assert [name for name in disk.list("/d/t-0") if name.endswith(".log.deleted")] != []
    log.high_watermark = 4
    assert log.delete_old_segments(_NOW + 1003) == 1
    assert log.delete_old_segments(_NOW + 6000) == 1
    assert (log.start_offset, log.end_offset, log.size) == (4, 4, 0)
    assert log.delete_old_segments(_NOW + 7000) == 0
    log.remove_deleted(_NOW + 9000)
    assert not [name for name in disk.list("/d/t-0") if name.endswith(".deleted")]


def test_retention_by_size_keeps_at_least_that_much(disk: SimDisk) -> None:
    log = _open(disk, segment_bytes=200, retention_ms=-1, retention_bytes=400)
    size = len(_batch(size=100))
    for _ in range(6):
        _append(log, _batch(size=100))
    log.delete_old_segments(_NOW)
    assert 400 <= log.size < 400 + size


def test_delete_records_moves_the_start_and_retention_follows(disk: SimDisk) -> None:
    log = _open(disk, segment_bytes=200, cleanup_policy=frozenset({"compact"}))
    for _ in range(4):
        _append(log, _batch(size=100))
    log.high_watermark = 3
    with pytest.raises(KafkaError) as caught:
        log.advance_start_offset(4)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.advance_start_offset(2)
    assert not log.advance_start_offset(1)
    assert log.delete_old_segments(_NOW) == 2
    assert log.bases == [2, 3]
    with pytest.raises(KafkaError):
        log.read(1, 1, end_offset=3)


def test_a_slice_outlives_its_segment(disk: SimDisk) -> None:
    log = _open(disk, segment_bytes=200, retention_ms=0, file_delete_delay_ms=0)
    _append(log, _batch(size=100))
    found = log.read(0, 1000, end_offset=1)
    log.delete_old_segments(_NOW + 10)
    log.remove_deleted(_NOW + 20)
    assert next(read(found.bytes())).header.base_offset == 0


def test_a_follower_takes_offsets_and_epochs_as_they_are(disk: SimDisk) -> None:
    log = _open(disk)
    data = _batch(2, base_offset=0, leader_epoch=1) + _batch(2, base_offset=7, leader_epoch=2)
    newer = _batch(base_offset=9, leader_epoch=5)
    appended = _append(log, data + newer + data[:30], epoch=2, origin=Origin.REPLICA)
    assert (appended.base_offset, appended.last_offset) == (0, 8)
    assert log.epochs.entries() == [(1, 0), (2, 7)]
    assert log.read(4, 1000, end_offset=9).first_offset == 7
    with pytest.raises(KafkaError):
        _append(log, data, epoch=2, origin=Origin.REPLICA)


def test_truncation_takes_producers_and_epochs_back(disk: SimDisk) -> None:
    log = _open(disk, segment_bytes=300)
    for number in range(6):
        _append(log, _idempotent(number, size=60), epoch=number)
    assert log.truncate(4, _NOW)
    assert (log.end_offset, log.epochs.latest) == (4, 3)
    assert log.producers.by_id[9].last_sequence == 3
    _append(log, _idempotent(4), epoch=9)
    assert [batch.header.base_offset for batch in _all(log)] == [0, 1, 2, 3, 4]
    log.restart_at(100, _NOW)
    assert (log.start_offset, log.end_offset, log.size) == (100, 100, 0)
    assert _append(log, _batch()).base_offset == 100


# ---- flushing and faults


def test_flush_is_wanted_by_messages_by_time_and_after_a_roll(disk: SimDisk) -> None:
    log = _open(disk, flush_messages=3, flush_ms=100)

    def wants() -> bool:
        return log.wants_flush

    _append(log, _batch(2))
    assert not wants()
    assert not log.flush_is_overdue(_NOW + 99)
    assert log.flush_is_overdue(_NOW + 100)
    _append(log, _batch(1))
    assert wants()
    log.flush(_NOW)
    assert (log.recovery_point, wants()) == (3, False)
    _append(log, _batch(1))
    log.roll(_NOW)
    assert wants()


def test_what_is_held_back_is_shown_when_it_is_synced(disk: SimDisk) -> None:
    log = _open(disk, flush_messages=1)
    _append(log, _batch(3))
    log.flush(_NOW)
    for _ in range(2):
        before = log.end_offset
        log.limit_visible_end(before)
        _append(log, _batch(2))
        log.limit_visible_end(log.end_offset)
        assert (log.high_watermark, log.last_stable_offset) == (before, before)
        log.sync()
        log.synced(log.end_offset, _NOW)
        assert log.high_watermark == log.end_offset


def test_a_sync_of_before_a_truncation_does_not_vouch_for_what_came_after(disk: SimDisk) -> None:
    log = _open(disk)
    _append(log, _batch(4))
    end_offset = log.end_offset
    log.sync()
    log.truncate(0, _NOW)
    _append(log, _batch(4))
    log.synced(end_offset)
    assert log.recovery_point == 0


def test_a_full_disk_refuses_the_batch_and_the_log_goes_on(disk: SimDisk) -> None:
    log = _open(disk)
    _append(log, _batch())
    total, usable = disk.free_bytes("/d")
    disk.fill(total - usable + 20)
    with pytest.raises(OSError, match="full"):
        _append(log, _batch(size=500))
    assert log.end_offset == 1
    disk.fill(None)
    assert _append(log, _batch()).base_offset == 1
    log.close()
    again = _open(disk)
    assert [batch.header.base_offset for batch in _all(again)] == [0, 1]


def test_a_full_disk_leaves_the_log_that_was_to_begin_elsewhere(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _open(disk)
    _append(log, _batch(3))
    with monkeypatch.context() as full:
        refused = OSError(errno.ENOSPC, "the disk is full")
        full.setattr(disk, "open", Mock(side_effect=refused))
        for _ in range(2):
            with pytest.raises(OSError, match="full"):
                log.restart_at(100, _NOW)
    assert (log.start_offset, log.end_offset, len(_all(log))) == (0, 3, 1)
    assert log.truncate(2, _NOW)
    assert _append(log, _batch(3)).base_offset == 2
    log.restart_at(100, _NOW)
    assert _append(log, _batch(2)).base_offset == 100
    log.roll(_NOW)
    log.close()
    assert [batch.header.base_offset for batch in _all(_open(disk))] == [100]
    assert not [name for name in disk.list(log.path) if name.endswith(".deleted")]


def test_a_log_that_begins_at_a_deleted_segment_takes_another_file(disk: SimDisk) -> None:
    log = _open(disk, segment_bytes=100, retention_bytes=0)
    _append(log, _batch(1))
    _append(log, _batch(1))
    held = log.read(0, 1000, end_offset=1)
    before = held.bytes()
    assert log.delete_old_segments(_NOW) > 0
    log.restart_at(0, _NOW)
    _append(log, _batch(1, size=20))
    assert held.bytes() == before
    log.remove_deleted(_NOW + 1_000_000)
    assert len(_all(log)) == 1


def test_a_sync_that_fails_moves_no_recovery_point(disk: SimDisk) -> None:
    log = _open(disk)
    _append(log, _batch())
    disk.syncs_to_fail = 1
    with pytest.raises(OSError, match="could not write"):
        log.flush()
    assert log.recovery_point == 0
