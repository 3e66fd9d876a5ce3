"""A node of the quorum as a pure machine: `step(event, now_ms)` returns effects. No clock, no disk, no network.

Rules:
- A vote is saved before it counts, including the vote for ourselves: a crash must not let us vote twice in an epoch.
- A leader starts its epoch with a LeaderChange record and commits nothing before that record is committed.
- The high watermark is the offset that a majority of the voters has synced. It never decreases.
- `now_ms` is monotonic.

Parts: `member` the roles, `serving` the leader's side, `snapshotting` the snapshot schedule. `others` has the parts
that a quorum of one never loads: `discovery` of the leader, `electing` votes, `following`, `change` of the voters.

KIPs: 595 the protocol, 630 snapshots, 835 NoOp records, 853 voters with directories, 996 pre-votes, 1166 high
watermarks in Fetch.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ottla.kernel.frozen import frozen
from ottla.kernel.lazy import LazyModule
from ottla.kernel.now import earliest
from ottla.kernel.ports import Rng
from ottla.raft.checkpoint import Membership, VoterEndpoint
from ottla.raft.connections import QuorumPeer
from ottla.raft.effect import AppendEntries, AppendNoOp, Effect, Sync
from ottla.raft.event import (
    AppendFailed,
    EntriesAppended,
    Event,
    InstallFailed,
    LogTruncated,
    RequestDropped,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    SnapshotFailed,
    SnapshotInstalled,
    SnapshotWritten,
    Started,
    Submitted,
    Synced,
    TimerExpired,
    VersionRaised,
)
from ottla.raft.log_view import LogView
from ottla.raft.member import QuorumMember, QuorumSettings
from ottla.raft.message import peer_of
from ottla.raft.progress import LogReplica
from ottla.raft.role import (
    NO_NODE,
    Candidate,
    Election,
    Follower,
    Leader,
    Prospective,
    QuorumRole,
    ResignedLeader,
    Unattached,
    Voter,
)
from ottla.raft.serving import Serving
from ottla.raft.snapshotting import SnapshotSchedule
from ottla.raft.voters import VoterHistory, find_node

if TYPE_CHECKING:
    from ottla.raft import others
    from ottla.wire.api import fetch as fetch_api
else:
    others = LazyModule("ottla.raft.others")
    fetch_api = LazyModule("ottla.wire.api.fetch")

__all__ = ["Quorum", "QuorumSettings", "ReplicaView"]


@frozen
class ReplicaView:
    """A replica as the leader knows it. Ages in ms; None if it has never fetched or never caught up."""

    key: Voter
    endpoints: tuple[VoterEndpoint, ...]
    end_offset: int
    fetched_ms_ago: int | None
    caught_up_ms_ago: int | None


class Quorum:
    """A node of the quorum. The driver creates it from `quorum-state`, the log and the settings, then sends `Started`.

    `me` is this node's id and the id of its metadata log directory. The machine takes ownership of `voters`.
    """

    def __init__(
        self, me: Voter, voters: VoterHistory, election: Election, settings: QuorumSettings, log: LogView, rng: Rng
    ) -> None:
        self._member = member = QuorumMember(me, voters, election, settings, log, rng)
        self._snapshots = SnapshotSchedule(member)
        self._serving = Serving(member, self._snapshots)
        member.on_leader_left = self._leader_left
        self._appended_ms = 0

    @cached_property
    def _peer_protocol(self) -> others.PeerProtocol:
        """The parts that a quorum of one starts without."""
        return others.PeerProtocol(self._member, self._serving, self._snapshots)

    # ---- queries of the driver

    @property
    def role(self) -> QuorumRole:
        return self._member.role

    @property
    def election(self) -> Election:
        """The election that is saved, or whose `SaveElection` was requested."""
        return self._member.election

    @property
    def leads(self) -> bool:
        return isinstance(self._member.role, Leader)

    @property
    def is_applying(self) -> bool:
        """Whether the driver is still to store what was fetched."""
        role = self._member.role
        return isinstance(role, Follower) and role.is_applying

    @property
    def epoch(self) -> int:
        return self._member.role.epoch

    @property
    def leader_id(self) -> int:
        """The leader of the epoch, possibly this node; NO_NODE if it is unknown."""
        return self.role.leader_id

    @property
    def leader(self) -> QuorumPeer | None:
        """The leader with its address; None if it is unknown or this node."""
        role = self.role
        if role.leader_id in (NO_NODE, self._member.me.node_id):
            return None
        return peer_of(role.leader_id, role.leader_endpoints, self._member.settings.listener)

    @property
    def high_watermark(self) -> int:
        """The first offset not known to be committed; UNKNOWN (-1) at first."""
        return self._member.high_watermark

    @property
    def leader_high_watermark(self) -> int:
        """The high watermark of this leader's epoch; UNKNOWN until a record of that epoch is committed."""
        return self._leader().high_watermark

    @property
    def membership(self) -> Membership:
        """The voters according to the newest record, committed or not."""
        return self._member.voters.last

    def membership_at(self, end_offset: int) -> Membership:
        """Return the voters to write into a snapshot of everything below `end_offset`."""
        return self._member.voters.at(end_offset)

    def describe(self, now_ms: int) -> tuple[list[ReplicaView], list[ReplicaView]]:
        """Return (voters, observers) with their progress; only valid on the leader."""
        role = self._leader()

        def view(replica: LogReplica) -> ReplicaView:
            if replica.key.node_id == self._member.me.node_id and role.progress.replica(self._member.me) is replica:
                return ReplicaView(replica.key, replica.endpoints, self._member.log.end_offset, 0, 0)
            ages = (None if at < 0 else now_ms - at for at in (replica.fetched_ms, replica.caught_up_ms))
            return ReplicaView(replica.key, replica.endpoints, replica.end_offset, *ages)

        observers = role.progress.live_observers(now_ms)
        return [view(replica) for replica in role.progress.voters.values()], [view(replica) for replica in observers]

    def version_refusal(self, kraft_version: int) -> str | None:
        """Return why kraft.version cannot be raised to this level now; None if it can."""
        return self._peer_protocol.changes.version_refusal(kraft_version)

    def deadline_ms(self) -> int | None:
        """Return when `TimerExpired` is due; None if no timer is running."""
        member = self._member
        role, now_ms = member.role, member.now_ms
        deadlines = [self._serving.deadline_ms(), self._idle_deadline_ms(), member.connections.deadline_ms(now_ms)]
        match role:
            case Leader():
                deadlines += self._leader_deadlines(role)
            case Follower() if member.may_lead:
                deadlines += [role.election_deadline_ms, self._update_deadline_ms(role)]
            case Follower() if member.settings.auto_join and member.settings.can_vote:
                deadlines.append(self._update_deadline_ms(role))
            case Unattached() if not member.may_lead:
                pass
            case Unattached() | Prospective() | Candidate() | ResignedLeader():
                deadlines.append(role.election_deadline_ms)
        return earliest(deadlines)

    def _update_deadline_ms(self, role: Follower) -> int | None:
        """None if the last step could not send a due request: it goes when the leader answers or its backoff ends."""
        return role.update_deadline_ms if role.update_deadline_ms > self._member.now_ms else None

    def _leader_deadlines(self, role: Leader) -> list[int | None]:
        followers = len(role.progress.voters) - role.progress.counts_leader
        return [
            role.announce_deadline_ms if followers else None,
            role.check_deadline_ms if followers else None,
            role.change.deadline_ms if role.change is not None else None,
        ]

    # ---- events

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle one event and return its effects, in order."""
        member = self._member
        member.now_ms = now_ms
        self._take(event)
        self._poll()
        self._snapshots.write_if_due()
        return member.take_effects()

    def _take(self, event: Event) -> None:
        member = self._member
        match event:
            case Started():
                self._start(event)
            case Submitted():
                member.effects.append(AppendEntries(self._leader().epoch, event.records))
            case EntriesAppended():
                self._appended(event)
            case Synced():
                self._synced(event)
            case RequestReceived():
                self._request(event)
            case RequestDropped():
                self._serving.drop(event.ticket)
                if isinstance(self.role, Leader) and self.role.change is not None:
                    self._peer_protocol.changes.drop(event.ticket)
            case ResponseReceived():
                self._response(event)
            case RequestFailed():
                exchange = member.connections.find(event.ticket)
                if exchange is not None:
                    self._peer_protocol.failed(exchange, event)
            case AppendFailed() if isinstance(self.role, Leader):
                self._peer_protocol.changes.not_appended(self.role)
            case AppendFailed() | InstallFailed():
                self._peer_protocol.following.failed()
            case LogTruncated():
                self._peer_protocol.following.truncated(event.end_offset)
            case SnapshotInstalled():
                self._peer_protocol.following.installed(event)
            case SnapshotWritten():
                self._snapshots.ended(event.end_offset)
            case SnapshotFailed():
                self._snapshots.ended()
            case TimerExpired():
                self._timer()
            case VersionRaised():
                self._peer_protocol.changes.raise_version(event.kraft_version)
            case ResignRequested():
                if isinstance(self.role, Leader) and self.role.epoch == event.epoch:
                    self.role.must_resign = True

    def _poll(self) -> None:
        """Do the due work; repeat when the role changes, because the new role has its own."""
        before = None
        while before is not self.role:
            before = self.role
            if isinstance(before, Leader):
                self._poll_leader(before)
            else:
                self._peer_protocol.poll(before)

    def _poll_leader(self, role: Leader) -> None:
        member = self._member
        followers = len(role.progress.voters) - role.progress.counts_leader
        if role.must_resign or (followers and member.now_ms >= role.check_deadline_ms):
            return member.resign()
        if role.change is not None:
            self._peer_protocol.changes.expire(role)
        if followers:
            self._peer_protocol.electing.announce(role)
        return None

    def _timer(self) -> None:
        self._serving.expire()
        idle_ms = self._idle_deadline_ms()
        if idle_ms is not None and idle_ms <= self._member.now_ms:
            self._member.effects.append(AppendNoOp(self.epoch))

    def _idle_deadline_ms(self) -> int | None:
        idle_ms = self._member.settings.idle_interval_ms
        return self._appended_ms + idle_ms if self.leads and idle_ms else None

    # ---- the log

    def _start(self, event: Started) -> None:
        member = self._member
        # The log after the snapshot was read, but possibly never synced before a crash: the first sync settles it.
        member.synced_offset = event.snapshot_end_offset
        self._snapshots.start(event)
        self._appended_ms = member.now_ms
        election = member.election
        if election.epoch < member.log.last_epoch:
            election = Election(member.log.last_epoch)
        was_leader = election.leader_id == member.me.node_id
        # A restarted leader starts a new epoch, so that no epoch is led twice.
        leader_id = NO_NODE if was_leader else election.leader_id
        node = find_node(member.voters.last, leader_id)
        member.begin(election, leader_id, () if node is None else node.endpoints)
        if member.settings.can_vote and member.synced_offset < member.log.end_offset and not self.leads:
            member.effects.append(Sync())

    def _appended(self, event: EntriesAppended) -> None:
        member, role = self._member, self.role
        self._snapshots.appended(event.size)
        self._appended_ms = member.now_ms
        for offset, message in event.changes:
            member.voters.change(offset, message)
        if not isinstance(role, Leader):
            return self._peer_protocol.following.appended()
        if event.changes:
            role.progress.follow(member.voters.last)
            if role.change is not None:
                self._peer_protocol.changes.appended(role, event.changes)
        self._serving.wake_behind(event.end_offset)
        member.effects.append(Sync())
        return None

    def _synced(self, event: Synced) -> None:
        member, role = self._member, self.role
        member.synced_offset = max(member.synced_offset, min(event.end_offset, member.log.end_offset))
        if isinstance(role, Leader):
            role.progress.replica(member.me).end_offset = member.synced_offset
            self._serving.advance(role)
            self._settle_change(role)

    # ---- messages

    def _request(self, event: RequestReceived) -> None:
        if not isinstance(event.request, fetch_api.FetchRequest):
            return self._peer_protocol.request(event)
        self._serving.fetch(event)
        if isinstance(self.role, Leader):
            self._settle_change(self.role)
        return None

    def _response(self, event: ResponseReceived) -> None:
        member = self._member
        exchange = member.connections.find(event.ticket)
        if exchange is None or member.connections.has_timed_out(exchange.peer.node_id, member.now_ms):
            return
        is_good = self._peer_protocol.response(exchange, event.response)
        member.connections.finish(exchange, member.now_ms, succeeded=is_good)

    def _settle_change(self, role: Leader) -> None:
        """Finish a voter change that the high watermark may have passed."""
        if role.change is not None or not self._member.is_voter:
            self._peer_protocol.changes.committed(role)

    def _leader_left(self, role: Leader) -> None:
        self._serving.refuse()
        if role.change is not None:
            self._peer_protocol.changes.refuse(role)

    # ---- checks

    def validate(self) -> None:
        """Assert every invariant."""
        member, role = self._member, self.role
        assert role.epoch >= member.election.epoch
        assert self._snapshots.end_offset <= member.log.end_offset
        assert member.synced_offset <= member.log.end_offset
        assert member.high_watermark <= member.log.end_offset
        if isinstance(role, Leader):
            assert member.election == role.election
            assert role.granted
            own = role.progress.replica(member.me)
            assert role.high_watermark <= member.high_watermark
            assert own.end_offset <= member.synced_offset

    def _leader(self) -> Leader:
        assert isinstance(self.role, Leader), f"{type(self.role).__name__} was asked to write"
        return self.role
