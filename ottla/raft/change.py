"""Voter changes: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter, and the upgrade to kraft.version 1 (KIP-853).

Rules:
- One voter is added or removed at a time, after the previous change and this epoch's first record are committed.
- A new voter must run kraft.version 1 and must have caught up with the log's end. It votes as soon as its record is
  appended.
- A leader that is being removed leads until the removal is committed, without counting itself, and then must_resign.
- With kraft.version 0 the log does not contain the voters. The leader keeps what each voter reports in memory until
  kraft.version is raised.
"""

from __future__ import annotations

from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.kernel.error_message import standard
from ottla.kernel.ids import NO_UUID, uuid_text
from ottla.raft.checkpoint import KRAFT_VERSIONS, Membership, VoterEndpoint, VoterNode, membership_records
from ottla.raft.connections import Exchange
from ottla.raft.discovery import check_leader_request, take_common
from ottla.raft.effect import Answer, AppendControl
from ottla.raft.event import RequestReceived
from ottla.raft.member import QuorumMember
from ottla.raft.message import LeaderSeen, address, peer_of
from ottla.raft.role import UNKNOWN, Follower, Leader, Voter
from ottla.raft.voters import find_node, replaced
from ottla.wire.api import add_raft_voter, remove_raft_voter, update_raft_voter
from ottla.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.record.control import VotersRecord

_FEATURE = "kraft.version"
_CHANGE_PENDING = "Request timed out waiting for leader to handle previous voter change request"
_VERSIONS_REQUEST = ApiVersionsRequest(client_software_name="ottla", client_software_version="quorum")
_EPOCH_NOT_COMMITTED = "Request timed out waiting for leader to establish HWM and fence previous voter changes"


class VoterChange:
    """A voter that is being added or removed."""

    __slots__ = ("deadline_ms", "event", "joining", "offset")

    def __init__(self, event: RequestReceived | None, joining: VoterNode | None, deadline_ms: int) -> None:
        #: The request that awaits an answer; None once it is answered.
        self.event = event
        #: The voter to add, until its record is appended; None for a removal.
        self.joining = joining
        self.deadline_ms = deadline_ms
        #: The offset of its record in the log; UNKNOWN until it is appended.
        self.offset = UNKNOWN


class VoterChanges:
    """Adds, removes and updates voters, on the leader's and on the follower's side. The machine creates it."""

    def __init__(self, member: QuorumMember) -> None:
        self._member = member

    # ---- AddRaftVoter

    def add(self, event: RequestReceived) -> None:
        """Start adding a voter: ask it which versions it runs."""
        member, request = self._member, event.request
        endpoints = _endpoints(request.listeners)
        joining = VoterNode(Voter(request.voter_id, request.voter_directory_id), endpoints)
        peer = peer_of(request.voter_id, endpoints, member.settings.listener)
        role = self._leader(event)
        if role is None:
            return
        if not _is_complete(joining.voter):
            return self._answer(event, ErrorCode.INVALID_REQUEST, "Add voter request didn't include a valid voter")
        if peer is None:
            names = ", ".join(sorted(endpoint.name for endpoint in endpoints))
            return self._answer(
                event,
                ErrorCode.INVALID_REQUEST,
                f"Add voter request didn't include the endpoint ({names}) for the default listener "
                f"{member.settings.listener}",
            )
        if self._rejects(event, role, "adding"):
            return None
        if find_node(member.voters.last, request.voter_id) is not None:
            why = f"The voter id for {_name(joining.voter)} is already part of the set of voters {self._voters_text()}."
            return self._answer(event, ErrorCode.DUPLICATE_VOTER, why)
        if not member.send(peer, lambda: _VERSIONS_REQUEST):
            why = f"New voter {_name(joining.voter)} is not ready to receive requests"
            return self._answer(event, ErrorCode.REQUEST_TIMED_OUT, why)
        role.change = VoterChange(event, joining, member.now_ms + member.settings.answer_timeout_ms)
        return None

    def versions_known(self, exchange: Exchange, response: ApiVersionsResponse) -> bool:
        """The new voter reported its versions: add it if it supports ours and has caught up."""
        member, role = self._member, self._member.role
        change = role.change if isinstance(role, Leader) else None
        if change is None or change.joining is None or change.joining.voter.node_id != exchange.peer.node_id:
            return True
        assert isinstance(role, Leader)
        if response.error_code != ErrorCode.NONE:
            self._abort(role, ErrorCode.REQUEST_TIMED_OUT, f"API_VERSIONS returned an error {response.error_code}")
            return False
        joining, level = change.joining, member.voters.last.kraft_version
        feature = next((supported for supported in response.supported_features if supported.name == _FEATURE), None)
        versions = (0, 0) if feature is None else (feature.min_version, feature.max_version)
        if not versions[0] <= level <= versions[1]:
            why = f"the {_FEATURE} range {versions} doesn't support the finalized version {level}"
            self._abort(role, ErrorCode.INVALID_REQUEST, why)
        elif not role.progress.is_caught_up(joining.voter, member.now_ms):
            self._abort(role, ErrorCode.REQUEST_TIMED_OUT, "it is lagging behind")
        else:
            change.joining = None
            voters = (*member.voters.last.voters, joining._replace(kraft_versions=versions))
            self._append_voters(role, voters)
        return True

    def versions_failed(self, exchange: Exchange, error: ErrorCode) -> None:
        """The new voter did not answer."""
        self.versions_known(exchange, ApiVersionsResponse(error_code=error))

    def _abort(self, role: Leader, error: ErrorCode, why: str) -> None:
        change, role.change = role.change, None
        if change is not None and change.event is not None and change.joining is not None:
            name = _name(change.joining.voter)
            self._answer(change.event, error, f"Aborted add voter operation for {name} since {why}")

    # ---- RemoveRaftVoter

    def remove(self, event: RequestReceived) -> None:
        """Remove a voter, possibly this node."""
        member, request = self._member, event.request
        leaving = Voter(request.voter_id, request.voter_directory_id)
        role = self._leader(event)
        if role is None:
            return
        if not _is_complete(leaving):
            return self._answer(event, ErrorCode.INVALID_REQUEST, "Remove voter request didn't include a valid voter")
        if self._rejects(event, role, "removing"):
            return None
        voters = member.voters.last.voters
        remaining = tuple(node for node in voters if node.voter != leaving)
        if len(remaining) == len(voters) or not remaining:
            why = f"Cannot remove voter {_name(leaving)} from the set of voters {self._voters_text()}"
            return self._answer(event, ErrorCode.VOTER_NOT_FOUND, why)
        role.change = VoterChange(event, None, member.now_ms + member.settings.answer_timeout_ms)
        self._append_voters(role, remaining)
        return None

    # ---- UpdateRaftVoter

    def update(self, event: RequestReceived) -> None:
        """Store what a voter reports about itself: in the log, or with kraft.version 0 in memory."""
        member, request = self._member, event.request
        error = check_leader_request(member, request.current_leader_epoch)
        if request.cluster_id not in (None, member.settings.cluster_id):
            error = ErrorCode.INCONSISTENT_CLUSTER_ID
        feature, endpoints = request.kraft_version_feature, _endpoints(request.listeners)
        versions = (feature.min_supported_version, feature.max_supported_version)
        changed = VoterNode(Voter(request.voter_id, request.voter_directory_id), endpoints, versions)
        role = member.role
        if error == ErrorCode.NONE:
            is_whole = _is_complete(changed.voter) and address(endpoints, member.settings.listener) is not None
            is_range = 0 <= versions[0] <= versions[1]
            assert isinstance(role, Leader)
            error = self._store(role, changed) if is_whole and is_range else ErrorCode.INVALID_REQUEST
        leader, endpoint = member.leader, address(member.leader.endpoints, event.listener)
        response = update_raft_voter.UpdateRaftVoterResponse(error_code=error)
        response.current_leader = update_raft_voter.CurrentLeader(
            leader_id=leader.leader_id,
            leader_epoch=leader.epoch,
            host="" if endpoint is None else endpoint.host,
            port=0 if endpoint is None else endpoint.port,
        )
        member.effects.append(Answer(event.ticket, response))

    def _store(self, role: Leader, changed: VoterNode) -> ErrorCode:
        member, membership = self._member, self._member.voters.last
        level = membership.kraft_version
        if role.change is not None or role.high_watermark == UNKNOWN:
            return ErrorCode.REQUEST_TIMED_OUT
        if level and member.voters.last_offset >= role.high_watermark:
            return ErrorCode.REQUEST_TIMED_OUT
        if not changed.kraft_versions[0] <= level <= changed.kraft_versions[1]:
            return ErrorCode.INVALID_REQUEST
        before = find_node(membership, changed.voter.node_id)
        if before is None or (level and not before.voter.matches(changed.voter)):
            return ErrorCode.VOTER_NOT_FOUND
        if level:
            self._append_voters(role, replaced(membership, changed).voters)
        else:
            role.volatile_voters = replaced(role.volatile_voters, changed)
        if role.progress.note_alive(changed.voter):
            role.check_deadline_ms = member.now_ms + member.check_quorum_ms
        return ErrorCode.NONE

    # ---- kraft.version

    def version_refusal(self, kraft_version: int) -> str | None:
        """Return why kraft.version cannot be raised to this level now; None if it can."""
        role, membership = self._member.role, self._member.voters.last
        if not isinstance(role, Leader):
            return "this node is not the leader of the quorum"
        if membership.kraft_version > kraft_version:
            return f"{_FEATURE} cannot be downgraded from {membership.kraft_version} to {kraft_version}"
        for node in role.volatile_voters.voters:
            if membership.kraft_version < kraft_version and not (
                node.kraft_versions[0] <= kraft_version <= node.kraft_versions[1] and _is_complete(node.voter)
            ):
                voter = node.voter.node_id
                return f"voter {voter} does not support {_FEATURE} {kraft_version}, or has not reported it yet"
        return None

    def raise_version(self, kraft_version: int) -> None:
        """Append the voters to the log, which defines them from now on."""
        role = self._member.role
        if isinstance(role, Leader) and self._member.voters.last.kraft_version < kraft_version:
            assert self.version_refusal(kraft_version) is None
            records = membership_records(Membership(kraft_version, role.volatile_voters.voters))
            self._member.effects.append(AppendControl(role.epoch, tuple(records)))

    # ---- the log and the clock

    def appended(self, role: Leader, changes: tuple[tuple[int, Any], ...]) -> None:
        """Note the offset of the voter change if its record was appended."""
        change = role.change
        for offset, message in changes:
            if isinstance(message, VotersRecord) and change is not None and change.joining is None:
                change.offset = max(change.offset, offset)
                if change.event is not None and not getattr(change.event.request, "ack_when_committed", True):
                    self._answer(change.event, ErrorCode.NONE, None)
                    change.event = None

    def not_appended(self, role: Leader) -> None:
        """The record of the voter change has no room: the change is over."""
        change = role.change
        if change is not None and change.joining is None and change.offset == UNKNOWN:
            self._give_up(role, ErrorCode.KAFKA_STORAGE_ERROR)

    def committed(self, role: Leader) -> None:
        """The high watermark advanced: finish the change if it is committed."""
        change, member = role.change, self._member
        if change is not None and UNKNOWN < change.offset < role.high_watermark:
            role.change = None
            if change.event is not None:
                self._answer(change.event, ErrorCode.NONE, None)
        if not member.is_voter and member.voters.last_offset < role.high_watermark:
            role.must_resign = True

    def expire(self, role: Leader) -> None:
        """Stop waiting for a change that timed out. Its record may still be committed later."""
        if role.change is not None and role.change.deadline_ms <= self._member.now_ms:
            self._give_up(role, ErrorCode.REQUEST_TIMED_OUT)

    def refuse(self, role: Leader) -> None:
        """This node lost the leadership: fail the pending change."""
        self._give_up(role, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _give_up(self, role: Leader, error: ErrorCode) -> None:
        change, role.change = role.change, None
        if change is not None and change.event is not None:
            self._answer(change.event, error, standard(error))

    def drop(self, ticket: Any) -> None:
        """The requester of a change disconnected; the change continues without an answer."""
        role = self._member.role
        change = role.change if isinstance(role, Leader) else None
        if change is not None and change.event is not None and change.event.ticket == ticket:
            change.event = None

    # ---- a follower's side

    def request_own_change(self, role: Follower) -> bool:
        """Once per fetch timeout, ask the leader to update, add or remove this node if needed; return True if sent."""
        member = self._member
        peer = peer_of(role.leader_id, role.leader_endpoints, member.settings.listener)
        if member.now_ms < role.update_deadline_ms or peer is None:
            return False
        level = member.voters.last.kraft_version
        request: Any = None
        if member.is_voter:
            if member.needs_update if level else not role.has_updated:
                request = self._update_request()
        elif level and member.settings.can_vote and member.settings.auto_join:
            registered = find_node(member.voters.last, member.me.node_id)
            request = self._add_request() if registered is None else self._remove_request(registered.voter)
        is_sent = request is not None and member.send(peer, lambda: request)
        if is_sent or request is None:
            role.update_deadline_ms = member.now_ms + member.settings.fetch_timeout_ms
        return is_sent

    def updated(self, exchange: Exchange, response: update_raft_voter.UpdateRaftVoterResponse) -> bool:
        member, leader = self._member, response.current_leader
        endpoints = (VoterEndpoint(member.settings.listener, leader.host, leader.port),) if leader.host else ()
        common = take_common(member, response.error_code, LeaderSeen(leader.leader_epoch, leader.leader_id, endpoints))
        if common is not None:
            return common
        role = member.role
        if response.error_code != ErrorCode.NONE or not isinstance(role, Follower):
            return False
        role.has_updated = True
        role.fetch_deadline_ms = member.now_ms + member.settings.fetch_timeout_ms
        return True

    def joined(self, exchange: Exchange, response: Any) -> bool:
        """The leader answered AddRaftVoter or RemoveRaftVoter; the next attempt follows one fetch timeout later."""
        done = (
            ErrorCode.NONE,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.DUPLICATE_VOTER,
            ErrorCode.VOTER_NOT_FOUND,
        )
        role = self._member.role
        if response.error_code not in done or not isinstance(role, Follower):
            return False
        role.update_deadline_ms = self._member.now_ms + self._member.settings.fetch_timeout_ms
        return True

    def _update_request(self) -> update_raft_voter.UpdateRaftVoterRequest:
        member = self._member
        return update_raft_voter.UpdateRaftVoterRequest(
            cluster_id=member.settings.cluster_id,
            current_leader_epoch=member.epoch,
            voter_id=member.me.node_id,
            voter_directory_id=member.me.directory_id,
            listeners=_listeners(update_raft_voter.Listener, member.settings.endpoints),
            kraft_version_feature=update_raft_voter.KRaftVersionFeature(
                min_supported_version=KRAFT_VERSIONS[0], max_supported_version=KRAFT_VERSIONS[1]
            ),
        )

    def _add_request(self) -> add_raft_voter.AddRaftVoterRequest:
        member = self._member
        return add_raft_voter.AddRaftVoterRequest(
            cluster_id=member.settings.cluster_id,
            timeout_ms=member.settings.answer_timeout_ms,
            voter_id=member.me.node_id,
            voter_directory_id=member.me.directory_id,
            listeners=_listeners(add_raft_voter.Listener, member.settings.endpoints),
            ack_when_committed=False,
        )

    def _remove_request(self, voter: Voter) -> remove_raft_voter.RemoveRaftVoterRequest:
        return remove_raft_voter.RemoveRaftVoterRequest(
            cluster_id=self._member.settings.cluster_id,
            voter_id=voter.node_id,
            voter_directory_id=voter.directory_id,
        )

    # ---- helpers

    def _leader(self, event: RequestReceived) -> Leader | None:
        member, request = self._member, event.request
        if request.cluster_id not in (None, member.settings.cluster_id):
            why = f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{member.settings.cluster_id}"'
            self._answer(event, ErrorCode.INCONSISTENT_CLUSTER_ID, why)
            return None
        if not isinstance(member.role, Leader):
            self._answer(event, ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
            return None
        return member.role

    def _rejects(self, event: RequestReceived, role: Leader, operation: str) -> bool:
        member, high_watermark = self._member, role.high_watermark
        level, offset = member.voters.last.kraft_version, member.voters.last_offset
        error, why = ErrorCode.REQUEST_TIMED_OUT, ""
        if role.change is not None:
            why = _CHANGE_PENDING
        elif high_watermark == UNKNOWN:
            why = _EPOCH_NOT_COMMITTED
        elif level == 0:
            error = ErrorCode.UNSUPPORTED_VERSION
            why = f"Cluster doesn't support {operation} voter because the {_FEATURE} feature is {level}"
        elif offset >= high_watermark:
            waiting = "Request timed out waiting for voters to commit the latest voter change"
            why = f"{waiting} at {offset} with HWM {high_watermark}"
        if why:
            self._answer(event, error, why)
        return bool(why)

    def _append_voters(self, role: Leader, voters: tuple[VoterNode, ...]) -> None:
        level = self._member.voters.last.kraft_version
        _, record = membership_records(Membership(level, voters))
        self._member.effects.append(AppendControl(role.epoch, (record,)))

    def _answer(self, event: RequestReceived, error: ErrorCode, message: str | None) -> None:
        is_add = isinstance(event.request, add_raft_voter.AddRaftVoterRequest)
        kind: Any = add_raft_voter.AddRaftVoterResponse if is_add else remove_raft_voter.RemoveRaftVoterResponse
        self._member.effects.append(Answer(event.ticket, kind(error_code=error, error_message=message)))

    def _voters_text(self) -> str:
        return "[" + ", ".join(_name(node.voter) for node in self._member.voters.last.voters) + "]"


def _is_complete(voter: Voter) -> bool:
    return voter.node_id >= 0 and voter.directory_id != NO_UUID


def _name(voter: Voter) -> str:
    return f"ReplicaKey(id={voter.node_id}, directoryId={uuid_text(voter.directory_id)})"


def _endpoints(listeners: Any) -> tuple[VoterEndpoint, ...]:
    return tuple(VoterEndpoint(listener.name, listener.host, listener.port) for listener in listeners)


def _listeners(kind: Any, endpoints: tuple[VoterEndpoint, ...]) -> list[Any]:
    return [kind(name=endpoint.name, host=endpoint.host, port=endpoint.port) for endpoint in endpoints]
