"""The metadata log in memory, as far as the machine reads it: offsets, epochs, snapshots."""

from __future__ import annotations

from ottla.log.epoch import LeaderEpochs
from ottla.raft.checkpoint import SnapshotId


class MemoryLog:
    """A `LogView`; `append`, `truncate` and `restart` are what a driver does to it."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self.epochs = LeaderEpochs([])
        self.snapshots: list[SnapshotId] = []
        #: Bytes of each snapshot.
        self.sizes: dict[SnapshotId, int] = {}

    @property
    def last_epoch(self) -> int:
        if self.epochs.latest >= 0:
            return self.epochs.latest
        return self.snapshots[-1].epoch if self.snapshots else 0

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.end_offset)

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        return self.sizes.get(snapshot)

    def append(self, records: int, epoch: int) -> None:
        """So many records more, of this epoch."""
        if records:
            self.epochs.assign(epoch, self.end_offset)
            self.end_offset += records

    def truncate(self, end_offset: int) -> None:
        self.epochs.truncate_end(end_offset)
        self.end_offset = end_offset

    def snapshot(self, snapshot: SnapshotId, size: int = 100) -> None:
        """There is this snapshot now."""
        self.snapshots = sorted({*self.snapshots, snapshot})
        self.sizes[snapshot] = size

    def begin_at(self, snapshot: SnapshotId) -> None:
        """Drop what this snapshot holds: the log begins behind it."""
        self.snapshots = [each for each in self.snapshots if each >= snapshot]
        self.epochs.truncate_start(snapshot.end_offset)
        self.start_offset = snapshot.end_offset

    def restart(self, snapshot: SnapshotId) -> None:
        """Drop everything: the log is empty behind this snapshot."""
        self.epochs = LeaderEpochs([])
        self.snapshots = [snapshot]
        self.start_offset = self.end_offset = snapshot.end_offset
