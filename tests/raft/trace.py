"""What a machine wants, in words: one line an effect, as the scenes have it."""

from __future__ import annotations

from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.raft.checkpoint import Membership
from ottla.raft.effect import (
    Answer,
    AnswerFetch,
    AnswerSnapshot,
    AppendControl,
    AppendEntries,
    AppendNoOp,
    AppendReplicated,
    CleanLog,
    Commit,
    Effect,
    InstallSnapshot,
    LeaderChanged,
    SaveElection,
    Send,
    Sync,
    TruncateLog,
    Warn,
    WriteSnapshot,
    WriteSnapshotPiece,
)
from ottla.raft.electing import successors_of
from ottla.raft.role import NO_NODE, Candidate, Follower, Leader, Prospective, QuorumRole, ResignedLeader, Voter
from ottla.wire.api import (
    add_raft_voter,
    api_versions,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from ottla.wire.record.control import KRaftVersionRecord, LeaderChangeMessage, VotersRecord, key_bytes, parse


def role_words(role: QuorumRole) -> str:
    """Such as `follows 1 in epoch 3`."""
    what = {
        Leader: "leads epoch",
        Candidate: "is a candidate in epoch",
        Prospective: "is prospective in epoch",
        ResignedLeader: "has resigned from epoch",
    }.get(type(role), "is unattached in epoch")
    if isinstance(role, Follower):
        what = f"follows {role.leader_id} in epoch"
    voted = role.voted if role.voted is not None and not isinstance(role, Candidate) else None
    return f"{what} {role.epoch}" + (f", has voted for {voter_words(voted)}" if voted is not None else "")


def voter_words(voter: Voter) -> str:
    """The id; with the number of its disk if that is not the first one."""
    disk = voter.directory_id[1]
    return f"{voter.node_id}" if not disk else f"{voter.node_id}/disk{disk}"


def effect_words(effect: Effect) -> str:
    """What is wanted, the subject left out; empty for what says nothing in a scene."""
    match effect:
        case SaveElection():
            epoch, leader_id, voted = effect.election
            leader = "no leader" if leader_id == NO_NODE else f"leader {leader_id}"
            return f"saves epoch {epoch}, {leader}, {'no vote' if voted is None else f'vote for {voter_words(voted)}'}"
        case AppendControl():
            values = [parse(key_bytes(kind), value)[1] for kind, value in effect.records]
            return f"appends {', '.join(value_words(value) for value in values)} in epoch {effect.epoch}"
        case AppendEntries():
            return f"appends {' '.join(effect.records)} in epoch {effect.epoch}"
        case AppendNoOp():
            return f"appends a NoOp in epoch {effect.epoch}"
        case AppendReplicated():
            return f"appends of the leader {_batches(effect.batches)}"
        case TruncateLog():
            return f"truncates to {effect.end_offset}"
        case Sync():
            return "syncs"
        case Commit():
            return f"commits up to {effect.high_watermark}"
        case WriteSnapshot():
            return f"writes a snapshot up to {effect.end_offset}"
        case WriteSnapshotPiece():
            return f"writes a piece of snapshot {_snapshot(effect.snapshot)} at {effect.position}"
        case InstallSnapshot():
            return f"installs snapshot {_snapshot(effect.snapshot)}"
        case Send():
            node = effect.peer.host.removeprefix("n")
            return f"asks {node}: {request_words(effect.request)}"
        case AnswerFetch() | AnswerSnapshot() | Answer():
            return f"answers{' you' if isinstance(effect.ticket, str) else ''}: {response_words(effect)}"
        case Warn():
            return f"warns: {effect.text}"
        case CleanLog() | LeaderChanged():
            return ""


def value_words(value: Any) -> str:
    """A record."""
    if isinstance(value, LeaderChangeMessage):
        return f"LeaderChange({value.leader_id} by {' '.join(str(each.voter_id) for each in value.granting_voters)})"
    if isinstance(value, KRaftVersionRecord):
        return f"KRaftVersion({value.kraft_version})"
    if isinstance(value, VotersRecord):
        return f"Voters({' '.join(voter_words(Voter(v.voter_id, v.voter_directory_id)) for v in value.voters)})"
    return str(value)


def membership_words(membership: Membership) -> str:
    """The voters' ids."""
    if membership.kraft_version == 0:
        return " ".join(str(node.voter.node_id) for node in membership.voters)
    return " ".join(voter_words(node.voter) for node in membership.voters)


def request_words(request: Any) -> str:
    """What is asked."""
    match request:
        case vote.VoteRequest():
            asked = request.topics[0].partitions[0]
            what = "PreVote" if asked.pre_vote else "Vote"
            return f"{what} in epoch {asked.replica_epoch}, log {asked.last_offset}@{asked.last_offset_epoch}"
        case begin_quorum_epoch.BeginQuorumEpochRequest():
            return f"BeginQuorumEpoch {request.topics[0].partitions[0].leader_epoch}"
        case end_quorum_epoch.EndQuorumEpochRequest():
            found = request.topics[0].partitions[0]
            after = " ".join(str(each.node_id) for each in successors_of(found)) or "anyone"
            return f"EndQuorumEpoch {found.leader_epoch}, then {after}"
        case fetch.FetchRequest():
            wanted = request.topics[0].partitions[0]
            known = "" if wanted.high_watermark < 0 else f", committed {wanted.high_watermark}"
            where = f"{wanted.fetch_offset}@{wanted.last_fetched_epoch}"
            return f"Fetch {where} in epoch {wanted.current_leader_epoch}{known}"
        case fetch_snapshot.FetchSnapshotRequest():
            piece = request.topics[0].partitions[0]
            return f"FetchSnapshot {_snapshot(piece.snapshot_id)} at {piece.position}"
        case api_versions.ApiVersionsRequest():
            return "ApiVersions"
        case add_raft_voter.AddRaftVoterRequest():
            return f"AddRaftVoter {request.voter_id}"
        case remove_raft_voter.RemoveRaftVoterRequest():
            return f"RemoveRaftVoter {voter_words(Voter(request.voter_id, request.voter_directory_id))}"
        case update_raft_voter.UpdateRaftVoterRequest():
            return f"UpdateRaftVoter {request.voter_id}"
    raise AssertionError(request)


def response_words(effect: Answer | AnswerFetch | AnswerSnapshot) -> str:
    """What is answered."""
    response = effect.response
    if isinstance(response, add_raft_voter.AddRaftVoterResponse | remove_raft_voter.RemoveRaftVoterResponse):
        said = f" ({response.error_message})" if response.error_message else ""
        return ErrorCode(response.error_code).name + said
    if response.error_code and not isinstance(response, update_raft_voter.UpdateRaftVoterResponse):
        return ErrorCode(response.error_code).name
    match response:
        case fetch.FetchResponse():
            return _fetch_words(effect, response.responses[0].partitions[0])
        case fetch_snapshot.FetchSnapshotResponse():
            found = response.topics[0].partitions[0]
            if found.error_code:
                return _failed(found.error_code, found.current_leader.leader_id, found.current_leader.leader_epoch)
            return f"snapshot {_snapshot(found.snapshot_id)} from {found.position} of {found.size} bytes"
        case update_raft_voter.UpdateRaftVoterResponse():
            return _failed(response.error_code, response.current_leader.leader_id, response.current_leader.leader_epoch)
    found = response.topics[0].partitions[0]
    if isinstance(response, vote.VoteResponse) and not found.error_code:
        what = "yes" if found.vote_granted else "no"
        leader = "" if found.leader_id == NO_NODE else f", leader {found.leader_id}"
        return f"{what}, epoch {found.leader_epoch}{leader}"
    return _failed(found.error_code, found.leader_id, found.leader_epoch)


def _fetch_words(effect: Answer | AnswerFetch | AnswerSnapshot, found: fetch.PartitionData) -> str:
    if found.error_code:
        return _failed(found.error_code, found.current_leader.leader_id, found.current_leader.leader_epoch)
    committed = "nothing committed" if found.high_watermark < 0 else f"committed {found.high_watermark}"
    if found.diverging_epoch.epoch >= 0:
        return f"diverging, epoch {found.diverging_epoch.epoch} ends at {found.diverging_epoch.end_offset}"
    if found.snapshot_id.epoch >= 0:
        return f"take snapshot {_snapshot(found.snapshot_id)}"
    if isinstance(effect, AnswerFetch):
        return f"records from {effect.offset}, {committed}"
    return f"no records, {committed}"


def _failed(error: int, leader_id: int, epoch: int) -> str:
    leader = "no leader" if leader_id == NO_NODE else f"leader {leader_id}"
    return f"{ErrorCode(error).name}, epoch {epoch}, {leader}"


def _snapshot(snapshot: Any) -> str:
    return f"{snapshot.end_offset}@{snapshot.epoch}"


def _batches(batches: Any) -> str:
    entries = [entry for batch in batches for entry in batch]
    return f"from {entries[0].base}: " + ", ".join(f"{value_words(entry.value)}@{entry.epoch}" for entry in entries)
