"""Changes to the metadata log on behalf of another leader: append, truncate, restart behind a snapshot.

Each method takes an effect of the quorum's machine and returns the event to report to it, if any. A full disk is no
failure of the node: what has no room is fetched again later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ottla.broker.metadata.durability import MetadataSync
from ottla.broker.metadata.file import MetadataFiles
from ottla.broker.metadata.images import Images
from ottla.broker.metadata.loader import image_of
from ottla.kernel.error import KafkaError
from ottla.kernel.ports import Clock
from ottla.log.durability import HARMLESS_ERRORS
from ottla.log.log import Log, Origin
from ottla.metadata.image import Image
from ottla.raft.checkpoint import BrokenCheckpoint, Membership, SnapshotId
from ottla.raft.effect import AnswerFetch, AnswerSnapshot, AppendReplicated, TruncateLog, WriteSnapshotPiece
from ottla.raft.event import (
    AppendFailed,
    EntriesAppended,
    Event,
    InstallFailed,
    LogTruncated,
    SnapshotInstalled,
)
from ottla.raft.voters import changes_in
from ottla.wire.batch import headers

_log = logging.getLogger("ottla.broker")
#: The voters and the metadata in a snapshot.
ReadSnapshot = tuple[Membership, Image]


class FollowedLog:
    """The followed log's operations. The raft driver creates it."""

    def __init__(self, log: Log, files: MetadataFiles, images: Images, sync: MetadataSync, clock: Clock) -> None:
        self._log = log
        self._files = files
        self._images = images
        self._sync = sync
        self._clock = clock
        #: The last logged reason why nothing can be appended; "" while it can.
        self._failure = ""

    def append(self, effect: AppendReplicated) -> Event:
        """Append the leader's batches. OttlaError or ValueError for a record that this release does not know."""
        log = self._log
        offset = log.end_offset
        try:
            log.append(effect.batches, leader_epoch=effect.epoch, now_ms=self._clock.now_ms(), origin=Origin.REPLICA)
        except (KafkaError, OSError) as error:
            self._complain(f"cannot append the leader's metadata at offset {log.end_offset}: {error}")
        else:
            self._failure = ""
        if log.end_offset == offset:
            return AppendFailed()
        # The first of several segments may have had room.
        sizes = (header.size for _, header in headers(effect.batches) if header.last_offset < log.end_offset)
        appended = memoryview(effect.batches)[: sum(sizes)]
        self._images.follow(offset)
        return EntriesAppended(log.end_offset, len(appended), changes_in(appended))

    def _complain(self, failure: str) -> None:
        if failure != self._failure:
            # A disk may be full for hours.
            _log.error("%s; will retry", failure)
        self._failure = failure

    def truncate(self, effect: TruncateLog) -> Event:
        """Truncate the log at the point where it diverges from the leader's."""
        log = self._log
        _log.info(
            "truncating the metadata log from %d to %d, where it diverges from the leader's",
            log.end_offset,
            effect.end_offset,
        )
        log.truncate(effect.end_offset, self._clock.now_ms())
        self._sync.cut()
        self._images.truncate()
        return LogTruncated(log.end_offset)

    def write_piece(self, effect: WriteSnapshotPiece) -> Event | None:
        """Write a piece of the leader's snapshot; None if it is written."""
        try:
            self._files.write_piece(effect.snapshot, effect.position, effect.data)
        except OSError as error:
            return self._no_room(effect.snapshot, error)
        return None

    def _no_room(self, snapshot: SnapshotId, error: OSError) -> InstallFailed:
        """Log once that the leader's snapshot has no room. Raise the error if it is another one."""
        if error.errno not in HARMLESS_ERRORS:
            raise error
        self._complain(f"cannot store the snapshot {snapshot} of the leader: {error}")
        return InstallFailed()

    def read(self, snapshot: SnapshotId) -> ReadSnapshot:
        """Read the fetched snapshot, on any thread: that takes seconds if it is large.

        BrokenCheckpoint if it is damaged, OttlaError or ValueError for a record that is not known.
        """
        checkpoint = self._files.read_fetched(snapshot)
        return checkpoint.membership, image_of(checkpoint, snapshot)

    def install(self, snapshot: SnapshotId, read: Callable[[], ReadSnapshot]) -> Event:
        """Restart the log behind the fetched snapshot; `read` returns or raises what `read` above did."""
        try:
            membership, image = read()
        except BrokenCheckpoint as error:
            _log.error("the snapshot %s from the leader is damaged: %s", snapshot, error)
            self._files.remove_fetched(snapshot)
            return InstallFailed()
        except OSError as error:
            return self._no_room(snapshot, error)
        generation = self._log.generation
        try:
            self._files.install(snapshot)
            self._log.restart_at(snapshot.end_offset, self._clock.now_ms())
        except OSError as error:
            if self._log.generation != generation:
                # Only a part of the log is left.
                raise
            # The log still needs the snapshot that it had; this one is fetched again.
            self._files.remove_fetched(snapshot)
            return self._no_room(snapshot, error)
        self._failure = ""
        _log.info("the metadata log begins at %d now, behind a snapshot from the leader", snapshot.end_offset)
        self._files.forget_below(snapshot.end_offset)
        self._sync.cut()
        self._images.install(image, snapshot.end_offset)
        return SnapshotInstalled(snapshot, membership)

    def fetched(self, effect: AnswerFetch) -> Any:
        """The response, with the log's batches filled in."""
        log, response = self._log, effect.response
        data = log.read(effect.offset, effect.max_bytes, end_offset=log.end_offset).bytes()
        response.responses[0].partitions[0].records = data
        return response

    def snapshot_fetched(self, effect: AnswerSnapshot) -> Any:
        """The response, with the snapshot's bytes filled in."""
        data = self._files.read_snapshot(effect.snapshot, effect.position, effect.max_bytes)
        effect.response.topics[0].partitions[0].unaligned_records = data
        return effect.response
