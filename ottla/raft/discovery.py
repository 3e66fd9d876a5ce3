"""What a message says of the leader, and what follows from it.

Rules:
- A higher epoch is taken at once, from any node. A leader is followed only when its address is known.
- A message that names another leader of our epoch than we know cannot be: it is dropped and noted.
"""

from __future__ import annotations

from ottla.kernel.error import ErrorCode
from ottla.raft.member import QuorumMember
from ottla.raft.message import LeaderSeen
from ottla.raft.role import NO_NODE, Follower, Leader
from ottla.raft.voters import find_node


def with_known_endpoints(member: QuorumMember, seen: LeaderSeen) -> LeaderSeen:
    """The leader that a message names; if the message has no address, the one that the voters have."""
    if seen.leader_id == NO_NODE or seen.endpoints:
        return seen
    node = find_node(member.voters.last, seen.leader_id)
    return seen if node is None else seen._replace(endpoints=node.endpoints)


def learn(member: QuorumMember, seen: LeaderSeen) -> bool:
    """Take the epoch and the leader of a message if they are news. Did the role change?"""
    seen = with_known_endpoints(member, seen)
    role = member.role
    if not is_consistent(member, seen):
        member.warn(
            f"a message names node {seen.leader_id} as the leader of epoch {seen.epoch}; "
            f"here that is node {role.leader_id} in epoch {role.epoch}"
        )
        return False
    if seen.epoch > role.epoch:
        if seen.leader_id != NO_NODE and seen.endpoints:
            member.become_follower(seen.epoch, seen.leader_id, seen.endpoints)
        else:
            member.become_unattached(seen.epoch)
        return True
    if seen.epoch < role.epoch or seen.leader_id in (NO_NODE, member.me.node_id):
        return False
    # Our epoch: its leader was unknown, or had fewer addresses.
    if len(seen.endpoints) > len(role.leader_endpoints):
        member.become_follower(seen.epoch, seen.leader_id, seen.endpoints)
        return True
    return False


def take_common(member: QuorumMember, error: int, seen: LeaderSeen) -> bool | None:
    """What all responses have in common. Was the response good (True) or not, or None: go on with what it says."""
    if seen.epoch < member.epoch or error == ErrorCode.UNKNOWN_LEADER_EPOCH:
        # The other node is behind: it is asked again when it may have caught up.
        return False
    if seen.epoch > member.epoch or error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        return learn(member, seen)
    looks = not isinstance(member.role, Follower | Leader)
    if looks and seen.leader_id not in (NO_NODE, member.me.node_id) and learn(member, seen):
        # An observer finds the leader and takes its records with the same Fetch.
        return None if error == ErrorCode.NONE else True
    if error in (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.INVALID_VOTER_KEY, ErrorCode.INVALID_REQUEST):
        return False
    return None


def check_leader_request(member: QuorumMember, epoch: int) -> ErrorCode:
    """May a request that only a leader answers, made in this epoch, be answered here?"""
    if epoch < member.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > member.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if isinstance(member.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER


def is_consistent(member: QuorumMember, seen: LeaderSeen) -> bool:
    """Can a message name this leader, after what this node knows of the epoch?"""
    role = member.role
    if seen.leader_id == member.me.node_id:
        return role.leader_id == member.me.node_id and seen.epoch == role.epoch
    return seen.epoch != role.epoch or NO_NODE in (seen.leader_id, role.leader_id) or seen.leader_id == role.leader_id
