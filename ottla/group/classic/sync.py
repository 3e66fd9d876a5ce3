"""SyncGroup (0-5), Heartbeat (0-4) and LeaveGroup (0-5) of classic groups.

Rules:
- The leader's sync brings the assignment. When it is committed, the group is stable and all waiting members get their
  assignments. If the log refuses it, they all get the error, and the group rebalances.
- Heartbeats get REBALANCE_IN_PROGRESS during the join phase.
- An administrator removes static members by instance id alone (LeaveGroup 3 and later).

KIPs: 345 (static members), 559 (protocol type and name in SyncGroup), 800 (reasons).
"""

from collections.abc import Iterator, Sequence
from functools import partial

from ottla.coordinator.contract import Called
from ottla.group.classic.consumer_members import heartbeat_consumer_group, leave_consumer_group, sync_consumer_group
from ottla.group.rebalance import (
    answer_sync_error,
    complete_if_all_joined,
    keep_alive,
    prepare_rebalance,
    remove_member,
)
from ottla.group.records.encode import classic_group_entry
from ottla.group.state.classic import ClassicGroup, ClassicState
from ottla.group.state.consumer import ConsumerGroup
from ottla.group.state.shard import CommandContext
from ottla.group.state.share import ShareGroup
from ottla.group.state.streams import StreamsGroup
from ottla.group.timer import Alarm, TimerKey
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.compile import deferred

#: From this version on the request must name the protocol (KIP-559).
_PROTOCOL_NAMED_FROM = 5
#: From this version on a request names several members, which may be static.
_LEAVE_MANY_FROM = 3


def sync_group(context: CommandContext, call: Called) -> None:
    """Handle SyncGroup: take the leader's assignment, and give each member its own."""
    request: SyncGroupRequest = call.request
    if call.version >= _PROTOCOL_NAMED_FROM and (request.protocol_type is None or request.protocol_name is None):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    group = context.shard.groups.get(request.group_id)
    if group is None or group.is_empty or isinstance(group, ShareGroup | StreamsGroup):
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if isinstance(group, ConsumerGroup):
        sync_consumer_group(context, call, group)
        return
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is ClassicState.PREPARING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    group.unsynced.pop(member.member_id, None)
    if not group.unsynced:
        context.timers.cancel(TimerKey(Alarm.CLASSIC_SYNC, group.group_id))
    if group.state is ClassicState.STABLE:
        context.answer(call.ticket, _sync_response(group, member.assignment))
        return
    answer_sync_error(context, group, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
    group.syncs[member.member_id] = call.ticket
    if member.member_id == group.leader:
        _take_assignment(context, group, request)


def _differs(asked: str | None, held: str | None) -> bool:
    return asked is not None and held is not None and asked != held


def _take_assignment(context: CommandContext, group: ClassicGroup, request: SyncGroupRequest) -> None:
    assignments = {entry.member_id: entry.assignment for entry in request.assignments}
    assignment = {member_id: assignments.get(member_id, b"") for member_id in group.members}
    # Replaying this record makes the group stable; the answers wait for its commit.
    context.append(classic_group_entry(group, assignment))
    context.shard.undo.append(partial(_assignment_refused, context, group, [*group.syncs]))
    for member_id, ticket in group.syncs.items():
        context.answer(ticket, _sync_response(group, assignment[member_id]))
        keep_alive(context, group, group.members[member_id])
    group.syncs.clear()


def _assignment_refused(context: CommandContext, group: ClassicGroup, told: Sequence[str]) -> None:
    """The log has refused the assignment, and these members were told its error."""
    for member_id in told:
        # While it waited for its answer, its session could not expire.
        keep_alive(context, group, group.members[member_id])
    prepare_rebalance(context, group)


def _sync_response(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )


def heartbeat(context: CommandContext, call: Called) -> None:
    """Restart a member's session and tell it whether it must rejoin."""
    request: HeartbeatRequest = call.request
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    group = context.shard.groups.get(request.group_id)
    if group is None or isinstance(group, ShareGroup | StreamsGroup):
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if isinstance(group, ConsumerGroup):
        heartbeat_consumer_group(context, call, group)
        return
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    keep_alive(context, group, member)
    rejoin = group.state is ClassicState.PREPARING_REBALANCE
    context.answer(
        call.ticket, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if rejoin else ErrorCode.NONE)
    )


def leaving_members(request: LeaveGroupRequest, version: int) -> list[MemberIdentity]:
    """The members that leave; up to version 2 a request is for one member."""
    return request.members if version >= _LEAVE_MANY_FROM else [MemberIdentity(member_id=request.member_id)]


def leave_group(context: CommandContext, call: Called) -> None:
    """Handle LeaveGroup: remove members, after which the others rebalance."""
    request: LeaveGroupRequest = call.request
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    identities = leaving_members(request, call.version)
    group = context.shard.groups.get(request.group_id)
    if group is None or isinstance(group, ShareGroup | StreamsGroup):
        results = [(identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in identities]
    elif isinstance(group, ConsumerGroup):
        results = leave_consumer_group(context, group, identities)
    else:
        results = [(identity, _leave(context, group, identity)) for identity in identities]
        if any(error is ErrorCode.NONE for _, error in results):
            if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
                prepare_rebalance(context, group)
            else:
                complete_if_all_joined(context, group)
    context.answer(call.ticket, _leave_response(results, call.version))


def _leave(context: CommandContext, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
    member_id = identity.member_id
    if not member_id:
        named = group.static_members.get(identity.group_instance_id or "")
        if named is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = named
    elif member_id not in group.promised:
        if identity.group_instance_id is None and member_id not in group.members:
            # A request may name very many of these, and raising an error takes ten times as long.
            return ErrorCode.UNKNOWN_MEMBER_ID
        try:
            group.check_member(member_id, identity.group_instance_id)
        except KafkaError as error:
            return error.code
    remove_member(context, group, member_id)
    return ErrorCode.NONE


def _leave_response(results: list[tuple[MemberIdentity, ErrorCode]], version: int) -> LeaveGroupResponse:
    if version < _LEAVE_MANY_FROM:
        return LeaveGroupResponse(error_code=results[0][1])

    def members() -> Iterator[MemberResponse]:
        for each, error in results:
            yield MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=error)

    return LeaveGroupResponse(members=deferred(len(results), members))
