"""Schedules metadata snapshots: after a number of bytes, or after a time if there are new records (KIP-630).

One snapshot is written at a time. After each, written or failed, both budgets restart, so that a full disk is not
retried on every commit.
"""

from __future__ import annotations

from ottla.raft.effect import CleanLog, Commit, Sync, WriteSnapshot
from ottla.raft.event import Started
from ottla.raft.member import QuorumMember
from ottla.raft.role import UNKNOWN


class SnapshotSchedule:
    """The snapshot schedule of one node; voters and observers each write their own. The machine creates it."""

    def __init__(self, member: QuorumMember) -> None:
        self._member = member
        self.end_offset = 0
        self._bytes = 0
        self._budget_start_ms = 0
        #: The high watermark has advanced since a snapshot was last considered.
        self._has_moved = False
        #: A snapshot is being written.
        self._is_writing = False

    def start(self, event: Started) -> None:
        """Resume from the state on disk."""
        self.end_offset = event.snapshot_end_offset
        if event.snapshot_end_offset:
            # The content of a snapshot is committed.
            self._member.high_watermark = event.snapshot_end_offset
        self._bytes = event.bytes_since_snapshot
        self._budget_start_ms = self._member.now_ms

    def appended(self, size: int) -> None:
        self._bytes += size

    def commit(self, high_watermark: int) -> None:
        """Commit everything below `high_watermark`."""
        member = self._member
        if high_watermark > member.high_watermark:
            member.high_watermark = high_watermark
            member.effects.append(Commit(high_watermark))
            self._has_moved = True

    def write_if_due(self) -> None:
        """Request a due snapshot after a commit, last in the step: it may move the start of the log.

        Recovery trusts the log below a snapshot, so the log must be durable up to there first. A follower can learn
        of a commit before its own log is durable.
        """
        member, settings = self._member, self._member.settings
        age_ms = member.now_ms - self._budget_start_ms
        is_due = self._bytes >= settings.snapshot_bytes or 0 < settings.snapshot_interval_ms <= age_ms
        if not is_due or not self._has_moved or self._is_writing:
            self._has_moved = self._has_moved and is_due
        elif member.synced_offset >= member.high_watermark:
            self._has_moved, self._is_writing = False, True
            member.effects.append(WriteSnapshot(member.high_watermark))
        elif not settings.can_vote:
            member.effects.append(Sync())

    def ended(self, end_offset: int = UNKNOWN) -> None:
        """The snapshot was written up to `end_offset`, or failed if that is UNKNOWN."""
        self._is_writing = False
        self._bytes = 0
        self._budget_start_ms = self._member.now_ms
        if end_offset != UNKNOWN:
            self.end_offset = max(self.end_offset, end_offset)
            self._member.voters.forget(end_offset - 1)
            self._member.effects.append(CleanLog(end_offset))

    def installed(self, end_offset: int) -> None:
        """A snapshot of the leader was installed; everything in it is committed."""
        self._bytes = 0
        self._budget_start_ms = self._member.now_ms
        self.end_offset = end_offset
        self._member.high_watermark = max(self._member.high_watermark, end_offset)
