"""What happens to a quorum. Named in the past tense; the result of an effect comes back as one of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.kernel.frozen import frozen


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


@frozen
class Synced:
    """The log is durable up to `end_offset`."""

    end_offset: int


@frozen
class SnapshotWritten:
    """There is a snapshot of everything below `end_offset`."""

    end_offset: int


@frozen
class SnapshotFailed:
    """The snapshot that was asked for could not be written."""


@frozen
class TimerExpired:
    """`deadline_ms` has come."""


Event = Started | Submitted | EntriesAppended | Synced | SnapshotWritten | SnapshotFailed | TimerExpired
