"""What a clean stop and a flush leave on the disk: a start after a power failure trusts it."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from ottla.log import durability
from ottla.log.checkpoint import read_text
from ottla.log.durability import OutOfResources
from ottla.log.log import Log, LogSettings, Origin
from ottla.sim.disk import SimDisk
from ottla.wire.batch import NewRecord, build

_NOW_MS = 1_000_000
#: A power failure may keep what was not synced, by chance.
_SEEDS = range(12)


def _disk(seed: int) -> SimDisk:
    disk = SimDisk(random.Random(seed))
    disk.make_directory("/d")
    disk.sync_directory("/")
    return disk


def _open(disk: SimDisk, *, clean: bool = True, recovery_point: int = 0) -> Log:
    return Log.open(disk, "/d/t-0", LogSettings(), now_ms=_NOW_MS, clean=clean, recovery_point=recovery_point)


def _put(log: Log, epoch: int = 1, value: bytes = b"v") -> None:
    log.append(bytearray(build([(_NOW_MS, b"k", value, [])])), leader_epoch=epoch, now_ms=_NOW_MS)


def _abort(log: Log) -> None:
    data = build([(_NOW_MS, b"k", b"v", [])], producer_id=9, producer_epoch=3, base_sequence=0, transactional=True)
    log.append(bytearray(data), leader_epoch=1, now_ms=_NOW_MS)
    marker: NewRecord = (_NOW_MS, bytes(4), bytes(6), [])
    end = build([marker], producer_id=9, producer_epoch=3, transactional=True, control=True)
    log.append(bytearray(end), leader_epoch=1, now_ms=_NOW_MS, origin=Origin.COORDINATOR)


def _started_after_power_failure(disk: SimDisk, log: Log) -> Log:
    log.close()
    disk.crash()
    return _open(disk)


@pytest.mark.parametrize("seed", _SEEDS)
def test_an_aborted_transaction_stays_aborted(seed: int) -> None:
    log = _open(disk := _disk(seed))
    _abort(log)
    log = _started_after_power_failure(disk, log)
    assert [tuple(each)[:3] for each in log.aborted(0, log.end_offset)] == [(9, 0, 1)]


@pytest.mark.parametrize("seed", _SEEDS)
def test_an_aborted_transaction_stays_aborted_though_its_producer_is_forgotten(seed: int) -> None:
    log = _open(disk := _disk(seed))
    _abort(log)
    log.flush()
    log.producers.expire(_NOW_MS * 10, 1)
    assert not log.producers.by_id
    log = _started_after_power_failure(disk, log)
    assert [tuple(each)[:3] for each in log.aborted(0, log.end_offset)] == [(9, 0, 1)]


def test_a_producer_is_known_after_a_stop_though_its_only_snapshot_is_where_the_log_begins() -> None:
    """A start removes such a snapshot."""
    log = _open(disk := _disk(0))
    data = build([(_NOW_MS, b"k", b"v", [])], producer_id=9, producer_epoch=3, base_sequence=0)
    log.append(bytearray(data), leader_epoch=1, now_ms=_NOW_MS)
    log.roll(_NOW_MS)
    _put(log)
    log.advance_start_offset(1)
    assert log.snapshots.latest == log.start_offset == 1
    log.close()
    log = Log.open(disk, "/d/t-0", LogSettings(), now_ms=_NOW_MS, clean=True, log_start_offset=1)
    assert list(log.producers.by_id) == [9]


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_leader_epoch_that_began_after_the_last_flush_is_known(seed: int) -> None:
    log = _open(disk := _disk(seed))
    _put(log, 1)
    log.flush()
    _put(log, 2)
    log = _started_after_power_failure(disk, log)
    assert (log.epoch_at(0), log.epoch_at(1)) == (1, 2)


def _without_files(monkeypatch: pytest.MonkeyPatch, what: Any, name: str, log: Log) -> None:
    """Flush when `name` of `what` can open no file."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as refusing:
        refusing.setattr(what, name, refuse)
        with pytest.raises(OutOfResources):
            log.flush()


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_flush_that_had_no_file_left_writes_the_epochs_the_next_time(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _open(disk := _disk(seed))
    _put(log, 1)
    log.flush()
    _put(log, 2)
    _without_files(monkeypatch, durability, "write_beside", log)
    log.flush()
    log = _started_after_power_failure(disk, log)
    assert (log.epoch_at(0), log.epoch_at(1)) == (1, 2)


@pytest.mark.parametrize(("number", "is_harmless"), [(errno.ENOSPC, True), (errno.EIO, False)])
def test_epochs_that_a_full_disk_does_not_let_be_renamed_are_written_the_next_time(
    number: int, is_harmless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _open(disk := _disk(0))
    _put(log, 1)

    def refuse(source: str, target: str) -> None:
        raise OSError(number, "refused", source)

    with monkeypatch.context() as refusing:
        refusing.setattr(disk, "rename", refuse)
        with pytest.raises(OSError, match="refused") as raised:
            log.flush()
    assert isinstance(raised.value, OutOfResources) is is_harmless
    log.flush()
    assert read_text(disk, f"{log.path}/leader-epoch-checkpoint") == "0\n1\n1 0\n"


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_flush_that_had_no_file_left_keeps_a_new_segment_the_next_time(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _open(disk := _disk(seed))
    _abort(log)
    log.flush()
    log.roll(_NOW_MS)
    _put(log)
    _without_files(monkeypatch, disk, "open", log)
    log.flush()
    point = log.recovery_point
    log.discard()
    disk.crash()
    assert (point, _open(disk, clean=False, recovery_point=point).end_offset) == (3, 3)


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_log_that_was_cut_and_is_as_long_as_before_is_not_taken_for_unchanged(seed: int) -> None:
    log = _open(disk := _disk(seed))
    _put(log)
    _put(log)
    log.close()
    log = _open(disk)
    log.truncate(1)
    log.flush()
    _put(log, value=b"new")
    log = _started_after_power_failure(disk, log)
    assert b"new" in log.read(1, 1000, end_offset=2).bytes()


def _indexes(log: Log) -> list[object]:
    return [(each.offset_index.entries(), each.time_index.entries()) for each in log.segments]


def _rolled(log: Log, value: bytes = b"v") -> None:
    for _ in range(3):
        _put(log, value=value)
    log.flush()
    log.roll(_NOW_MS)


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("bytes_each", [6_000, 9_000])
def test_the_indexes_of_an_active_segment_are_trusted_after_a_stop_if_it_is_large(bytes_each: int, seed: int) -> None:
    log = _open(disk := _disk(seed))
    for _ in range(2):
        _put(log, value=bytes(bytes_each))
    log.close()
    before = _indexes(log)
    disk.crash()
    log = _open(disk)
    assert log.active.is_small is (bytes_each == 6_000)
    log.active.deactivate()
    assert _indexes(log) == before


@pytest.mark.parametrize("seed", _SEEDS)
def test_the_indexes_of_a_segment_whose_records_were_flushed_before_it_was_rolled_survive(seed: int) -> None:
    log = _open(disk := _disk(seed))
    _rolled(log, bytes(5_000))
    log.close()
    before = _indexes(log)
    disk.crash()
    assert _indexes(_open(disk)) == before


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("how", ["a clean start", "a recovery", "a flush", "a flush that fails first"])
def test_the_indexes_that_were_built_again_survive(how: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that an administrator removed, of a segment that was synced long ago."""
    log = _open(disk := _disk(seed))
    for _ in range(3):
        _rolled(log, bytes(5_000))
    log.close()
    before, point = _indexes(log), log.recovery_point
    for kind in ("index", "timeindex"):
        disk.remove(f"{log.path}/{0:020d}.{kind}")
    disk.sync_directory(log.path)
    log = _open(disk, clean=how == "a clean start", recovery_point=point)
    if how == "a flush that fails first":
        _without_files(monkeypatch, disk, "open", log)
    if "flush" in how:
        log.flush()
    else:
        log.close()
    disk.crash()
    assert _indexes(_open(disk)) == before


def test_a_flush_syncs_the_records_of_a_large_active_segment_only_and_no_segment_twice() -> None:
    log = _open(disk := _disk(0))
    _rolled(log, bytes(9_000))
    _put(log, value=bytes(20_000))
    log.flush()
    _put(log)
    before = disk.effects
    log.flush()
    assert disk.effects - before == 1


def test_an_epoch_of_deleted_records_only_is_not_in_the_checkpoint_of_a_clean_stop() -> None:
    """Nothing else has changed since the log was opened."""
    log = _open(disk := _disk(0))
    _put(log, 1)
    _put(log, 2)
    log.close()
    log = _open(disk)
    log.advance_start_offset(1)
    log.close()
    text = read_text(disk, f"{log.path}/leader-epoch-checkpoint")
    assert text is not None and text.splitlines()[2:] == ["2 1"]


def test_a_flush_syncs_what_has_changed_since_the_last_one() -> None:
    log = _open(disk := _disk(0))

    def cost(epoch: int) -> int:
        """Effects of a flush after one batch."""
        _put(log, epoch)
        before = disk.effects
        log.flush()
        return disk.effects - before

    # The batch; and with a new epoch its checkpoint: a file made, written, synced, renamed, and the directory.
    costs = [cost(epoch) for epoch in (0, 0, 1, 1, 1)]
    assert costs[1:] == [1, 6, 1, 1]


def test_an_epoch_that_begins_while_a_sync_fails_is_in_the_next_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync runs on a thread, and the loop goes on."""
    log = _open(disk := _disk(0))
    _put(log, 3)

    def fails(path: str) -> None:
        _put(log, 7)
        raise OSError(errno.EIO, "input/output error", path)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync_directory", fails)
        with pytest.raises(OSError, match="input/output"):
            log.sync()
    log.flush()
    text = read_text(disk, f"{log.path}/leader-epoch-checkpoint")
    assert text is not None and text.splitlines()[2:] == ["3 0", "7 1"]
