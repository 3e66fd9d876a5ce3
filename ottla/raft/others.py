"""The parts of the machine that only a quorum of several nodes needs: elections, following, voter changes."""

from __future__ import annotations

from ottla.kernel.error import ErrorCode
from ottla.raft.change import VoterChanges
from ottla.raft.connections import Exchange
from ottla.raft.electing import Electing
from ottla.raft.event import RequestFailed, RequestReceived
from ottla.raft.following import Following
from ottla.raft.member import QuorumMember
from ottla.raft.role import Candidate, Follower, Prospective, QuorumRole, ResignedLeader, Unattached
from ottla.raft.serving import Serving
from ottla.raft.snapshotting import SnapshotSchedule
from ottla.wire.api.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.api.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from ottla.wire.api.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from ottla.wire.api.fetch import FetchResponse
from ottla.wire.api.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.wire.api.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.wire.api.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from ottla.wire.api.vote import VoteRequest, VoteResponse


class PeerProtocol:
    """Dispatches messages and due work to the parts. The machine creates it when first needed."""

    def __init__(self, member: QuorumMember, serving: Serving, snapshots: SnapshotSchedule) -> None:
        self._member = member
        self._serving = serving
        self.following = Following(member, snapshots)
        self.electing = Electing(member)
        self.changes = VoterChanges(member)

    # ---- messages

    def request(self, event: RequestReceived) -> None:
        """Handle a request other than Fetch."""
        match event.request:
            case FetchSnapshotRequest():
                self._serving.fetch_snapshot(event)
            case VoteRequest():
                self.electing.vote_requested(event)
            case BeginQuorumEpochRequest():
                self.electing.begin(event)
            case EndQuorumEpochRequest():
                self.electing.end(event)
            case AddRaftVoterRequest():
                self.changes.add(event)
            case RemoveRaftVoterRequest():
                self.changes.remove(event)
            case UpdateRaftVoterRequest():
                self.changes.update(event)
            case _:
                raise TypeError(f"the quorum does not answer {type(event.request).__name__}")

    def response(self, exchange: Exchange, response: object) -> bool:
        """Handle a response; return False if it is unusable, so that the node is asked again later."""
        match response:
            case FetchResponse():
                return self.following.fetched(exchange, response)
            case FetchSnapshotResponse():
                return self.following.snapshot_fetched(exchange, response)
            case VoteResponse():
                return self.electing.voted(exchange, response)
            case BeginQuorumEpochResponse():
                return self.electing.began(exchange, response)
            case EndQuorumEpochResponse():
                return self.electing.ended(exchange, response)
            case ApiVersionsResponse():
                return self.changes.versions_known(exchange, response)
            case UpdateRaftVoterResponse():
                return self.changes.updated(exchange, response)
            case AddRaftVoterResponse() | RemoveRaftVoterResponse():
                return self.changes.joined(exchange, response)
        return False

    def failed(self, exchange: Exchange, event: RequestFailed) -> None:
        """Handle a request that gets no response."""
        member, role, error = self._member, self._member.role, event.error
        member.connections.finish(exchange, member.now_ms, succeeded=False)
        if event.is_refused and isinstance(role, Follower):
            self.following.refused(role, exchange.peer)
        if isinstance(exchange.request, ApiVersionsRequest):
            self.changes.versions_failed(exchange, error)
        elif error != ErrorCode.UNSUPPORTED_VERSION:
            return
        elif isinstance(exchange.request, VoteRequest) and isinstance(role, Prospective):
            # The voter does not support pre-votes: request its vote.
            member.become_candidate()
        elif isinstance(exchange.request, UpdateRaftVoterRequest) and isinstance(role, Follower):
            role.has_updated = True

    # ---- due work

    def poll(self, role: QuorumRole) -> None:
        """Do the work that is due in any role but Leader."""
        match role:
            case Follower():
                self._poll_follower(role)
            case Unattached():
                self._poll_unattached(role)
            case Prospective() | Candidate():
                self._poll_nominee(role)
            case ResignedLeader():
                self._poll_resigned(role)

    def _poll_follower(self, role: Follower) -> None:
        member = self._member
        deadline_ms = role.election_deadline_ms
        if member.may_lead and deadline_ms is not None and member.now_ms >= deadline_ms:
            return member.become_prospective()
        if not self.changes.request_own_change(role):
            self.following.fetch_from_leader(role)
        return None

    def _poll_unattached(self, role: Unattached) -> None:
        member = self._member
        if member.may_lead:
            if role.election_deadline_ms is None:
                # The log has made it a voter since.
                role.election_deadline_ms = member.election_timeout()
            if member.now_ms >= role.election_deadline_ms:
                return member.become_prospective()
        return self.following.fetch_from_bootstrap()

    def _poll_nominee(self, role: Prospective | Candidate) -> None:
        if self._member.now_ms < role.election_deadline_ms:
            self.electing.ask(role)
        elif isinstance(role, Candidate):
            self._member.become_prospective()
        else:
            self.electing.give_up(role)

    def _poll_resigned(self, role: ResignedLeader) -> None:
        if self._member.now_ms >= role.election_deadline_ms:
            # Leave the epoch it led: records that it may have lost must not be written twice.
            return self._member.become_unattached(role.epoch + 1)
        return self.electing.resign(role)
