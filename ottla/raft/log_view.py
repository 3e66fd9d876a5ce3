"""The machine's view of the metadata log, and the checks of fetch offsets and truncations (KIP-595, KIP-630)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ottla.kernel.named import NamedTuple
from ottla.raft.checkpoint import BOOTSTRAP_ID, SnapshotId


class LogView(Protocol):
    """This node's log. It does not change within a step; an effect's change is visible with its result event."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; the snapshot's if the log has no record after it; 0 if there is neither."""

    @property
    def snapshots(self) -> Sequence[SnapshotId]:
        """The complete snapshots, oldest first."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the greatest known epoch not above `epoch`, the offset where it ends); (-1, -1) if there is none."""

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        """Return the snapshot's size in bytes; None if there is no such snapshot."""


class EpochEnd(NamedTuple):
    """An epoch and the offset where it ends."""

    epoch: int
    end_offset: int


def check_fetch(log: LogView, offset: int, epoch: int) -> EpochEnd | SnapshotId | None:
    """Check the position of a follower whose log ends at `offset` with a last record of `epoch`.

    Return None if the follower may continue there, a snapshot to fetch, or the diverging epoch and its end here.
    """
    snapshots = log.snapshots
    if offset == 0 and snapshots and snapshots[-1] != BOOTSTRAP_ID:
        return snapshots[-1]
    if offset == log.start_offset == 0:
        return None
    if snapshots:
        oldest, start_offset = snapshots[0], log.start_offset
        if offset < start_offset or (offset == start_offset and epoch != oldest.epoch) or epoch < oldest.epoch:
            return snapshots[-1]
    end = epoch_end(log, epoch)
    return end if end.epoch != epoch or end.end_offset < offset else None


def epoch_end(log: LogView, epoch: int) -> EpochEnd:
    """Return the greatest known epoch not above `epoch` and its end; the log's end if no such epoch is known."""
    known_epoch, end_offset = log.end_offset_for_epoch(epoch)
    if known_epoch < 0:
        return EpochEnd(log.last_epoch, log.end_offset)
    oldest = log.snapshots[0] if log.snapshots else None
    if oldest is not None and end_offset == oldest.end_offset and known_epoch == epoch:
        # The log starts after this snapshot, which ends the epoch; its id has the right epoch.
        return EpochEnd(oldest.epoch, oldest.end_offset)
    return EpochEnd(known_epoch, end_offset)


def truncation_offset(log: LogView, leader: EpochEnd) -> int:
    """Return the offset to truncate to, given the diverging epoch that the leader reported and its end there."""
    if leader.epoch == 0:
        return min(leader.end_offset, log.end_offset)
    own = epoch_end(log, leader.epoch)
    return min(own.end_offset, leader.end_offset) if own.epoch == leader.epoch else own.end_offset
