"""The phases of a classic rebalance: collect joins, start a generation, collect syncs.

Rules:
- A join or a sync is answered once; if a waiting member sends another one, the first is answered with a rejoin.
- The join phase ends when every member has joined and no promised member id is outstanding, or at the rebalance
  timeout, when the dynamic members that have not joined are removed. Static members stay until their session ends.
- The first rebalance of an empty group waits `group.initial.rebalance.delay.ms` for more members, and again while new
  members keep joining, up to the rebalance timeout.

KIPs: 134 (initial delay), 345 (static members), 394 (promised member ids).
"""

from ottla.group.records.encode import classic_group_entry
from ottla.group.records.subscription import subscribed_topics
from ottla.group.state.classic import ClassicGroup, ClassicMember, ClassicState
from ottla.group.state.shard import CommandContext
from ottla.group.timer import Alarm, TimerKey
from ottla.kernel.error import ErrorCode
from ottla.wire.api.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.api.sync_group import SyncGroupResponse

#: A new member that waits longer than this for its first response is removed and must join again: its client may have
#: given up and returned under another id. Apache Kafka's number, not a setting.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


def park_join(context: CommandContext, group: ClassicGroup, member_id: str, ticket: int) -> None:
    """Park the member's join until the end of the join phase."""
    answer_join_error(context, group, member_id, ErrorCode.REBALANCE_IN_PROGRESS, member_id)
    group.joins[member_id] = ticket


def answer_join_error(
    context: CommandContext, group: ClassicGroup, member_id: str, error: ErrorCode, known_as: str
) -> None:
    """Answer the member's waiting join, if any, with an error; `known_as` is the member id in the response."""
    ticket = group.joins.pop(member_id, None)
    if ticket is not None:
        context.answer_error(ticket, JoinGroupResponse(error_code=error, member_id=known_as, protocol_name=""))


def answer_sync_error(context: CommandContext, group: ClassicGroup, member_id: str, error: ErrorCode) -> None:
    """Answer the member's waiting sync, if any, with an error."""
    ticket = group.syncs.pop(member_id, None)
    if ticket is not None:
        context.answer_error(ticket, SyncGroupResponse(error_code=error))


def keep_alive(
    context: CommandContext, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None
) -> None:
    """Restart the member's session."""
    timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
    context.alarm_in(TimerKey(Alarm.CLASSIC_SESSION, group.group_id, member.member_id), timeout_ms)


def remove_member(context: CommandContext, group: ClassicGroup, member_id: str) -> None:
    """Remove a member or a promised id; its waiting request gets UNKNOWN_MEMBER_ID, and a live client rejoins."""
    answer_join_error(context, group, member_id, ErrorCode.UNKNOWN_MEMBER_ID, "")
    answer_sync_error(context, group, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    context.timers.cancel(TimerKey(Alarm.CLASSIC_SESSION, group.group_id, member_id))
    group.remove(member_id)


def rebalance_or_complete(context: CommandContext, group: ClassicGroup) -> None:
    """After a change: begin a rebalance, or complete the join phase if all members have joined."""
    if group.can_rebalance:
        prepare_rebalance(context, group)
    else:
        complete_if_all_joined(context, group)


def complete_if_all_joined(context: CommandContext, group: ClassicGroup) -> None:
    """End the join phase if all members have joined; the first rebalance of a group still waits for its delay."""
    initial = group.previous_state is ClassicState.EMPTY
    if group.state is ClassicState.PREPARING_REBALANCE and not initial and group.all_have_joined:
        complete_join(context, group)


def prepare_rebalance(context: CommandContext, group: ClassicGroup) -> None:
    """Begin the join phase: heartbeats get REBALANCE_IN_PROGRESS until every member has rejoined."""
    settings = context.settings
    if group.state is ClassicState.COMPLETING_REBALANCE:
        for member in group.members.values():
            member.assignment = b""
        for member_id in list(group.syncs):
            answer_sync_error(context, group, member_id, ErrorCode.REBALANCE_IN_PROGRESS)
            keep_alive(context, group, group.members[member_id])
    group.unsynced.clear()
    context.timers.cancel(TimerKey(Alarm.CLASSIC_SYNC, group.group_id))
    if group.is_empty:
        delay_ms = settings.group_initial_rebalance_delay_ms
        group.initial_delay = (delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        group.member_was_added = False
        context.alarm_in(TimerKey(Alarm.CLASSIC_INITIAL_JOIN, group.group_id), delay_ms)
        group.become(ClassicState.PREPARING_REBALANCE, context.now_ms)
        return
    group.become(ClassicState.PREPARING_REBALANCE, context.now_ms)
    if group.all_have_joined:
        complete_join(context, group)
    else:
        await_joins(context, group)


def await_joins(context: CommandContext, group: ClassicGroup) -> None:
    """Give the members the rebalance timeout to join."""
    context.alarm_in(TimerKey(Alarm.CLASSIC_JOIN, group.group_id), group.rebalance_timeout_ms)


def prolong_or_complete_initial(context: CommandContext, group: ClassicGroup) -> None:
    """End a round of the first rebalance; start another if members joined in it and time is left."""
    delay_ms, remaining_ms = group.initial_delay
    if group.member_was_added and remaining_ms:
        group.member_was_added = False
        next_delay_ms = min(context.settings.group_initial_rebalance_delay_ms, remaining_ms)
        group.initial_delay = (next_delay_ms, max(remaining_ms - delay_ms, 0))
        context.alarm_in(TimerKey(Alarm.CLASSIC_INITIAL_JOIN, group.group_id), next_delay_ms)
    else:
        complete_join(context, group)


def complete_join(context: CommandContext, group: ClassicGroup) -> None:
    """End the join phase: remove members that have not joined, start the next generation, answer every join."""
    context.timers.cancel(TimerKey(Alarm.CLASSIC_JOIN, group.group_id))
    context.timers.cancel(TimerKey(Alarm.CLASSIC_INITIAL_JOIN, group.group_id))
    for member in list(group.members.values()):
        if member.member_id not in group.joins and member.instance_id is None:
            remove_member(context, group, member.member_id)
    if group.members and not _elect_joined_leader(group):
        # Only static members are left and none has joined: wait until one does or their sessions end.
        await_joins(context, group)
        return
    group.generation += 1
    if not group.members:
        group.protocol_name = None
        group.subscribed_topics = subscribed_topics(group)
        group.become(ClassicState.EMPTY, context.now_ms)
        context.append(classic_group_entry(group, {}))
        # If the log refuses this record, the group is empty all the same, as in Apache Kafka: a later leader takes the
        # last generation from the log, and its members' sessions expire.
        context.shard.begin_step()
        return
    group.protocol_name = group.choose_protocol()
    group.subscribed_topics = subscribed_topics(group)
    group.become(ClassicState.COMPLETING_REBALANCE, context.now_ms)
    group.unsynced.clear()
    for member in group.members.values():
        ticket = group.joins.pop(member.member_id, None)
        if ticket is not None:
            context.answer(ticket, join_response(group, member.member_id))
        keep_alive(context, group, member)
        member.is_new = False
        group.unsynced[member.member_id] = None
    context.alarm_in(TimerKey(Alarm.CLASSIC_SYNC, group.group_id), group.rebalance_timeout_ms)


def _elect_joined_leader(group: ClassicGroup) -> bool:
    """Make a member that has joined the leader, since only it gets the list of members; False if none has."""
    if group.leader in group.joins:
        return True
    joined = next((member_id for member_id in group.members if member_id in group.joins), None)
    if joined is None:
        return False
    group.leader = joined
    return True


def join_response(group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """The join response for a member; the leader's has the list of members."""
    members = []
    if member_id == group.leader:
        assert group.protocol_name is not None
        members = [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(group.protocol_name),
            )
            for member in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


# -- deadlines


def expire_session(context: CommandContext, group: ClassicGroup, member_id: str) -> None:
    """Remove a member whose session has expired, or a promised id that was not used in time."""
    if member_id in group.promised:
        group.remove(member_id)
        if group.state is ClassicState.PREPARING_REBALANCE and group.all_have_joined:
            complete_join(context, group)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    # A member that waits for our response is alive, except a new member, whose client may have given up.
    if not member.is_new and (member_id in group.joins or member_id in group.syncs):
        return
    remove_member(context, group, member_id)
    if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
        prepare_rebalance(context, group)
    elif group.state is ClassicState.PREPARING_REBALANCE and group.all_have_joined:
        complete_join(context, group)


def expire_sync(context: CommandContext, group: ClassicGroup) -> None:
    """End a sync phase that exceeded its timeout: rebalance without the members that have not synced."""
    if group.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE) or not group.unsynced:
        return
    for member_id in list(group.unsynced):
        remove_member(context, group, member_id)
    prepare_rebalance(context, group)
