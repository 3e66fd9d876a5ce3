"""Loads the metadata at startup: the newest snapshot, then the log behind it.

Rules:
- Everything is replayed before any decision is made. An unreadable record stops the start: without it the metadata
  would describe a cluster that never existed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ottla.broker.metadata.file import MetadataFiles
from ottla.kernel.error import OttlaError
from ottla.kernel.frozen import mutable
from ottla.log.checkpoint import CorruptCheckpoint
from ottla.log.log import Log, LogSettings
from ottla.metadata.delta import MetadataReplayer
from ottla.metadata.image import Image
from ottla.raft.checkpoint import Checkpoint, SnapshotId
from ottla.raft.voters import VoterHistory
from ottla.wire.batch import read
from ottla.wire.record import control
from ottla.wire.record.metadata import parse
from ottla.wire.type import Malformed

_READ_BYTES = 4 * 1024 * 1024


@mutable
class LogRead:
    """What reading the log found besides metadata."""

    #: Offset -> the voters from there on.
    voters: VoterHistory
    #: Bytes read.
    size: int = 0


@mutable
class LoadedMetadata:
    """The metadata on disk."""

    log: Log
    #: The replayed metadata.
    fold: MetadataReplayer
    #: The snapshot's metadata, and the offset at which the snapshot ends.
    snapshot: Image
    snapshot_end_offset: int
    #: What the log behind the snapshot holds besides metadata.
    read: LogRead
    #: (end offset, image) at several batch ends of that log.
    steps: list[tuple[int, Image]] = field(default_factory=list)


def load(files: MetadataFiles, settings: LogSettings, now_ms: int, voters: VoterHistory) -> LoadedMetadata:
    """Open the log and read everything, including voter changes into `voters`. OttlaError for damaged files."""
    snapshot, snapshot_end_offset = Image.empty(), 0
    newest = files.newest_snapshot()
    if newest is not None:
        snapshot_end_offset = newest[0].end_offset
        voters.restart(snapshot_end_offset, newest[1].membership)
        snapshot = image_of(newest[1], newest[0])
    fold = MetadataReplayer(snapshot)
    try:
        log = files.open_log(settings, now_ms, snapshot_end_offset)
    except CorruptCheckpoint as error:
        raise OttlaError(f"{error}; restore it from a backup") from error
    loaded = LoadedMetadata(log, fold, snapshot, snapshot_end_offset, LogRead(voters))
    try:
        if snapshot_end_offset < log.start_offset:
            raise OttlaError(
                f"the metadata log in {log.path} begins at {log.start_offset} and no snapshot reaches up to there: "
                "restore it from a backup"
            )
        loaded.steps += replay(fold, log, snapshot_end_offset, log.end_offset, loaded.read)
    except BaseException:
        log.discard()
        raise
    return loaded


def image_of(checkpoint: Checkpoint, snapshot: SnapshotId) -> Image:
    """The metadata in a snapshot."""
    fold = MetadataReplayer(Image.empty())
    for value in checkpoint.values:
        fold.replay(_parsed(value, snapshot.end_offset), snapshot.end_offset, snapshot.epoch, -1)
    return fold.publish(snapshot.end_offset - 1, snapshot.epoch, checkpoint.last_contained_log_timestamp)


def check_servable(image: Image, supported: Mapping[str, tuple[int, int]]) -> None:
    """Raise OttlaError unless this release supports the cluster's feature levels."""
    for name, level in image.features.items():
        low, high = supported.get(name, (0, 0))
        if not low <= level <= high:
            raise OttlaError(f"the cluster is at {name} {level}, and this node supports {low} to {high}")


def replay(
    fold: MetadataReplayer,
    log: Log,
    offset: int,
    end_offset: int,
    seen: LogRead | None = None,
    *,
    batch_by_batch: bool = False,
) -> list[tuple[int, Image]]:
    """Replay the log from `offset` to `end_offset`; return (end offset, image) for each step on the way.

    A step is one read of several batches, or one batch if `batch_by_batch`. Control records are noted in `seen`.
    """
    steps = []
    epoch = timestamp = -1
    while offset < end_offset:
        for batch in read(log.read(offset, _READ_BYTES, end_offset=end_offset).bytes()):
            header = batch.header
            if seen is not None:
                seen.size += header.size
            for record in batch.records():
                if record.offset < offset:
                    continue
                if not header.is_control:
                    change = _parsed(record.value or b"", record.offset)
                    fold.replay(change, record.offset, header.partition_leader_epoch, record.timestamp)
                elif seen is not None:
                    change = control.parse_change(record.key or b"", record.value or b"")
                    seen.voters.change(record.offset, change)
            offset, epoch, timestamp = header.last_offset + 1, header.partition_leader_epoch, header.max_timestamp
            if batch_by_batch:
                steps.append((offset, fold.publish(offset - 1, epoch, timestamp)))
        if not batch_by_batch:
            steps.append((offset, fold.publish(offset - 1, epoch, timestamp)))
    return steps


def _parsed(value: bytes, offset: int) -> Any:
    try:
        return parse(value)[0]
    except Malformed as error:
        raise OttlaError(
            f"the metadata log has a record at {offset} that this release cannot read ({error}): "
            "a later release wrote it"
        ) from error
