"""The state that all parts of the machine share (role, log, voters, effects of the step), and the role transitions.

Rules:
- An election is saved before anything that depends on it.
- Leaving a role forgets the requests it sent and fails the requests that wait in it.
- The vote granted in an epoch is kept in every role of that epoch.

KIPs: 595 the roles, 853 voters with directories, 996 pre-votes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.kernel.frozen import frozen
from ottla.kernel.ports import Rng
from ottla.raft.checkpoint import (
    Membership,
    VoterEndpoint,
    VoterNode,
    leader_change_record,
    membership_records,
)
from ottla.raft.connections import Connections, QuorumPeer
from ottla.raft.effect import AppendControl, Effect, LeaderChanged, SaveElection, Send, Warn
from ottla.raft.log_view import LogView
from ottla.raft.message import LeaderSeen
from ottla.raft.progress import QuorumProgress
from ottla.raft.role import (
    NO_NODE,
    UNKNOWN,
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
from ottla.raft.voters import VoterHistory, find_voter, replaced
from ottla.raft.votes import Votes
from ottla.settings.server.node import NodeDeclaration


@frozen
class QuorumSettings:
    """The settings of the quorum. Defaults are those of the server settings."""

    snapshot_bytes: int = NodeDeclaration.metadata_log_max_record_bytes_between_snapshots.default
    #: 0: no snapshot is due by time.
    snapshot_interval_ms: int = NodeDeclaration.metadata_log_max_snapshot_interval_ms.default
    #: The time without a record after which a NoOp is written; 0 writes none (docs/decisions/0420).
    idle_interval_ms: int = 0
    cluster_id: str = ""
    #: The listener on which controllers reach each other, and this node's endpoints on its controller listeners.
    listener: str = "CONTROLLER"
    endpoints: tuple[VoterEndpoint, ...] = ()
    #: The servers to ask for the leader while it is unknown.
    bootstrap: tuple[QuorumPeer, ...] = ()
    #: This node has the controller role: it can become a voter, so its log is synced before each fetch.
    can_vote: bool = True
    auto_join: bool = False
    election_timeout_ms: int = NodeDeclaration.controller_quorum_election_timeout_ms.default
    election_backoff_max_ms: int = NodeDeclaration.controller_quorum_election_backoff_max_ms.default
    fetch_timeout_ms: int = NodeDeclaration.controller_quorum_fetch_timeout_ms.default
    answer_timeout_ms: int = NodeDeclaration.controller_quorum_request_timeout_ms.default
    retry_backoff_ms: int = NodeDeclaration.controller_quorum_retry_backoff_ms.default
    fetch_max_bytes: int = NodeDeclaration.controller_quorum_fetch_max_bytes.default
    fetch_snapshot_max_bytes: int = NodeDeclaration.controller_quorum_fetch_snapshot_max_bytes.default
    fetch_wait_ms: int = 500


class QuorumMember:
    """The shared state of the machine's parts. The machine creates it."""

    def __init__(
        self, me: Voter, voters: VoterHistory, election: Election, settings: QuorumSettings, log: LogView, rng: Rng
    ) -> None:
        self.me = me
        self.voters = voters
        self.settings = settings
        self.log = log
        self.rng = rng
        bootstrap = tuple(peer for peer in settings.bootstrap if peer.node_id != me.node_id)
        self.connections = Connections(bootstrap, settings.retry_backoff_ms, settings.answer_timeout_ms, rng)
        #: The election that is saved, or whose `SaveElection` was requested.
        self.election = election
        self.role: QuorumRole = Unattached(election.epoch)
        #: The first offset not known to be committed; it never decreases.
        self.high_watermark = UNKNOWN
        #: The end of the durable part of our log.
        self.synced_offset = 0
        self.now_ms = 0
        self.effects: list[Effect] = []
        #: Called after the node lost the leadership, in its next role.
        self.on_leader_left: Callable[[Leader], None] = lambda _: None
        self._reported_leader = LeaderSeen(election.epoch, NO_NODE)

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def is_voter(self) -> bool:
        """True if this node, with its current directory, is a voter."""
        return find_voter(self.voters.last, self.me) is not None

    @property
    def may_lead(self) -> bool:
        """True if this node may start an election: it is a voter, or its removal is possibly not committed.

        A leader that removed itself and was restarted can be the only node with the longest log.
        """
        voters = self.voters
        is_voter = self.is_voter
        if is_voter or voters.last_offset < self.high_watermark:
            return is_voter
        return self.settings.can_vote and find_voter(voters.before_last, self.me) is not None

    @property
    def own_node(self) -> VoterNode:
        """This node as a voter."""
        return VoterNode(self.me, self.settings.endpoints)

    @property
    def needs_update(self) -> bool:
        """True if the log's entry for this voter is out of date."""
        node, own = find_voter(self.voters.last, self.me), self.own_node
        if node is None:
            return False
        return (node.voter, node.kraft_versions, set(node.endpoints)) != (
            own.voter,
            own.kraft_versions,
            set(own.endpoints),
        )

    @property
    def is_only_voter(self) -> bool:
        return len(self.voters.last.voters) == 1 and self.is_voter

    @property
    def leader(self) -> LeaderSeen:
        """The epoch and its leader, as far as this node knows."""
        return LeaderSeen(self.role.epoch, self.role.leader_id, self.role.leader_endpoints)

    def take_effects(self) -> list[Effect]:
        """Return and clear the effects of the step."""
        if self.leader != self._reported_leader:
            self._reported_leader = self.leader
            self.effects.append(LeaderChanged(*self._reported_leader))
        effects, self.effects = self.effects, []
        return effects

    def warn(self, text: str) -> None:
        self.effects.append(Warn(text))

    def send(self, peer: QuorumPeer, make: Callable[[], Any]) -> bool:
        """Send a request unless the peer is busy or in backoff; return True if sent."""
        if not self.connections.is_ready(peer.node_id, self.now_ms):
            return False
        request = make()
        ticket = self.connections.begin(peer, request, self.now_ms)
        self.effects.append(Send(ticket, peer, request, self.connections.timeout_ms))
        return True

    # ---- roles

    def election_timeout(self) -> int:
        """Return an election deadline, randomized so that two candidates do not collide forever."""
        timeout_ms = self.settings.election_timeout_ms
        return self.now_ms + timeout_ms + (self.rng.randrange(timeout_ms) if timeout_ms else 0)

    def begin(self, election: Election, leader_id: int, endpoints: tuple[VoterEndpoint, ...]) -> None:
        """Take the first role after a start. `endpoints` are the leader's, if known."""
        epoch, voted = election.epoch, election.voted
        if self.is_only_voter:
            self.role = Unattached(epoch, NO_NODE, voted)
            return self.become_prospective()
        if election.leader_id == self.me.node_id and self.may_lead:
            # The other voters may not know yet that this node no longer leads.
            return self._resigned(epoch, ())
        election_deadline_ms = self.election_timeout() if self.may_lead else None
        self.role = Unattached(epoch, leader_id, voted, election_deadline_ms=election_deadline_ms)
        if endpoints:
            self.become_follower(epoch, leader_id, endpoints)
        return self._save()

    def become_unattached(self, epoch: int, leader_id: int = NO_NODE) -> None:
        """Follow no leader. A running election timer continues."""
        role = self.role
        timer_continues = isinstance(role, Unattached | Candidate | ResignedLeader)
        timer_continues = timer_continues or (isinstance(role, Prospective) and not role.votes.is_lost)
        before_ms = role.election_deadline_ms if timer_continues else None  # type: ignore[attr-defined]
        election_deadline_ms = (
            None if not self.may_lead else self.election_timeout() if before_ms is None else before_ms
        )
        self._take(Unattached(epoch, leader_id, self._vote_in(epoch), election_deadline_ms=election_deadline_ms))

    def become_follower(self, epoch: int, leader_id: int, endpoints: tuple[VoterEndpoint, ...]) -> None:
        """Follow this leader; its endpoints must be known."""
        assert endpoints and leader_id != self.me.node_id
        end_ms = self.now_ms + self.settings.fetch_timeout_ms
        voted = self._vote_in(epoch)
        self._take(Follower(epoch, leader_id, voted, endpoints, fetch_deadline_ms=end_ms, update_deadline_ms=end_ms))

    def become_prospective(self) -> None:
        """Request pre-votes; a prospective node requests all of them again."""
        assert self.may_lead and not isinstance(self.role, Leader)
        if self.is_only_voter:
            return self.become_candidate()
        return self._take(Prospective(self.role, self._own_vote(), self.election_timeout()))

    def become_candidate(self) -> None:
        """Start a new epoch and vote for ourselves."""
        assert self.may_lead and not isinstance(self.role, Leader)
        votes = self._own_vote()
        election_deadline_ms = self.now_ms if votes.is_won else self.election_timeout()
        self._take(Candidate(self.role.epoch + 1, self.me, votes, election_deadline_ms))
        if votes.is_won:
            self.become_leader()

    def become_leader(self) -> None:
        """Start the epoch that was won."""
        role = self.role
        assert isinstance(role, Candidate) and role.votes.is_won
        membership = self.voters.last
        progress = QuorumProgress(self.me, membership)
        progress.replica(self.me).end_offset = self.synced_offset
        volatile = (
            self.own_node if node.voter.node_id == self.me.node_id else node._replace(kraft_versions=(0, 0))
            for node in membership.voters
        )
        self._take(
            Leader(
                role.epoch,
                self.me,
                role.votes.granted,
                progress,
                self.settings.endpoints,
                volatile_voters=Membership(0, tuple(volatile)),
                epoch_start_offset=self.log.end_offset,
                announce_deadline_ms=self.now_ms,
                check_deadline_ms=self.now_ms + self.check_quorum_ms,
            )
        )
        voters = [node.voter for node in membership.voters]
        granting = [voter for voter in voters if voter in role.votes.granted]
        records = [leader_change_record(self.me.node_id, voters, granting)]
        if membership.kraft_version and (self.voters.last_offset == UNKNOWN or self.needs_update):
            # The log has no voters yet, or its entry for this node is out of date.
            records += membership_records(replaced(membership, self.own_node))
        self.effects.append(AppendControl(role.epoch, tuple(records)))

    def resign(self) -> None:
        """Give up the leadership of this epoch and let another voter win the next."""
        role = self.role
        assert isinstance(role, Leader)
        self._resigned(role.epoch, role.progress.successors())

    def _resigned(self, epoch: int, successors: tuple[Voter, ...]) -> None:
        others = {node.voter.node_id for node in self.voters.last.voters} - {self.me.node_id}
        self._take(
            ResignedLeader(
                epoch,
                self.me,
                self.settings.endpoints,
                unacknowledged=others,
                successors=successors,
                election_deadline_ms=self.election_timeout(),
            )
        )

    def vote_for(self, candidate: Voter) -> None:
        """Grant our vote in this epoch. The candidate is as likely to win as we are, so restart our election timer."""
        role = self.role
        assert role.voted is None and isinstance(role, Unattached | Prospective)
        role.voted = candidate
        role.election_deadline_ms = self.election_timeout()
        if isinstance(role, Prospective):
            role.votes = self._own_vote()
        self._save()

    @property
    def check_quorum_ms(self) -> int:
        """How long a leader leads without a majority of fetching voters: longer than the fetch timeout."""
        return self.settings.fetch_timeout_ms * 3 // 2

    def _own_vote(self) -> Votes:
        return Votes((node.voter for node in self.voters.last.voters), self.me.node_id)

    def _vote_in(self, epoch: int) -> Voter | None:
        return self.role.voted if epoch == self.role.epoch else None

    def _take(self, role: QuorumRole) -> None:
        before = self.role
        assert role.epoch >= before.epoch
        self.role = role
        self.connections.reset_all()
        self._save()
        if isinstance(before, Leader):
            self.on_leader_left(before)

    def _save(self) -> None:
        if self.role.election != self.election:
            self.election = self.role.election
            self.effects.append(SaveElection(self.election))
