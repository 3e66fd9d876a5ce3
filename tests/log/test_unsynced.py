"""A sync that failed, a process that is started again, then a power failure: what was acknowledged is there.

The kernel shows what it could not write, and no later sync writes it, so a start must not take what it reads there for
durable.
"""

import random
from typing import Any

import pytest

from ottla.kernel.ids import TopicPartition, Uuid
from ottla.log import recovery
from ottla.log.checkpoint import META_PROPERTIES, write_properties
from ottla.log.directory.store import Store
from ottla.log.log import Log, LogSettings
from ottla.log.path import LOG
from ottla.log.segment import unsynced
from ottla.log.segment.segment import Segment
from ottla.sim.disk import Crashed, SimDisk
from ottla.wire.batch import build, read

_TP = TopicPartition("t", 0)
_NOW = 1_000_000


def _settings(**more: Any) -> LogSettings:
    return LogSettings(segment_bytes=2000, segment_index_bytes=1200, max_message_bytes=1900, **more)


def _disk(seed: int) -> SimDisk:
    disk = SimDisk(random.Random(seed))
    disk.make_directory("/d")
    write_properties(disk, f"/d/{META_PROPERTIES}", {"version": "1", "node.id": "1", "cluster.id": "c"})
    disk.sync_directory("/")
    return disk


def _open(disk: SimDisk, settings: LogSettings | None = None) -> tuple[Store, Log]:
    store = Store.open(disk, ["/d"], node_id=1, now_ms=_NOW, settings_of=lambda _: settings or _settings())
    return store, store.get(_TP) or store.create("t", Uuid(bytes(15) + b"\7"), 0)


def _append(log: Log, count: int) -> None:
    for _ in range(count):
        value = b"%d" % log.end_offset * 200
        log.append(bytearray(build([(_NOW, b"k", value, [])])), leader_epoch=0, now_ms=_NOW)


def _values(log: Log) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < log.end_offset:
        for batch in read(log.read(len(values), 1 << 20, end_offset=log.end_offset).bytes()):
            values += [record.value for record in batch.records()]
    return values


def _restart_and_lose_power(disk: SimDisk) -> None:
    """Start the process again, have everything acknowledged by one more sync, and lose the power."""
    store, log = _open(disk)
    _append(log, 2)
    log.flush()
    store.checkpoint(_NOW)
    acknowledged = log.end_offset
    store.abandon()
    disk.crash()
    _, log = _open(disk)
    assert _values(log)[:acknowledged] == [b"%d" % offset * 200 for offset in range(acknowledged)]


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_what_a_failed_sync_left_unwritten_is_written_by_the_next_start(seed: int, stops: bool) -> None:
    disk = _disk(seed)
    store, log = _open(disk)
    _append(log, 3)
    log.flush()
    _append(log, 1 + seed % 20)
    disk.syncs_to_fail = 1
    with pytest.raises(OSError, match="could not write"):
        log.flush()
    if stops:
        # The syncs of the stop succeed, but write nothing of what was lost.
        store.close()
    else:
        store.abandon()
    disk.kill()
    _restart_and_lose_power(disk)


@pytest.mark.parametrize("seed", range(30))
def test_a_process_that_is_killed_in_a_sync_does_not_learn_that_it_fails(seed: int) -> None:
    disk = _disk(seed)
    store, log = _open(disk)
    _append(log, 1 + seed % 20)
    disk.fails_when_killed = True
    disk.crash_at = disk.effects
    while disk.crash_at is not None:
        try:
            log.sync()
        except Crashed:
            break
    store.abandon()
    disk.kill()
    _restart_and_lose_power(disk)


def test_only_a_file_whose_sync_did_not_succeed_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def write_again(segment: Segment) -> None:
        written.append(segment.path(LOG))
        unsynced.write_again(segment)

    monkeypatch.setattr(recovery, "write_again", write_again)
    disk = _disk(1)
    store, log = _open(disk)
    _append(log, 20)
    log.flush()
    _append(log, 3)
    store.abandon()
    disk.kill()
    store, log = _open(disk)
    assert not written, "an ordinary kill costs nothing"
    disk.syncs_to_fail = 1
    with pytest.raises(OSError, match="could not write"):
        log.active.sync()
    failed = log.active.path(LOG)
    store.abandon()
    disk.kill()
    store, log = _open(disk)
    assert len(log.segments) > 1
    assert written == [failed]
    store.abandon()
    disk.kill()
    _open(disk)
    assert written == [failed], "the file is durable now"


@pytest.mark.parametrize("seed", range(10))
def test_a_recovery_point_that_was_lowered_by_a_killed_process_is_durable_before_it_is_relied_on(seed: int) -> None:
    disk = _disk(seed)
    store, log = _open(disk)
    _append(log, 9)
    log.flush()
    store.checkpoint(_NOW)
    effects = 0
    while store._directory("/d").points.get(_TP) != 3:
        effects += 1
        disk.crash_at = disk.effects + effects
        with pytest.raises(Crashed):
            log.truncate(3)
        store.abandon()
        disk.kill()
        store, log = _open(disk)
    assert log.end_offset == 9
    disk.crash()
    store, log = _open(disk)
    assert store._directory("/d").points[_TP] == 3


@pytest.mark.parametrize("flush_messages", [1, 5])
@pytest.mark.parametrize("first", [0, 7])
@pytest.mark.parametrize("seed", range(10))
def test_a_record_that_recovery_shows_survives_a_power_failure(seed: int, first: int, flush_messages: int) -> None:
    disk, settings = _disk(seed), _settings(flush_messages=flush_messages)
    store, log = _open(disk, settings)
    log.flush()
    log.restart_at(first, _NOW)
    _append(log, 1)
    log.roll(_NOW)
    _append(log, 4)
    store.abandon()
    disk.kill()
    store, log = _open(disk, settings)
    assert log.visible_end_offset == first + 5
    store.abandon()
    disk.crash()
    _, log = _open(disk, settings)
    assert log.end_offset == first + 5


def test_recovery_syncs_nothing_that_flush_messages_does_not_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, settings = _disk(1), _settings(flush_messages=6)
    store, log = _open(disk, settings)
    log.flush()
    _append(log, 5)
    store.abandon()
    disk.kill()
    monkeypatch.setattr(Segment, "sync", lambda segment: pytest.fail("a sync"))
    _, log = _open(disk, settings)
    assert log.end_offset == 5
