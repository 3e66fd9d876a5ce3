"""JoinGroup (0-9) to a classic group: admission, member ids, and the rebalance that follows.

Rules:
- A dynamic member without an id is given one and must join again with it (version 4 and later), so that a client that
  times out and retries leaves no ghost members behind.
- A static member that returns without its id takes its old place under a new id, and a user of the old id is fenced. In
  a stable group this starts no rebalance unless the group's protocol would change.
- A follower that joins a stable group with unchanged metadata gets the present generation; the leader's join always
  starts a rebalance, since that is how the leader asks for one.

KIPs: 62 (rebalance timeout), 345 (static members), 394 (promised member ids), 814 (skip assignment).
"""

from functools import partial

from ottla.coordinator.contract import Called
from ottla.group.classic.consumer_members import join_consumer_group
from ottla.group.deletion import group_tombstones
from ottla.group.rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    answer_join_error,
    answer_sync_error,
    complete_if_all_joined,
    join_response,
    keep_alive,
    park_join,
    prepare_rebalance,
    rebalance_or_complete,
    remove_member,
)
from ottla.group.records.encode import classic_group_entry, empty_classic_group_entry
from ottla.group.state.classic import ClassicGroup, ClassicMember, ClassicState, Protocols
from ottla.group.state.consumer import ConsumerGroup
from ottla.group.state.shard import CommandContext, Group
from ottla.group.state.share import ShareGroup
from ottla.group.state.streams import StreamsGroup
from ottla.group.timer import Alarm, TimerKey
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupResponse

#: From this version on a client rejoins with the id that it was given (KIP-394).
_PROMISES_FROM = 4
#: The most bytes of a string of the log, less the dash and the UUID that follow the name in a member id.
_NAME_BYTES_MAX = 32767 - 37
#: They are compared with those of all members in one step of the loop.
_PROTOCOLS_MAX = 1000
#: From this version on the leader may be told to keep the assignment (KIP-814).
_SKIP_ASSIGNMENT_FROM = 9


def join_group(context: CommandContext, call: Called) -> None:
    """Handle JoinGroup: answer at once, or when the group's next generation begins."""
    request: JoinGroupRequest = call.request
    settings = context.settings
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    if not settings.group_min_session_timeout_ms <= request.session_timeout_ms <= settings.group_max_session_timeout_ms:
        raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
    if len(request.protocols) > _PROTOCOLS_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not request.member_id and len(_member_name(call).encode()) > _NAME_BYTES_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    group = context.shard.groups.get(request.group_id)
    if isinstance(group, ShareGroup) or (isinstance(group, StreamsGroup) and group.members):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if isinstance(group, ConsumerGroup) and group.members:
        try:
            join_consumer_group(context, call, group)
        except KafkaError as error:
            # Apache Kafka leaves out the member id in this error.
            context.answer(call.ticket, JoinGroupResponse(error_code=error.code))
        return
    if not isinstance(group, ClassicGroup):
        if request.member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group is not None:
            # A classic group replaces a consumer or streams group without members; its offsets stay.
            context.extend(group_tombstones(group))
            context.timers.cancel_group(request.group_id)
        context.shard.undo.append(partial(_restore, context.shard.groups, request.group_id, group))
        group = ClassicGroup(request.group_id, state_timestamp_ms=context.now_ms)
        context.shard.groups[request.group_id] = group
        # Write the group before its first member joins, so that it exists after a restart.
        context.append(empty_classic_group_entry(group))
        if not group.supports(request.protocol_type, protocols_of(request)):
            # As in Apache Kafka, the group stays although its first member is refused.
            context.answer(call.ticket, JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return
    _join(context, call, group)


def _restore(groups: dict[str, Group], group_id: str, before: Group | None) -> None:
    """Undo the creation of a classic group."""
    if before is None:
        groups.pop(group_id, None)
    else:
        groups[group_id] = before


def _join(context: CommandContext, call: Called, group: ClassicGroup) -> None:
    request: JoinGroupRequest = call.request
    member_id = request.member_id
    if not _has_room(context, group, member_id):
        context.answer(call.ticket, JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED))
        remove_member(context, group, member_id)
        # The others may have waited for this member alone.
        complete_if_all_joined(context, group)
        return
    if not group.supports(request.protocol_type, protocols_of(request)):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not member_id:
        _join_newcomer(context, call, group)
    elif member_id in group.promised:
        if request.group_instance_id is not None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        _add_member(context, call, group, member_id)
    else:
        _join_again(context, call, group, group.check_member(member_id, request.group_instance_id))


def protocols_of(request: JoinGroupRequest) -> Protocols:
    """The protocols of a request, with distinct names."""
    return tuple({protocol.name: protocol.metadata for protocol in request.protocols}.items())


def rebalance_timeout_of(request: JoinGroupRequest, version: int) -> int:
    """The rebalance timeout; in version 0, which has none, the session timeout."""
    return request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms


def _has_room(context: CommandContext, group: ClassicGroup, member_id: str) -> bool:
    size_max = context.settings.group_max_size
    if group.state is ClassicState.EMPTY:
        return True
    if group.state is ClassicState.PREPARING_REBALANCE:
        # Count the waiting joins instead of the members: if the limit was lowered, the last ones to rejoin are refused.
        return member_id in group.joins or len(group.joins) < size_max
    return member_id in group.members or len(group.members) < size_max


def _member_name(call: Called) -> str:
    """The beginning of a new member's id."""
    request: JoinGroupRequest = call.request
    return call.client_id if request.group_instance_id is None else request.group_instance_id


def _join_newcomer(context: CommandContext, call: Called, group: ClassicGroup) -> None:
    request: JoinGroupRequest = call.request
    instance_id = request.group_instance_id
    member_id = f"{_member_name(call)}-{context.new_uuid_text()}"
    if instance_id is not None:
        if instance_id in group.static_members:
            _return_static(context, call, group, member_id)
        else:
            _add_member(context, call, group, member_id)
    elif call.version >= _PROMISES_FROM:
        group.promised[member_id] = None
        key = TimerKey(Alarm.CLASSIC_SESSION, group.group_id, member_id)
        context.alarm_in(key, request.session_timeout_ms)
        context.answer(call.ticket, JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
    else:
        _add_member(context, call, group, member_id)


def _add_member(context: CommandContext, call: Called, group: ClassicGroup, member_id: str) -> None:
    request: JoinGroupRequest = call.request
    member = ClassicMember(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=call.client_id,
        client_host=call.client_host,
        rebalance_timeout_ms=rebalance_timeout_of(request, call.version),
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols_of(request),
        is_new=True,
    )
    if group.state is ClassicState.PREPARING_REBALANCE and group.previous_state is ClassicState.EMPTY:
        group.member_was_added = True
    group.add(member, request.protocol_type)
    group.joins[member_id] = call.ticket
    keep_alive(context, group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance_or_complete(context, group)


def _join_again(context: CommandContext, call: Called, group: ClassicGroup, member: ClassicMember) -> None:
    request: JoinGroupRequest = call.request
    changed = member.protocols != protocols_of(request)
    match group.state:
        case ClassicState.PREPARING_REBALANCE:
            _update_and_wait(context, call, group, member)
        case ClassicState.COMPLETING_REBALANCE if changed:
            _update_and_wait(context, call, group, member)
        case ClassicState.STABLE if changed or member.member_id == group.leader:
            _update_and_wait(context, call, group, member)
        case _:
            # A retry: the first response may have been lost.
            context.answer(call.ticket, join_response(group, member.member_id))


def _update_and_wait(context: CommandContext, call: Called, group: ClassicGroup, member: ClassicMember) -> None:
    request: JoinGroupRequest = call.request
    # A join ends the member's waiting sync.
    answer_sync_error(context, group, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
    rebalance_ms = rebalance_timeout_of(request, call.version)
    group.update(member, protocols_of(request), rebalance_ms, request.session_timeout_ms)
    park_join(context, group, member.member_id, call.ticket)
    rebalance_or_complete(context, group)


def _return_static(context: CommandContext, call: Called, group: ClassicGroup, member_id: str) -> None:
    request: JoinGroupRequest = call.request
    assert request.group_instance_id is not None
    old_id = group.static_members[request.group_instance_id]
    leader_before = group.leader
    answer_join_error(context, group, old_id, ErrorCode.FENCED_INSTANCE_ID, old_id)
    answer_sync_error(context, group, old_id, ErrorCode.FENCED_INSTANCE_ID)
    context.timers.cancel(TimerKey(Alarm.CLASSIC_SESSION, group.group_id, old_id))
    member = group.replace_static(request.group_instance_id, member_id)
    context.shard.undo += [
        partial(group.replace_static, request.group_instance_id, old_id),
        partial(group.update, member, member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms),
    ]
    rebalance_ms = rebalance_timeout_of(request, call.version)
    group.update(member, protocols_of(request), rebalance_ms, request.session_timeout_ms)
    keep_alive(context, group, member)
    if group.state is not ClassicState.STABLE or group.choose_protocol() != group.protocol_name:
        group.joins[member_id] = call.ticket
        if group.state is ClassicState.PREPARING_REBALANCE:
            complete_if_all_joined(context, group)
        else:
            # The leader may have the old id, and its assignment would not reach the new one.
            prepare_rebalance(context, group)
        return
    context.append(classic_group_entry(group, {other.member_id: other.assignment for other in group.members.values()}))
    if call.version >= _SKIP_ASSIGNMENT_FROM:
        skip = group.leader == member_id
        context.answer(call.ticket, join_response(group, member_id, skip_assignment=skip))
    else:
        # Name the old id as the leader, so that the client acts as a follower and keeps the assignment.
        response = join_response(group, member_id)
        response.leader = leader_before or ""
        response.members = []
        context.answer(call.ticket, response)
