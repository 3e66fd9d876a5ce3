"""What a quorum wants done. Named in the imperative.

The driver carries the effects of a step out in their order, before the next event; the event that an effect asks for is
told at once, within that. Only the results of Sync, WriteSnapshot and Send come later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.kernel.frozen import frozen
from ottla.raft.checkpoint import SnapshotId, VoterEndpoint
from ottla.raft.connections import QuorumPeer
from ottla.raft.role import Election
from ottla.wire.record.control import ControlRecordType


@frozen
class SaveElection:
    """Make this durable before anything that follows. Of two in a row the second says all."""

    election: Election


@frozen
class AppendControl:
    """Append these control records as one batch of this epoch. Then tell `EntriesAppended`.

    The first of an epoch say who leads it, and by whose votes.
    """

    epoch: int
    records: tuple[tuple[ControlRecordType, bytes], ...]


@frozen
class AppendEntries:
    """Append these records as one batch of this epoch. Then tell `EntriesAppended`."""

    epoch: int
    records: Sequence[Any]


@frozen
class AppendNoOp:
    """Append a record that says only that the leader lives. Then tell `EntriesAppended`."""

    epoch: int


@frozen
class AppendReplicated:
    """Append these batches as the leader has them, but none of an epoch above `epoch`.

    Then tell `EntriesAppended`, or `AppendFailed` if nothing could be appended.
    """

    epoch: int
    batches: Any


@frozen
class TruncateLog:
    """Drop everything from `end_offset` on, durably. Then tell `LogTruncated`."""

    end_offset: int


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


@frozen
class WriteSnapshotPiece:
    """Keep a piece of a snapshot of the leader; at position 0 a new file begins, whatever was there."""

    snapshot: SnapshotId
    position: int
    data: Any


@frozen
class InstallSnapshot:
    """The snapshot is whole: check it, make it durable, let the log begin behind it. It is committed.

    Then tell `SnapshotInstalled`, or `InstallFailed`.
    """

    snapshot: SnapshotId


@frozen
class Send:
    """Send a request in the newest version that both nodes have. Then tell `ResponseReceived` or `RequestFailed`.

    An answer that comes after `timeout_ms` counts no more.
    """

    ticket: int
    peer: QuorumPeer
    request: Any
    timeout_ms: int


@frozen
class Answer:
    """Send this response."""

    ticket: Any
    response: Any


@frozen
class AnswerFetch:
    """Put the log's batches from `offset` on into this response to a Fetch, and send it.

    At most `max_bytes`, but at least one batch; up to the log's end, committed or not.
    """

    ticket: Any
    response: Any
    offset: int
    max_bytes: int


@frozen
class AnswerSnapshot:
    """Put the snapshot's bytes from `position` on, at most `max_bytes`, into this response to a FetchSnapshot."""

    ticket: Any
    response: Any
    snapshot: SnapshotId
    position: int
    max_bytes: int


@frozen
class LeaderChanged:
    """Another epoch, another leader, or other addresses of it. `leader_id` is -1 while there is none."""

    epoch: int
    leader_id: int
    endpoints: tuple[VoterEndpoint, ...]


@frozen
class Warn:
    """Put this into the node's log: a peer said what cannot be."""

    text: str


Effect = (
    SaveElection
    | AppendControl
    | AppendEntries
    | AppendNoOp
    | AppendReplicated
    | TruncateLog
    | Sync
    | Commit
    | WriteSnapshot
    | CleanLog
    | WriteSnapshotPiece
    | InstallSnapshot
    | Send
    | Answer
    | AnswerFetch
    | AnswerSnapshot
    | LeaderChanged
    | Warn
)
