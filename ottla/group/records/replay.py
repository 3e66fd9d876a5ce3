"""Replay the records of `__consumer_offsets` into the state, on load and on the leader alike.

Rules:
- Each record is applied on its own, in log order. Compaction may have removed any record that a later one replaces, so
  a tombstone for something missing does nothing.
- An offset for an unknown group creates a classic group without members ("simple group"), which a consumer group
  replaces when its records follow.
- On the leader, joins in progress live only in memory: its own `GroupMetadata` record brings the assignment to the
  present members. On load the record creates the group.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ottla.group.records import replaying
from ottla.group.records.subscription import subscribed_topics
from ottla.group.state.classic import ClassicGroup, ClassicMember, ClassicState, Protocols
from ottla.group.state.consumer import (
    LEAVE_EPOCH,
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Owned,
    Resolved,
)
from ottla.group.state.offsets import Committed
from ottla.group.state.shard import Shard
from ottla.group.topic import as_before
from ottla.wire.record.consumer_group import TopicPartitions
from ottla.wire.record.offset import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)


def replay_offset(
    shard: Shard,
    key: OffsetCommitKey | LegacyOffsetCommitKey,
    value: OffsetCommitValue | LegacyOffsetCommitValue | None,
    offset: int,
    producer_id: int,
) -> None:
    """Store a committed offset, as pending within a transaction, or remove it."""
    if value is None:
        shard.offsets.remove(key.group, key.topic, key.partition)
        return
    if key.group not in shard.groups:
        shard.groups[key.group] = ClassicGroup(key.group)
    committed = Committed(value.offset, -1, value.metadata, value.commit_timestamp, record_offset=offset)
    if isinstance(value, OffsetCommitValue):
        committed = replace(
            committed,
            leader_epoch=value.leader_epoch,
            expire_timestamp_ms=value.expire_timestamp,
            topic_id=value.topic_id,
        )
    shard.offsets.put(key.group, key.topic, key.partition, committed, producer_id)


def replay_classic(shard: Shard, key: GroupMetadataKey, value: GroupMetadataValue | None, leading: bool) -> None:
    """Create, complete or remove a classic group."""
    group = shard.groups.get(key.group)
    if value is None:
        if isinstance(group, ClassicGroup):
            del shard.groups[key.group]
        return
    if leading and isinstance(group, ClassicGroup):
        _confirm(group, value)
        return
    shard.groups[key.group] = _load_classic(key.group, value, shard.protocols.pop(key.group, {}))


def _confirm(group: ClassicGroup, value: GroupMetadataValue) -> None:
    """Apply the leader's own record: the assignment takes effect and the group becomes stable."""
    if group.state is not ClassicState.COMPLETING_REBALANCE or group.generation != value.generation:
        return
    for member in value.members:
        group.members[member.member_id].assignment = member.assignment
    group.become(ClassicState.STABLE, value.current_state_timestamp)


def _load_classic(group_id: str, value: GroupMetadataValue, protocols: Mapping[str, Protocols]) -> ClassicGroup:
    group = ClassicGroup(group_id)
    for member in value.members:
        rebalance_ms = member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout
        group.add(
            ClassicMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=rebalance_ms,
                session_timeout_ms=member.session_timeout,
                protocols=protocols.get(member.member_id) or ((value.protocol or "", member.subscription),),
                assignment=member.assignment,
            ),
            value.protocol_type,
        )
    group.state = ClassicState.STABLE if value.members else ClassicState.EMPTY
    group.state_timestamp_ms = value.current_state_timestamp
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    if value.leader in group.members:
        group.leader = value.leader
    group.subscribed_topics = subscribed_topics(group)
    return group


# -- consumer groups


_consumer_group = replaying.replacing_simple_group(ConsumerGroup)


@replaying.with_group(_consumer_group)
def _replay_member(
    group: ConsumerGroup, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
) -> None:
    if value is None:
        if key.member_id in group.members:
            group.remove(key.member_id)
        return
    classic = value.classic_member_metadata
    member = group.members.get(key.member_id) or ConsumerMember(key.member_id)
    group.put(
        replace(
            member,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=as_before(tuple(sorted(set(value.subscribed_topic_names))), group.members.values()),
            regex=value.subscribed_topic_regex,
            assignor=value.server_assignor,
            classic=None
            if classic is None
            else ClassicMetadata(
                classic.session_timeout_ms,
                tuple((protocol.name, protocol.metadata) for protocol in classic.supported_protocols),
            ),
        )
    )


@replaying.with_group(_consumer_group)
def _replay_partition_metadata(group: ConsumerGroup, key: ConsumerGroupPartitionMetadataKey, value: Any) -> None:
    group.has_partition_metadata = value is not None


@replaying.with_group(_consumer_group)
def _replay_current(
    group: ConsumerGroup,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    if value is None:
        if key.member_id in group.members:
            gone = replace(group.members[key.member_id], epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH)
            group.put(replace(gone, assigned={}, revoking={}))
        return
    member = group.members.get(key.member_id) or ConsumerMember(key.member_id)
    group.put(
        replace(
            member,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=_owned(value.assigned_partitions, value.member_epoch),
            revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
        )
    )


def _owned(topics: Sequence[TopicPartitions], epoch: int) -> Owned:
    owned = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            # Written before Kafka 4.3: take the member's epoch for each partition.
            epochs = [max(epoch, 0)] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


@replaying.with_group(_consumer_group)
def _replay_regex(
    group: ConsumerGroup, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
) -> None:
    if value is None:
        group.resolved.pop(key.regular_expression, None)
        return
    group.resolved[key.regular_expression] = Resolved(tuple(value.topics), value.version, value.timestamp)


#: Key class -> replay function of a consumer group's record.
CONSUMER_RECORDS: dict[type, replaying.ReplayFunction] = {
    ConsumerGroupMemberMetadataKey: _replay_member,
    ConsumerGroupMetadataKey: replaying.epoch(_consumer_group),
    ConsumerGroupPartitionMetadataKey: _replay_partition_metadata,
    ConsumerGroupTargetAssignmentMemberKey: replaying.target(_consumer_group),
    ConsumerGroupTargetAssignmentMetadataKey: replaying.assignment_epoch(_consumer_group),
    ConsumerGroupCurrentMemberAssignmentKey: _replay_current,
    ConsumerGroupRegularExpressionKey: _replay_regex,
}
