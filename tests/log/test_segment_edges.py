"""Segments at their edges: jitter, many batches, damage of a small one, and bytes that a failed write left."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.log.log import Log, LogSettings, Origin
from ottla.sim.disk import SimDisk
from ottla.wire.batch import HEADER, build, headers, read

_NOW = 1_000_000


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(3))
    disk.make_directory("/d")
    return disk


def _open(disk: SimDisk, name: str = "t-0", *, clean: bool = False, recovery_point: int = 0, **settings: Any) -> Log:
    return Log.open(
        disk,
        f"/d/{name}",
        LogSettings(segment_index_bytes=1200, **settings),
        now_ms=_NOW,
        clean=clean,
        recovery_point=recovery_point,
    )


def _append(log: Log, *, timestamp: int = _NOW, size: int = 10, now_ms: int = _NOW) -> None:
    log.append(build([(timestamp, b"k", b"v" * size, [])]), leader_epoch=0, now_ms=now_ms)


@pytest.mark.parametrize("name", ["t-0", "t-1", "other-7"])
def test_a_segment_rolls_earlier_by_a_jitter_that_its_name_decides(disk: SimDisk, name: str) -> None:
    """Otherwise all partitions would begin a segment, and sync one, at the same moment."""
    settings: dict[str, Any] = {"segment_ms": 1000, "segment_jitter_ms": 500}
    jitter = _open(disk, name, **settings).active.jitter_ms
    assert 0 <= jitter < 500
    for waited, segments in ((1000 - jitter, 1), (1001 - jitter, 2)):
        again = SimDisk(random.Random(1))
        again.make_directory("/d")
        log = _open(again, name, **settings)
        _append(log)
        _append(log, timestamp=_NOW + waited)
        assert len(log.bases) == segments


def test_segments_have_jitters_of_their_own(disk: SimDisk) -> None:
    jitters = {_open(disk, f"t-{n}", segment_jitter_ms=1000).active.jitter_ms for n in range(20)}
    assert len(jitters) > 5
    assert _open(disk, "none-0", segment_jitter_ms=0).active.jitter_ms == 0
    # The smallest jitter is none at all.
    assert _open(disk, "one-0", segment_jitter_ms=1).active.jitter_ms == 0


@pytest.mark.parametrize("count", [255, 256, 257, 511, 512, 513, 514, 800])
def test_every_batch_of_a_long_segment_is_found(disk: SimDisk, count: int) -> None:
    """The places of the last batches are kept in memory, those of the others are read from the file."""
    log = _open(disk)
    for _ in range(count):
        _append(log)
    for offset in {0, 1, count // 2, *range(max(0, count - 600), count, 37), count - 2, count - 1}:
        found = log.read(offset, 1, end_offset=count)
        assert found.first_offset == offset
        [batch] = read(found.bytes())
        assert batch.header.base_offset == offset
    # A truncation among those that are kept, and among those that are not.
    for end in (count - 1, count - 200, 3):
        assert log.truncate(end, _NOW) and log.end_offset == end
        _append(log)
        assert log.read(end, 1, end_offset=end + 1).first_offset == end


@pytest.mark.parametrize("damage", ["offsets that do not rise", "a length", "a magic", "an end before its beginning"])
def test_a_small_segment_that_is_damaged_is_read_up_to_the_damage(disk: SimDisk, damage: str) -> None:
    """A clean start reads its batches instead of the index files; at damage the files are used after all."""
    log = _open(disk, index_interval_bytes=1)
    for _ in range(5):
        _append(log)
    size = log.size
    log.close()
    file = disk.open("/d/t-0/00000000000000000000.log")
    data = bytearray(file.read(file.size(), 0))
    third = [position for position, _ in headers(data)][3]
    fields = list(HEADER.unpack_from(data, third))
    names = {"offsets that do not rise": (0, 1), "a length": (1, 3), "a magic": (3, 1)}
    if damage == "an end before its beginning":
        fields[6] = -1
    else:
        field, value = names[damage]
        fields[field] = value
    HEADER.pack_into(data, third, *fields)
    file.write(bytes(data), 0)
    again = _open(disk, clean=True, recovery_point=5, index_interval_bytes=1)
    assert (again.end_offset, again.size) == (5, size)
    for offset in range(3):
        assert again.read(offset, 1, end_offset=5).first_offset == offset
    assert again.max_timestamp() is not None


def test_bytes_that_a_failed_write_left_are_cut_off_when_the_segment_ends(disk: SimDisk) -> None:
    log = _open(disk)
    _append(log)
    size = log.size
    disk.fill(disk._used() + 20)
    with pytest.raises(OSError, match="full"):
        _append(log)
    assert log.active.file.size() == size + 20
    disk.fill(None)
    first = log.active
    log.roll(_NOW)
    assert (first.size, first.file.size()) == (size, size)
    _append(log)
    assert log.bases == [0, 1]
    log.discard()
    again = _open(disk)
    assert (again.bases, again.end_offset) == ([0, 1], 2)


@pytest.mark.parametrize("magic", [-1, 0, 1, 3, 127])
def test_a_batch_of_another_magic_is_refused(disk: SimDisk, magic: int) -> None:
    """Old formats are converted by nobody any more, and newer ones do not exist."""
    data = bytearray(build([(_NOW, b"k", b"v", [])]))
    data[16] = magic & 0xFF
    log = _open(disk)
    with pytest.raises(KafkaError, match=f"magic {magic}") as refused:
        log.append(bytes(data), leader_epoch=0, now_ms=_NOW)
    assert refused.value.code is (ErrorCode.INVALID_RECORD if magic in (0, 1) else ErrorCode.CORRUPT_MESSAGE)
    assert log.size == 0


@pytest.mark.parametrize("version", [1, -1])
def test_aborted_transactions_of_another_version_are_not_read(disk: SimDisk, version: int) -> None:
    log = _open(disk)
    data = build([(_NOW, b"k", b"v", [])], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.append(data, leader_epoch=0, now_ms=_NOW)
    marker = build([(_NOW, bytes(4), bytes(6), [])], producer_id=7, producer_epoch=0, transactional=True, control=True)
    log.append(marker, leader_epoch=0, now_ms=_NOW, origin=Origin.COORDINATOR)
    assert [each.producer_id for each in log.aborted(0, 2)] == [7]
    log.close()
    path = "/d/t-0/00000000000000000000.txnindex"
    disk.open(path).write(version.to_bytes(2, "big", signed=True), 0)
    again = _open(disk, clean=True, recovery_point=2)
    with pytest.raises(ValueError, match=rf"{path}: unknown entry version {version} \(expected 0\)"):
        again.aborted(0, 2)
