"""A member's own view of its group: what to send next, and what an answer means. Pure.

Two protocols: `ClassicMembership` (join, sync, heartbeat; a leading member assigns) and `ConsumerMembership`
(heartbeats only; the broker assigns, KIP-848). The consumer sends their requests, passes the answers back, and carries
out their decisions.

Rules:
- A member that the coordinator no longer knows has lost its partitions: other members may have them already.
- A fenced instance id is final: another process uses the same id.

KIPs: 62 (heartbeats apart from polls), 345 (static members), 394 (member id first), 429 (cooperative), 848.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from ottla.client.assignment.assignor import ASSIGNORS, CandidateMember
from ottla.client.assignment.consumer_protocol import (
    Subscription,
    assignment_bytes,
    parse_assignment,
    parse_subscription,
    sticky_user_data,
    subscription_bytes,
)
from ottla.client.assignment.rack import Racks
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.client_error import error_of
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.wire.api import consumer_group_heartbeat as modern
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse


class Outcome(Enum):
    """The meaning of an answer for the consumer."""

    GOOD = "go on"
    REJOIN = "join again and keep the partitions"
    LOST = "join again; the partitions are lost"
    COORDINATOR = "look up the coordinator again"
    RETRY = "retry after a pause"


_COORDINATOR = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class ClassicMembership:
    """A consumer in a group with the classic protocol."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self.member_id = ""
        self.generation = -1
        #: The assignor that the group has chosen; None while not in the group.
        self.assignor: str | None = None
        #: Why a join is due; None if none is.
        self.join_reason: str | None = "the consumer subscribed"
        #: Why another join is due after the one in progress; None if none is.
        self._next_reason: str | None = None
        self._settings = settings
        #: The last assignment and its generation, which `sticky` builds on; None before the first.
        self._last: tuple[tuple[TopicPartition, ...], int] | None = None

    @property
    def cooperative(self) -> bool:
        """True if partitions are kept through a rebalance, which every configured assignor must support."""
        return all(name == "cooperative-sticky" for name in self._settings.partition_assignment_strategy)

    @property
    def joined(self) -> bool:
        """True in a generation that the coordinator has confirmed."""
        return self.assignor is not None and self.generation >= 0

    def join_request(self, topics: Iterable[str], owned: Iterable[TopicPartition]) -> JoinGroupRequest:
        """Request to join the next generation."""
        settings = self._settings
        names, partitions, rack = tuple(sorted(topics)), tuple(sorted(owned)), settings.client_rack or None
        user_data = {} if self._last is None else {"sticky": sticky_user_data(*self._last)}
        return JoinGroupRequest(
            group_id=settings.group_id or "",
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=settings.group_instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(
                    name=name,
                    metadata=subscription_bytes(
                        Subscription(names, partitions, self.generation, rack, user_data.get(name))
                    ),
                )
                for name in settings.partition_assignment_strategy
            ],
            reason=self.join_reason,
        )

    def join_answered(self, response: JoinGroupResponse) -> Outcome:
        """Apply a JoinGroup answer. GOOD: sync comes next."""
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return Outcome.REJOIN
        outcome = self._failed(response.error_code, "joining")
        if outcome is Outcome.GOOD:
            self.member_id = response.member_id
            self.generation = response.generation_id
            self.assignor = response.protocol_name
        return outcome

    def sync_request(
        self, response: JoinGroupResponse, partitions: dict[str, int] | None, racks: Racks | None = None
    ) -> SyncGroupRequest:
        """Request the assignment; the leader passes `partitions` (counts by topic) and sends all assignments."""
        assignments: list[SyncGroupRequestAssignment] = []
        if partitions is not None and self.leads(response) and not response.skip_assignment:
            members = candidates(response)
            assigned = ASSIGNORS[self.assignor or ""](members, partitions, racks or {})
            assignments = [
                SyncGroupRequestAssignment(member_id=member, assignment=assignment_bytes(partitions_of_member))
                for member, partitions_of_member in assigned.items()
            ]
        return SyncGroupRequest(
            group_id=self._settings.group_id or "",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type="consumer",
            protocol_name=self.assignor,
            assignments=assignments,
        )

    def leads(self, response: JoinGroupResponse) -> bool:
        """True if this member assigns the partitions."""
        return response.leader == response.member_id

    def sync_answered(self, response: SyncGroupResponse) -> tuple[Outcome, tuple[TopicPartition, ...]]:
        """Apply a SyncGroup answer. GOOD: the member is in the group, with these partitions."""
        outcome = self._failed(response.error_code, "syncing")
        if outcome is not Outcome.GOOD:
            return outcome, ()
        assigned = parse_assignment(response.assignment)
        self.join_reason, self._next_reason = self._next_reason, None
        self._last = assigned, self.generation
        return outcome, assigned

    def heartbeat_request(self) -> HeartbeatRequest:
        """A heartbeat."""
        return HeartbeatRequest(
            group_id=self._settings.group_id or "",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._settings.group_instance_id,
        )

    def heartbeat_answered(self, error_code: int) -> Outcome:
        """Apply a heartbeat's error code. REJOIN while the group rebalances: the next poll joins."""
        return self._failed(error_code, "heartbeat")

    def commit_failed(self, error_code: int) -> Outcome:
        """Apply a commit's error code. REJOIN and LOST: nothing was committed."""
        return self._failed(error_code, "committing")

    def rejoin(self, reason: str) -> None:
        """Make a join due, because the subscription or its topics have changed: also after a join in progress."""
        self.join_reason = self.join_reason or reason
        self._next_reason = reason

    def begin_join(self) -> None:
        """Note that the next request to join has the subscription as it is now."""
        self._next_reason = None

    def leave_request(self, reason: str) -> LeaveGroupRequest:
        """Request to leave, so that other members need not wait for the session timeout."""
        member = MemberIdentity(
            member_id=self.member_id, group_instance_id=self._settings.group_instance_id, reason=reason
        )
        return LeaveGroupRequest(group_id=self._settings.group_id or "", member_id="", members=[member])

    def lost(self, reason: str, *, known: bool = False) -> None:
        """Reset the membership; `known` keeps the member id, which the coordinator still knows."""
        if not known:
            self.member_id = ""
        self.generation = -1
        self.assignor = None
        self.join_reason = reason

    def _failed(self, error_code: int, action: str) -> Outcome:
        if error_code == ErrorCode.NONE:
            return Outcome.GOOD
        error = error_of(error_code, f"{action} in group {self._settings.group_id}")
        assert error is not None
        if error.code in _COORDINATOR:
            return Outcome.COORDINATOR
        if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return Outcome.RETRY
        if error.code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join_reason = self.join_reason or "the group rebalances"
            return Outcome.REJOIN
        if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            # A member id that the coordinator still knows is kept: its session would hold up the group.
            self.lost(f"{action}: {error.code.name}", known=error.code == ErrorCode.ILLEGAL_GENERATION)
            return Outcome.LOST
        raise error


def candidates(response: JoinGroupResponse) -> list[CandidateMember]:
    """The members, in the form that the assignors take."""
    return [
        CandidateMember(member.member_id, parse_subscription(member.metadata), member.group_instance_id)
        for member in response.members
    ]


#: The coordinator does not know this member, or not in this epoch, or the group was deleted after being empty.
_LOST = frozenset(
    {
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)
#: Member epochs with a special meaning (KIP-848).
_JOIN, _LEAVE, _LEAVE_STATIC = 0, -1, -2


def _same(one: dict[Uuid, tuple[int, ...]], other: dict[Uuid, tuple[int, ...]]) -> bool:
    return {key: set(numbers) for key, numbers in one.items()} == {key: set(numbers) for key, numbers in other.items()}


class ConsumerMembership:
    """A consumer in a group with the consumer protocol."""

    def __init__(self, settings: ConsumerSettings, member_id: str) -> None:
        #: Generated by the client and never changed (KIP-1082).
        self.member_id = member_id
        self.epoch = _JOIN
        #: Whether the coordinator may know this member, from its first request to join on.
        self.asked = False
        self.interval_ms = 0
        #: The coordinator's last assignment by topic id; None before the first.
        self.target: dict[Uuid, tuple[int, ...]] | None = None
        #: The owned partitions last reported to the coordinator; None if they must be reported again.
        self.reported_owned: dict[Uuid, tuple[int, ...]] | None = None
        #: Has an assignment come that no heartbeat has confirmed yet?
        self._unconfirmed = False
        self._reported_subscription: tuple[tuple[str, ...], str | None] | None = None
        #: Whether the coordinator may know a pattern of this member.
        self._had_pattern = False
        self._settings = settings

    @property
    def joined(self) -> bool:
        """True once the coordinator has accepted this member."""
        return self.epoch > _JOIN

    def heartbeat_request(
        self, topics: Iterable[str], pattern: str | None, owned: dict[Uuid, tuple[int, ...]]
    ) -> ConsumerGroupHeartbeatRequest:
        """All fields when joining or after a missing answer, otherwise only what has changed since the last heartbeat.

        The coordinator answers a full heartbeat with the assignment, so one in a lost answer is sent again.

        Every assignment is confirmed, even if nothing changed: of a partition that was given and taken away before the
        member took it up, the coordinator waits to hear that the member does not own it.
        """
        settings = self._settings
        subscription = (tuple(sorted(topics)), pattern)
        full = self.epoch == _JOIN or self.reported_owned is None
        request = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id or "", member_id=self.member_id, member_epoch=self.epoch
        )
        request.instance_id = settings.group_instance_id
        if full:
            request.rack_id = settings.client_rack or None
            request.rebalance_timeout_ms = settings.max_poll_interval_ms
            request.server_assignor = settings.group_remote_assignor
        if full or subscription != self._reported_subscription:
            request.subscribed_topic_names = list(subscription[0])
            self._had_pattern = self._had_pattern or pattern is not None
            if self._had_pattern:
                # Null means unchanged: an empty one takes an earlier pattern back.
                request.subscribed_topic_regex = pattern or ""
            self._reported_subscription = subscription
        confirms = self._unconfirmed and _same(owned, self.target or {})
        if full or confirms or owned != self.reported_owned:
            self._unconfirmed = self._unconfirmed and not confirms
            reported = {} if self.epoch == _JOIN else owned
            request.topic_partitions = [
                modern.TopicPartitions(topic_id=topic_id, partitions=list(numbers))
                for topic_id, numbers in reported.items()
            ]
            self.reported_owned = dict(reported)
        return request

    def heartbeat_answered(self, response: ConsumerGroupHeartbeatResponse) -> Outcome:
        """Apply a heartbeat's answer; a new assignment, if any, is then in `target`."""
        code = response.error_code
        if code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            self.interval_ms = response.heartbeat_interval_ms
            if response.assignment is not None:
                self.target = {
                    Uuid(bytes(assigned.topic_id)): tuple(assigned.partitions)
                    for assigned in response.assignment.topic_partitions
                }
                self._unconfirmed = True
            return Outcome.GOOD
        self.unanswered()
        if code in _COORDINATOR:
            return Outcome.COORDINATOR
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return Outcome.RETRY
        if code in _LOST:
            self.lost()
            return Outcome.LOST
        self.asked = self.joined
        error = error_of(code, response.error_message)
        assert error is not None
        raise error

    def unanswered(self) -> None:
        """Note that the last heartbeat may not have arrived, or was refused: report everything again."""
        self.reported_owned = None
        self._reported_subscription = None

    def lost(self) -> None:
        """Reset the membership: join again at epoch 0."""
        self.epoch = _JOIN
        self.asked = False
        self.target = None
        self.unanswered()

    def leave_request(self) -> ConsumerGroupHeartbeatRequest:
        """Request to leave; a static member leaves only for a while."""
        instance = self._settings.group_instance_id
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id or "",
            member_id=self.member_id,
            member_epoch=_LEAVE if instance is None else _LEAVE_STATIC,
        )
        request.instance_id = instance
        return request
