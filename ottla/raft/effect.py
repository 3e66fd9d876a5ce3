"""What a quorum wants done, in this order. Named in the imperative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.kernel.frozen import frozen
from ottla.raft.role import Election, Voter


@frozen
class SaveElection:
    """Make this durable before anything that follows. Of two in a row the second says all."""

    election: Election


@frozen
class AppendLeaderChange:
    """Begin the epoch in the log: who leads it, and by whose votes. Then tell `Appended`."""

    epoch: int
    leader_id: int
    voters: tuple[Voter, ...]
    granting: tuple[Voter, ...]


@frozen
class AppendEntries:
    """Append these records as one batch of this epoch. Then tell `Appended`."""

    epoch: int
    records: Sequence[Any]


@frozen
class AppendNoOp:
    """Append a record that says only that the leader lives. Then tell `Appended`."""

    epoch: int


@frozen
class Sync:
    """Make the log durable up to its end. Then tell `Synced`."""


@frozen
class Commit:
    """Everything below `high_watermark` is committed: replay it, let the responses leave."""

    high_watermark: int


@frozen
class WriteSnapshot:
    """Write a snapshot of everything below `end_offset`. Then tell `SnapshotWritten`, or `SnapshotFailed`."""

    end_offset: int


@frozen
class CleanLog:
    """A new snapshot stands: drop the snapshots and segments that are past their retention."""

    snapshot_end_offset: int


Effect = SaveElection | AppendLeaderChange | AppendEntries | AppendNoOp | Sync | Commit | WriteSnapshot | CleanLog
