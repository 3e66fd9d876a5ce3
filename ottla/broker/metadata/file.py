"""The files of the metadata log other than its segments: snapshots, `quorum-state`, `bootstrap.checkpoint`.

Rules:
- A file is written under a temporary name, synced and renamed, and its directory is synced: it is complete or absent.
- The newest snapshot stays. Older ones are deleted when they and the log are too large or too old; the log start then
  moves to the oldest remaining snapshot (KIP-630).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.kernel.error import OttlaError
from ottla.kernel.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.kernel.ports import Buffer, Disk
from ottla.log.checkpoint import read_text, write_text
from ottla.log.log import Log, LogSettings
from ottla.metadata.image import Image
from ottla.metadata.record_version import record_version
from ottla.metadata.snapshot import snapshot_records
from ottla.raft.checkpoint import (
    BOOTSTRAP_FILE,
    BOOTSTRAP_ID,
    DELETED_SUFFIX,
    PART_SUFFIX,
    SUFFIX,
    BrokenCheckpoint,
    Checkpoint,
    Membership,
    SnapshotId,
    checkpoint_name,
    decode_checkpoint,
    decode_timestamp,
    encode_checkpoint,
    parse_checkpoint_name,
)
from ottla.raft.role import Election, Voter
from ottla.raft.state import FILE as STATE_FILE
from ottla.raft.state import decode_state, encode_state
from ottla.wire.record.metadata import pack, parse

PARTITION = f"{METADATA_TOPIC}-0"
#: What the names of snapshots begin with while they are fetched.
_FETCHED = "fetched-"
#: Enough for the first batch of a snapshot: its header and the voters.
_HEAD_BYTES = 64 * 1024


class MetadataFiles:
    """The metadata files in one log directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{PARTITION}"
        #: The snapshots, oldest first, as last listed.
        self.snapshots: tuple[SnapshotId, ...] = ()

    # ---- reading

    def newest_snapshot(self) -> tuple[SnapshotId, Checkpoint] | None:
        """The newest snapshot, or None; deletes the files of an interrupted writer. OttlaError if it is damaged."""
        if not self._disk.is_directory(self._path):
            return None
        for name in self._disk.list(self._path):
            if name.endswith((PART_SUFFIX, DELETED_SUFFIX)):
                self._disk.remove(f"{self._path}/{name}")
        self._list_snapshots()
        if not self.snapshots:
            return None
        newest = self.snapshots[-1]
        return newest, self._read(f"{self._path}/{checkpoint_name(newest)}")

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        """The snapshot's size in bytes; None if there is no such snapshot."""
        return self._size(checkpoint_name(snapshot)) if snapshot in self.snapshots else None

    def _list_snapshots(self) -> None:
        # Names sort in the order of the numbers in them.
        parsed = (parse_checkpoint_name(name) for name in self._disk.list(self._path))
        self.snapshots = tuple(snapshot for snapshot in parsed if snapshot is not None)

    def bootstrap_records(self) -> list[Any]:
        """The records that `format` left for an empty log."""
        path = f"{self._directory}/{BOOTSTRAP_FILE}"
        if not self._disk.exists(path):
            return []
        return [parse(value)[0] for value in self._read(path).values]

    def _read(self, path: str) -> Checkpoint:
        file = self._disk.open(path)
        try:
            return decode_checkpoint(file.read(file.size(), 0))
        except BrokenCheckpoint as error:
            raise OttlaError(f"the snapshot {path} is damaged ({error}); restore it from a backup") from None
        finally:
            file.close()

    def election(self) -> Election:
        """The last saved election; epoch 0 if there is none."""
        path = f"{self._path}/{STATE_FILE}"
        text = read_text(self._disk, path)
        return Election() if text is None else decode_state(text, path)

    def open_log(self, settings: LogSettings, now_ms: int, snapshot_end_offset: int) -> Log:
        """Open the log, truncated at the first corrupt batch. Batches before the snapshot are durable."""
        make_durable_directory(self._disk, self._path)
        # The last process may have died after it renamed its vote or a snapshot, and before the sync.
        self._disk.sync_directory(self._path)
        log = Log.open(
            self._disk,
            self._path,
            settings,
            now_ms=now_ms,
            recovery_point=snapshot_end_offset,
            topic_id=METADATA_TOPIC_ID,
        )
        newest = self.snapshots[-1] if self.snapshots else BOOTSTRAP_ID
        if log.end_offset < newest.end_offset or (log.size and log.epochs.latest < newest.epoch):
            # The snapshot came from the leader, and a crash came before the log was restarted behind it.
            log.restart_at(newest.end_offset, now_ms)
        self.forget_below(log.start_offset)
        return log

    # ---- writing

    def save_election(self, election: Election, kraft_version: int, voters: tuple[Voter, ...]) -> None:
        """Save the election; durable on return."""
        write_text(self._disk, f"{self._path}/{STATE_FILE}", encode_state(election, kraft_version, voters))

    def write_image(self, image: Image, membership: Membership, now_ms: int) -> None:
        """Write a snapshot of the metadata, on any thread; durable on return."""
        values = (pack(record, record_version(record, image.metadata_version)) for record in snapshot_records(image))
        batches = encode_checkpoint(
            values, membership, epoch=image.epoch, last_contained_log_timestamp=image.timestamp, now_ms=now_ms
        )
        path = f"{self._path}/{checkpoint_name(SnapshotId(image.offset + 1, image.epoch))}"
        write_batches(self._disk, path, path.removesuffix(".checkpoint") + PART_SUFFIX, batches)
        self._list_snapshots()

    def write_piece(self, snapshot: SnapshotId, position: int, data: Buffer) -> None:
        """Write a piece of another node's snapshot; position 0 starts a new file."""
        path = self._part_path(snapshot)
        if position == 0:
            self._remove_fetched_parts(path)
        file = self._disk.open(path, create=True)
        try:
            if position == 0:
                file.truncate(0)
            file.write(data, position)
        finally:
            file.close()

    def read_fetched(self, snapshot: SnapshotId) -> Checkpoint:
        """Read a fetched snapshot and make its bytes durable, on any thread. BrokenCheckpoint if it is damaged."""
        file = self._disk.open(self._part_path(snapshot))
        try:
            checkpoint = decode_checkpoint(file.read(file.size(), 0))
            file.sync()
        finally:
            file.close()
        return checkpoint

    def install(self, snapshot: SnapshotId) -> None:
        """Put a fetched snapshot that was read in its place; durable on return."""
        self._disk.rename(self._part_path(snapshot), f"{self._path}/{checkpoint_name(snapshot)}")
        self._disk.sync_directory(self._path)
        self._list_snapshots()

    def remove_fetched(self, snapshot: SnapshotId) -> None:
        """Remove a fetched snapshot that is damaged, or behind which the log has not been restarted."""
        for path in (self._part_path(snapshot), f"{self._path}/{checkpoint_name(snapshot)}"):
            if self._disk.exists(path):
                self._disk.remove(path)
        self._list_snapshots()

    def read_snapshot(self, snapshot: SnapshotId, position: int, max_bytes: int) -> bytes:
        """Bytes of a snapshot file from `position` on."""
        file = self._disk.open(f"{self._path}/{checkpoint_name(snapshot)}")
        try:
            return bytes(file.read(min(max_bytes, file.size() - position), position))
        finally:
            file.close()

    def _part_path(self, snapshot: SnapshotId) -> str:
        # A different name from the one that `write_image` writes under.
        return f"{self._path}/{_FETCHED}{checkpoint_name(snapshot).removesuffix(SUFFIX)}{PART_SUFFIX}"

    def _remove_fetched_parts(self, kept: str) -> None:
        """Remove what fetches that broke off have left."""
        for name in self._disk.list(self._path):
            path = f"{self._path}/{name}"
            if name.startswith(_FETCHED) and path != kept:
                self._disk.remove(path)

    def forget_below(self, start_offset: int) -> None:
        """Delete the snapshots that end below the start of the log, but not the newest.

        The oldest snapshot tells the epoch before the start of the log: with one of another place, a leader would send
        a follower that ends right there back to the snapshot that it has.
        """
        for snapshot in self.snapshots[:-1]:
            if snapshot.end_offset < start_offset:
                self._disk.remove(f"{self._path}/{checkpoint_name(snapshot)}")
        self._list_snapshots()

    def clean(self, log: Log, now_ms: int, *, bytes_max: int, age_ms_max: int) -> None:
        """Delete snapshots past their retention (negative: no limit) and the segments that only they needed."""
        self._list_snapshots()
        self.forget_below(log.start_offset)
        names = [checkpoint_name(snapshot) for snapshot in self.snapshots]
        sizes = {name: self._size(name) for name in names}
        try:
            while len(names) > 1:
                too_big = 0 <= bytes_max < log.size + sum(sizes[name] for name in names)
                if not too_big and not 0 <= age_ms_max < now_ms - self._timestamp(names[0]):
                    break
                self._disk.remove(f"{self._path}/{names.pop(0)}")
        finally:
            self._list_snapshots()
        oldest = parse_checkpoint_name(names[0]) if names else None
        if oldest is not None and oldest.end_offset > log.start_offset:
            log.advance_start_offset(oldest.end_offset)
            log.delete_old_segments(now_ms)

    def _size(self, name: str) -> int:
        file = self._disk.open(f"{self._path}/{name}")
        try:
            return file.size()
        finally:
            file.close()

    def _timestamp(self, name: str) -> int:
        file = self._disk.open(f"{self._path}/{name}")
        try:
            return decode_timestamp(file.read(_HEAD_BYTES, 0))
        except BrokenCheckpoint as error:
            raise OttlaError(f"the snapshot {self._path}/{name} is damaged ({error})") from None
        finally:
            file.close()


def make_durable_directory(disk: Disk, path: str) -> None:
    """Create a directory and its parents so that they survive a power failure."""
    missing = []
    while not disk.is_directory(path):
        missing.append(path)
        path = path.rpartition("/")[0] or "/"
    if missing:
        disk.make_directory(missing[0])
    for created in missing:
        disk.sync_directory(created.rpartition("/")[0] or "/")


def write_batches(disk: Disk, path: str, part_path: str, batches: Iterable[bytes]) -> None:
    """Write a file of batches under a temporary name, then rename it; durable on return."""
    file = disk.open(part_path, create=True)
    try:
        file.truncate(0)
        position = 0
        for batch in batches:
            file.write(batch, position)
            position += len(batch)
        file.sync()
    finally:
        file.close()
    disk.rename(part_path, path)
    disk.sync_directory(path.rpartition("/")[0])
