"""When a snapshot of the metadata is due: after so many bytes, or after so long when there are records (KIP-630).

One is written at a time. After one, written or failed, the budget begins again: a full disk is not retried on every
commit.
"""

from __future__ import annotations

from ottla.raft.effect import CleanLog, Commit, WriteSnapshot
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
        #: A snapshot is being written.
        self._is_writing = False

    def start(self, event: Started) -> None:
        self.end_offset = event.snapshot_end_offset
        self._bytes = event.bytes_since_snapshot
        self._from_ms = self._member.now_ms

    def appended(self, size: int) -> None:
        self._bytes += size

    def commit(self, high_watermark: int) -> None:
        """Everything below is committed; write a snapshot if one is due."""
        member = self._member
        if high_watermark <= member.high_watermark:
            return
        member.high_watermark = high_watermark
        member.effects.append(Commit(high_watermark))
        settings = member.settings
        is_due = (
            self._bytes >= settings.snapshot_bytes or member.now_ms - self._from_ms >= settings.snapshot_interval_ms
        )
        if not is_due or self._is_writing:
            return
        self._is_writing = True
        member.effects.append(WriteSnapshot(high_watermark))

    def ended(self, end_offset: int = UNKNOWN) -> None:
        """The snapshot stands, or it failed."""
        self._is_writing = False
        self._bytes = 0
        self._from_ms = self._member.now_ms
        if end_offset != UNKNOWN:
            self.end_offset = max(self.end_offset, end_offset)
            self._member.effects.append(CleanLog(end_offset))

    def installed(self, end_offset: int) -> None:
        """A snapshot of the leader stands, and everything in it is committed."""
        self._bytes = 0
        self._from_ms = self._member.now_ms
        self.end_offset = end_offset
        self._member.high_watermark = max(self._member.high_watermark, end_offset)
