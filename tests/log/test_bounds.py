"""Where a segment ends, where an index has an entry, what retention and truncation take: at each bound."""

import errno
import random
from typing import Any

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.log.log import Log, LogSettings, Origin
from ottla.sim.disk import SimDisk
from ottla.wire.batch import LOG_APPEND_TIME, build, check, header_at, read, rewrite
from ottla.wire.codec import Codec

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


def _fetched(*offsets: int, count: int = 1, epoch: int = 1) -> bytes:
    """Batches as a leader has them, each at its offset."""
    records: list[Any] = [(_NOW, b"k", b"v" * 20, [])] * count
    return b"".join(build(records, base_offset=offset, leader_epoch=epoch) for offset in offsets)


def _follow(log: Log, data: bytes, *, epoch: int = 1) -> Any:
    return log.append(bytearray(data), leader_epoch=epoch, now_ms=_NOW, origin=Origin.REPLICA)


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


@pytest.mark.parametrize("room", [0, 1])
def test_retention_makes_room_on_a_disk_that_is_too_full_for_a_new_segment(disk: SimDisk, room: int) -> None:
    log = _open(disk, segment_bytes=200, retention_ms=1000, file_delete_delay_ms=50)
    for _ in range(3):
        _append(log, _batch(size=100))
    disk.fill(disk._used() + room)
    assert log.delete_old_segments(_NOW + 2000) == 2
    assert (log.start_offset, log.bases, log.end_offset) == (2, [2], 3)
    # Their removal makes the room, and the new segment takes some of it.
    assert len(log.remove_deleted(_NOW + 2050)) == 2
    assert log.delete_old_segments(_NOW + 2050) == 1
    assert (log.start_offset, log.bases, log.size) == (3, [3], 0)


def test_a_last_segment_that_nothing_can_take_the_place_of_stays(disk: SimDisk) -> None:
    log = _open(disk, segment_bytes=200, retention_ms=1000)
    _append(log, _batch(size=100))
    used = disk._used()
    disk.fill(used)
    with pytest.raises(OSError, match="disk is full"):
        log.delete_old_segments(_NOW + 2000)
    assert (log.start_offset, log.bases, disk._used()) == (0, [0], used)
    disk.fill(None)
    assert log.delete_old_segments(_NOW + 2000) == 1


def test_retention_says_that_a_disk_is_broken(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlike a full one, it goes offline: nothing is left to another run."""
    log = _open(disk, segment_bytes=200, retention_ms=1000)
    for _ in range(3):
        _append(log, _batch(size=100))

    def broken(*_: Any) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(Log, "roll", broken)
    with pytest.raises(OSError, match="broken"):
        log.delete_old_segments(_NOW + 2000)


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


@pytest.mark.parametrize("jitter_ms", [2000, 10_000, 3_600_000])
def test_a_jitter_longer_than_a_segments_time_leaves_it_some_of_that_time(disk: SimDisk, jitter_ms: int) -> None:
    log = _open(disk, segment_ms=1000, segment_jitter_ms=jitter_ms)
    for _ in range(3):
        _append(log, _batch(timestamp=_NOW, size=1))
    assert log.bases == [0]
    _append(log, _batch(timestamp=_NOW + 1001, size=1))
    assert log.bases == [0, 3]


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


# ---- a follower's log


@pytest.mark.parametrize("start", [4, 6])
def test_a_follower_keeps_the_batch_that_its_leaders_start_offset_lies_in(disk: SimDisk, start: int) -> None:
    """DeleteRecords may name any record; a leader serves whole batches."""
    log = _open(disk)
    log.restart_at(start, _NOW)
    _follow(log, _fetched(3, count=4) + _fetched(7))
    assert (log.start_offset, log.end_offset) == (start, 8)
    batches = read(log.read(start, 1000, end_offset=8).bytes())
    assert [batch.header.base_offset for batch in batches] == [3, 7]
    # Only the first batch of an empty log may begin below its end.
    with pytest.raises(KafkaError, match="expected offset 8 or higher"):
        _follow(log, _fetched(6, count=4))
    log.close()
    again = Log.open(disk, "/d/t-0", LogSettings(), now_ms=_NOW, clean=True, log_start_offset=start)
    assert (again.start_offset, again.end_offset) == (start, 8)


def test_a_follower_takes_nothing_of_a_fetch_without_a_whole_batch_of_its_epoch(disk: SimDisk) -> None:
    log = _open(disk)
    _follow(log, _fetched(0, 1))
    for data in (b"", _fetched(2)[:-1], _fetched(2, epoch=2)):
        appended = _follow(log, data)
        assert (appended.base_offset, appended.last_offset) == (2, 1)
        assert (log.end_offset, log.epochs.entries()) == (2, [(1, 0)])


@pytest.mark.parametrize(("spare", "bases"), [(0, [0]), (-1, [0, 2]), (-100, [0, 1, 2])])
def test_what_a_follower_fetched_at_once_goes_into_as_many_segments_as_it_needs(
    disk: SimDisk, spare: int, bases: list[int]
) -> None:
    """The leader's segment may be larger: it was written before segment.bytes was lowered."""
    data = _fetched(0, 1, 2)
    log = _open(disk, segment_bytes=len(data) + spare)
    appended = _follow(log, data)
    assert (appended.base_offset, appended.last_offset) == (0, 2)
    assert (log.end_offset, log.bases, log.size) == (3, bases, len(data))
    parts = [log.read(base, 1000, end_offset=3).bytes() for base in bases]
    assert b"".join(parts) == data


def test_of_what_a_follower_fetched_it_has_the_segments_for_which_there_was_room(disk: SimDisk) -> None:
    data = _fetched(0, 1, 2)
    size = len(data) // 3
    log = _open(disk, segment_bytes=size)
    disk.fill(disk._used() + 2 * size)
    with pytest.raises(OSError, match="disk is full"):
        _follow(log, data)
    disk.fill(None)
    ended = log.end_offset
    assert 0 < ended < 3
    _follow(log, data[ended * size :])
    assert (log.end_offset, log.bases) == (3, [0, 1, 2])


def test_a_segment_follows_its_predecessor_without_a_gap_where_the_offsets_have_one(disk: SimDisk) -> None:
    """A topic that was compacted once: after a crash, a gap between segments would be taken for a lost one."""
    log = _open(disk, segment_bytes=len(_fetched(0)))
    _follow(log, _fetched(0, 5, 9))
    assert log.bases == [0, 1, 6]
    log.discard()
    again = _open(disk, segment_bytes=len(_fetched(0)))
    assert (again.bases, again.end_offset) == ([0, 1, 6], 10)
    assert [batch.header.base_offset for batch in read(again.read(6, 1000, end_offset=10).bytes())] == [9]


@pytest.mark.parametrize(("first", "base"), [(1 << 31, 1), ((1 << 31) + 1, (1 << 31) + 1)])
def test_a_segment_begins_behind_a_gap_that_no_index_can_span(disk: SimDisk, first: int, base: int) -> None:
    log = _open(disk)
    _follow(log, _fetched(0, first))
    assert (log.bases, log.end_offset) == ([0, base], first + 1)


def test_a_follower_takes_a_batch_that_was_written_when_segments_were_larger(disk: SimDisk) -> None:
    """The leader has it, and sends it first of all and alone, whatever the follower asks for."""
    log = _open(disk, segment_bytes=len(_fetched(0)) - 1)
    for offset in range(3):
        _follow(log, _fetched(offset))
    assert (log.end_offset, log.bases) == (3, [0, 1, 2])
    log.close()
    again = _open(disk, segment_bytes=len(_fetched(0)) - 1)
    assert (again.end_offset, again.bases) == (3, [0, 1, 2])


# ---- truncation


@pytest.mark.parametrize("offset", [0, 3, 4])
def test_a_log_truncated_below_its_first_segment_is_empty_and_begins_there(disk: SimDisk, offset: int) -> None:
    log = _open(disk)
    log.restart_at(4, _NOW)
    _follow(log, _fetched(4, 5, 6))
    log.high_watermark = 6
    assert log.truncate(offset, _NOW)
    assert (log.start_offset, log.end_offset, log.high_watermark, log.size) == (offset, offset, offset, 0)
    assert log.bases == [offset]
    assert log.epochs.entries() == []
    _follow(log, _fetched(offset, epoch=3), epoch=3)
    assert log.epochs.entries() == [(3, offset)]


def test_a_truncation_takes_the_high_watermark_back_and_never_forward(disk: SimDisk) -> None:
    log = _open(disk)
    _follow(log, _fetched(*range(6)))
    log.high_watermark = 3
    assert log.truncate(5, _NOW)
    assert log.high_watermark == 3
    assert log.truncate(2, _NOW)
    assert log.high_watermark == 2


def test_a_truncation_at_the_end_drops_the_epoch_of_a_leader_that_wrote_nothing(disk: SimDisk) -> None:
    log = _open(disk)
    _follow(log, _fetched(0, 1))
    log.epochs.assign(7, 2)
    assert log.epochs.latest == 7
    assert not log.truncate(2, _NOW)
    assert (log.end_offset, log.epochs.entries()) == (2, [(1, 0)])


# ---- what a client's batch becomes


def test_only_a_broker_sets_append_times(disk: SimDisk) -> None:
    """In a topic with the producers' times the type is theirs, too (Apache Kafka, LogValidator)."""
    log = _open(disk)
    sent = _batch(timestamp=5, size=1)
    _append(log, rewrite(sent, header_at(sent), attributes=LOG_APPEND_TIME, max_timestamp=9))
    (batch,) = read(log.read(0, 1000, end_offset=1).bytes())
    assert not check(batch.data).is_log_append_time
    bare = _batch(timestamp=-1, size=1)
    with pytest.raises(KafkaError) as refused:
        _append(log, rewrite(bare, header_at(bare), attributes=LOG_APPEND_TIME, max_timestamp=-1))
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert log.end_offset == 1


@pytest.mark.parametrize("spare", [0, -1])
def test_a_batch_is_not_too_large_in_the_codec_of_its_topic(disk: SimDisk, spare: int) -> None:
    data = build([(_NOW, b"k", b"v" * 500, [])], codec=Codec.GZIP)
    plain = len(_batch(size=500))
    log = _open(disk, codec=Codec.NONE, max_message_bytes=plain + spare)
    if spare < 0:
        with pytest.raises(KafkaError, match=f"has {plain} bytes as none") as refused:
            _append(log, data)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert (log.size, log.end_offset) == (0, 0)
    else:
        _append(log, data)
        assert log.size == plain
