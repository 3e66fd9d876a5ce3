"""One voter of the quorum, as a machine: `step(event, now_ms)` gives effects. No clock, no disk, no network.

Rules:
- A vote is saved before it counts, ours for ourselves too: a crash in between must not let us vote twice in an epoch.
- A leader begins its epoch with a LeaderChange record and commits nothing before that is committed.
- The high watermark is what a majority of the voters has synced. It never goes back.
- A snapshot is due after so many bytes of records, or after so long when there are any (KIP-630).
- `now_ms` is monotonic.

KIPs: 595 the protocol, 630 snapshots, 835 NoOp records, 853 voters with directories.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.kernel.error import OttlaError
from ottla.kernel.frozen import frozen
from ottla.raft.effect import (
    AppendEntries,
    AppendLeaderChange,
    AppendNoOp,
    CleanLog,
    Commit,
    Effect,
    SaveElection,
    Sync,
    WriteSnapshot,
)
from ottla.raft.event import (
    EntriesAppended,
    Event,
    SnapshotFailed,
    SnapshotWritten,
    Started,
    Submitted,
    Synced,
    TimerExpired,
)
from ottla.raft.role import Candidate, Election, Leader, Role, Unattached, Voter


@frozen
class QuorumSettings:
    """The plain numbers a quorum needs. Defaults are Kafka's."""

    snapshot_bytes: int = 20 * 1024 * 1024
    snapshot_interval_ms: int = 3_600_000
    #: After how long without a record a NoOp is written; 0 writes none (docs/decisions/0031).
    idle_interval_ms: int = 0


class Quorum:
    """The voter of this node. The driver makes it with what `quorum-state` says, and tells it `Started`."""

    def __init__(self, me: Voter, voters: tuple[Voter, ...], election: Election, settings: QuorumSettings) -> None:
        if me not in voters:
            named = ", ".join(str(voter.node_id) for voter in voters) or "nobody"
            raise OttlaError(f"node {me.node_id} is not a voter of this quorum, which is {named}")
        if len(voters) > 1:
            named = ", ".join(str(voter.node_id) for voter in voters)
            raise OttlaError(
                f"the quorum has {len(voters)} voters ({named}); clusters are not yet served: run one controller"
            )
        self._me = me
        self._voters = voters
        self._settings = settings
        #: What is saved, or was asked to be saved.
        self.election = election
        self.role: Role = Unattached(election.epoch)
        #: The end of our log.
        self._end_offset = 0
        #: voter -> up to where its log is durable, as far as we know.
        self._synced: dict[Voter, int] = dict.fromkeys(voters, 0)
        self._snapshot_end_offset = 0
        self._bytes_since_snapshot = 0
        self._snapshot_from_ms = 0
        #: A snapshot is being written.
        self._is_writing = False
        self._appended_ms = 0

    @property
    def leads(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def epoch(self) -> int:
        return self.role.epoch

    def deadline_ms(self) -> int | None:
        """When `TimerExpired` is due, or None when nothing waits for time."""
        if not self.leads or not self._settings.idle_interval_ms:
            return None
        return self._appended_ms + self._settings.idle_interval_ms

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event; what is to be done, in order."""
        match event:
            case Started():
                return self._start(event, now_ms)
            case Submitted():
                return [AppendEntries(self._leader().epoch, event.records)]
            case EntriesAppended():
                return self._append(event, now_ms)
            case Synced():
                return self._sync(event, now_ms)
            case SnapshotWritten():
                self._snapshot_ended(now_ms)
                self._snapshot_end_offset = event.end_offset
                return [CleanLog(event.end_offset)]
            case SnapshotFailed():
                self._snapshot_ended(now_ms)
                return []
            case TimerExpired():
                deadline_ms = self.deadline_ms()
                is_due = deadline_ms is not None and deadline_ms <= now_ms
                return [AppendNoOp(self.epoch)] if is_due else []

    def validate(self) -> None:
        """Assert every invariant."""
        role = self.role
        assert role.epoch == self.election.epoch
        assert self._snapshot_end_offset <= self._end_offset
        assert all(offset <= self._end_offset for offset in self._synced.values())
        if isinstance(role, Leader):
            assert self.election.leader_id == self._me.node_id
            assert len(role.granted) > len(self._voters) // 2
            assert role.high_watermark <= self._synced[self._me] <= self._end_offset
        else:
            assert self.election.leader_id != self._me.node_id

    def _leader(self) -> Leader:
        assert isinstance(self.role, Leader), f"{self.role} was asked to write"
        return self.role

    def _start(self, event: Started, now_ms: int) -> list[Effect]:
        self._end_offset = event.end_offset
        # The rest of the log was read, but a crash may have come before its sync: the first sync will tell.
        self._synced[self._me] = event.snapshot_end_offset
        self._snapshot_end_offset = event.snapshot_end_offset
        self._bytes_since_snapshot = event.bytes_since_snapshot
        self._snapshot_from_ms = self._appended_ms = now_ms
        self.role = Unattached(self.election.epoch)
        # A leader that was restarted begins a new epoch, so that no epoch is ever led twice.
        return self._campaign()

    def _campaign(self) -> list[Effect]:
        epoch = self.role.epoch + 1
        self.role = Candidate(epoch, frozenset({self._me}))
        self.election = Election(epoch, voted=self._me)
        return [SaveElection(self.election), *self._count_votes()]

    def _count_votes(self) -> list[Effect]:
        role = self.role
        assert isinstance(role, Candidate)
        if len(role.granted) <= len(self._voters) // 2:
            return []
        self.role = Leader(role.epoch, role.granted, epoch_start_offset=self._end_offset, high_watermark=0)
        self.election = Election(role.epoch, leader_id=self._me.node_id)
        granting = tuple(voter for voter in self._voters if voter in role.granted)
        return [
            SaveElection(self.election),
            AppendLeaderChange(role.epoch, self._me.node_id, self._voters, granting),
        ]

    def _append(self, event: EntriesAppended, now_ms: int) -> list[Effect]:
        assert event.end_offset > self._end_offset
        self._end_offset = event.end_offset
        self._bytes_since_snapshot += event.size
        self._appended_ms = now_ms
        return [Sync()]

    def _sync(self, event: Synced, now_ms: int) -> list[Effect]:
        self._synced[self._me] = max(self._synced[self._me], event.end_offset)
        role = self._leader()
        ends = sorted(self._synced.values())
        majority_has = ends[(len(ends) - 1) // 2]
        if majority_has <= max(role.epoch_start_offset, role.high_watermark):
            return []
        self.role = replace(role, high_watermark=majority_has)
        return [Commit(majority_has), *self._snapshot(now_ms)]

    def _snapshot_ended(self, now_ms: int) -> None:
        """The next one is due after as much again, also when this one failed: a full disk is not asked all the time."""
        self._is_writing = False
        self._bytes_since_snapshot = 0
        self._snapshot_from_ms = now_ms

    def _snapshot(self, now_ms: int) -> list[Effect]:
        settings = self._settings
        is_due = (
            self._bytes_since_snapshot >= settings.snapshot_bytes
            or now_ms - self._snapshot_from_ms >= settings.snapshot_interval_ms
        )
        if not is_due or self._is_writing:
            return []
        self._is_writing = True
        return [WriteSnapshot(self._leader().high_watermark)]
