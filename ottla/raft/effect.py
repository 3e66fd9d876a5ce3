"""Effects: the actions that the quorum requests of its driver. Named in the imperative.

The driver executes the effects of a step in order, before the next event. The result event of an effect is delivered
immediately, while the effects are executed; only the results of Sync, WriteSnapshot and Send arrive later.
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
    """Make the election durable before the next effect. The second of two in a row supersedes the first."""

    election: Election


@frozen
class AppendControl:
    """Append these control records as one batch of this epoch. Report `EntriesAppended`.

    The first batch of an epoch names its leader and the voters that elected it. Report `AppendFailed` if a later one
    has no room.
    """

    epoch: int
    records: tuple[tuple[ControlRecordType, bytes], ...]


@frozen
class AppendEntries:
    """Append these records as one batch of this epoch. Report `EntriesAppended`."""

    epoch: int
    records: Sequence[Any]


@frozen
class AppendNoOp:
    """Append a NoOp record, which only shows that the leader is alive. Report `EntriesAppended`."""

    epoch: int


@frozen
class AppendReplicated:
    """Append these batches of the leader unchanged, except batches of an epoch above `epoch`.

    Report `EntriesAppended`, or `AppendFailed` if nothing could be appended.
    """

    epoch: int
    batches: Any


@frozen
class TruncateLog:
    """Durably drop everything from `end_offset` on. Report `LogTruncated`."""

    end_offset: int


@frozen
class Sync:
    """Make the log durable up to its end. Report `Synced`."""


@frozen
class Commit:
    """Everything below `high_watermark` is committed: replay it and release the responses that wait for it."""

    high_watermark: int


@frozen
class WriteSnapshot:
    """Write a snapshot of everything below `end_offset`. Report `SnapshotWritten` or `SnapshotFailed`."""

    end_offset: int


@frozen
class CleanLog:
    """A new snapshot is durable: delete the snapshots and segments that are past their retention."""

    snapshot_end_offset: int


@frozen
class WriteSnapshotPiece:
    """Store a chunk of the leader's snapshot; position 0 starts a new file and discards an older one."""

    snapshot: SnapshotId
    position: int
    data: Any


@frozen
class InstallSnapshot:
    """The snapshot is complete, and its content is committed: check it, make it durable, restart the log after it.

    Report `SnapshotInstalled` or `InstallFailed`.
    """

    snapshot: SnapshotId


@frozen
class Send:
    """Send a request in the newest version that both nodes support. Report `ResponseReceived` or `RequestFailed`.

    A response that arrives after `timeout_ms` is ignored.
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
    """Fill this Fetch response with the log's batches from `offset` on, and send it.

    Include at most `max_bytes`, but at least one batch; uncommitted batches up to the log's end are included.
    """

    ticket: Any
    response: Any
    offset: int
    max_bytes: int


@frozen
class AnswerSnapshot:
    """Fill this FetchSnapshot response with at most `max_bytes` of the snapshot from `position` on, and send it."""

    ticket: Any
    response: Any
    snapshot: SnapshotId
    position: int
    max_bytes: int


@frozen
class LeaderChanged:
    """The epoch, the leader or its addresses changed. `leader_id` is -1 while there is no leader."""

    epoch: int
    leader_id: int
    endpoints: tuple[VoterEndpoint, ...]


@frozen
class Warn:
    """Log a warning: a peer sent something that violates the protocol."""

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
