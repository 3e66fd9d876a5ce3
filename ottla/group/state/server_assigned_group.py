"""The common part of the groups that the server assigns: consumer, share and streams groups.

Rules:
- The group epoch rises when an input of the assignment changes; the assignment epoch follows when a new target is
  computed; a member's epoch follows when it has adopted its target.
- All fields are durable except the two of the metadata refresh.

KIPs: 848, 932, 1071.
"""

from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ottla.kernel.error import ErrorCode, KafkaError


class Member(Protocol):
    """A member of any kind."""

    @property
    def member_id(self) -> str: ...


M = TypeVar("M", bound=Member)
T = TypeVar("T")


@dataclass(slots=True)
class ServerAssignedGroup(Generic[M, T]):
    """A group. Its first record creates it; the tombstone of its epoch removes it."""

    group_id: str
    epoch: int = 1
    #: The hash of the topics that the group reads; see `metadata_hash`.
    metadata_hash: int = 0
    assignment_epoch: int = 1
    assignment_timestamp_ms: int = 0
    members: dict[str, M] = field(default_factory=dict)
    #: The target of each member.
    targets: dict[str, T] = field(default_factory=dict)
    #: When the topics must be checked for changes; 0 is at once. Not durable.
    refresh_deadline_ms: int = 0
    #: The group epoch for which the deadline was set. Not durable.
    refresh_epoch: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.members

    def member(self, member_id: str) -> M:
        """The member. Raises UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def members_with(self, member: M) -> dict[str, M]:
        """The members once `member` is written."""
        return {**self.members, member.member_id: member}

    def may_assign(self, interval_ms: int, now_ms: int) -> bool:
        """Has the assignment interval passed, so that a new target may be computed?"""
        # A timestamp of 0: there is no target yet, or its time is unknown. A future timestamp: the clock was set back.
        age_ms = now_ms - self.assignment_timestamp_ms
        return not self.assignment_timestamp_ms or not 0 <= age_ms < interval_ms

    def refresh_is_due(self, monotonic_ms: int) -> bool:
        return monotonic_ms >= self.refresh_deadline_ms or self.epoch < self.refresh_epoch
