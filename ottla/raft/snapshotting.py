"""When a snapshot of the metadata is due: after so many bytes, or after so long when there are records (KIP-630).

One is written at a time. After one, written or failed, the budget begins again: a full disk is not retried on every
commit.
"""

from __future__ import annotations

from ottla.raft.effect import CleanLog, Commit, Sync, WriteSnapshot
from ottla.raft.event import Started
from ottla.raft.member import QuorumMember
from ottla.raft.role import UNKNOWN


class SnapshotSchedule:
    """The machine makes it. Every node of the quorum, voter or not, writes its own."""

    def __init__(self, member: QuorumMember) -> None:
        self._member = member
        self.end_offset = 0
        self._bytes = 0
        self._from_ms = 0
        #: The high watermark has moved since a snapshot was last considered.
        self._has_moved = False
        #: A snapshot is being written.
        self._is_writing = False

    def start(self, event: Started) -> None:
        """Go on with what the disk holds."""
        self.end_offset = event.snapshot_end_offset
        if event.snapshot_end_offset:
            # What a snapshot holds was committed.
            self._member.high_watermark = event.snapshot_end_offset
        self._bytes = event.bytes_since_snapshot
        self._from_ms = self._member.now_ms

    def appended(self, size: int) -> None:
        self._bytes += size

    def commit(self, high_watermark: int) -> None:
        """Everything below is committed."""
        member = self._member
        if high_watermark > member.high_watermark:
            member.high_watermark = high_watermark
            member.effects.append(Commit(high_watermark))
            self._has_moved = True

    def write_if_due(self) -> None:
        """After a commit, and behind all else of the step: the snapshot may move the start of the log.

        Recovery believes what lies below a snapshot, so the log is durable up to there first. A follower knows of
        commits before its own log is.
        """
        member, settings = self._member, self._member.settings
        age_ms = member.now_ms - self._from_ms
        is_due = self._bytes >= settings.snapshot_bytes or age_ms >= settings.snapshot_interval_ms
        if not is_due or not self._has_moved or self._is_writing:
            self._has_moved = self._has_moved and is_due
        elif member.synced_offset >= member.high_watermark:
            self._has_moved, self._is_writing = False, True
            member.effects.append(WriteSnapshot(member.high_watermark))
        elif not settings.can_vote:
            member.effects.append(Sync())

    def ended(self, end_offset: int = UNKNOWN) -> None:
        """The snapshot stands, or it failed."""
        self._is_writing = False
        self._bytes = 0
        self._from_ms = self._member.now_ms
        if end_offset != UNKNOWN:
            self.end_offset = max(self.end_offset, end_offset)
            self._member.voters.forget(end_offset - 1)
            self._member.effects.append(CleanLog(end_offset))

    def installed(self, end_offset: int) -> None:
        """A snapshot of the leader stands, and everything in it is committed."""
        self._bytes = 0
        self._from_ms = self._member.now_ms
        self.end_offset = end_offset
        self._member.high_watermark = max(self._member.high_watermark, end_offset)
