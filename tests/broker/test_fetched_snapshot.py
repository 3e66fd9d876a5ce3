"""Snapshots that a follower fetches: what a crash, or another leader, leaves of them."""

from random import Random

import pytest

from ottla.broker.metadata.durability import MetadataSync
from ottla.broker.metadata.file import MetadataFiles
from ottla.broker.metadata.followed_log import FollowedLog
from ottla.broker.metadata.images import Images
from ottla.broker.metadata.loader import LoadedMetadata, load
from ottla.broker.metadata.log_view import MetadataLogView
from ottla.log.log import LogSettings
from ottla.raft.checkpoint import Membership, SnapshotId, checkpoint_name, encode_checkpoint
from ottla.raft.effect import InstallSnapshot
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
    assert files.install(snapshot).values == [pack(NoOpRecord(), 0)]
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
    FollowedLog(loaded.log, files, images, sync, place.clock).install(InstallSnapshot(snapshot))


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
