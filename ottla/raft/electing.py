"""Elections: requesting and granting votes, announcing a new leader, and resigning.

Rules:
- A voter grants one vote per epoch, to a candidate whose log is at least as long as its own, by (epoch of the last
  record, end offset). The vote is saved before it is sent.
- A pre-vote does not raise the epoch and saves nothing. A follower that has fetched from its leader rejects it,
  because the leader is alive (KIP-996).
- When two voters request each other's pre-vote, one of them yields (decision 0653).
- A leader whose voters have not fetched in a majority for 1.5 fetch timeouts must_resign: it could not commit anyway.
- A resigning leader names its successors, longest log first; each waits longer than the one before it.

KIPs: 595 the protocol, 853 directories and endpoints in it, 996 pre-votes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import METADATA_TOPIC, NO_UUID
from ottla.raft.checkpoint import VoterEndpoint
from ottla.raft.connections import Exchange
from ottla.raft.discovery import is_consistent, is_plausible, learn, take_common
from ottla.raft.effect import Answer
from ottla.raft.event import RequestReceived
from ottla.raft.member import QuorumMember
from ottla.raft.message import LeaderSeen, node_endpoints, only_partition, peer_of, seen_endpoints
from ottla.raft.role import (
    NO_NODE,
    Candidate,
    Follower,
    Leader,
    Prospective,
    ResignedLeader,
    Unattached,
    Voter,
)
from ottla.raft.voters import find_node, find_voter
from ottla.wire.api import begin_quorum_epoch, end_quorum_epoch, vote

_ENDPOINTS_FROM = 1


class Electing:
    """Sends and answers Vote, BeginQuorumEpoch and EndQuorumEpoch. The machine creates it."""

    def __init__(self, member: QuorumMember) -> None:
        self._member = member

    # ---- requests

    def ask(self, role: Prospective | Candidate) -> None:
        """Request the votes of the voters that have not answered, as long as the election can be won."""
        if role.votes.is_lost:
            return
        for voter in role.votes.silent:
            self._send(voter, partial(self._vote_request, voter, is_pre_vote=isinstance(role, Prospective)))

    def give_up(self, role: Prospective) -> None:
        """The pre-vote was lost: return to the known leader, or to none."""
        member = self._member
        if role.leader_id != NO_NODE and role.leader_endpoints:
            member.become_follower(role.epoch, role.leader_id, role.leader_endpoints)
        else:
            member.become_unattached(role.epoch, role.leader_id)

    def announce(self, role: Leader) -> None:
        """Send BeginQuorumEpoch to the voters that have not fetched recently."""
        member = self._member
        interval_ms = member.settings.fetch_timeout_ms // 2
        if member.now_ms < role.announce_deadline_ms:
            return
        for voter in role.progress.silent_voters(member.now_ms - interval_ms):
            self._send(voter, partial(self._begin_request, voter))
        role.announce_deadline_ms = member.now_ms + interval_ms

    def resign(self, role: ResignedLeader) -> None:
        """Send EndQuorumEpoch to the voters that have not acknowledged it."""
        for node in self._member.voters.last.voters:
            if node.voter.node_id in role.unacknowledged:
                self._send(node.voter, partial(self._end_request, role))

    def _send(self, voter: Voter, make: Callable[[], Any]) -> None:
        member = self._member
        node = find_node(member.voters.last, voter.node_id)
        peer = None if node is None else peer_of(voter.node_id, node.endpoints, member.settings.listener)
        if peer is not None:
            member.send(peer, make)

    def _vote_request(self, voter: Voter, *, is_pre_vote: bool) -> vote.VoteRequest:
        member = self._member
        partition = vote.RequestPartitionData(
            replica_epoch=member.epoch,
            replica_id=member.me.node_id,
            replica_directory_id=member.me.directory_id,
            voter_directory_id=voter.directory_id,
            last_offset_epoch=member.log.last_epoch,
            last_offset=member.log.end_offset,
            pre_vote=is_pre_vote,
        )
        topic = vote.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        return vote.VoteRequest(cluster_id=member.settings.cluster_id, voter_id=voter.node_id, topics=[topic])

    def _begin_request(self, voter: Voter) -> begin_quorum_epoch.BeginQuorumEpochRequest:
        member = self._member
        partition = begin_quorum_epoch.RequestPartitionData(
            voter_directory_id=voter.directory_id, leader_id=member.me.node_id, leader_epoch=member.epoch
        )
        topic = begin_quorum_epoch.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        return begin_quorum_epoch.BeginQuorumEpochRequest(
            cluster_id=member.settings.cluster_id,
            voter_id=voter.node_id,
            topics=[topic],
            leader_endpoints=[
                begin_quorum_epoch.LeaderEndpoint(name=endpoint.name, host=endpoint.host, port=endpoint.port)
                for endpoint in member.settings.endpoints
            ],
        )

    def _end_request(self, role: ResignedLeader) -> end_quorum_epoch.EndQuorumEpochRequest:
        member = self._member
        partition = end_quorum_epoch.RequestPartitionData(
            leader_id=member.me.node_id,
            leader_epoch=role.epoch,
            preferred_successors=[voter.node_id for voter in role.successors],
            preferred_candidates=[
                end_quorum_epoch.ReplicaInfo(candidate_id=voter.node_id, candidate_directory_id=voter.directory_id)
                for voter in role.successors
            ],
        )
        topic = end_quorum_epoch.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        return end_quorum_epoch.EndQuorumEpochRequest(cluster_id=member.settings.cluster_id, topics=[topic])

    # ---- Vote

    def vote_requested(self, event: RequestReceived) -> None:
        member, request = self._member, event.request
        partition = self._checked(event)
        if partition is None:
            return
        last_epoch, epoch = partition.last_offset_epoch, partition.replica_epoch
        is_too_new = last_epoch > epoch if partition.pre_vote else last_epoch >= epoch
        error = self._check_voter_request(partition.replica_id, epoch)
        if partition.last_offset < 0 or last_epoch < 0 or is_too_new:
            error = ErrorCode.INVALID_REQUEST
        if error != ErrorCode.NONE:
            return self._respond(event, error)
        if epoch > member.epoch:
            member.become_unattached(epoch)
        if not self._is_me(request.voter_id, partition.voter_directory_id):
            return self._respond(event, ErrorCode.INVALID_VOTER_KEY)
        candidate = Voter(partition.replica_id, partition.replica_directory_id)
        is_long = (last_epoch, partition.last_offset) >= (member.log.last_epoch, member.log.end_offset)
        granted = self._grants(candidate, is_long=is_long, is_pre_vote=partition.pre_vote)
        if granted and not partition.pre_vote and member.role.voted is None:
            member.vote_for(candidate)
        self._respond(event, ErrorCode.NONE, granted=granted)
        if partition.pre_vote and isinstance(member.role, Prospective):
            self._break_tie(member.role, candidate, (last_epoch, partition.last_offset))
        return None

    def _break_tie(self, role: Prospective, candidate: Voter, candidate_log: tuple[int, int]) -> None:
        """Two voters request each other's pre-vote: the longer log proceeds; with equal logs, the lower id does.

        The voter with the longer log asks again: the other voter may have rejected it while it still followed a leader.
        """
        member = self._member
        own_log = member.log.last_epoch, member.log.end_offset
        if find_voter(member.voters.last, candidate) is None or not member.may_lead:
            return
        if candidate_log > own_log or (candidate_log == own_log and candidate.node_id < member.me.node_id):
            self.give_up(role)
        elif candidate_log < own_log:
            member.become_prospective()

    def _grants(self, candidate: Voter, *, is_long: bool, is_pre_vote: bool) -> bool:
        role = self._member.role
        if is_pre_vote:
            has_leader = isinstance(role, Leader) or (isinstance(role, Follower) and role.has_fetched)
            return is_long and not has_leader
        if not isinstance(role, Unattached | Prospective):
            return False
        if role.voted is not None:
            return role.voted.matches(candidate)
        return is_long and role.leader_id == NO_NODE

    def voted(self, exchange: Exchange, response: vote.VoteResponse) -> bool:
        """Handle the answer of a voter; return False if it is unusable, so that the voter is asked again later."""
        partition = only_partition(response.topics)
        if response.error_code != ErrorCode.NONE or partition is None:
            return False
        common = self._take_common(response, partition)
        if common is not None:
            return common
        if partition.error_code != ErrorCode.NONE:
            return False
        role = self._member.role
        if isinstance(role, Prospective | Candidate):
            role.votes.note(exchange.peer.node_id, granted=partition.vote_granted)
            self.count(role)
        return True

    def count(self, role: Prospective | Candidate) -> None:
        """Proceed if the election is decided."""
        if role.votes.is_won:
            if isinstance(role, Prospective):
                self._member.become_candidate()
            else:
                self._member.become_leader()
        elif role.votes.is_lost and isinstance(role, Prospective):
            self.give_up(role)

    # ---- BeginQuorumEpoch

    def begin(self, event: RequestReceived) -> None:
        """Handle BeginQuorumEpoch: a leader announces itself."""
        request = event.request
        partition = self._checked(event)
        if partition is None:
            return
        error = self._learn_from(event, partition)
        if error == ErrorCode.NONE and not self._is_me(request.voter_id, partition.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
        self._respond(event, error)

    def began(self, exchange: Exchange, response: begin_quorum_epoch.BeginQuorumEpochResponse) -> bool:
        return self._is_acknowledged(response)

    # ---- EndQuorumEpoch

    def end(self, event: RequestReceived) -> None:
        """Handle EndQuorumEpoch: the leader resigned, so start an election after the backoff of our successor rank."""
        member = self._member
        partition = self._checked(event)
        if partition is None:
            return
        error = self._learn_from(event, partition)
        role = member.role
        if error == ErrorCode.NONE and isinstance(role, Follower) and role.leader_id == partition.leader_id:
            role.fetch_deadline_ms = member.now_ms + self._backoff_ms(successors_of(partition))
            # The leader resigned: a pre-vote now does not disturb a live leader.
            role.has_fetched = False
        self._respond(event, error)

    def ended(self, exchange: Exchange, response: end_quorum_epoch.EndQuorumEpochResponse) -> bool:
        is_acknowledged = self._is_acknowledged(response)
        role = self._member.role
        if is_acknowledged and isinstance(role, ResignedLeader):
            role.unacknowledged.discard(exchange.peer.node_id)
        return is_acknowledged

    def _backoff_ms(self, successors: Sequence[Voter]) -> int:
        longest_ms, count = self._member.settings.election_backoff_max_ms, len(successors)
        place = next((at for at, voter in enumerate(successors) if voter.matches(self._member.me)), count)
        if place == 0:
            return 0
        if place == count:
            return longest_ms
        return min(longest_ms, (longest_ms >> (count - 1)) << (place - 1))

    # ---- helpers

    def _checked(self, event: RequestReceived) -> Any:
        """Return the request's metadata partition; None if the whole request was rejected."""
        request = event.request
        partition = only_partition(request.topics)
        if request.cluster_id not in (None, self._member.settings.cluster_id):
            self._member.effects.append(Answer(event.ticket, _empty(request, ErrorCode.INCONSISTENT_CLUSTER_ID)))
            return None
        if partition is None:
            self._member.effects.append(Answer(event.ticket, _empty(request, ErrorCode.INVALID_REQUEST)))
        return partition

    def _check_voter_request(self, node_id: int, epoch: int) -> ErrorCode:
        if epoch < self._member.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if node_id < 0 or not is_plausible(self._member, epoch) else ErrorCode.NONE

    def _learn_from(self, event: RequestReceived, partition: Any) -> ErrorCode:
        error = self._check_voter_request(partition.leader_id, partition.leader_epoch)
        if error != ErrorCode.NONE:
            return error
        endpoints = tuple(
            VoterEndpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in event.request.leader_endpoints
        )
        seen = LeaderSeen(partition.leader_epoch, partition.leader_id, endpoints)
        if not is_consistent(self._member, seen):
            # Apache Kafka's answer: its replica fails on such a request.
            error = ErrorCode.UNKNOWN_SERVER_ERROR
        learn(self._member, seen)
        return error

    def _is_me(self, voter_id: int, directory_id: Any) -> bool:
        me = self._member.me
        return voter_id < 0 or (voter_id == me.node_id and directory_id in (NO_UUID, me.directory_id))

    def _take_common(self, response: Any, partition: Any) -> bool | None:
        listener = self._member.settings.listener
        endpoints = seen_endpoints(partition.leader_id, response.node_endpoints, listener)
        seen = LeaderSeen(partition.leader_epoch, partition.leader_id, endpoints)
        return take_common(self._member, partition.error_code, seen)

    def _is_acknowledged(self, response: Any) -> bool:
        partition = only_partition(response.topics)
        if response.error_code != ErrorCode.NONE or partition is None:
            return False
        common = self._take_common(response, partition)
        return partition.error_code == ErrorCode.NONE if common is None else common

    def _respond(self, event: RequestReceived, error: ErrorCode, *, granted: bool = False) -> None:
        member, request = self._member, event.request
        module = _module(request)
        partition = module.ResponsePartitionData(
            error_code=error, leader_id=member.leader.leader_id, leader_epoch=member.epoch
        )
        if module is vote:
            partition.vote_granted = granted
        topic = module.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        response = _empty(request, ErrorCode.NONE)
        response.topics = [topic]
        has = event.version >= _ENDPOINTS_FROM
        response.node_endpoints = node_endpoints(module.NodeEndpoint, member.leader, event.listener, is_supported=has)
        member.effects.append(Answer(event.ticket, response))


def successors_of(partition: end_quorum_epoch.RequestPartitionData) -> list[Voter]:
    """Return the voters that should succeed the resigning leader; before version 1, they have ids only."""
    if partition.preferred_candidates:
        return [
            Voter(candidate.candidate_id, candidate.candidate_directory_id)
            for candidate in partition.preferred_candidates
        ]
    return [Voter(node_id) for node_id in partition.preferred_successors]


def _module(request: object) -> Any:
    if isinstance(request, vote.VoteRequest):
        return vote
    return begin_quorum_epoch if isinstance(request, begin_quorum_epoch.BeginQuorumEpochRequest) else end_quorum_epoch


def _empty(request: object, error: ErrorCode) -> Any:
    if isinstance(request, vote.VoteRequest):
        return vote.VoteResponse(error_code=error)
    if isinstance(request, begin_quorum_epoch.BeginQuorumEpochRequest):
        return begin_quorum_epoch.BeginQuorumEpochResponse(error_code=error)
    return end_quorum_epoch.EndQuorumEpochResponse(error_code=error)
