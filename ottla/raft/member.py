"""What all parts of the machine share: the role, the log, the voters, the effects of the step; and how roles change.

Rules:
- An election is saved before anything that follows from it.
- Leaving a role forgets the requests that it sent, and refuses those that wait in it.
- The vote that was given in an epoch stays given in every role of this epoch.

KIPs: 595 the roles, 853 voters with directories, 996 the question before the vote.
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
    """The plain facts a quorum needs. Defaults are the server settings'."""

    snapshot_bytes: int = NodeDeclaration.metadata_log_max_record_bytes_between_snapshots.default
    snapshot_interval_ms: int = NodeDeclaration.metadata_log_max_snapshot_interval_ms.default
    #: After how long without a record a NoOp is written; 0 writes none (docs/decisions/0420).
    idle_interval_ms: int = 0
    cluster_id: str = ""
    #: The listener on which controllers find each other, and where this node is found on its controller listeners.
    listener: str = "CONTROLLER"
    endpoints: tuple[VoterEndpoint, ...] = ()
    #: Whom to ask for the leader while it is not known.
    bootstrap: tuple[QuorumPeer, ...] = ()
    #: This node has the controller role: it may become a voter, so its log is synced before each fetch.
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
    """The machine makes it; its parts act on it."""

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
        #: What is saved, or was asked to be saved.
        self.election = election
        self.role: QuorumRole = Unattached(election.epoch)
        #: What this node knows to be committed; it never goes back.
        self.high_watermark = UNKNOWN
        #: Up to where our log is durable.
        self.synced_offset = 0
        self.now_ms = 0
        self.effects: list[Effect] = []
        #: Called when the node leads no more, in its next role.
        self.on_leader_left: Callable[[Leader], None] = lambda _: None
        self._told = LeaderSeen(election.epoch, NO_NODE)

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def is_voter(self) -> bool:
        """Does this node, with this directory, vote?"""
        return find_voter(self.voters.last, self.me) is not None

    @property
    def may_lead(self) -> bool:
        """May it ask for votes? A voter, and one whose removal may not be committed: it may be needed for that.

        A leader that has removed itself, and was restarted, can be the only one with the longest log.
        """
        voters = self.voters
        if self.is_voter or voters.last_offset < self.high_watermark:
            return self.is_voter
        return self.settings.can_vote and find_voter(voters.before_last, self.me) is not None

    @property
    def own_node(self) -> VoterNode:
        """This node as a voter."""
        return VoterNode(self.me, self.settings.endpoints)

    @property
    def needs_update(self) -> bool:
        """Does the log say something else of this voter than what it is?"""
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
        """The leader as this node knows it."""
        return LeaderSeen(self.role.epoch, self.role.leader_id, self.role.leader_endpoints)

    def take_effects(self) -> list[Effect]:
        """What the step wants done."""
        if self.leader != self._told:
            self._told = self.leader
            self.effects.append(LeaderChanged(*self._told))
        effects, self.effects = self.effects, []
        return effects

    def warn(self, text: str) -> None:
        self.effects.append(Warn(text))

    def send(self, peer: QuorumPeer, make: Callable[[], Any]) -> bool:
        """Send a request if the peer is not busy and does not pause."""
        if not self.connections.is_ready(peer.node_id, self.now_ms):
            return False
        request = make()
        ticket = self.connections.begin(peer, request, self.now_ms)
        self.effects.append(Send(ticket, peer, request, self.connections.timeout_ms))
        return True

    # ---- roles

    def election_timeout(self) -> int:
        """When an election that begins now is over, by chance: two candidates must not meet again and again."""
        timeout_ms = self.settings.election_timeout_ms
        return self.now_ms + timeout_ms + (self.rng.randrange(timeout_ms) if timeout_ms else 0)

    def begin(self, election: Election, leader_id: int, endpoints: tuple[VoterEndpoint, ...]) -> None:
        """Take the first role, after what was saved. `endpoints` are those of the leader, if they are known."""
        epoch, voted = election.epoch, election.voted
        if self.is_only_voter:
            self.role = Unattached(epoch, NO_NODE, voted)
            return self.become_prospective()
        if election.leader_id == self.me.node_id and self.may_lead:
            # The others may not know yet that it leads no more.
            return self._resigned(epoch, ())
        election_ms = self.election_timeout() if self.may_lead else None
        self.role = Unattached(epoch, leader_id, voted, election_ms=election_ms)
        if endpoints:
            self.become_follower(epoch, leader_id, endpoints)
        return self._save()

    def become_unattached(self, epoch: int, leader_id: int = NO_NODE) -> None:
        """Follow no leader. The time until an election goes on, if it was running."""
        role = self.role
        goes_on = isinstance(role, Unattached | Candidate | ResignedLeader)
        goes_on = goes_on or (isinstance(role, Prospective) and not role.votes.is_lost)
        before_ms = role.election_ms if goes_on else None  # type: ignore[attr-defined]
        election_ms = None if not self.may_lead else self.election_timeout() if before_ms is None else before_ms
        self._take(Unattached(epoch, leader_id, self._vote_in(epoch), election_ms=election_ms))

    def become_follower(self, epoch: int, leader_id: int, endpoints: tuple[VoterEndpoint, ...]) -> None:
        """Follow this leader, whose addresses are known."""
        assert endpoints and leader_id != self.me.node_id
        end_ms = self.now_ms + self.settings.fetch_timeout_ms
        voted = self._vote_in(epoch)
        self._take(Follower(epoch, leader_id, voted, endpoints, fetch_ms=end_ms, update_ms=end_ms))

    def become_prospective(self) -> None:
        """Ask whether an election could be won; a node that asked already asks everyone again."""
        assert self.may_lead and not isinstance(self.role, Leader)
        if self.is_only_voter:
            return self.become_candidate()
        return self._take(Prospective(self.role, self._own_vote(), self.election_timeout()))

    def become_candidate(self) -> None:
        """Vote for ourselves in a new epoch."""
        assert self.may_lead and not isinstance(self.role, Leader)
        votes = self._own_vote()
        election_ms = self.now_ms if votes.is_won else self.election_timeout()
        self._take(Candidate(self.role.epoch + 1, self.me, votes, election_ms))
        if votes.is_won:
            self.become_leader()

    def become_leader(self) -> None:
        """Begin the epoch that was won."""
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
                begin_ms=self.now_ms,
                check_ms=self.now_ms + self.check_quorum_ms,
            )
        )
        voters = [node.voter for node in membership.voters]
        granting = [voter for voter in voters if voter in role.votes.granted]
        records = [leader_change_record(self.me.node_id, voters, granting)]
        if membership.kraft_version and (self.voters.last_offset == UNKNOWN or self.needs_update):
            # The log has never said who votes, or what it says of this node has changed.
            records += membership_records(replaced(membership, self.own_node))
        self.effects.append(AppendControl(role.epoch, tuple(records)))

    def resign(self) -> None:
        """Lead no more in this epoch, and let another one win the next."""
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
                election_ms=self.election_timeout(),
            )
        )

    def vote_for(self, candidate: Voter) -> None:
        """Give our vote in this epoch. The candidate has as good a chance as we, so our own election waits."""
        role = self.role
        assert role.voted is None and isinstance(role, Unattached | Prospective)
        role.voted = candidate
        role.election_ms = self.election_timeout()
        if isinstance(role, Prospective):
            role.votes = self._own_vote()
        self._save()

    @property
    def check_quorum_ms(self) -> int:
        """For how long a leader leads without a majority that fetches: longer than the fetches' own timeout."""
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
