"""The metadata log and its snapshots as the quorum's machine sees them."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.metadata.file import MetadataFiles
from ottla.log.log import Log
from ottla.raft.checkpoint import SnapshotId


class MetadataLogView:
    """An `ottla.raft.log_view.LogView` of files. The raft driver creates it."""

    def __init__(self, log: Log, files: MetadataFiles) -> None:
        self._log = log
        self._files = files

    @property
    def start_offset(self) -> int:
        return self._log.start_offset

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    @property
    def last_epoch(self) -> int:
        epoch = self._log.epochs.latest
        if epoch >= 0:
            return epoch
        snapshots = self.snapshots
        return snapshots[-1].epoch if snapshots else 0

    @property
    def snapshots(self) -> Sequence[SnapshotId]:
        return self._files.snapshots

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self._log.end_offset_for_epoch(epoch)

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        return self._files.snapshot_size(snapshot)
