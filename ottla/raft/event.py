"""What happens to a quorum. Named in the past tense; the result of an effect comes back as one of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.kernel.frozen import frozen
from ottla.raft.checkpoint import Membership, SnapshotId


@frozen
class Started:
    """The node is up. Its log ends at `end_offset`, its newest snapshot at `snapshot_end_offset`."""

    end_offset: int
    snapshot_end_offset: int
    #: Bytes of the log after that snapshot.
    bytes_since_snapshot: int


@frozen
class Submitted:
    """The controller wants these records in the log, together."""

    records: Sequence[Any]


@frozen
class EntriesAppended:
    """What was to be appended is in the log, which now ends at `end_offset`."""

    end_offset: int
    size: int
    #: (offset, message) of the control records in it that change the voters: VotersRecord and KRaftVersionRecord.
    changes: tuple[tuple[int, Any], ...] = ()


@frozen
class AppendFailed:
    """Nothing of what AppendReplicated has was appended: it was damaged, or did not fit the log's end."""


@frozen
class LogTruncated:
    """The log ends at `end_offset` now, durably."""

    end_offset: int


@frozen
class Synced:
    """The log is durable up to `end_offset`. A sync during which the log was truncated or restarted tells nothing."""

    end_offset: int


@frozen
class SnapshotWritten:
    """There is a snapshot of everything below `end_offset`."""

    end_offset: int


@frozen
class SnapshotFailed:
    """The snapshot that was asked for could not be written."""


@frozen
class SnapshotInstalled:
    """A fetched snapshot stands, durably, and the log begins behind it."""

    snapshot: SnapshotId
    membership: Membership


@frozen
class InstallFailed:
    """A fetched snapshot is damaged; it was removed."""


@frozen
class TimerExpired:
    """`deadline_ms` has come."""


@frozen
class RequestReceived:
    """Another node, or a client, asks something. `Answer`, `AnswerFetch` or `AnswerSnapshot` answers the ticket."""

    #: The caller's, unique.
    ticket: Any
    #: The name of the listener on which it came: the answer has the leader's address on the same one.
    listener: str
    request: Any
    version: int


@frozen
class RequestDropped:
    """The one who asked is gone: a request that waits needs no answer."""

    ticket: Any


@frozen
class ResponseReceived:
    """The answer to a `Send`."""

    ticket: int
    response: Any


@frozen
class RequestFailed:
    """A `Send` got no answer. UNSUPPORTED_VERSION if the peer has no version that can say it.

    `is_refused`: the peer's machine says that no process listens at any of its addresses.
    """

    ticket: int
    error: ErrorCode = ErrorCode.BROKER_NOT_AVAILABLE
    is_refused: bool = False


@frozen
class VersionRaised:
    """kraft.version becomes 1: from now on the log says who votes. `Quorum.version_refusal` had nothing against it."""

    kraft_version: int


@frozen
class ResignRequested:
    """The leader of this epoch cannot go on, or the node stops; later epochs are not meant."""

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
