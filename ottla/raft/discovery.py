"""Learns the epoch and the leader from requests and responses.

Rules:
- A higher epoch is adopted at once, from any node. A leader is followed only when its address is known.
- An epoch has one leader: a message that names a different leader for our epoch is dropped, with a warning.
- Epochs are int32. A message that uses up more than half of those that are left comes from a broken node and is
  refused: with the last epoch, no voter could start an election any more (decision 0400).
"""

from __future__ import annotations

from ottla.kernel.error import ErrorCode
from ottla.raft.member import QuorumMember
from ottla.raft.message import LeaderSeen
from ottla.raft.role import EPOCH_MAX, NO_NODE, Follower, Leader
from ottla.raft.voters import find_node


def with_known_endpoints(member: QuorumMember, seen: LeaderSeen) -> LeaderSeen:
    """Fill in the leader's endpoints from the voters if the message has none."""
    if seen.leader_id == NO_NODE or seen.endpoints:
        return seen
    node = find_node(member.voters.last, seen.leader_id)
    return seen if node is None else seen._replace(endpoints=node.endpoints)


def learn(member: QuorumMember, seen: LeaderSeen) -> bool:
    """Adopt the epoch and the leader of a message if they are new; return True if the role changed."""
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
    # Same epoch: its leader was unknown, or fewer of its addresses were known.
    if len(seen.endpoints) > len(role.leader_endpoints):
        member.become_follower(seen.epoch, seen.leader_id, seen.endpoints)
        return True
    return False


def is_plausible(member: QuorumMember, epoch: int) -> bool:
    """Return False, with a warning, if adopting this epoch would use up the epochs of the quorum."""
    epochs_left = EPOCH_MAX - member.epoch
    if epoch - member.epoch <= epochs_left // 2:
        return True
    member.warn(f"a message has epoch {epoch}; here it is {member.epoch}, so its sender must be broken")
    return False


def take_common(member: QuorumMember, error: int, seen: LeaderSeen) -> bool | None:
    """Handle the error and the leader that every response carries.

    Return True if the response is handled and good, False if it is handled and bad, None if its content is still to
    be handled.
    """
    if seen.epoch < member.epoch or error == ErrorCode.UNKNOWN_LEADER_EPOCH:
        # The other node is behind: ask again later, when it may have caught up.
        return False
    if not is_plausible(member, seen.epoch):
        return False
    if seen.epoch > member.epoch or error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        return learn(member, seen)
    is_searching = not isinstance(member.role, Follower | Leader)
    if is_searching and seen.leader_id not in (NO_NODE, member.me.node_id) and learn(member, seen):
        # An observer discovers the leader and takes its records from the same Fetch.
        return None if error == ErrorCode.NONE else True
    if error in (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.INVALID_VOTER_KEY, ErrorCode.INVALID_REQUEST):
        return False
    return None


def check_leader_request(member: QuorumMember, epoch: int) -> ErrorCode:
    """Check whether this node leads `epoch` and may answer a request to its leader; return the error."""
    if epoch < member.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > member.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if isinstance(member.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER


def is_consistent(member: QuorumMember, seen: LeaderSeen) -> bool:
    """Return False if the message contradicts the leader that this node knows for the epoch."""
    role = member.role
    if seen.leader_id == member.me.node_id:
        return role.leader_id == member.me.node_id and seen.epoch == role.epoch
    return seen.epoch != role.epoch or NO_NODE in (seen.leader_id, role.leader_id) or seen.leader_id == role.leader_id
