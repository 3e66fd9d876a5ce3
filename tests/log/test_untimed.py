"""Records without timestamps are as old as the last write to their segment's file, also after a restart."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from ottla.host.disk import HostDisk
from ottla.kernel.ports import Disk
from ottla.log.cleaning.plan import cleanable
from ottla.log.log import Log, LogSettings
from ottla.sim.disk import SimDisk
from ottla.wire.batch import NO_TIMESTAMP, build
from tests.log.compaction import compact

_HOUR_MS = 3_600_000
_NOW_MS = 1_700_000_000_000
#: When the first segment was written.
_OLD_MS = _NOW_MS - 10 * _HOUR_MS


def _reopened(disk: Disk, path: str, now_ms: int = _NOW_MS, **settings: Any) -> Log:
    return Log.open(disk, path, LogSettings(**settings), now_ms=now_ms, clean=True)


def _written(path: Path, **settings: Any) -> Log:
    """A log of two old segments and an empty one, opened again after a clean stop."""
    log = _reopened(HostDisk(), str(path / "t-0"), _OLD_MS, **settings)
    for value in (b"1", b"2"):
        for key in (b"k", value):
            log.append(build([(NO_TIMESTAMP, key, value, [])]), leader_epoch=0, now_ms=_OLD_MS)
        log.roll(_OLD_MS)
    log.close()
    for name in (path / "t-0").glob("*.log"):
        os.utime(name, (_OLD_MS / 1000, _OLD_MS / 1000))
    return _reopened(HostDisk(), log.path, **settings)


@pytest.mark.parametrize(("hours", "deleted"), [(9, 2), (11, 0)])
def test_retention_goes_on_over_a_restart(hours: int, deleted: int, tmp_path: Path) -> None:
    log = _written(tmp_path, retention_ms=hours * _HOUR_MS)
    assert log.delete_old_segments(_NOW_MS) == deleted
    log.close()


@pytest.mark.parametrize(("hours", "cleaned"), [(9, True), (11, False)])
def test_the_wait_for_compaction_goes_on_over_a_restart(hours: int, cleaned: bool, tmp_path: Path) -> None:
    lag_ms = hours * _HOUR_MS
    log = _written(tmp_path, cleanup_policy=frozenset({"compact"}), min_compaction_lag_ms=lag_ms)
    assert (cleanable(log, _NOW_MS) is not None) is cleaned
    log.close()


def test_a_compaction_makes_records_no_younger(tmp_path: Path) -> None:
    both = frozenset({"compact", "delete"})
    log = _written(tmp_path, cleanup_policy=both, retention_ms=9 * _HOUR_MS)
    compact(log, _NOW_MS)
    assert len(log.segments) == 2
    log.close()
    log = _reopened(HostDisk(), log.path, cleanup_policy=both, retention_ms=9 * _HOUR_MS)
    assert log.delete_old_segments(_NOW_MS) == 1
    log.close()


def test_what_is_written_after_a_restart_is_young(tmp_path: Path) -> None:
    log = _written(tmp_path, retention_ms=9 * _HOUR_MS)
    log.append(build([(NO_TIMESTAMP, b"k", b"v", [])]), leader_epoch=0, now_ms=_NOW_MS)
    assert log.delete_old_segments(_NOW_MS) == 2
    assert (log.start_offset, log.end_offset) == (4, 5)
    log.close()


def test_on_a_disk_without_times_records_are_as_old_as_the_start() -> None:
    disk = SimDisk(random.Random(1))
    disk.make_directory("/d")
    log = _reopened(disk, "/d/t-0", _OLD_MS)
    log.append(build([(NO_TIMESTAMP, b"k", b"v", [])]), leader_epoch=0, now_ms=_OLD_MS)
    log.close()
    log = _reopened(disk, "/d/t-0", retention_ms=_HOUR_MS)
    assert log.delete_old_segments(_NOW_MS + _HOUR_MS) == 0
    assert log.delete_old_segments(_NOW_MS + _HOUR_MS + 1) == 1
