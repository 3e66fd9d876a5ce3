"""Where a recovery ends a log, what it reads of it, and what it makes of files that are missing or left over."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.log.log import Log, LogSettings, Origin
from ottla.log.path import LOG, OFFSET_INDEX, TIME_INDEX, offset_name
from ottla.log.segment.index import RELATIVE_OFFSET_MAX
from ottla.sim.disk import SimDisk
from ottla.wire.batch import CRC_START, HEADER, HEADER_BYTES, MAGIC, BatchHeader, build
from ottla.wire.checksum import crc32c

_NOW_MS = 1_700_000_000_000
_HERE = "/d/t-0"
_SETTINGS = LogSettings(index_interval_bytes=1000, max_message_bytes=2 << 20)
#: The first segment's file.
_FIRST = f"{_HERE}/{offset_name(0, LOG)}"


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(Random(1))
    disk.make_directory("/d")
    return disk


def _open(disk: SimDisk, **given: Any) -> Log:
    return Log.open(disk, _HERE, _SETTINGS, now_ms=_NOW_MS, **given)


def _put(log: Log, count: int, *, value_bytes: int = 50, epoch: int = 0) -> None:
    for _ in range(count):
        data = bytearray(build([(_NOW_MS, b"k", bytes(value_bytes), ())]))
        log.append(data, leader_epoch=epoch, now_ms=_NOW_MS, origin=Origin.COORDINATOR)


def _batch(base_offset: int, **changes: int) -> bytes:
    """A batch of one record, with a checksum that fits the changed header."""
    data = bytearray(build([(_NOW_MS, b"k", bytes(50), ())]))
    header = BatchHeader._make(HEADER.unpack_from(data))._replace(base_offset=base_offset, **changes)
    HEADER.pack_into(data, 0, *header)
    HEADER.pack_into(data, 0, *header._replace(crc=changes.get("crc", crc32c(bytes(data[CRC_START:])))))
    return bytes(data)


@pytest.mark.parametrize(
    ("batch", "end_offset"),
    [
        pytest.param(_batch(2), 3, id="the next offset"),
        pytest.param(_batch(7), 8, id="an offset that the cleaner has left a gap before"),
        pytest.param(_batch(1), 2, id="an offset that does not rise"),
        pytest.param(_batch(2, last_offset_delta=-1), 2, id="an end before the beginning"),
        pytest.param(_batch(RELATIVE_OFFSET_MAX), RELATIVE_OFFSET_MAX + 1, id="the last offset of a segment"),
        pytest.param(_batch(RELATIVE_OFFSET_MAX + 1), 2, id="an offset that no segment has room for"),
        pytest.param(_batch(2, magic=MAGIC + 1), 2, id="another magic"),
        pytest.param(_batch(2, length=HEADER_BYTES - 12 - 1), 2, id="shorter than its header"),
        pytest.param(_batch(2, length=1 << 20), 2, id="longer than the file"),
        pytest.param(_batch(2, crc=1), 2, id="a wrong checksum"),
        pytest.param(_batch(2)[: HEADER_BYTES - 1], 2, id="a part of a header"),
    ],
)
def test_a_log_ends_before_its_first_bad_batch(disk: SimDisk, batch: bytes, end_offset: int) -> None:
    log = _open(disk)
    _put(log, 2)
    good = log.size
    log.active.file.write(batch + _batch(end_offset), good)
    log.discard()
    log = _open(disk)
    # The batch after a good one has the next offset and stays, unless the segment has no room for it.
    more = end_offset > 2
    fits = more and end_offset <= RELATIVE_OFFSET_MAX
    assert log.end_offset == end_offset + fits
    assert log.size == log.active.file.size() == good + len(batch) * (more + fits)
    last = log.end_offset - 1
    assert log.read(last, 1, end_offset=log.end_offset).first_offset == last


def test_batches_that_a_megabyte_ends_in_are_read_whole_and_all_bytes_are_told(disk: SimDisk) -> None:
    log = _open(disk)
    for value_bytes in (400_000, 400_000, 400_000, 1_500_000, 10, 1 << 20, 300_000, 800_000):
        _put(log, 1, value_bytes=value_bytes)
    size = log.size
    log.discard()
    told: list[tuple[int, int]] = []
    log = _open(disk, on_progress=lambda more, done: told.append((more, done)))
    assert (log.end_offset, log.size) == (8, size)
    assert sum(more for more, _ in told) == sum(done for _, done in told) == size


def test_a_log_whose_segments_were_taken_away_begins_empty_at_its_start_offset(disk: SimDisk) -> None:
    log = _open(disk)
    _put(log, 3, epoch=4)
    log.discard()
    log = _open(disk, log_start_offset=5)
    assert (log.start_offset, log.end_offset, log.size) == (5, 5, 0)
    assert [segment.base_offset for segment in log.segments] == [5]
    assert not disk.exists(_FIRST)
    assert log.epochs.latest == -1
    _put(log, 1, epoch=6)
    assert (log.end_offset, log.epochs.epoch_of(5)) == (6, 6)


def test_an_index_without_its_segment_goes(disk: SimDisk) -> None:
    log = _open(disk)
    _put(log, 3)
    log.close()
    for kind in (OFFSET_INDEX, TIME_INDEX):
        disk.open(f"{_HERE}/{offset_name(2, kind)}", create=True).write(b"left", 0)
    log = _open(disk, clean=True)
    assert log.end_offset == 3
    assert [name for name in disk.list(_HERE) if name.startswith(f"{2:020d}.")] == []
    assert disk.exists(_FIRST)


def _rolled(disk: SimDisk) -> int:
    """A closed log of two segments with four records each; the position of the third batch of the first."""
    log = _open(disk)
    _put(log, 4)
    position = log.size // 2
    log.roll(_NOW_MS)
    _put(log, 4)
    log.close()
    file = disk.open(_FIRST)
    file.write(b"\xff", position + 16)
    file.close()
    return position


@pytest.mark.parametrize("missing", [OFFSET_INDEX, TIME_INDEX])
def test_damage_that_is_found_while_an_index_is_made_again_begins_a_recovery(disk: SimDisk, missing: str) -> None:
    position = _rolled(disk)
    disk.remove(f"{_HERE}/{offset_name(0, missing)}")
    log = _open(disk, clean=True)
    assert (log.end_offset, log.size, len(log.segments)) == (2, position, 1)


def test_damage_in_a_segment_with_its_indexes_is_found_when_it_is_read(disk: SimDisk) -> None:
    _rolled(disk)
    log = _open(disk, clean=True)
    assert log.end_offset == 8
    assert log.read(0, 1, end_offset=8).first_offset == 0
    assert log.read(4, 1, end_offset=8).first_offset == 4
    with pytest.raises(KafkaError) as error:
        log.read(2, 1, end_offset=8)
    assert error.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("text", [b"", b"nonsense\n", b"0\n1\n7\n"])
def test_epochs_whose_checkpoint_is_lost_are_those_of_all_batches_after_a_crash(disk: SimDisk, text: bytes) -> None:
    log = _open(disk)
    for epoch in (2, 3, 5):
        _put(log, 2, epoch=epoch)
        log.roll(_NOW_MS)
    log.flush(_NOW_MS)
    point = log.recovery_point
    log.close()
    name = f"{_HERE}/leader-epoch-checkpoint"
    disk.remove(name)
    if text:
        disk.open(name, create=True).write(text, 0)
    log = _open(disk, recovery_point=point)
    assert point == log.end_offset == 6
    assert [log.epochs.epoch_of(offset) for offset in range(6)] == [2, 2, 3, 3, 5, 5]
    assert log.epochs.latest == 5


def _snapshots(disk: SimDisk) -> list[int]:
    return [int(name.partition(".")[0]) for name in sorted(disk.list(_HERE)) if name.endswith(".snapshot")]


@pytest.mark.parametrize("start", [0, 3, 6])
def test_a_recovery_writes_the_producers_down_so_that_the_next_one_reads_less(disk: SimDisk, start: int) -> None:
    log = _open(disk)
    for sequence in range(6):
        data = build([(_NOW_MS, b"k", b"v", ())], producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.append(data, leader_epoch=0, now_ms=_NOW_MS)
        if sequence in (1, 3):
            log.roll(_NOW_MS)
    log.discard()
    for offset in _snapshots(disk):
        disk.remove(f"{_HERE}/{offset_name(offset, '.snapshot')}")
    log = _open(disk, log_start_offset=start)
    # One at the beginning of each segment that still counts, and one at the end; none where nothing is left.
    assert _snapshots(disk) == {0: [2, 4, 6], 3: [4, 6], 6: []}[start]
    assert (log.start_offset, log.end_offset) == (start, 6)
    assert [entry.sent[-1].last_offset for entry in log.producers.by_id.values()] == ([5] if start < 6 else [])


def test_epochs_whose_checkpoint_is_whole_need_no_batches(disk: SimDisk) -> None:
    """Only what is behind the recovery point is read after a crash."""
    log = _open(disk)
    for epoch in (2, 3, 5):
        _put(log, 2, epoch=epoch)
        log.roll(_NOW_MS)
    log.flush(_NOW_MS)
    log.discard()
    totals: list[int] = []
    again = _open(disk, recovery_point=6, on_progress=lambda total, read: totals.append(total))
    assert again.epochs.entries() == [(2, 0), (3, 2), (5, 4)]
    assert max(totals) <= again.segments[-2].size
