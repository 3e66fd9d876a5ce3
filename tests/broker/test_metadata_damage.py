"""A metadata log that cannot be read, followed or written as a snapshot: what a node says, and what it still does."""

from __future__ import annotations

import errno
from concurrent.futures import Future
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.metadata.format import format_directories
from ottla.broker.metadata.raft_driver import RaftDriver
from ottla.kernel.error import OttlaError
from ottla.raft.event import EntriesAppended, SnapshotFailed, SnapshotWritten
from ottla.sim.disk import SimDisk
from ottla.wire.batch import build
from tests.broker.test_metadata_log import PARTITION
from tests.controller.place import Place, create

_FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def place() -> Place:
    one = Place(SimDisk(Random(1)))
    one.format()
    return one


def _write(place: Place, name: str, data: bytes) -> None:
    file = place.disk.open(f"{PARTITION}/{name}", create=True)
    file.truncate(0)
    file.write(data, 0)


def test_a_damaged_file_of_the_metadata_log_is_told_in_words(place: Place) -> None:
    with place.node():
        pass
    _write(place, "partition.metadata", b"nonsense")
    with pytest.raises(OttlaError, match=r"partition\.metadata .*; restore it from a backup$"):
        place.start()


def test_a_log_whose_beginning_is_missing_is_told_in_words(place: Place) -> None:
    with place.node(crashes=True) as log:
        create(log, "a")
        end = log.log.end_offset
        log.log.restart_at(end, 0)
    with pytest.raises(OttlaError, match=rf"begins at {end} and no snapshot reaches up to there: restore it"):
        place.start()


def test_a_record_of_a_later_release_is_told_with_its_offset(place: Place) -> None:
    with place.node(crashes=True) as log:
        end = log.log.end_offset
        # A record of the last type that a byte can name.
        batch = build([(0, None, b"\x01\x7f\x00\x00", [])])
        log.log.append(batch, leader_epoch=log.leader_epoch, now_ms=0)
        log.log.flush(0)
    with pytest.raises(OttlaError, match=rf"has a record at {end} that this release cannot read .*: a later release"):
        place.start()


def test_a_node_that_joins_later_needs_somebody_to_join() -> None:
    place = Place(SimDisk(Random(1)), controller_quorum_bootstrap_servers="127.0.0.1:9093")
    format_directories(
        place.disk, place.settings, "a-cluster", clock=place.clock, rng=place.rng, no_initial_controllers=True
    )
    with pytest.raises(OttlaError, match="names no other controller: name one, or format it with --standalone"):
        place.start()


# ---- what the driver makes of a change that fails


class _Driver:
    """A raft driver's parts; `steps` are what the machine hears."""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.failures: list[OSError] = []
        self.commits: list[int] = []
        self.step = self.steps.append
        self.on_commit = self.commits.append
        self.sync = SimpleNamespace(fail=self.failures.append)
        self.log = SimpleNamespace(closed=False)
        self.images = SimpleNamespace(committed=SimpleNamespace(offset=39))
        self.written: list[Any] = []
        self.files = SimpleNamespace(write_image=lambda *given: self.written.append(given), clean=self._clean)
        self._voters = SimpleNamespace(at=lambda offset: f"voters at {offset}")
        self._clock = SimpleNamespace(now_ms=lambda: 7)
        self._settings = SimpleNamespace(metadata_max_retention_bytes=5, metadata_max_retention_ms=6)
        self._beside: Any = None
        self.cleaned: list[Any] = []
        self.cannot_clean: Exception | None = None
        self.jobs: list[tuple[Any, Future[None]]] = []

    def _clean(self, log: Any, now_ms: int, **limits: int) -> None:
        self.cleaned.append((log, now_ms, limits))
        if self.cannot_clean is not None:
            raise self.cannot_clean

    def submit(self, job: Any) -> Future[None]:
        self.jobs.append((job, Future()))
        return self.jobs[-1][1]

    def call_soon_threadsafe(self, do: Any, *given: Any) -> None:
        do(*given)

    def _snapshot_ended(self, *given: Any) -> None:
        RaftDriver._snapshot_ended(self, *given)  # type: ignore[arg-type]

    def snapshot(self) -> None:
        RaftDriver._write_snapshot(self, 40)  # type: ignore[arg-type]

    def follow(self, change: Any) -> None:
        RaftDriver._follow(self, change)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [OttlaError("a later release wrote it"), ValueError("an unknown topic"), _FULL])
def test_a_node_that_cannot_follow_its_leader_ends(error: Exception) -> None:
    driver = _Driver()

    def change() -> Any:
        raise error

    driver.follow(change)
    (failure,) = driver.failures
    assert (failure is error) if isinstance(error, OSError) else str(failure) == str(error)
    assert driver.steps == []
    driver.follow(lambda: EntriesAppended(4, 9))
    assert (driver.steps, driver.commits) == ([EntriesAppended(4, 9)], [])


def test_a_snapshot_is_written_at_once_or_on_a_thread() -> None:
    driver = _Driver()
    driver.snapshot()
    assert driver.written == [(driver.images.committed, "voters at 40", 7)]
    assert driver.steps == [SnapshotWritten(40)]
    driver._beside = driver, driver
    driver.snapshot()
    ((job, future),) = driver.jobs
    assert len(driver.steps) == 1
    future.set_result(job())
    assert driver.steps == [SnapshotWritten(40)] * 2 and driver.written[0] == driver.written[1]


def test_no_snapshot_is_written_inside_of_a_metadata_transaction() -> None:
    driver = _Driver()
    driver.images.committed.offset = 30
    driver.snapshot()
    assert (driver.written, driver.steps) == ([], [SnapshotFailed()])


@pytest.mark.parametrize("closed", [False, True])
def test_a_snapshot_that_cannot_be_written_is_tried_again_later(closed: bool, caplog: pytest.LogCaptureFixture) -> None:
    driver = _Driver()
    driver._beside = driver, driver
    driver.snapshot()
    driver.log.closed = closed
    driver.jobs[0][1].set_exception(_FULL)
    assert driver.steps == ([] if closed else [SnapshotFailed()])
    assert "cannot write a metadata snapshot; will retry later" in caplog.text


@pytest.mark.parametrize("error", [None, _FULL, OttlaError("the snapshot is damaged")])
def test_old_metadata_that_cannot_be_removed_stays(error: Exception | None, caplog: pytest.LogCaptureFixture) -> None:
    driver = _Driver()
    driver.cannot_clean = error
    RaftDriver._clean(driver)  # type: ignore[arg-type]
    assert driver.cleaned == [(driver.log, 7, {"bytes_max": 5, "age_ms_max": 6})]
    assert ("cannot remove old metadata" in caplog.text) is (error is not None)
