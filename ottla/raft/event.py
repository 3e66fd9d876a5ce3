"""Events: the inputs of the quorum, including the results of effects. Named in the past tense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.kernel.frozen import frozen
from ottla.raft.checkpoint import Membership, SnapshotId


@frozen
class Started:
    """The node started. Its log ends at `end_offset`, its newest snapshot at `snapshot_end_offset`."""

    end_offset: int
    snapshot_end_offset: int
    #: Bytes of the log after the snapshot.
    bytes_since_snapshot: int


@frozen
class Submitted:
    """The controller submits these records to be appended as one batch."""

    records: Sequence[Any]


@frozen
class EntriesAppended:
    """The requested records are in the log, which now ends at `end_offset`."""

    end_offset: int
    size: int
    #: (offset, message) of the appended control records that change the voters: VotersRecord and KRaftVersionRecord.
    changes: tuple[tuple[int, Any], ...] = ()


@frozen
class AppendFailed:
    """Nothing of AppendReplicated was appended: the batches were corrupt, did not continue the log, or had no room.

    Or a voter change of a leader, AppendControl, had no room.
    """


@frozen
class LogTruncated:
    """The log was durably truncated to `end_offset`."""

    end_offset: int


@frozen
class Synced:
    """The log is durable up to `end_offset`. A sync during a truncation or restart is not reported."""

    end_offset: int


@frozen
class SnapshotWritten:
    """A snapshot of everything below `end_offset` was written."""

    end_offset: int


@frozen
class SnapshotFailed:
    """The requested snapshot could not be written."""


@frozen
class SnapshotInstalled:
    """A fetched snapshot is durable, and the log starts after it."""

    snapshot: SnapshotId
    membership: Membership


@frozen
class InstallFailed:
    """A fetched snapshot was corrupt and was removed."""


@frozen
class TimerExpired:
    """The time `Quorum.deadline_ms` was reached."""


@frozen
class RequestReceived:
    """A node or a client sent a request. `Answer`, `AnswerFetch` or `AnswerSnapshot` answers its ticket."""

    #: Chosen by the caller, unique.
    ticket: Any
    #: The listener that received the request: the response has the leader's address on the same listener.
    listener: str
    request: Any
    version: int


@frozen
class RequestDropped:
    """The requester disconnected: its waiting request needs no answer."""

    ticket: Any


@frozen
class ResponseReceived:
    """The response to a `Send`."""

    ticket: int
    response: Any


@frozen
class RequestFailed:
    """A `Send` got no response. UNSUPPORTED_VERSION: the peer supports no version that can express the request.

    `is_refused`: the peer's host refused the connection at all of its addresses, so no process listens there.
    """

    ticket: int
    error: ErrorCode = ErrorCode.BROKER_NOT_AVAILABLE
    is_refused: bool = False


@frozen
class VersionRaised:
    """kraft.version becomes 1: from now on the log defines the voters. `Quorum.version_refusal` returned None."""

    kraft_version: int


@frozen
class ResignRequested:
    """The leader of this epoch cannot continue, or the node is stopping; a leader of a later epoch ignores it."""

    epoch: int


Event = (
    Started
    | Submitted
    | EntriesAppended
    | AppendFailed
    | LogTruncated
    | Synced
    | SnapshotWritten
    | SnapshotFailed
    | SnapshotInstalled
    | InstallFailed
    | TimerExpired
    | RequestReceived
    | RequestDropped
    | ResponseReceived
    | RequestFailed
    | VersionRaised
    | ResignRequested
)
