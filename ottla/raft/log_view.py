"""The metadata log as the machine sees it, and what follows from it for a fetch and a truncation (KIP-595, KIP-630)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ottla.kernel.named import NamedTuple
from ottla.raft.checkpoint import BOOTSTRAP_ID, SnapshotId


class LogView(Protocol):
    """This node's log. Nothing in it changes within a step; what an effect changes is there when its event comes."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; of the snapshot if the log has no record behind it; 0 if there is neither."""

    @property
    def snapshots(self) -> Sequence[SnapshotId]:
        """The snapshots that stand, the oldest first."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the greatest known epoch not above `epoch`, the offset where it ends); (-1, -1) if that is not known."""

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        """Its bytes, or None if there is no such snapshot."""


class EpochEnd(NamedTuple):
    """Where an epoch ends."""

    epoch: int
    end_offset: int


def check_fetch(log: LogView, offset: int, epoch: int) -> EpochEnd | SnapshotId | None:
    """What a leader answers to a follower whose log ends at `offset`, its last record being of `epoch`.

    None if the follower may go on from there, a snapshot to fetch, or where its log parts from ours at the latest.
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
    """The greatest epoch not above `epoch` that the log knows, and where it ends; the log's end if it knows none."""
    found, end_offset = log.end_offset_for_epoch(epoch)
    if found < 0:
        return EpochEnd(log.last_epoch, log.end_offset)
    oldest = log.snapshots[0] if log.snapshots else None
    if oldest is not None and end_offset == oldest.end_offset and found == epoch:
        # The log begins with this snapshot, which ends the epoch; its id has the right one.
        return EpochEnd(oldest.epoch, oldest.end_offset)
    return EpochEnd(found, end_offset)


def truncation_offset(log: LogView, leader: EpochEnd) -> int:
    """Where a follower truncates whose leader says that its own log has no more of this epoch than this."""
    if leader.epoch == 0:
        return min(leader.end_offset, log.end_offset)
    own = epoch_end(log, leader.epoch)
    return min(own.end_offset, leader.end_offset) if own.epoch == leader.epoch else own.end_offset
