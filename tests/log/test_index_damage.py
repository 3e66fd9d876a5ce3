"""Indexes: who is wrong where one and its log do not agree, what is served, what a lookup costs, how far one grows."""

import dataclasses
from itertools import pairwise
from random import Random

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.log.log import Log, LogSettings
from ottla.log.segment.index import TIME_ENTRY_BYTES
from ottla.sim.disk import SimDisk, SimFile
from ottla.wire.batch import build

_NOW_MS = 1_700_000_000_000
_SETTINGS = LogSettings(index_interval_bytes=4000)
_BATCHES = 400
_MAGIC_AT = 16


@pytest.fixture
def log() -> Log:
    """Opened after a clean end, so that nothing but its files knows where a batch is."""
    disk = SimDisk(Random(1))
    log = Log.open(disk, "/d/t-0", _SETTINGS, now_ms=_NOW_MS)
    for number in range(_BATCHES):
        log.append(build([(_NOW_MS + number, None, bytes(500), ())]), leader_epoch=0, now_ms=_NOW_MS)
    log.close()
    return Log.open(disk, "/d/t-0", _SETTINGS, now_ms=_NOW_MS, clean=True)


class Reads:
    """The reads of the simulated disk's files, counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        read = SimFile.read

        def counted(file: SimFile, size: int, position: int) -> bytes:
            self.count += 1
            return read(file, size, position)

        monkeypatch.setattr(SimFile, "read", counted)


def _served(log: Log, offset: int) -> int:
    return log.read(offset, 1, end_offset=log.end_offset).first_offset


def _damage(log: Log, position: int) -> None:
    """The header of the batch at `position` is none any more."""
    log.active.file.write(b"\xff", position + _MAGIC_AT)


def test_a_lookup_in_a_cold_segment_is_one_read(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _served(log, 0) == 0
    reads = Reads(monkeypatch)
    for number, offset in enumerate(range(5, _BATCHES, 10), 1):
        assert _served(log, offset) == offset
        assert reads.count == number


def test_where_the_batch_is_damaged_that_an_index_leads_to_the_others_are_served(log: Log) -> None:
    entries = log.active.offset_index.entries()
    offset, position = entries[10]
    _damage(log, position)
    for good in (0, offset - 1, entries[11][0], entries[11][0] + 1, _BATCHES - 1):
        assert _served(log, good) == good
    for lost in (offset, entries[11][0] - 1):
        with pytest.raises(KafkaError) as refused:
            _served(log, lost)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    # Nobody is made to forget what he knew.
    assert log.active.offset_index.entries() == entries
    assert log.active.max_timestamp == _NOW_MS + _BATCHES - 1
    assert log.offset_for_timestamp(_NOW_MS + _BATCHES - 1, log.end_offset) == (
        _NOW_MS + _BATCHES - 1,
        _BATCHES - 1,
        0,
    )


def test_a_damaged_segment_is_read_through_once(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    offset, position = log.active.offset_index.entries()[-1]
    _damage(log, position)
    reads = Reads(monkeypatch)
    with pytest.raises(KafkaError):
        _served(log, offset)
    assert reads.count > 10
    reads.count = 0
    for _ in range(5):
        with pytest.raises(KafkaError):
            _served(log, offset)
    assert reads.count <= 5


def test_an_index_that_leads_behind_what_is_looked_for_is_rebuilt(log: Log) -> None:
    entries = log.active.offset_index.entries()
    # Every entry leads to the batch of the next one.
    index = log.active.offset_index
    index.reset()
    for (offset, _), (_, position) in pairwise(entries):
        index.append(offset, position)
    assert _served(log, entries[5][0]) == entries[5][0]
    assert index.entries() == entries


def test_an_index_file_that_is_damaged_where_the_log_is_too_ends_there(log: Log) -> None:
    entries = log.active.offset_index.entries()
    damaged, position = entries[10]
    path, disk = log.active.offset_index.path, log.disk
    log.close()
    _damage(log := Log.open(disk, "/d/t-0", _SETTINGS, now_ms=_NOW_MS, clean=True), position)
    disk.open(path).truncate(8 * len(entries) - 3)
    size = log.active.size
    assert _served(log, damaged - 1) == damaged - 1
    with pytest.raises(KafkaError):
        _served(log, damaged)
    assert log.active.size == size
    assert _served(log, 3) == 3


def test_the_last_entry_of_a_time_index_has_a_place_in_its_file() -> None:
    disk = SimDisk(Random(1))
    bound = 5 * TIME_ENTRY_BYTES
    settings = LogSettings(index_interval_bytes=1000, segment_index_bytes=bound)
    log = Log.open(disk, "/d/t-0", settings, now_ms=_NOW_MS)
    for number in range(50):
        # Every other batch has an entry, so the last one of a segment gets its own when the log rolls.
        log.append(build([(_NOW_MS + number, None, bytes(600), ())]), leader_epoch=0, now_ms=_NOW_MS)
    rolled = [each.time_index for each in log.segments if each is not log.active]
    assert rolled
    assert {disk.open(each.path).size() for each in rolled} == {bound}


@pytest.mark.parametrize("seed", range(12))
def test_an_offset_index_that_a_truncation_has_emptied_stays_empty_over_a_power_cut(seed: int) -> None:
    """Whatever the disk keeps of what was not synced: an old entry would lead into the middle of a new batch."""
    disk = SimDisk(Random(seed))
    settings = dataclasses.replace(_SETTINGS, segment_bytes=20_000)
    log = Log.open(disk, "/d/t-0", settings, now_ms=_NOW_MS)
    for path in ("/", "/d"):
        disk.sync_directory(path)

    def append(batches: int, records: int) -> None:
        for _ in range(batches):
            batch = build([(_NOW_MS, None, bytes(500), ())] * records)
            log.append(batch, leader_epoch=0, now_ms=_NOW_MS)

    append(30, 1)
    log.close()
    log = Log.open(disk, "/d/t-0", settings, now_ms=_NOW_MS, clean=True)
    assert len(log.active.offset_index)
    log.truncate(2, _NOW_MS)
    # No entry is due before the one batch, and none after it: the segment ends there.
    append(1, 34)
    append(1, 30)
    assert [segment.base_offset for segment in log.segments] == [0, 36]
    log.close()
    disk.crash()
    log = Log.open(disk, "/d/t-0", settings, now_ms=_NOW_MS, clean=True)
    assert log.segments[0].offset_index.entries() == []
    assert [_served(log, offset) for offset in range(66)] == [0, 1, *[2] * 34, *[36] * 30]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("clean", [True, False])
def test_indexes_that_are_made_from_a_log_are_those_that_were_written_with_it(seed: int, clean: bool) -> None:
    """Batches of several records, whose times go forward and back."""
    rng, disk = Random(seed), SimDisk(Random(1))
    log = Log.open(disk, "/d/t-0", LogSettings(index_interval_bytes=300), now_ms=_NOW_MS)
    times: list[int] = []
    bases: list[int] = []
    for _ in range(60):
        batch = [(_NOW_MS + rng.randrange(1000), None, bytes(rng.randrange(200)), ()) for _ in range(rng.randint(1, 6))]
        log.append(build(batch), leader_epoch=0, now_ms=_NOW_MS)
        bases += [len(times)] * len(batch)
        times += [each[0] for each in batch]
    before = (log.active.offset_index.entries(), log.active.time_index.entries())
    latest = log.max_timestamp()
    assert len(before[0]) > 10
    log.close()
    for suffix in (".index", ".timeindex"):
        disk.remove(log.active.path(suffix))
    log = Log.open(disk, "/d/t-0", LogSettings(index_interval_bytes=300), now_ms=_NOW_MS, clean=clean)
    assert log.active.offset_index.entries() == before[0]
    assert log.active.time_index.entries() == before[1]
    assert log.max_timestamp() == latest
    assert latest is not None and latest[0] == max(times)
    assert [_served(log, offset) for offset in range(len(times))] == bases
    for time in range(_NOW_MS, _NOW_MS + 1001, 50):
        naive = next((offset for offset, each in enumerate(times) if each >= time), None)
        found = log.offset_for_timestamp(time, log.end_offset)
        assert (None if found is None else found[:2]) == (None if naive is None else (times[naive], naive))
