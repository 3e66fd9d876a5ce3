"""ShareGroupHeartbeat (1): the whole membership protocol of share groups in one request (KIP-932).

Rules:
- Epoch 0 joins, -1 leaves; any other is the member's present epoch, or its previous one if the response with the
  present one was lost.
- A member sends its topics when they change; null means unchanged. The response has the assignment if it changed, and
  if the member joins or sends its topics.
- The group epoch rises when subscriptions or their topics change, and when partitions with new state are not assigned
  yet. No member waits for another: it adopts its target at its next heartbeat.
- A heartbeat that needs new state is held until the share coordinator has created it, and then answered with the new
  assignment: otherwise the first member of a group would get its first records only after its second heartbeat. It is
  held for at most `_HOLD_MS`, and only until the client sends another request, so that a leaving member need not wait.
- A group of another kind, even without members, gets GROUP_ID_NOT_FOUND.
"""

from collections.abc import Sequence
from dataclasses import replace

from ottla.coordinator.contract import Called, Continue
from ottla.group.event import HeldHeartbeat
from ottla.group.metadata_hash import metadata_hash
from ottla.group.records.encode_share import (
    share_assignment_epoch_entry,
    share_current_entry,
    share_epoch_entry,
    share_member_entry,
    share_member_tombstones,
    share_target_entry,
)
from ottla.group.share.assignor import assign_simple
from ottla.group.share.state import create_state, missing_state, not_a_share_group, share_group
from ottla.group.state.consumer import LEAVE_EPOCH, Target
from ottla.group.state.shard import CommandContext
from ottla.group.state.share import ShareGroup, ShareMember
from ottla.group.timer import Alarm, TimerKey
from ottla.group.topic import names_of, topic_ids
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.wire.api.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

#: Apache Kafka's numbers, not settings.
_MEMBER_ID_MAX = 36
_REFRESH_INTERVAL_MS = 2_147_483_647
#: Less than the heartbeat interval: a heartbeat that was answered early gets its partitions with the next one.
_HOLD_MS = 2_000


def share_heartbeat(context: CommandContext, call: Called) -> None:
    """Handle a heartbeat: join, leave, or continue."""
    request: ShareGroupHeartbeatRequest = call.request
    _check_request(request)
    if request.member_epoch == LEAVE_EPOCH:
        group = share_group(context, request.group_id)
        fence_share_member(context, group, group.member(request.member_id))
        context.answer(
            call.ticket, ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        )
        return
    response = _continue(context, call, resumed=False)
    if response is not None:
        context.answer(call.ticket, response)


def resume_heartbeat(context: CommandContext, held: HeldHeartbeat) -> None:
    """Answer a held heartbeat, if it still waits, after the creation of its state has succeeded or failed."""
    if context.shard.held.pop(held.call.ticket, None) is None:
        return
    response, request = held.response, held.call.request
    context.timers.cancel(TimerKey(Alarm.SHARE_HOLD, request.group_id, request.member_id))
    group = context.shard.groups.get(request.group_id)
    # A member that has left or was fenced meanwhile must not rejoin here.
    if isinstance(group, ShareGroup) and request.member_id in group.members:
        try:
            response = _continue(context, held.call, resumed=True) or response
        except KafkaError:
            # The earlier response is still valid; the next heartbeat returns the error.
            context.entries.clear()
    context.answer(held.call.ticket, response)


def release_held(context: CommandContext, ticket: int) -> None:
    """Answer a held heartbeat without the state that it waits for; does nothing if it is not held."""
    held = context.shard.held.pop(ticket, None)
    if held is not None:
        context.answer(ticket, held.response)


def end_hold(context: CommandContext, group_id: str, member_id: str) -> None:
    """Answer a member's held heartbeats, whose time is over."""
    for ticket, held in list(context.shard.held.items()):
        if (held.call.request.group_id, held.call.request.member_id) == (group_id, member_id):
            release_held(context, ticket)


def share_deadline(context: CommandContext, group: ShareGroup, key: TimerKey) -> None:
    """Fence a member whose session has expired."""
    if key.alarm is Alarm.SESSION and key.member_id in group.members:
        fence_share_member(context, group, group.members[key.member_id])


def _check_request(request: ShareGroupHeartbeatRequest) -> None:
    problem = "" if 0 < len(request.member_id) <= _MEMBER_ID_MAX else "Invalid member id in the request."
    for what, value in (("MemberId", request.member_id), ("GroupId", request.group_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip() and not problem:
            problem = f"{what} can't be empty."
    if not problem and request.member_epoch == 0 and not request.subscribed_topic_names:
        problem = "SubscribedTopicNames must be set in first request."
    if not problem and request.member_epoch < LEAVE_EPOCH:
        problem = "MemberEpoch is invalid."
    if problem:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def _continue(context: CommandContext, call: Called, *, resumed: bool) -> ShareGroupHeartbeatResponse | None:
    """The response, or None if the heartbeat is held until state is created."""
    request: ShareGroupHeartbeatRequest = call.request
    group, before = _member_for(context, request)
    after = replace(
        before,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        topics=before.topics
        if request.subscribed_topic_names is None
        else tuple(sorted(dict.fromkeys(request.subscribed_topic_names))),
        client_id=call.client_id,
        client_host=call.client_host,
    )
    epoch, changed = _bump_group_epoch(context, group, before, after)
    member = _advance(context, after, _update_target(context, group, after, epoch), group.group_id, changed)
    _keep_session(context, group, member.member_id)
    is_full_request = request.member_epoch == 0 or request.subscribed_topic_names is not None
    with_assignment = resumed or is_full_request or before.assigned != member.assigned
    response = _response(context, group, member, with_assignment=with_assignment)
    missing = missing_state(context, group, names_of(group.members_with(member).values()))
    if not missing:
        return response
    held = HeldHeartbeat(call, response)
    if resumed:
        create_state(context, group, epoch, missing, lambda _: None)
        return response
    context.shard.held[call.ticket] = held
    context.shard.undo.append(lambda: context.shard.held.pop(call.ticket))
    context.alarm_in(TimerKey(Alarm.SHARE_HOLD, group.group_id, member.member_id), _HOLD_MS)
    create_state(context, group, epoch, missing, lambda later: later.after(Continue(held)))
    return None


def _member_for(context: CommandContext, request: ShareGroupHeartbeatRequest) -> tuple[ShareGroup, ShareMember]:
    joins = request.member_epoch == 0
    known = context.shard.groups.get(request.group_id)
    if known is None and joins:
        group = ShareGroup(request.group_id)
    elif isinstance(known, ShareGroup):
        group = known
    else:
        raise not_a_share_group(request.group_id, known)
    size_max = context.settings.group_share_max_size
    if len(group.members) >= size_max and request.member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The share group has reached its maximum capacity of {size_max} members.",
        )
    if joins:
        return group, group.members.get(request.member_id) or ShareMember(request.member_id)
    member = group.member(request.member_id)
    member.check_epoch(request.member_epoch)
    return group, member


def _bump_group_epoch(
    context: CommandContext, group: ShareGroup, before: ShareMember, after: ShareMember
) -> tuple[int, bool]:
    """(the new group epoch, did it rise?). Writes the member and the epoch if they changed."""
    if after != before or before.member_id not in group.members:
        context.append(share_member_entry(group.group_id, after))
    rises = after.topics != before.topics
    if group.assignment_epoch >= group.epoch:
        rises = rises or group.has_unassigned(context.shard.topics)
    epoch = group.epoch
    if rises or group.refresh_is_due(context.monotonic_ms):
        names = names_of(group.members_with(after).values())
        fresh_hash = metadata_hash(names, context.shard.topics)
        rises = rises or fresh_hash != group.metadata_hash
        if rises:
            epoch += 1
            context.append(share_epoch_entry(group.group_id, epoch, fresh_hash))
        group.refresh_deadline_ms = context.monotonic_ms + _REFRESH_INTERVAL_MS
        # If this record is lost, the epoch in memory stays behind and the refresh is due again.
        group.refresh_epoch = epoch
    return epoch, rises


def _update_target(context: CommandContext, group: ShareGroup, member: ShareMember, epoch: int) -> tuple[int, Target]:
    """(assignment epoch, target of this member), computing a new target if one is due."""
    if group.assignment_epoch >= epoch or not _may_compute(context, group):
        return group.assignment_epoch, group.targets.get(member.member_id, {})
    topics = context.shard.topics
    members = group.members_with(member)
    stored = {id(each.topics): each.topics for each in members.values()}
    ids = {number: sorted(topic_ids(names, topics)) for number, names in stored.items()}
    subscriptions: dict[str, Sequence[Uuid]] = {member_id: ids[id(each.topics)] for member_id, each in members.items()}
    partitions: dict[Uuid, Sequence[int]] = {}
    for topic_id, held in group.initialized.items():
        name = topics.topic_name(topic_id)
        if name is not None:
            partitions[topic_id] = [index for index in sorted(held.partitions) if index < topics.partition_count(name)]
    same_names = len(set(stored.values())) == 1
    targets = assign_simple(subscriptions, group.targets, partitions, same_names=same_names)
    for member_id, target in targets.items():
        if group.targets.get(member_id) != target:
            context.append(share_target_entry(group.group_id, member_id, target))
    context.append(share_assignment_epoch_entry(group.group_id, epoch, context.now_ms))
    return epoch, targets[member.member_id]


def _may_compute(context: CommandContext, group: ShareGroup) -> bool:
    interval_ms = context.shard.override(group.group_id).share_assignment_interval_ms
    if interval_ms is None:
        interval_ms = context.settings.group_share_assignment_interval_ms
    # Ignore the interval while at most one member has partitions: otherwise members that join a new group after its
    # first member would get their share only with their second heartbeat.
    few = sum(map(bool, group.targets.values())) <= 1
    # A future timestamp: the clock was set back.
    return few or not 0 <= context.now_ms - group.assignment_timestamp_ms < interval_ms


def _advance(
    context: CommandContext, member: ShareMember, target: tuple[int, Target], group_id: str, changed: bool
) -> ShareMember:
    """The member after it has adopted its target; written if it changed."""
    assignment_epoch, partitions = target
    if member.epoch == assignment_epoch and not changed:
        return member
    subscribed = topic_ids(member.topics, context.shard.topics)
    assigned = {topic_id: indexes for topic_id, indexes in partitions.items() if topic_id in subscribed}
    advanced = replace(member, assigned=assigned)
    if member.epoch != assignment_epoch:
        advanced = replace(advanced, epoch=assignment_epoch, previous_epoch=member.epoch)
    if advanced != member:
        context.append(share_current_entry(group_id, advanced))
    return advanced


def _response(
    context: CommandContext, group: ShareGroup, member: ShareMember, *, with_assignment: bool
) -> ShareGroupHeartbeatResponse:
    interval_ms = context.shard.override(group.group_id).share_heartbeat_interval_ms
    if interval_ms is None:
        interval_ms = context.settings.group_share_heartbeat_interval_ms
    assignment = None
    if with_assignment:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in member.assigned.items()
            ]
        )
    return ShareGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=assignment,
    )


# -- sessions


def _keep_session(context: CommandContext, group: ShareGroup, member_id: str) -> None:
    """Restart the member's session."""
    timeout_ms = context.shard.override(group.group_id).share_session_timeout_ms
    if timeout_ms is None:
        timeout_ms = context.settings.group_share_session_timeout_ms
    context.alarm_in(TimerKey(Alarm.SESSION, group.group_id, member_id), timeout_ms)


def start_share_sessions(context: CommandContext, group: ShareGroup) -> None:
    """Restart the sessions of all members after the log is loaded."""
    for member_id in group.members:
        _keep_session(context, group, member_id)


def fence_share_member(context: CommandContext, group: ShareGroup, member: ShareMember) -> None:
    """Remove a member: the group epoch rises, and its partitions go to the others."""
    context.extend(share_member_tombstones(group.group_id, member.member_id))
    staying = [each for each in group.members.values() if each is not member]
    fresh_hash = metadata_hash(names_of(staying), context.shard.topics)
    context.append(share_epoch_entry(group.group_id, group.epoch + 1, fresh_hash))
    context.timers.cancel(TimerKey(Alarm.SESSION, group.group_id, member.member_id))
