"""The metadata quorum as `ottla quorum` shows it: its voters and observers, and how far each is behind (KIP-595)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ottla.kernel.ids import uuid_text

if TYPE_CHECKING:
    from ottla.client.admin.result import QuorumDescription, QuorumReplica


@dataclass(frozen=True, slots=True)
class QuorumMemberView:
    """A voter or an observer. Timestamps are milliseconds, -1 if unknown."""

    node: int
    role: Literal["leader", "voter", "observer"]
    end_offset: int
    #: Records that the leader has and this replica does not.
    lag: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int
    directory_id: str
    #: Where a voter listens, LISTENER://HOST:PORT.
    endpoints: list[str]


def members(quorum: QuorumDescription) -> list[QuorumMemberView]:
    """Return the voters and then the observers of a quorum, from `admin.describe_quorum()`."""
    end = max((voter.log_end_offset for voter in quorum.voters if voter.id == quorum.leader_id), default=0)

    def member(replica: QuorumReplica, role: Literal["leader", "voter", "observer"]) -> QuorumMemberView:
        return QuorumMemberView(
            replica.id,
            role,
            replica.log_end_offset,
            max(0, end - replica.log_end_offset),
            replica.last_fetch_timestamp,
            replica.last_caught_up_timestamp,
            uuid_text(replica.directory_id),
            list(quorum.endpoints.get(replica.id, ())),
        )

    voters = [member(voter, "leader" if voter.id == quorum.leader_id else "voter") for voter in quorum.voters]
    return [*voters, *(member(observer, "observer") for observer in quorum.observers)]
