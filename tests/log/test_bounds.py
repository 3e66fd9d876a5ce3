"""Where a segment ends, where an index has an entry, and which segments retention takes: at each bound."""

import random
from typing import Any

import pytest

from ottla.log.log import Log, LogSettings
from ottla.sim.disk import SimDisk
from ottla.wire.batch import build

_NOW = 1_000_000


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(3))
    disk.make_directory("/d")
    return disk


def _open(disk: SimDisk, **settings: Any) -> Log:
    return Log.open(disk, "/d/t-0", LogSettings(segment_index_bytes=1200, **settings), now_ms=_NOW)


def _batch(*, timestamp: int = _NOW, size: int) -> bytes:
    return build([(timestamp, b"k", b"v" * size, [])])


def _append(log: Log, data: bytes, *, now_ms: int = _NOW) -> None:
    log.append(bytearray(data), leader_epoch=0, now_ms=now_ms)


@pytest.mark.parametrize(("spare", "deleted"), [(-1, 0), (0, 1), (1, 1)])
def test_retention_by_size_deletes_what_is_too_much_and_no_segment_more(
    disk: SimDisk, spare: int, deleted: int
) -> None:
    size = len(_batch(size=100))
    log = _open(disk, segment_bytes=200, retention_ms=-1, retention_bytes=5 * size - spare)
    for _ in range(6):
        _append(log, _batch(size=100))
    assert log.delete_old_segments(_NOW) == deleted
    assert log.start_offset == deleted


@pytest.mark.parametrize(("age_ms", "deleted"), [(1000, 0), (1001, 1)])
@pytest.mark.parametrize("timestamp", [_NOW, -1])
def test_a_segment_is_too_old_from_a_millisecond_after_its_retention_on(
    disk: SimDisk, timestamp: int, age_ms: int, deleted: int
) -> None:
    """Without timestamps, when it was last written counts."""
    log = _open(disk, segment_bytes=200, retention_ms=1000)
    _append(log, _batch(timestamp=timestamp, size=100))
    _append(log, _batch(timestamp=_NOW + 5000, size=100), now_ms=_NOW + 5000)
    assert log.delete_old_segments(_NOW + age_ms) == deleted


def test_no_segment_goes_while_the_cleaner_reads_them(disk: SimDisk) -> None:
    log = _open(disk, segment_bytes=200, retention_ms=1000)
    for _ in range(3):
        _append(log, _batch(size=100))
    log.being_cleaned = True
    assert log.delete_old_segments(_NOW + 5000) == 0
    log.being_cleaned = False
    assert log.delete_old_segments(_NOW + 5000) == 3


@pytest.mark.parametrize(("more", "segments"), [({"segment_bytes": 0}, 1), ({"segment_bytes": -1}, 2)])
def test_a_segment_is_full_when_a_batch_does_not_fit(disk: SimDisk, more: dict[str, int], segments: int) -> None:
    two = 2 * len(_batch(size=100))
    log = _open(disk, segment_bytes=two + more["segment_bytes"])
    for _ in range(2):
        _append(log, _batch(size=100))
    assert len(log.bases) == segments


@pytest.mark.parametrize(("waited_ms", "segments"), [(1000, 1), (1001, 2)])
def test_a_segment_is_too_old_to_be_written_to_from_a_millisecond_after_its_time_on(
    disk: SimDisk, waited_ms: int, segments: int
) -> None:
    log = _open(disk, segment_ms=1000)
    _append(log, _batch(timestamp=_NOW, size=1))
    _append(log, _batch(timestamp=_NOW + waited_ms, size=1))
    assert len(log.bases) == segments


@pytest.mark.parametrize(("interval", "indexed"), [(0, [1, 2, 3, 4]), (-1, [1, 2, 3, 4]), (1, [2, 4])])
def test_an_index_has_an_entry_when_more_bytes_than_its_interval_lie_behind_the_last(
    disk: SimDisk, interval: int, indexed: list[int]
) -> None:
    size = len(_batch(size=100))
    log = _open(disk, index_interval_bytes=size + interval - 1)
    for _ in range(5):
        _append(log, _batch(size=100))
    assert [offset for offset in range(5) if log.active.offset_index.lookup(offset)[0] == offset and offset] == indexed


@pytest.mark.parametrize("seed", range(4))
def test_a_segment_that_was_begun_and_flushed_is_there_after_a_crash(seed: int) -> None:
    disk = SimDisk(random.Random(seed))
    disk.make_directory("/d")
    log = _open(disk, segment_bytes=200)
    _append(log, _batch(size=100))
    log.flush()
    _append(log, _batch(size=100))
    log.flush()
    assert len(log.bases) == 2
    disk.sync_directory("/")
    disk.crash()
    assert _open(disk, segment_bytes=200).end_offset == 2
