"""Both indexes of a segment, without a log: what they answer, what their files hold, what no file may hold.

The segment begins at 1000, so that an offset and its place in the segment are two numbers.
"""

import struct
from random import Random

import pytest

from ottla.log.segment.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from ottla.sim.disk import SimDisk

_BASE = 1000
_PATH = "/index"
#: (last offset of a batch, where it begins)
_OFFSETS = [(1003, 0), (1009, 700), (1010, 1400), (1500, 9000), (70_000, 2_000_000_000)]
#: (timestamp, offset)
_TIMES = [(5, 1000), (6, 1009), (1_700_000_000_000, 1010), (1_700_000_000_001, 1500), (1 << 41, 70_000)]


def _offsets(disk: SimDisk | None = None, entries: list[tuple[int, int]] = _OFFSETS) -> OffsetIndex:
    index = OffsetIndex(disk or SimDisk(Random(1)), _PATH, _BASE, 80)
    index.reset()
    for each in entries:
        index.append(*each)
    return index


def _times(disk: SimDisk | None = None, entries: list[tuple[int, int]] = _TIMES) -> TimeIndex:
    index = TimeIndex(disk or SimDisk(Random(1)), _PATH, _BASE, 120)
    index.reset()
    for each in entries:
        index.append(*each)
    return index


def _file(disk: SimDisk) -> bytes:
    file = disk.open(_PATH)
    return file.read(file.size(), 0)


def _write(disk: SimDisk, data: bytes) -> None:
    disk.open(_PATH, create=True).write(data, 0)


def test_an_offset_leads_to_the_last_batch_that_ends_at_it_or_before() -> None:
    index = _offsets()
    for wanted in [1000, 1002, 1003, 1004, 1008, 1009, 1010, 1011, 1499, 1500, 69_999, 70_000, 90_000]:
        assert index.lookup(wanted) == max((each for each in _OFFSETS if each[0] <= wanted), default=(_BASE, 0))


def test_a_position_leads_to_the_last_batch_that_begins_before_it() -> None:
    index = _offsets()
    for position in [0, 1, 699, 700, 701, 1400, 1401, 9000, 9001, 2_000_000_000, 2_000_000_001]:
        before = [each for each in _OFFSETS if each[1] < position]
        assert index.lookup_position(position) == max(before, default=(_BASE, 0))


def test_a_time_leads_to_the_last_entry_that_is_not_later() -> None:
    index = _times()
    for wanted in [4, 5, 6, 7, 1_699_999_999_999, 1_700_000_000_000, 1_700_000_000_001, 1 << 41, 1 << 42]:
        assert index.lookup(wanted) == max((each for each in _TIMES if each[0] <= wanted), default=(-1, _BASE))


def test_an_empty_index_leads_to_the_segments_begin() -> None:
    offsets, times = _offsets(entries=[]), _times(entries=[])
    assert (offsets.lookup(5000), offsets.lookup_position(5000), offsets.last_offset) == ((_BASE, 0), (_BASE, 0), _BASE)
    assert (times.lookup(5000), times.last) == ((-1, _BASE), (-1, _BASE))


def test_the_last_entry_is_told() -> None:
    assert _offsets().last_offset == 70_000
    assert _times().last == (1 << 41, 70_000)


def test_a_time_that_is_not_later_than_the_last_gets_no_entry() -> None:
    index = _times()
    index.append(1 << 41, 80_000)
    index.append(7, 80_001)
    assert index.entries() == _TIMES
    empty = _times(entries=[(-1, 1000)])
    assert empty.entries() == []
    empty.append(0, 1001)
    assert empty.entries() == [(0, 1001)]


@pytest.mark.parametrize("offset", [999, 1000, 1003, 1004, 1009, 1010, 1500, 1501, 70_000, 70_001])
def test_a_truncation_drops_the_entries_at_and_above_its_offset(offset: int) -> None:
    offsets, times = _offsets(), _times()
    offsets.truncate(offset)
    times.truncate(offset)
    assert offsets.entries() == [each for each in _OFFSETS if each[0] < offset]
    assert times.entries() == [each for each in _TIMES if each[1] < offset]
    # Both columns are cut: what comes after has its own place.
    if not offsets.is_full:
        offsets.append(80_000, 2_000_000_001)
        assert offsets.entries()[-1] == (80_000, 2_000_000_001)


def test_a_full_index_is_one_of_its_bound_and_a_time_index_keeps_a_place() -> None:
    offsets, times = _offsets(entries=[]), _times(entries=[])
    filled = []
    for number in range(10):
        filled.append((offsets.is_full, times.is_full))
        offsets.append(_BASE + number, number)
        times.append(number, _BASE + number)
    assert filled == [(False, False)] * 9 + [(False, True)]
    assert (offsets.is_full, times.is_full) == (True, True)
    assert (offsets.file_bytes, times.file_bytes) == (10 * OFFSET_ENTRY_BYTES, 10 * TIME_ENTRY_BYTES)


@pytest.mark.parametrize("more", [0, 200])
def test_the_files_are_kafkas(more: int) -> None:
    offsets = [*_OFFSETS, *((80_000 + number, 2_000_000_001 + number) for number in range(more))]
    times = [*_TIMES, *(((1 << 41) + 300 * number, 80_000 + number) for number in range(1, more + 1))]
    disk = SimDisk(Random(1))
    assert _offsets(disk, offsets).finish() == (8 * len(offsets), 0)
    assert _file(disk) == b"".join(struct.pack(">ii", offset - _BASE, position) for offset, position in offsets)
    disk = SimDisk(Random(1))
    assert _times(disk, times).finish() == (12 * len(times), 0)
    assert _file(disk) == b"".join(struct.pack(">qi", timestamp, offset - _BASE) for timestamp, offset in times)


@pytest.mark.parametrize("keep", range(6))
def test_a_file_that_is_finished_again_has_the_entries_of_now(keep: int) -> None:
    """Only what is new is written, after what stays of the old."""
    for make, index_type, entries in ((_offsets, OffsetIndex, _OFFSETS), (_times, TimeIndex, _TIMES)):
        disk = SimDisk(Random(1))
        index = make(disk)
        index.finish()
        index.truncate((*(each[make is _times] if make is _times else each[0] for each in entries), 70_001)[keep])
        more = (90_000, 2_000_000_001) if make is _offsets else (1 << 42, 90_000)
        index.append(*more)
        size = (keep + 1) * index.entry_bytes
        assert index.finish() == (size, 5 * index.entry_bytes)
        assert index.finish() == (size, size)
        read = index_type(disk, _PATH, _BASE, 200)
        assert read.entries() == [*entries[:keep], more]
        assert len(read) == keep + 1
        # A file that was read is not written again.
        read.append(*((95_000, 2_000_000_002) if make is _offsets else (1 << 43, 95_000)))
        assert read.finish() == (size + index.entry_bytes, size)


def test_a_file_is_read_by_whichever_question_comes_first() -> None:
    for ask, answer in (
        (lambda index: index.lookup(1010), (1010, 1400)),
        (lambda index: index.lookup_position(1400), (1009, 700)),
        (lambda index: index.last_offset, 70_000),
        (lambda index: index.is_full, False),
        (len, 5),
    ):
        disk = SimDisk(Random(1))
        _offsets(disk).finish()
        assert ask(OffsetIndex(disk, _PATH, _BASE, 80)) == answer


def test_a_file_is_cut_though_it_was_not_read_before() -> None:
    for make, index_type in ((_offsets, OffsetIndex), (_times, TimeIndex)):
        disk = SimDisk(Random(1))
        make(disk).finish()
        index = index_type(disk, _PATH, _BASE, 120)
        index.truncate(1500)
        assert len(index) == 3
    disk = SimDisk(Random(1))
    _times(disk, [(0, _BASE)]).finish()
    assert TimeIndex(disk, _PATH, _BASE, 120).entries() == [(0, _BASE)]


def test_an_index_that_was_never_read_leaves_its_file_alone() -> None:
    disk = SimDisk(Random(1))
    _offsets(disk).finish()
    before = _file(disk)
    index = OffsetIndex(disk, _PATH, _BASE, 80)
    assert index.finish() is None
    assert not index.never_had_content, "nothing is known of it"
    assert _file(disk) == before


def test_whether_a_file_ever_had_entries_is_remembered() -> None:
    disk = SimDisk(Random(1))
    index = _offsets(disk, [])
    never = [index.never_had_content]
    index.finish()
    never.append(index.never_had_content)
    index.append(1003, 0)
    never.append(index.never_had_content)
    index.finish()
    index.truncate(1000)
    for _ in range(2):
        # A crash may bring the entry back.
        index.finish()
        never.append(index.never_had_content)
    assert never == [True, True, False, False, False]


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">iiii", 9, 0, 3, 700),
        struct.pack(">iiii", 3, 700, 9, 0),
        struct.pack(">iiii", -1, 0, 9, 700),
        struct.pack(">iii", 3, 0, 9),
        b"x",
    ],
    ids=["offsets fall", "positions fall", "an offset before the segment", "half an entry", "a byte"],
)
def test_an_offset_file_that_cannot_be_right_is_made_again(data: bytes) -> None:
    disk = SimDisk(Random(1))
    _write(disk, data)
    index, made = OffsetIndex(disk, _PATH, _BASE, 80), []
    index.rebuild = lambda: (made.append(1), index.reset())[1]  # type: ignore[func-returns-value]
    assert (index.entries(), made) == ([], [1])


@pytest.mark.parametrize(
    "data",
    [struct.pack(">qiqi", 9, 0, 3, 7), struct.pack(">qi", 9, -1), struct.pack(">q", 9)],
    ids=["times fall", "an offset before the segment", "half an entry"],
)
def test_a_time_file_that_cannot_be_right_is_made_again(data: bytes) -> None:
    disk = SimDisk(Random(1))
    _write(disk, data)
    index, made = TimeIndex(disk, _PATH, _BASE, 120), []
    index.rebuild = lambda: (made.append(1), index.reset())[1]  # type: ignore[func-returns-value]
    assert (index.entries(), made) == ([], [1])


@pytest.mark.parametrize(
    ("data", "entry"), [(struct.pack(">ii", 0, 0), (_BASE, 0)), (struct.pack(">ii", 5, 9), (1005, 9))]
)
def test_a_file_of_one_entry_is_right(data: bytes, entry: tuple[int, int]) -> None:
    disk = SimDisk(Random(1))
    _write(disk, data)
    index = OffsetIndex(disk, _PATH, _BASE, 80)
    index.rebuild = lambda: pytest.fail("it was made again")
    assert index.entries() == [entry]


def test_an_empty_file_is_right() -> None:
    disk = SimDisk(Random(1))
    _write(disk, b"")
    for index in (OffsetIndex(disk, _PATH, _BASE, 80), TimeIndex(disk, _PATH, _BASE, 120)):
        index.rebuild = lambda: pytest.fail("it was made again")
        assert index.entries() == []


def test_what_an_index_held_is_put_back() -> None:
    index = _times()
    kept = index.contents
    index.reset()
    assert index.entries() == []
    index.contents = kept
    assert index.entries() == _TIMES
