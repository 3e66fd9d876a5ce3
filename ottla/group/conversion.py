"""Convert a live group: to a consumer group when the first member of the consumer protocol joins, and back to a
classic group when the last one leaves (KIP-848, online migration).

Rules:
- The functions here only write records and set timers; replay replaces the group.
- No member loses its partitions: the last classic assignment becomes the target and current assignment of the consumer
  group; the target of the consumer group becomes the classic assignment.
- Members that wait in a classic rebalance are told to rejoin.
"""

from collections.abc import Iterable, Mapping
from functools import partial

from ottla.group.metadata_hash import metadata_hash
from ottla.group.rebalance import answer_join_error, answer_sync_error, keep_alive
from ottla.group.records.encode import (
    assignment_epoch_entry,
    classic_group_entry,
    classic_group_tombstone,
    consumer_group_tombstones,
    current_entry,
    epoch_entry,
    member_entry,
    target_entry,
)
from ottla.group.records.subscription import protocol_version, read_assignment, read_subscription, write_assignment
from ottla.group.state.classic import CONSUMER_PROTOCOL, ClassicGroup, ClassicMember, ClassicState
from ottla.group.state.consumer import ClassicMetadata, ConsumerGroup, ConsumerMember, Target, subscribed_topics
from ottla.group.state.shard import CommandContext
from ottla.group.timer import Alarm, TimerKey
from ottla.group.topic import TopicView
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.wire.record.consumer_protocol import AssignedTopicPartition, ConsumerProtocolAssignment
from ottla.wire.type import Malformed

#: Kafka answers an impossible upgrade with this code.
_NO_UPGRADE = ErrorCode.GROUP_ID_NOT_FOUND


def upgrade(context: CommandContext, classic: ClassicGroup) -> ConsumerGroup:
    """Write the records of the consumer group that a classic group becomes, and return it. Raises KafkaError if not."""
    group_id = classic.group_id
    cannot = f"Cannot upgrade classic group {group_id} to consumer group because"
    if not context.settings.may_upgrade:
        raise KafkaError(_NO_UPGRADE, f"{cannot} online upgrade is disabled.")
    if not classic.is_of_consumers:
        raise KafkaError(_NO_UPGRADE, f"{cannot} the group does not use the consumer embedded protocol.")
    if len(classic.members) > context.settings.group_consumer_max_size:
        raise KafkaError(_NO_UPGRADE, f"{cannot} the group size exceeds the consumer group maximum size.")
    try:
        group = _as_consumer_group(classic, context.shard.topics)
    except Malformed as error:
        raise KafkaError(_NO_UPGRADE, f"{cannot} the embedded consumer protocol is malformed.") from error
    members = group.members.values()
    context.append(classic_group_tombstone(group_id))
    context.extend(member_entry(group_id, member) for member in members)
    context.append(epoch_entry(group_id, group.epoch, group.metadata_hash))
    context.extend(target_entry(group_id, member.member_id, group.targets[member.member_id]) for member in members)
    context.append(assignment_epoch_entry(group_id, group.assignment_epoch, group.assignment_timestamp_ms))
    context.extend(current_entry(group_id, member) for member in members)
    return group


def _as_consumer_group(classic: ClassicGroup, topics: TopicView) -> ConsumerGroup:
    group = ConsumerGroup(classic.group_id, epoch=classic.generation, assignment_epoch=classic.generation)
    protocol = classic.protocol_name
    if protocol is None or classic.protocol_counts.get(protocol) != len(classic.members):
        # The group is in its first rebalance, or in one to another protocol.
        protocol = classic.choose_protocol()
    taken: set[tuple[Uuid, int]] = set()
    for member in classic.members.values():
        subscription = read_subscription(member.metadata(protocol))
        target = _target_of(classic, member, topics)
        partitions = [(topic_id, partition) for topic_id, indexes in target.items() for partition in indexes]
        if not taken.isdisjoint(partitions):
            raise Malformed("a partition is assigned twice")
        taken.update(partitions)
        group.targets[member.member_id] = target
        group.put(
            ConsumerMember(
                member.member_id,
                epoch=classic.generation,
                previous_epoch=classic.generation,
                instance_id=member.instance_id,
                rack_id=subscription.rack_id or None,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                client_id=member.client_id,
                client_host=member.client_host,
                topics=tuple(sorted(set(subscription.topics))),
                assigned={topic_id: dict.fromkeys(indexes, classic.generation) for topic_id, indexes in target.items()},
                classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
            )
        )
    group.metadata_hash = metadata_hash(subscribed_topics(group.members.values(), {}), topics)
    return group


def _target_of(classic: ClassicGroup, member: ClassicMember, topics: TopicView) -> Target:
    if not member.assignment:
        return {}
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise KafkaError(
            _NO_UPGRADE,
            f"Cannot upgrade classic group {classic.group_id} to consumer group because an unsupported custom "
            "assignor is in use. Please refer to the documentation or switch to a default assignor before "
            "re-attempting the upgrade.",
        )
    target: dict[Uuid, tuple[int, ...]] = {}
    for topic in assignment.assigned_partitions:
        topic_id = topics.topic_id(topic.topic)
        if topic_id is not None and topic.partitions:
            target[topic_id] = tuple(sorted(set(topic.partitions)))
    return target


def finish_upgrade(context: CommandContext, classic: ClassicGroup, group: ConsumerGroup) -> None:
    """Complete an upgrade: waiting members must rejoin, and sessions continue."""
    # If the log refuses the upgrade, these members rejoin the classic group; their sessions may have passed meanwhile.
    context.shard.undo += [
        partial(keep_alive, context, classic, classic.members[member_id])
        for member_id in (*classic.joins, *classic.syncs)
    ]
    for member_id in list(classic.joins):
        answer_join_error(context, classic, member_id, ErrorCode.REBALANCE_IN_PROGRESS, member_id)
    for member_id in list(classic.syncs):
        answer_sync_error(context, classic, member_id, ErrorCode.REBALANCE_IN_PROGRESS)
    context.timers.cancel_group(classic.group_id)
    for member in group.members.values():
        assert member.classic is not None
        key = TimerKey(Alarm.SESSION, group.group_id, member.member_id)
        context.alarm_in(key, member.classic.session_timeout_ms)
        context.timers.cancel(TimerKey(Alarm.CLASSIC_SESSION, group.group_id, member.member_id))


# -- downgrade


def may_downgrade(context: CommandContext, group: ConsumerGroup, leaving: Iterable[ConsumerMember]) -> bool:
    """Are all remaining members classic ones, and may the group become a classic group?"""
    leaving_ids = {member.member_id for member in leaving}
    staying = [member for member in group.members.values() if member.member_id not in leaving_ids]
    return (
        bool(staying)
        and all(member.classic is not None for member in staying)
        and context.settings.may_downgrade
        and len(staying) <= context.settings.group_max_size
    )


def downgrade(
    context: CommandContext,
    group: ConsumerGroup,
    leaving: Iterable[ConsumerMember],
    *,
    joining: ConsumerMember | None = None,
    rebalance: bool,
) -> None:
    """Write the classic group that a consumer group becomes without the leaving members.

    `joining` is a static member that replaces its predecessor in the same step.
    """
    replaced = None if joining is None else group.static_member(joining.instance_id)
    gone = {member.member_id for member in leaving} | ({replaced.member_id} if replaced is not None else set())
    members = [member for member in group.members.values() if member.member_id not in gone]
    targets: dict[str, Target] = {member.member_id: group.target_of(member.member_id) for member in members}
    renamed = {}
    if joining is not None and replaced is not None:
        members.append(joining)
        targets[joining.member_id] = group.target_of(replaced.member_id)
        renamed = {replaced.member_id: joining.member_id}
    classic, assignment = _as_classic_group(group, members, targets, context)
    context.extend(consumer_group_tombstones(group, renamed))
    context.append(classic_group_entry(classic, assignment))
    context.shard.protocols[group.group_id] = {each.member_id: each.protocols for each in classic.members.values()}
    context.shard.undo.append(partial(context.shard.protocols.pop, group.group_id))
    for member_id in (*group.members, *classic.members):
        for alarm in (Alarm.SESSION, Alarm.REBALANCE, Alarm.MEMBER_JOIN, Alarm.MEMBER_SYNC):
            context.timers.cancel(TimerKey(alarm, group.group_id, member_id))
    for member in classic.members.values():
        keep_alive(context, classic, member)
    if rebalance:
        # The classic group exists once the records are replayed; then its members must be told to rejoin.
        context.alarm_in(TimerKey(Alarm.CLASSIC_REBALANCE, group.group_id), 0)


def _as_classic_group(
    group: ConsumerGroup, members: Iterable[ConsumerMember], targets: Mapping[str, Target], context: CommandContext
) -> tuple[ClassicGroup, dict[str, bytes]]:
    classic = ClassicGroup(
        group.group_id, state=ClassicState.STABLE, generation=group.epoch, state_timestamp_ms=context.now_ms
    )
    for member in members:
        assert member.classic is not None
        classic.add(
            ClassicMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocols=member.classic.protocols,
            ),
            CONSUMER_PROTOCOL,
        )
    classic.protocol_name = classic.choose_protocol()
    assignment = {
        classic_member.member_id: assignment_bytes(
            targets[classic_member.member_id],
            protocol_version(classic_member.metadata(classic.protocol_name)),
            context.shard.topics,
        )
        for classic_member in classic.members.values()
    }
    return classic, assignment


def assignment_bytes(target: Mapping[Uuid, Iterable[int]], version: int, topics: TopicView) -> bytes:
    """The encoded assignment for a classic consumer."""
    assigned = []
    for topic_id, partitions in target.items():
        name = topics.topic_name(topic_id)
        if name is not None:
            assigned.append(AssignedTopicPartition(topic=name, partitions=list(partitions)))
    return write_assignment(ConsumerProtocolAssignment(assigned_partitions=assigned), version)
