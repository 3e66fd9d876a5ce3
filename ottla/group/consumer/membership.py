"""The membership of a consumer group: joining, static members, sessions, fencing.

Rules:
- A static member that returns takes over the place, the target and the partitions of its predecessor with the same
  instance id. With the consumer protocol the predecessor must have left temporarily (epoch -2).
- A member that is silent for its session timeout, or does not give up partitions within its rebalance timeout, is
  fenced: its partitions are free at once.
- When only classic members remain, the group becomes a classic group again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ottla.group.consumer.group_epoch import Claimed
from ottla.group.conversion import downgrade, may_downgrade
from ottla.group.metadata_hash import metadata_hash
from ottla.group.records.encode import (
    current_entry,
    epoch_entry,
    member_entry,
    member_tombstones,
    regex_tombstone,
    target_entry,
)
from ottla.group.state.consumer import LEAVE_STATIC_EPOCH, ConsumerGroup, ConsumerMember, MemberState, subscribed_topics
from ottla.group.state.shard import CommandContext, Group
from ottla.group.state.share import ShareGroup
from ottla.group.state.streams import StreamsGroup
from ottla.group.timer import Alarm, TimerKey
from ottla.group.topic import names_of
from ottla.kernel.error import ErrorCode, KafkaError

_MEMBER_ALARMS = (Alarm.SESSION, Alarm.REBALANCE, Alarm.MEMBER_JOIN, Alarm.MEMBER_SYNC)


def check_room(context: CommandContext, group: ConsumerGroup, member_id: str) -> None:
    """Raise GROUP_MAX_SIZE_REACHED if the group has no room for a new member."""
    size_max = context.settings.group_consumer_max_size
    if len(group.members) >= size_max and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {size_max} members.",
        )


def check_instance(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """The static member. Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID if `member_id` is not its id."""
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def check_epoch(member: ConsumerMember, epoch: int, claimed: Claimed) -> None:
    """Raise FENCED_MEMBER_EPOCH unless `epoch` is the member's, or its previous one and it claims only what it owns."""
    if epoch in (0, member.epoch):
        return
    lost_answer = (
        epoch < member.epoch
        and epoch == member.previous_epoch
        and claimed is not None
        and all(partitions <= set(member.assigned.get(topic_id, {})) for topic_id, partitions in claimed.items())
    )
    if not lost_answer:
        size = "greater" if epoch > member.epoch else "smaller"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )


def take_static_place(
    context: CommandContext, group: ConsumerGroup, member_id: str, instance_id: str, *, classic: bool
) -> ConsumerMember:
    """The joining static member: new, or its predecessor under the new id, whose replacement is written."""
    before = group.static_member(instance_id)
    if before is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if not classic and before.classic is None and before.epoch != LEAVE_STATIC_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {before.member_id} member.",
        )
    after = replace(before, member_id=member_id, epoch=0, previous_epoch=0)
    context.extend(member_tombstones(group.group_id, before.member_id))
    context.append(
        member_entry(group.group_id, after),
        target_entry(group.group_id, member_id, group.target_of(before.member_id)),
        current_entry(group.group_id, after),
    )
    return after


def leave_temporarily(context: CommandContext, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Record that a static member left temporarily; it keeps its partitions for its return."""
    away = replace(
        member,
        epoch=LEAVE_STATIC_EPOCH,
        assigned={topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()},
        revoking={},
    )
    context.append(current_entry(group.group_id, away))


def fence(context: CommandContext, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
    """Remove members: the group epoch rises, or the group becomes a classic group."""
    if not members:
        return
    if may_downgrade(context, group, members):
        downgrade(context, group, members, rebalance=True)
        return
    removed_ids = {member.member_id for member in members}
    staying = [member for member in group.members.values() if member.member_id not in removed_ids]
    for member in members:
        context.extend(member_tombstones(group.group_id, member.member_id))
        cancel_timers(context, group, member.member_id)
    used = {member.regex for member in staying}
    for regex in dict.fromkeys(member.regex for member in members):
        if regex and regex not in used:
            context.append(regex_tombstone(group.group_id, regex))
    fresh_hash = metadata_hash(subscribed_topics(staying, group.resolved), context.shard.topics)
    context.append(epoch_entry(group.group_id, group.epoch + 1, fresh_hash))


# -- sessions


def keep_session(context: CommandContext, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Restart the member's session."""
    if member.classic is not None:
        timeout_ms = member.classic.session_timeout_ms
    else:
        override_ms = context.shard.override(group.group_id).consumer_session_timeout_ms
        timeout_ms = context.settings.group_consumer_session_timeout_ms if override_ms is None else override_ms
    context.alarm_in(TimerKey(Alarm.SESSION, group.group_id, member.member_id), timeout_ms)


def cancel_timers(context: CommandContext, group: ConsumerGroup, member_id: str) -> None:
    """Cancel all deadlines of a removed member."""
    for alarm in _MEMBER_ALARMS:
        context.timers.cancel(TimerKey(alarm, group.group_id, member_id))


def start_sessions(context: CommandContext, group: ConsumerGroup) -> None:
    """Restart the deadlines of all members after the log is loaded."""
    for member in group.members.values():
        keep_session(context, group, member)
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            key = TimerKey(Alarm.REBALANCE, group.group_id, member.member_id)
            context.alarm_in(key, member.rebalance_timeout_ms)


def expire_rebalance(context: CommandContext, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Fence a member that has not given up its revoked partitions within its rebalance timeout.

    A static member that is away has given them up, and its session says when it must be back.
    """
    if member.state is MemberState.UNREVOKED_PARTITIONS and member.epoch != LEAVE_STATIC_EPOCH:
        fence(context, group, [member])


def request_topic_refresh(groups: Iterable[Group], names: Sequence[str]) -> None:
    """Have the groups that subscribe to these topics check them at their next heartbeat."""
    for group in groups:
        if isinstance(group, ConsumerGroup):
            subscribed = subscribed_topics(group.members.values(), group.resolved)
        elif isinstance(group, ShareGroup):
            subscribed = names_of(group.members.values())
        elif isinstance(group, StreamsGroup):
            subscribed = dict.fromkeys(() if group.topology is None else group.topology.required_topics)
        else:
            continue
        if any(name in subscribed for name in names):
            group.refresh_deadline_ms = 0
