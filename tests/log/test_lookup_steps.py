"""Look-ups by time: what they find, and that a log may change between their steps."""

import random
from typing import Any

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.log import lookup
from ottla.log.log import Log, LogSettings
from ottla.log.lookup import Unpack, end_of, finish, max_timestamp, offset_for_timestamp
from ottla.sim.disk import SimDisk
from ottla.wire.batch import NewRecord, build
from ottla.wire.codec import Codec

_NOW = 1_000_000


@pytest.fixture
def log() -> Log:
    disk = SimDisk(random.Random(3))
    disk.make_directory("/d")
    return Log.open(disk, "/d/t-0", LogSettings(segment_index_bytes=1200, retention_ms=-1), now_ms=_NOW)


def _append(log: Log, *timestamps: int, size: int = 20, **more: Any) -> None:
    records: list[NewRecord] = [(each, b"k", b"v" * size, []) for each in timestamps]
    log.append(bytearray(build(records, **more)), leader_epoch=3, now_ms=_NOW)


def _found(log: Log, timestamp: int) -> tuple[int, int, int] | None:
    return finish(offset_for_timestamp(log, timestamp, log.end_offset))


def test_the_first_record_that_is_not_older_is_found_in_its_batch_and_segment(log: Log) -> None:
    _append(log, 100, 90, 110)
    log.roll(_NOW)
    _append(log, 105, 200)
    _append(log, 150)
    expected = {0: 0, 90: 0, 91: 0, 100: 0, 101: 2, 110: 2, 111: 4, 200: 4}
    assert {timestamp: found[1] for timestamp in expected if (found := _found(log, timestamp))} == expected
    assert _found(log, 110) == (110, 2, 3)
    assert _found(log, 201) is None
    # What lies behind the reader's end is not told, nor is a later record in its place.
    assert finish(offset_for_timestamp(log, 111, 4)) is None
    assert finish(offset_for_timestamp(log, 111, 5)) == (200, 4, 3)
    log.advance_start_offset(1)
    assert _found(log, 0) == (90, 1, 3)


def test_the_latest_record_is_the_first_of_its_time(log: Log) -> None:
    assert finish(max_timestamp(log)) is None
    _append(log, 100, 200, 200)
    log.roll(_NOW)
    _append(log, 200, 150)
    assert finish(max_timestamp(log)) == (200, 1, 3)
    log.close()
    assert finish(max_timestamp(log)) is None


def test_a_long_look_up_lets_others_go_on_after_so_many_batches(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_BATCHES_PER_STEP", 10)
    for number in range(35):
        _append(log, number)
    steps = offset_for_timestamp(log, 34, log.end_offset)
    log.active.time_index.reset()
    assert [next(steps) for _ in range(3)] == [None] * 3
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value == (34, 34, 3)


@pytest.mark.parametrize("change", ["retention", "truncation", "nothing"])
def test_a_look_up_whose_segment_goes_in_the_middle_begins_again(
    log: Log, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "_BATCHES_PER_STEP", 2)
    for number in range(6):
        _append(log, 100 + number)
    log.active.time_index.reset()
    log.roll(_NOW)
    _append(log, 107)
    steps = offset_for_timestamp(log, 105, log.end_offset)
    assert next(steps) is None
    if change == "retention":
        log.high_watermark = log.end_offset
        log.advance_start_offset(6)
        log.delete_old_segments(_NOW)
        assert len(log.segments) == 1
    elif change == "truncation":
        log.truncate(4, _NOW)
        _append(log, 105, leader_epoch=3)
    expected = {"retention": (107, 6, 3), "truncation": (105, 4, 3), "nothing": (105, 5, 3)}
    assert finish(steps) == expected[change]


def test_a_look_up_whose_log_goes_in_the_middle_finds_not_nothing_but_an_error(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move to another directory has replaced it, or its topic is deleted."""
    monkeypatch.setattr(lookup, "_BATCHES_PER_STEP", 2)
    for number in range(6):
        _append(log, 100 + number)
    log.active.time_index.reset()
    steps = offset_for_timestamp(log, 105, log.end_offset)
    assert next(steps) is None
    log.discard()
    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        finish(steps)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_large_compressed_batch_is_unpacked_beside_the_loop(
    log: Log, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "_PLAIN_BYTES_PER_STEP", 100)
    _append(log, *range(50, 150), size=2000, codec=codec)
    steps = offset_for_timestamp(log, 120, log.end_offset)
    unpack = next(steps)
    assert isinstance(unpack, Unpack)
    unpack.run()
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value == (120, 70, 3)
    assert unpack.plain is None, "its bytes are many"


def test_a_batch_that_cannot_be_unpacked_fails_the_look_up(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_PLAIN_BYTES_PER_STEP", 100)
    _append(log, *range(50, 150), size=2000, codec=Codec.GZIP)

    def fails(*_: Any) -> Any:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE)

    monkeypatch.setattr(lookup, "decompress_beside", fails)
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
        _found(log, 120)


def test_the_end_of_what_was_read_is_behind_its_last_batch(log: Log) -> None:
    for number in range(3):
        _append(log, number)
    size = log.active.size // 3
    assert [end_of(log, log.read(0, count * size, end_offset=3)) for count in (1, 2, 3)] == [1, 2, 3]
    assert end_of(log, log.read(1, size, end_offset=3)) == 2
    piece = log.read(0, 3 * size, end_offset=3)
    log.restart_at(7, _NOW)
    assert end_of(log, piece) == 7, "the segment is gone"


def test_a_look_up_after_a_truncation_finds_what_came_in_the_place_of_the_old_records(log: Log) -> None:
    log.settings = LogSettings(segment_index_bytes=1200, index_interval_bytes=1)
    for number in range(12):
        _append(log, 100 + 10 * number)
    assert log.active.time_index.last == (210, 11)
    log.truncate(4, _NOW)
    assert log.active.time_index.last[1] < 4, "an entry of a dropped record would lead look-ups past the new ones"
    for timestamp in (131, 132, 250):
        _append(log, timestamp)
    assert [_found(log, each) for each in (120, 131, 132, 140, 250)] == [
        (120, 2, 3),
        (131, 4, 3),
        (132, 5, 3),
        (250, 6, 3),
        (250, 6, 3),
    ]
    assert finish(max_timestamp(log)) == (250, 6, 3)


@pytest.mark.parametrize(
    ("offset", "end_offset", "cut_off"),
    [(0, 2, False), (0, 3, True), (1, 3, True), (2, 3, False), (1, 4, True), (2, 4, False), (3, 4, False)],
)
def test_a_read_that_ends_with_its_segment_before_the_readers_end_is_cut_off(
    log: Log, offset: int, end_offset: int, cut_off: bool
) -> None:
    """A fetch that waits for more bytes is answered at once then: the next one reads the next segment."""
    _append(log, 1, 2)
    log.roll(_NOW)
    _append(log, 3)
    _append(log, 4)
    assert lookup.is_cut_off(log, offset, end_offset) is cut_off
    ends_early = log.end_of(log.read(offset, 1 << 20, end_offset=end_offset)) < end_offset
    assert ends_early is cut_off


def test_records_with_the_time_of_their_append_are_found_by_that_and_by_no_time_of_their_own() -> None:
    disk = SimDisk(random.Random(3))
    disk.make_directory("/d")
    log = Log.open(disk, "/d/t-0", LogSettings(log_append_time=True), now_ms=_NOW)
    _append(log, 5, 9)
    for timestamp in (0, 6, 10, _NOW):
        assert _found(log, timestamp) == (_NOW, 0, 3), timestamp
    assert _found(log, _NOW + 1) is None
