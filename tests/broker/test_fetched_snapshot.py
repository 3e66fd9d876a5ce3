"""Snapshots that a follower fetches: what a crash, or another leader, leaves of them."""

import errno
from concurrent.futures import Future
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.metadata.durability import MetadataSync
from ottla.broker.metadata.file import MetadataFiles
from ottla.broker.metadata.followed_log import FollowedLog
from ottla.broker.metadata.images import Images
from ottla.broker.metadata.loader import LoadedMetadata, load
from ottla.broker.metadata.log_view import MetadataLogView
from ottla.broker.metadata.raft_driver import RaftDriver
from ottla.log.log import LogSettings
from ottla.log.segment.segment import Segment
from ottla.raft.checkpoint import Membership, SnapshotId, checkpoint_name, encode_checkpoint
from ottla.raft.effect import InstallSnapshot, WriteSnapshotPiece
from ottla.raft.event import InstallFailed, SnapshotInstalled, TimerExpired
from ottla.raft.log_view import check_fetch
from ottla.raft.voters import VoterHistory
from ottla.sim.disk import SimDisk
from ottla.wire.record.metadata import NoOpRecord, pack
from tests.broker.test_metadata_log import PARTITION, snapshots
from tests.controller.place import Place


@pytest.fixture
def place() -> Place:
    one = Place(SimDisk(Random(1)))
    one.format()
    return one


def test_a_fetched_snapshot_that_is_begun_again_is_not_what_was_fetched_before() -> None:
    """A fetch of it broke off in a longer file, of another leader's or before a restart."""
    disk = SimDisk(Random(1))
    disk.make_directory("/data")
    disk.make_directory(PARTITION)
    files, snapshot = MetadataFiles(disk, "/data"), SnapshotId(4, 1)
    sent = b"".join(
        encode_checkpoint([pack(NoOpRecord(), 0)], Membership(0, ()), epoch=1, last_contained_log_timestamp=7, now_ms=7)
    )
    files.write_piece(snapshot, 0, sent + b"what another file had behind it")
    files.write_piece(snapshot, 0, sent[:50])
    files.write_piece(snapshot, 50, sent[50:])
    assert files.read_fetched(snapshot).values == [pack(NoOpRecord(), 0)]
    files.install(snapshot)
    assert files.snapshot_size(snapshot) == len(sent)


def fetch_snapshot(files: MetadataFiles, snapshot: SnapshotId) -> None:
    """All of a snapshot of the leader is here, and not yet in its place."""
    files.write_piece(
        snapshot,
        0,
        b"".join(
            encode_checkpoint(
                [pack(NoOpRecord(), 0)], Membership(0), epoch=snapshot.epoch, last_contained_log_timestamp=7, now_ms=7
            )
        ),
    )


def loaded_at(place: Place, files: MetadataFiles) -> LoadedMetadata:
    """The metadata on the disk of a node that starts."""
    return load(files, LogSettings(retention_ms=-1, retention_bytes=-1), place.clock.now_ms(), VoterHistory())


def install(place: Place, files: MetadataFiles, loaded: LoadedMetadata, snapshot: SnapshotId) -> None:
    fetch_snapshot(files, snapshot)
    images, sync = Images(), MetadataSync(place.clock.now_ms, lambda _: None, lambda _: None)
    images.load(loaded)
    log = FollowedLog(loaded.log, files, images, sync, place.clock)
    log.install(snapshot, partial(log.read, snapshot))


def names_of(*ids: SnapshotId) -> list[str]:
    return [checkpoint_name(each) for each in ids]


def test_a_follower_may_begin_where_the_log_of_a_leader_begins_that_once_fetched_a_snapshot(place: Place) -> None:
    """An older snapshot, here that of `format`, would name the epoch before the start of the log."""
    files, snapshot = MetadataFiles(place.disk, "/data"), SnapshotId(40, 3)
    loaded = loaded_at(place, files)
    install(place, files, loaded, snapshot)
    assert check_fetch(MetadataLogView(loaded.log, files), snapshot.end_offset, snapshot.epoch) is None
    assert snapshots(place) == names_of(snapshot)


def test_a_snapshot_below_the_start_of_the_log_that_a_crash_left_goes_at_the_start(place: Place) -> None:
    files, older, snapshot = MetadataFiles(place.disk, "/data"), SnapshotId(5, 1), SnapshotId(40, 3)
    loaded = loaded_at(place, files)
    install(place, files, loaded, snapshot)
    loaded.log.close()
    place.disk.open(f"{PARTITION}/{checkpoint_name(older)}", create=True)
    log = loaded_at(place, files).log
    assert files.snapshots == (snapshot,)
    assert snapshots(place) == names_of(snapshot)
    log.close()


def test_a_snapshot_that_is_done_after_a_newer_one_was_fetched_goes(place: Place) -> None:
    files, older, snapshot = MetadataFiles(place.disk, "/data"), SnapshotId(5, 1), SnapshotId(40, 3)
    loaded = loaded_at(place, files)
    install(place, files, loaded, snapshot)
    place.disk.open(f"{PARTITION}/{checkpoint_name(older)}", create=True)
    files.clean(loaded.log, place.clock.now_ms(), bytes_max=-1, age_ms_max=-1)
    assert files.snapshots == (snapshot,)
    assert snapshots(place) == names_of(snapshot)


def test_of_snapshots_whose_fetch_broke_off_only_the_last_takes_room(place: Place) -> None:
    files = MetadataFiles(place.disk, "/data")
    for end_offset in (4, 9, 12):
        fetch_snapshot(files, SnapshotId(end_offset, 1))
    assert len([name for name in place.disk.list(PARTITION) if name.endswith(".part")]) == 1


class _Driver:
    """A raft driver that has fetched a snapshot; its thread runs when the test says so."""

    def __init__(self, place: Place) -> None:
        files, loaded = MetadataFiles(place.disk, "/data"), loaded_at(place, MetadataFiles(place.disk, "/data"))
        images = Images()
        images.load(loaded)
        self.sync = MetadataSync(place.clock.now_ms, lambda _: None, lambda _: None)
        self.log, self.files, self.snapshot = loaded.log, files, SnapshotId(40, 3)
        self.events: list[object] = []
        self.quorum = SimpleNamespace(role="follower")
        self._followed = FollowedLog(loaded.log, files, images, self.sync, place.clock)
        self._beside = self, self
        self._jobs: list[tuple[Any, Future[Any]]] = []
        self._follow, self._snapshot_read = self._take, partial(RaftDriver._snapshot_read, self)  # type: ignore[arg-type]
        fetch_snapshot(files, self.snapshot)

    def submit(self, job: Any) -> Future[Any]:
        self._jobs.append((job, Future()))
        return self._jobs[-1][1]

    def call_soon_threadsafe(self, call: Any, *arguments: object) -> None:
        call(*arguments)

    def _take(self, change: Any) -> None:
        try:
            self.events.append(change())
        except OSError as error:
            self.events.append(error.errno)

    def install(self) -> None:
        RaftDriver._install(self, self.snapshot)  # type: ignore[arg-type]

    def run_thread(self) -> None:
        for job, future in self._jobs:
            try:
                result = job()
            except (ValueError, OSError) as error:
                future.set_exception(error)
            else:
                future.set_result(result)


def test_a_fetched_snapshot_is_read_on_a_thread(place: Place) -> None:
    driver = _Driver(place)
    driver.install()
    assert driver.events == [] and driver.log.end_offset == 0
    driver.run_thread()
    assert driver.events == [SnapshotInstalled(driver.snapshot, Membership(0))]
    assert (driver.log.start_offset, driver.files.snapshots) == (40, (driver.snapshot,))


def test_a_fetched_snapshot_is_not_installed_for_a_later_leader(place: Place) -> None:
    driver = _Driver(place)
    driver.install()
    driver.quorum.role = "of another leader"
    driver.run_thread()
    assert driver.events == [] and driver.log.end_offset == 0 and driver.snapshot not in driver.files.snapshots


def test_a_fetched_snapshot_that_is_damaged_is_removed(place: Place) -> None:
    driver = _Driver(place)
    driver.files.write_piece(driver.snapshot, 70, b"damage")
    driver.install()
    driver.run_thread()
    assert driver.events == [InstallFailed()]
    assert not [name for name in place.disk.list(PARTITION) if name.endswith(".part")]


@pytest.mark.parametrize("at", ["open", "rename", "sync_directory", "begin"])
def test_a_snapshot_that_cannot_be_installed_is_fetched_again_and_the_log_stays(
    place: Place, at: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    driver, before = _Driver(place), snapshots(place)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "no")

    for _ in range(2):
        fetch_snapshot(driver.files, driver.snapshot)
        driver.install()
        with monkeypatch.context() as disk:
            if at == "begin":
                disk.setattr(Segment, "create", full)
            else:
                disk.setattr(place.disk, at, full)
            driver.run_thread()
        driver._jobs.clear()
    assert driver.events == [InstallFailed()] * 2
    assert snapshots(place) == before and driver.snapshot not in driver.files.snapshots, "it may be fetched again"
    assert driver.log.end_offset == 0
    assert len([each for each in caplog.records if "cannot store the snapshot" in each.message]) == 1
    fetch_snapshot(driver.files, driver.snapshot)
    driver.install()
    driver.run_thread()
    assert driver.events[2:] == [SnapshotInstalled(driver.snapshot, Membership(0))]


@pytest.mark.parametrize("at", ["rename", "remove"])
def test_a_disk_that_fails_as_a_snapshot_is_installed_is_told(
    place: Place, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other errors than that of a full disk; and any error once a part of the log is gone."""
    driver, code = _Driver(place), errno.EIO if at == "rename" else errno.ENOSPC

    def broken(*_: Any, **__: Any) -> None:
        raise OSError(code, "broken")

    driver.install()
    monkeypatch.setattr(place.disk, at, broken)
    driver.run_thread()
    assert driver.events == [code]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_snapshot_that_has_no_room_is_fetched_again_later(
    place: Place, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, stepped = _Driver(place), list[object]()
    events: list[object] = [TimerExpired()]

    def full(*_: Any) -> None:
        raise OSError(code, "no")

    def step(event: object, now_ms: int) -> list[object]:
        stepped.append(event)
        effects = [WriteSnapshotPiece(driver.snapshot, 0, b"all of it"), InstallSnapshot(driver.snapshot)]
        return effects if event is events[0] else []

    raft: Any = object.__new__(RaftDriver)
    raft.quorum = SimpleNamespace(step=step, is_applying=False)
    raft._clock, raft.sync, raft._followed, raft.on_stepped = place.clock, driver.sync, driver._followed, lambda: None
    monkeypatch.setattr(driver.files, "write_piece", full)
    raft.step(events[0])
    failure = driver.sync.failure
    if code == errno.EIO:
        assert failure is not None and stepped == events
    else:
        assert failure is None and stepped == [*events, InstallFailed()]
