"""What the dump says of files that do not fit together, or are damaged (as Apache's DumpLogSegments)."""

from __future__ import annotations

import random
import re
import struct

import pytest

from ottla.log.dump.dump_index import Complaints, CorruptIndex
from ottla.log.dump.dump_log import DumpOptions, dump
from ottla.log.log import Log, LogSettings, Origin
from ottla.log.producer.producer import Producers
from ottla.log.producer.snapshot import encode
from ottla.sim.disk import SimDisk
from ottla.wire.batch import HEADER_BYTES, NewRecord, build, header_at, headers

_BASE = "/d/t-0/00000000000000000000"
_OFFSET, _TIME = struct.Struct(">ii"), struct.Struct(">qi")
_SHOW, _ONLY, _SANITY = DumpOptions(), DumpOptions(verify_index_only=True), DumpOptions(index_sanity_check=True)


@pytest.fixture
def disk() -> SimDisk:
    """A log of five batches of two records, at the times 100 and 101, 110 and 111, ..."""
    disk = SimDisk(random.Random(1))
    log = Log.open(disk, "/d/t-0", LogSettings(index_interval_bytes=1), now_ms=1)
    for number in range(5):
        records: list[NewRecord] = [(100 + 10 * number + n, b"k", b"v" * 20, []) for n in range(2)]
        log.append(build(records), leader_epoch=0, now_ms=1)
    log.close()
    return disk


def _content(disk: SimDisk, path: str) -> bytes:
    file = disk.open(path)
    return file.read(file.size(), 0)


def _write(disk: SimDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write(data, 0)
    file.close()


def _dump(disk: SimDisk, path: str, options: DumpOptions = _SHOW) -> tuple[list[str], list[str]]:
    """(the lines, the complaints)."""
    complaints = Complaints()
    head, *lines = dump(disk, path, options, complaints)
    assert head == f"Dumping {path}"
    return lines, complaints.lines()


def _positions(disk: SimDisk) -> list[int]:
    return [position for position, _ in headers(_content(disk, f"{_BASE}.log"))]


@pytest.mark.parametrize("options", [_SHOW, _ONLY, _SANITY])
def test_indexes_that_fit_are_not_complained_of(disk: SimDisk, options: DumpOptions) -> None:
    offsets, times = _dump(disk, f"{_BASE}.index", options), _dump(disk, f"{_BASE}.timeindex", options)
    assert offsets[1] == times[1] == []
    if options is _SANITY:
        assert offsets[0] == [f"{_BASE}.index passed sanity check."]
        assert times[0] == [f"{_BASE}.timeindex passed sanity check."]
    elif options is _ONLY:
        assert offsets[0] == times[0] == []
    else:
        positions = _positions(disk)
        assert offsets[0] == [f"offset: {2 * n + 1} position: {positions[n]}" for n in range(1, 5)]
        assert times[0] == [f"timestamp: {101 + 10 * n} offset: {2 * n + 1}" for n in range(1, 5)]


@pytest.mark.parametrize("options", [_SHOW, _ONLY, _SANITY])
def test_an_empty_index_is_said_to_be_empty(disk: SimDisk, options: DumpOptions) -> None:
    _write(disk, f"{_BASE}.index", b"\0" * 7)
    assert _dump(disk, f"{_BASE}.index", options) == ([f"{_BASE}.index is empty."], [])


@pytest.mark.parametrize("options", [_SHOW, _ONLY])
@pytest.mark.parametrize("where", ["at the end", "within a header", "beyond", "zeros"])
def test_an_index_that_points_where_no_batch_is_is_refused(disk: SimDisk, options: DumpOptions, where: str) -> None:
    data = _content(disk, f"{_BASE}.log")
    size = len(data)
    position = {"at the end": size, "within a header": size - HEADER_BYTES + 1, "beyond": size + 500, "zeros": size}
    if where == "zeros":
        _write(disk, f"{_BASE}.log", data + bytes(100))
    _write(disk, f"{_BASE}.index", _OFFSET.pack(3, position[where]))
    with pytest.raises(CorruptIndex, match=f"an entry at position {position[where]}, where the log has no batch"):
        _dump(disk, f"{_BASE}.index", options)


@pytest.mark.parametrize("options", [_SHOW, _ONLY])
def test_entries_of_other_offsets_are_named_the_last_first(disk: SimDisk, options: DumpOptions) -> None:
    positions = _positions(disk)
    entries = [(2, positions[1]), (5, positions[2]), (6, positions[4])]
    _write(disk, f"{_BASE}.index", b"".join(_OFFSET.pack(*each) for each in entries))
    lines, complaints = _dump(disk, f"{_BASE}.index", options)
    assert lines == ([f"offset: {offset} position: {at}" for offset, at in entries] if options is _SHOW else [])
    assert complaints == [
        f"Mismatches in :{_BASE}.index",
        "  Index offset: 6, log offset: 9",
        "  Index offset: 2, log offset: 3",
    ]


_TIMES = f"{_BASE}.timeindex"


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        pytest.param([(111, 3), (121, 5)], [], id="as they are"),
        pytest.param(
            [(111, 2), (121, 5), (141, 10)],
            [
                f"The following indexed offsets are not found in :{_TIMES}",
                "Indexed offset: 2, found log offset: 3",
                "Indexed offset: 10, found log offset: -1",
            ],
            id="offsets that end no batch",
        ),
        pytest.param(
            [(110, 3), (122, 5)],
            [
                f"Found timestamp mismatch in :{_TIMES}",
                "  Index timestamp: 110, log timestamp: 111",
                "  Index timestamp: 122, log timestamp: 121",
            ],
            id="other times",
        ),
        pytest.param(
            [(121, 5), (111, 3), (111, 3)],
            [
                f"Found out of order timestamp in :{_TIMES}",
                "  Index timestamp: 111, Previously indexed timestamp: 121",
                "  Index timestamp: 111, Previously indexed timestamp: 111",
            ],
            id="times that do not rise",
        ),
        pytest.param([(111, 3), (0, 0), (999, 7)], [], id="what is behind the zeros does not count"),
    ],
)
@pytest.mark.parametrize("options", [_SHOW, _ONLY])
def test_each_damage_of_a_time_index_is_named(
    disk: SimDisk, entries: list[tuple[int, int]], said: list[str], options: DumpOptions
) -> None:
    _write(disk, _TIMES, b"".join(_TIME.pack(*each) for each in entries))
    lines, complaints = _dump(disk, _TIMES, options)
    shown = entries[: entries.index((0, 0))] if (0, 0) in entries else entries
    assert lines == ([f"timestamp: {at} offset: {offset}" for at, offset in shown] if options is _SHOW else [])
    assert complaints == said


def test_the_zeros_of_files_that_still_grow_are_no_entries(disk: SimDisk) -> None:
    """A relative offset of 0 is the base offset, which is not 0 here."""
    log = Log.open(disk, "/d/t-0", LogSettings(index_interval_bytes=1), now_ms=1)
    log.restart_at(100, 1)
    for number in range(3):
        log.append(build([(50 + number, b"k", b"v" * 20, [])]), leader_epoch=0, now_ms=1)
    log.close()
    base = "/d/t-0/00000000000000000100"
    for suffix in ("index", "timeindex"):
        _write(disk, f"{base}.{suffix}", _content(disk, f"{base}.{suffix}") + bytes(240))
    lines, complaints = _dump(disk, f"{base}.index")
    assert [line.split()[1] for line in lines] == ["101", "102"] and complaints == []
    lines, complaints = _dump(disk, f"{base}.timeindex")
    assert lines == ["timestamp: 51 offset: 101", "timestamp: 52 offset: 102"] and complaints == []


def test_a_time_index_is_checked_without_an_offset_index_too(disk: SimDisk) -> None:
    """The whole log is read for it then."""
    _write(disk, f"{_BASE}.index", b"")
    lines, complaints = _dump(disk, _TIMES)
    assert len(lines) == 4 and complaints == []


# ---- batches


def test_a_log_is_shown_up_to_a_length_that_cannot_be(disk: SimDisk) -> None:
    path, data = f"{_BASE}.log", bytearray(_content(disk, f"{_BASE}.log"))
    third = _positions(disk)[2]
    for length in (HEADER_BYTES - 13, -1, len(data)):
        data[third + 8 : third + 12] = length.to_bytes(4, "big", signed=True)
        _write(disk, path, bytes(data))
        lines, _ = _dump(disk, path)
        assert len(lines) == 1 + 2 + 1
        assert lines[-1] == f"Found {len(data) - third} invalid bytes at the end of 00000000000000000000.log"


def test_a_log_is_shown_up_to_another_format(disk: SimDisk) -> None:
    path, data = f"{_BASE}.log", bytearray(_content(disk, f"{_BASE}.log"))
    data[_positions(disk)[1] + 16] = 1
    _write(disk, path, bytes(data))
    assert len(_dump(disk, path)[0]) == 1 + 1 + 1


@pytest.mark.parametrize(("spare", "batches"), [(0, 2), (-1, 1), (1, 2)])
def test_no_more_bytes_are_read_than_asked_for(disk: SimDisk, spare: int, batches: int) -> None:
    """And the rest is not taken for damage."""
    lines, _ = _dump(disk, f"{_BASE}.log", DumpOptions(max_bytes=_positions(disk)[2] + spare))
    assert len(lines) == 1 + batches


def test_records_that_do_not_read_are_named_and_the_next_batch_is_shown(disk: SimDisk) -> None:
    path, data = f"{_BASE}.log", bytearray(_content(disk, f"{_BASE}.log"))
    data[HEADER_BYTES] = 0x7E
    _write(disk, path, bytes(data))
    lines, complaints = _dump(disk, path, DumpOptions(deep_iteration=True))
    assert lines[1].endswith("isvalid: false")
    assert lines[2].startswith("| the records do not read: ")
    assert len(lines) == 1 + 5 + 1 + 8
    assert complaints == [f"Non-consecutive offsets in {path}", "  -1 is followed by 2"]


def test_offsets_that_are_left_out_are_named(disk: SimDisk) -> None:
    data, at = _content(disk, f"{_BASE}.log"), _positions(disk)
    _write(disk, f"{_BASE}.log", data[: at[1]] + data[at[2] : at[4]])
    assert _dump(disk, f"{_BASE}.log")[1] == []
    lines, complaints = _dump(disk, f"{_BASE}.log", DumpOptions(deep_iteration=True))
    assert [int(line.split()[2]) for line in lines if line.startswith("|")] == [0, 1, 4, 5, 6, 7]
    assert complaints == [f"Non-consecutive offsets in {_BASE}.log", "  1 is followed by 4"]


@pytest.mark.parametrize(("commit", "kind"), [(True, "COMMIT"), (False, "ABORT")])
def test_the_end_of_a_transaction_is_shown_and_an_aborted_one_is_in_its_index(commit: bool, kind: str) -> None:
    disk = SimDisk(random.Random(1))
    log = Log.open(disk, "/d/t-0", LogSettings(), now_ms=1)
    data = build([(5, b"k", b"v", [])], producer_id=7, producer_epoch=2, base_sequence=0, transactional=True)
    log.append(data, leader_epoch=0, now_ms=1)
    record: NewRecord = (6, bytes([0, 0, 0, commit]), struct.pack(">hi", 0, 9), [])
    marker = build([record], producer_id=7, producer_epoch=2, transactional=True, control=True)
    log.append(marker, leader_epoch=0, now_ms=1, origin=Origin.COORDINATOR)
    log.close()
    lines, _ = _dump(disk, f"{_BASE}.log", DumpOptions(print_data_log=True))
    assert lines[2].endswith(" sequence: 0 headerKeys: [] key: k payload: v")
    assert lines[4].endswith(f" sequence: -1 headerKeys: [] endTxnMarker: {kind} coordinatorEpoch: 9")
    assert "isTransactional: true isControl: true" in lines[3]
    if commit:
        assert not disk.exists(f"{_BASE}.txnindex")
    else:
        [line], _ = _dump(disk, f"{_BASE}.txnindex")
        assert line == "version: 0 producerId: 7 firstOffset: 0 lastOffset: 1 lastStableOffset: 2"


@pytest.mark.parametrize(("key", "why"), [(b"\0\0\0\x63", "99"), (b"\0", "")])
def test_a_control_record_that_is_not_known_is_shown_as_such(disk: SimDisk, key: bytes, why: str) -> None:
    _write(disk, f"{_BASE}.log", build([(1, key, b"", [])], control=True))
    lines, _ = _dump(disk, f"{_BASE}.log", DumpOptions(print_data_log=True))
    assert re.search(rf"headerKeys: \[\] controlType: UNKNOWN \(.*{why}.*\)$", lines[-1])


# ---- other files


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("bootstrap.checkpoint", "KRaft bootstrap snapshot"),
        ("00000000000000000012-0000000003.checkpoint", "Snapshot end offset: 12, epoch: 3"),
        ("00000000000000000012.log", "Log starting offset: 12"),
    ],
)
def test_the_first_line_says_what_a_file_of_batches_is(disk: SimDisk, name: str, head: str) -> None:
    _write(disk, f"/d/t-0/{name}", build([(1, b"k", b"v", [])]))
    lines, _ = _dump(disk, f"/d/t-0/{name}")
    assert lines[0] == head and len(lines) == 2


def _producers() -> Producers:
    producers = Producers()
    producers.add(7, 2, 4, 30, 34, 99, True)
    producers.add(8, 0, -1, 40, 40, 100, False)
    return producers


def test_each_producer_of_a_snapshot_is_a_line_with_its_open_transaction(disk: SimDisk) -> None:
    path = f"{_BASE}.snapshot"
    _write(disk, path, encode(_producers().by_id))
    lines, complaints = _dump(disk, path)
    assert complaints == []
    assert lines[0] == (
        "producerId: 7 producerEpoch: 2 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong[30] lastTimestamp: 99 "
        "firstSequence: 0 lastSequence: 4 lastOffset: 34 offsetDelta: 4 timestamp: 99"
    )
    assert lines[1].startswith(
        "producerId: 8 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.e"
    )


@pytest.mark.parametrize("damage", ["a byte", "cut off", "a producer more"])
def test_a_damaged_snapshot_of_producers_is_a_complaint(disk: SimDisk, damage: str) -> None:
    data = bytearray(encode(_producers().by_id))
    if damage == "a byte":
        data[-1] ^= 1
    elif damage == "cut off":
        del data[-1]
    else:
        data += data[-30:]
    _write(disk, f"{_BASE}.snapshot", bytes(data))
    lines, complaints = _dump(disk, f"{_BASE}.snapshot")
    assert lines == [] and len(complaints) == 1


def test_a_deletion_has_no_payload_and_headers_are_named(disk: SimDisk) -> None:
    data = build([(1, b"k", None, [("a", b""), ("b", None)])])
    _write(disk, f"{_BASE}.log", data)
    lines, _ = _dump(disk, f"{_BASE}.log", DumpOptions(print_data_log=True))
    header = header_at(data)
    assert lines[1].endswith(f" size: {header.size} magic: 2 compresscodec: none crc: {header.crc} isvalid: true")
    assert lines[2] == "| offset: 0 CreateTime: 1 keySize: 1 valueSize: -1 sequence: -1 headerKeys: [a,b] key: k"
