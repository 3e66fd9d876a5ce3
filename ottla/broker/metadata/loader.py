"""Read the metadata back at the start: the newest snapshot, then the log behind it.

Rules:
- Everything is replayed before anything is decided. A record that does not read stops the start: to pass it over would
  show everyone a cluster that never was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.broker.metadata.file import MetadataFiles
from ottla.kernel.error import OttlaError
from ottla.log.checkpoint import CorruptCheckpoint
from ottla.log.log import Log, LogSettings
from ottla.metadata.delta import Fold
from ottla.metadata.image import Image
from ottla.raft.checkpoint import Membership, changed_membership
from ottla.wire.batch import read
from ottla.wire.record import control
from ottla.wire.record.metadata import parse
from ottla.wire.type import Malformed

_READ_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class LoadedMetadata:
    """What the disk holds."""

    log: Log
    fold: Fold
    #: The voters as the last record about them has them.
    membership: Membership
    #: Where the snapshot ends that this began with, and how many bytes of log were read behind it.
    snapshot_end_offset: int
    bytes_since_snapshot: int


def load(files: MetadataFiles, settings: LogSettings, now_ms: int) -> LoadedMetadata:
    """Open the log and read everything. OttlaError in words for what is damaged."""
    fold, membership, snapshot_end_offset = Fold(Image.empty()), Membership(), 0
    newest = files.newest_snapshot()
    if newest is not None:
        (snapshot_end_offset, epoch), found = newest
        membership = found.membership
        for value in found.values:
            fold.replay(_parsed(value, snapshot_end_offset), snapshot_end_offset, epoch, -1)
        fold.publish(snapshot_end_offset - 1, epoch, found.last_contained_log_timestamp)
    try:
        log = files.open_log(settings, now_ms, snapshot_end_offset)
    except CorruptCheckpoint as error:
        raise OttlaError(f"{error}; restore it from a backup") from error
    loaded = LoadedMetadata(log, fold, membership, snapshot_end_offset, 0)
    try:
        _replay(loaded)
    except BaseException:
        log.discard()
        raise
    return loaded


def check_servable(image: Image, node_id: int, supported: Mapping[str, tuple[int, int]]) -> None:
    """Is this a cluster that this release can run? OttlaError if not."""
    for name, level in image.features.items():
        low, high = supported.get(name, (0, 0))
        if not low <= level <= high:
            raise OttlaError(f"the cluster runs {name} {level}, and this node runs {low} to {high} of it")
    others = sorted(broker_id for broker_id in image.brokers if broker_id != node_id)
    if others:
        raise OttlaError(
            f"this cluster has other brokers ({', '.join(map(str, others))}); clusters are not yet served: "
            "unregister them first"
        )


def _replay(loaded: LoadedMetadata) -> None:
    log, fold, offset = loaded.log, loaded.fold, loaded.snapshot_end_offset
    epoch = timestamp = -1
    if offset < log.start_offset:
        raise OttlaError(
            f"the metadata log in {log.path} begins at {log.start_offset} and no snapshot reaches up to there: "
            "restore it from a backup"
        )
    while offset < log.end_offset:
        for batch in read(log.read(offset, _READ_BYTES, end_offset=log.end_offset).bytes()):
            header = batch.header
            loaded.bytes_since_snapshot += header.size
            for record in batch.records():
                if record.offset < offset:
                    continue
                if header.is_control:
                    _, message = control.parse(record.key or b"", record.value or b"")
                    loaded.membership = changed_membership(loaded.membership, message)
                else:
                    change = _parsed(record.value or b"", record.offset)
                    fold.replay(change, record.offset, header.partition_leader_epoch, record.timestamp)
            offset, epoch, timestamp = header.last_offset + 1, header.partition_leader_epoch, header.max_timestamp
        # The images between two batches are nobody's: everything that one read brought makes one.
        fold.publish(offset - 1, epoch, timestamp)


def _parsed(value: bytes, offset: int) -> Any:
    try:
        return parse(value)[0]
    except Malformed as error:
        raise OttlaError(
            f"the metadata log has a record at {offset} that this release cannot read ({error}): "
            "a later release wrote it"
        ) from error
