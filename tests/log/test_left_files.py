"""What a start makes of the temporary files that a cleaning or a deletion left in a log's directory."""

import random

import pytest

from ottla.log.path import LOG, OFFSET_INDEX, SWAP, TIME_INDEX, offset_name
from ottla.log.recovery import _finish_cleaning
from ottla.sim.disk import SimDisk
from ottla.wire.batch import HEADER, BatchHeader, build

_HERE = "/log"


def _batch(first: int, last: int, *, emptied: bool = False) -> bytes:
    data = bytearray(build([(0, b"k", b"%d" % offset, []) for offset in range(first, last + 1)]))
    header = BatchHeader._make(HEADER.unpack_from(data))
    if emptied:
        # What the cleaner leaves of a producer's last batch: the header alone.
        data = data[: HEADER.size]
        header = header._replace(length=HEADER.size - 12, count=0)
    HEADER.pack_into(data, 0, *header._replace(base_offset=first))
    return bytes(data)


def _left(files: dict[str, bytes]) -> dict[str, bytes]:
    disk = SimDisk(random.Random(1))
    disk.make_directory(_HERE)
    for name, data in files.items():
        disk.open(f"{_HERE}/{name}", create=True).write(data, 0)
    found = _finish_cleaning(disk, _HERE, disk.list(_HERE))
    left = {}
    for name in disk.list(_HERE):
        file = disk.open(f"{_HERE}/{name}")
        left[name] = file.read(file.size(), 0)
        file.close()
    assert set(found) == {name for name in left if name != "partition.metadata"}
    return left


def _log(offset: int, temporary: str = "") -> str:
    return offset_name(offset, LOG) + temporary


_OLD, _NEXT, _LAST = _batch(0, 4), _batch(5, 9), _batch(10, 12)
_SEGMENTS = {_log(0): _OLD, _log(5): _NEXT, _log(10): _LAST}
_CLEANED = _batch(0, 4) + _batch(7, 7)
_EMPTIED = _batch(3, 3) + _batch(8, 9, emptied=True)


@pytest.mark.parametrize(
    ("left_over", "expected"),
    [
        pytest.param({}, _SEGMENTS, id="nothing"),
        pytest.param({_log(0, ".cleaned"): b"half"}, _SEGMENTS, id="a cleaning that did not end"),
        pytest.param({_log(20, ".deleted"): b"old"}, _SEGMENTS, id="a deletion that did not end"),
        pytest.param(
            {_log(0, SWAP): _CLEANED},
            {_log(0): _CLEANED, _log(10): _LAST},
            id="a swap takes the place of all it covers",
        ),
        pytest.param(
            {_log(0, SWAP): _EMPTIED},
            {_log(0): _EMPTIED, _log(10): _LAST},
            id="a swap that ends with an emptied batch covers up to that batch's last offset",
        ),
        pytest.param(
            {_log(5, SWAP): b""},
            {_log(0): _OLD, _log(5): b"", _log(10): _LAST},
            id="an empty swap covers its own place",
        ),
        pytest.param(
            {_log(5, SWAP): _NEXT + _LAST[:40]},
            {_log(0): _OLD, _log(5): _NEXT + _LAST[:40], _log(10): _LAST},
            id="half a header covers nothing",
        ),
        pytest.param(
            {_log(5, SWAP): _NEXT + _LAST[:-1]},
            {_log(0): _OLD, _log(5): _NEXT + _LAST[:-1], _log(10): _LAST},
            id="half a batch covers nothing",
        ),
        pytest.param(
            {_log(0, SWAP): _OLD, _log(5, SWAP): _batch(5, 6)},
            {_log(0): _OLD, _log(5): _batch(5, 6), _log(10): _LAST},
            id="a pair of swaps",
        ),
        pytest.param(
            {_log(5, SWAP): _batch(5, 6), _log(0, ".cleaned"): _OLD},
            _SEGMENTS,
            id="half of a pair whose renaming had only begun",
        ),
        pytest.param(
            {_log(5, SWAP): _batch(5, 6), _log(5, ".cleaned"): b""}, _SEGMENTS, id="half of a pair at one offset"
        ),
        pytest.param(
            {_log(0, SWAP): _CLEANED, _log(10, ".cleaned"): b"half"},
            {_log(0): _CLEANED, _log(10): _LAST},
            id="a cleaning behind a swap does not end it",
        ),
        pytest.param(
            {offset_name(0, OFFSET_INDEX) + SWAP: b"index", offset_name(0, TIME_INDEX) + SWAP: b"times"},
            {**_SEGMENTS, offset_name(0, OFFSET_INDEX): b"index", offset_name(0, TIME_INDEX): b"times"},
            id="indexes alone belong to the batches that are in place",
        ),
    ],
)
def test_a_start_ends_what_was_left(left_over: dict[str, bytes], expected: dict[str, bytes]) -> None:
    assert _left({**_SEGMENTS, **left_over}) == expected


def test_a_swap_takes_the_indexes_of_what_it_replaces_too() -> None:
    old = {offset_name(offset, OFFSET_INDEX): b"old" for offset in (0, 5, 10)}
    swap = {_log(0, SWAP): _CLEANED, offset_name(0, OFFSET_INDEX) + SWAP: b"new"}
    assert _left({**_SEGMENTS, **old, **swap, "partition.metadata": b"id"}) == {
        _log(0): _CLEANED,
        _log(10): _LAST,
        offset_name(0, OFFSET_INDEX): b"new",
        offset_name(10, OFFSET_INDEX): b"old",
        "partition.metadata": b"id",
    }
