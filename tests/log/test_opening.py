"""A start after a crash: logs are recovered side by side, every byte is read once, and progress is told."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from ottla.host.disk import HostDisk
from ottla.kernel.ids import TopicPartition, parse_uuid
from ottla.log import checkpoint
from ottla.log.directory.opening import Opening
from ottla.log.directory.store import Store
from ottla.log.log import Log, LogSettings
from ottla.sim.disk import SimDisk, SimFile
from ottla.sim.machine import Machine
from ottla.wire.batch import build

_ID = parse_uuid("AAAAAAAAAAAAAAAAAAAAAQ")
_NOW_MS = 1_700_000_000_000
_SETTINGS = LogSettings(segment_bytes=300_000, index_interval_bytes=1000)
_LOGS = 7


def _format(path: Path, number: int) -> str:
    path.mkdir()
    properties = {"version": "1", "cluster.id": "c", "node.id": "1", "directory.id": f"{number:021d}A"}
    checkpoint.write_properties(HostDisk(), f"{path}/{checkpoint.META_PROPERTIES}", properties)
    return str(path)


def _open(dirs: list[str], pool: ThreadPoolExecutor | None, told: list[str] | None = None) -> Store:
    store = Store.take(HostDisk(), dirs, node_id=1, settings_of=lambda _: _SETTINGS)
    store.load(_NOW_MS, None if told is None else lambda opening: told.append(opening.line), pool)
    return store


def _fill(log: Log, batches: int, value_bytes: int) -> None:
    sequence = log.end_offset
    for number in range(batches):
        data = build(
            [(_NOW_MS + number, None, bytes(value_bytes), ())] * 2,
            producer_id=5,
            producer_epoch=0,
            base_sequence=sequence,
        )
        log.append(data, leader_epoch=0, now_ms=_NOW_MS)
        sequence += 2


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def test_logs_recovered_side_by_side_are_what_they_are_one_by_one(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    dirs = [_format(tmp_path / name, number) for number, name in enumerate("ab")]
    store = _open(dirs, pool)
    for index in range(_LOGS):
        _fill(store.create("t", _ID, index), 20 * (index + 1), 3000)
    # One ends in the middle of a batch.
    torn = store.get(TopicPartition("t", 3))
    assert torn is not None
    torn.active.file.truncate(torn.active.size - 10)
    wanted = {tp: log.end_offset - (2 if log is torn else 0) for tp, log in store.logs().items()}
    store.abandon()
    for threads in (pool, None):
        store = _open(dirs, threads)
        assert {tp: log.end_offset for tp, log in store.logs().items()} == wanted
        for log in store.logs().values():
            assert log.producers.end_offset == log.end_offset
            assert log.producers.by_id[5].sent[-1].last_offset == log.end_offset - 1
            assert log.read(log.end_offset - 1, 1, end_offset=log.end_offset).first_offset == log.end_offset - 2
        store.abandon()


def test_a_start_says_how_much_is_left_to_read(tmp_path: Path) -> None:
    dirs = [_format(tmp_path / "a", 0)]
    store = _open(dirs, None)
    _fill(store.create("t", _ID, 0), 400, 4000)
    _fill(store.create("t", _ID, 1), 100, 4000)
    store.abandon()
    told: list[str] = []
    store = _open(dirs, None, told)
    assert told[0].endswith("0 of 2 logs, 0 MiB read, 3 MiB left in the logs begun")
    assert any("1 of 2 logs, 3 MiB read, 1 MiB left in the logs begun" in line for line in told)
    assert told[-1].endswith("2 of 2 logs, 4 MiB read, 0 MiB left in the logs begun")
    store.close()
    told.clear()
    _open(dirs, None, told).close()
    assert told[-1].endswith("opening, 2 of 2 logs")


def test_what_is_read_of_a_log_that_is_cut_is_no_more_than_there_is() -> None:
    opening = Opening("/d", 1, None, clean=False)
    disk = SimDisk(Random(1))
    log = Log.open(disk, "/t-0", _SETTINGS, now_ms=_NOW_MS)
    _fill(log, 300, 1000)
    log.active.file.truncate(log.active.size - 1)
    size = sum(segment.file.size() for segment in log.segments)
    log.discard()
    Log.open(disk, "/t-0", _SETTINGS, now_ms=_NOW_MS, on_progress=opening.add_bytes)
    assert opening.bytes_total == size
    assert 0 < opening.bytes_read < size


def test_a_recovery_reads_every_byte_once(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk(Random(1))
    log = Log.open(disk, "/t-0", _SETTINGS, now_ms=_NOW_MS)
    _fill(log, 500, 1000)
    size, ends = log.size, [segment.base_offset for segment in log.segments]
    assert len(ends) > 3
    log.discard()
    read_bytes = 0
    read = SimFile.read

    def counted(file: SimFile, count: int, position: int) -> bytes:
        nonlocal read_bytes
        data = read(file, count, position)
        read_bytes += len(data)
        return data

    monkeypatch.setattr(SimFile, "read", counted)
    again = Log.open(disk, "/t-0", _SETTINGS, now_ms=_NOW_MS)
    assert again.end_offset == log.end_offset
    # The rest is headers where a log ends, and a batch that a megabyte ends in.
    assert read_bytes < 1.1 * size


def test_a_long_start_tells_a_line_a_second() -> None:
    machine = Machine(Random(1))
    machine.start()
    node, lines = machine.node, list[str]()
    assert node is not None
    node.on_progress = lines.append
    opening = Opening("/d", 3, None, clean=False)
    node._progress_ms = machine.clock.monotonic_ms()
    told = []
    for ms in (999, 1, 999, 1, 5_000):
        machine.clock.advance(ms)
        node._report_progress(opening)
        told.append(len(lines))
    assert told == [0, 1, 1, 2, 3]
    assert set(lines) == {opening.line}
