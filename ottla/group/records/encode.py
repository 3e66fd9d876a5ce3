"""Encode the records of `__consumer_offsets`, in the versions that Apache Kafka 4.3 writes.

A tombstone has the key of the record that it deletes and no value.
"""

from collections.abc import Mapping

from ottla.coordinator.contract import Entry
from ottla.group.state.classic import ClassicGroup
from ottla.group.state.consumer import ConsumerGroup, ConsumerMember, Owned, Resolved, Target
from ottla.group.state.offsets import Committed
from ottla.wire.record.consumer_group import ClassicMemberMetadata, ClassicProtocol, TopicPartition, TopicPartitions
from ottla.wire.record.offset import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    key_bytes,
    value_bytes,
)

_GROUP_METADATA_VERSION = 3
#: Version 4 has the topic id; only version 1 has the expiration time that old clients set.
_OFFSET_VERSION = 4
_OFFSET_VERSION_WITH_EXPIRY = 1


# -- classic groups


def classic_group_entry(group: ClassicGroup, assignment: Mapping[str, bytes]) -> Entry:
    """The record of a group with its members and their assignment."""
    return _classic_entry(
        group.group_id,
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol_name,
            leader=group.leader,
            current_state_timestamp=group.state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(group.protocol_name or ""),
                    assignment=assignment[member.member_id],
                )
                for member in group.members.values()
            ],
        ),
    )


def empty_classic_group_entry(group: ClassicGroup) -> Entry:
    """The record of a new group."""
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=group.state_timestamp_ms
    )
    return _classic_entry(group.group_id, value)


def _classic_entry(group_id: str, value: GroupMetadataValue) -> Entry:
    return key_bytes(GroupMetadataKey(group=group_id)), value_bytes(value, _GROUP_METADATA_VERSION)


def classic_group_tombstone(group_id: str) -> Entry:
    """The tombstone of a classic group."""
    return key_bytes(GroupMetadataKey(group=group_id)), None


# -- offsets


def offset_entry(group_id: str, topic: str, partition: int, committed: Committed) -> Entry:
    """The record of a committed offset."""
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    version = _OFFSET_VERSION if committed.expire_timestamp_ms == -1 else _OFFSET_VERSION_WITH_EXPIRY
    return _offset_key(group_id, topic, partition), value_bytes(value, version)


def offset_tombstone(group_id: str, topic: str, partition: int) -> Entry:
    """The tombstone of a committed offset."""
    return _offset_key(group_id, topic, partition), None


def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return key_bytes(OffsetCommitKey(group=group_id, topic=topic, partition=partition))


# -- consumer groups


def member_entry(group_id: str, member: ConsumerMember) -> Entry:
    """The record of a member's metadata."""
    classic = member.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols],
        ),
    )
    return key_bytes(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)), value_bytes(
        value, 0
    )


def epoch_entry(group_id: str, epoch: int, metadata_hash: int) -> Entry:
    """The record of the group epoch."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return key_bytes(ConsumerGroupMetadataKey(group_id=group_id)), value_bytes(value, 0)


def target_entry(group_id: str, member_id: str, target: Target) -> Entry:
    """The record of a member's target."""
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic_id, partitions=list(partitions)) for topic_id, partitions in target.items()
        ]
    )
    return (
        key_bytes(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)),
        value_bytes(value, 0),
    )


def assignment_epoch_entry(group_id: str, epoch: int, timestamp_ms: int) -> Entry:
    """The record of the target's group epoch and time."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return key_bytes(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)), value_bytes(value, 0)


def current_entry(group_id: str, member: ConsumerMember) -> Entry:
    """The record of a member's current assignment."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_owned(member.assigned),
        partitions_pending_revocation=_owned(member.revoking),
    )
    return (
        key_bytes(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)),
        value_bytes(value, 0),
    )


def _owned(owned: Owned) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for topic_id, epochs in owned.items()
    ]


def regex_entry(group_id: str, regex: str, resolved: Resolved) -> Entry:
    """The record of a resolved regular expression."""
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return _regex_key(group_id, regex), value_bytes(value, 0)


def regex_tombstone(group_id: str, regex: str) -> Entry:
    """The tombstone of a regular expression."""
    return _regex_key(group_id, regex), None


def _regex_key(group_id: str, regex: str) -> bytes:
    return key_bytes(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex))


def partition_metadata_tombstone(group_id: str) -> Entry:
    """The tombstone of the record that the metadata hash has replaced."""
    return key_bytes(ConsumerGroupPartitionMetadataKey(group_id=group_id)), None


def member_tombstones(group_id: str, member_id: str) -> list[Entry]:
    """The tombstones of a member: current assignment, target, metadata."""
    return [
        (key_bytes(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)), None),
        (key_bytes(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)), None),
        (key_bytes(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)), None),
    ]


def consumer_group_tombstones(group: ConsumerGroup, renamed: Mapping[str, str] | None = None) -> list[Entry]:
    """The tombstones of a group and its members; `renamed`: old -> new id of members replaced in this step."""
    group_id = group.group_id
    members = [(renamed or {}).get(member_id, member_id) for member_id in group.members]
    removed = [member_tombstones(group_id, member_id) for member_id in members]
    return [
        *(current for current, _, _ in removed),
        *(target for _, target, _ in removed),
        (key_bytes(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)), None),
        *(member for _, _, member in removed),
        *(regex_tombstone(group_id, regex) for regex in group.resolved),
        partition_metadata_tombstone(group_id),
        (key_bytes(ConsumerGroupMetadataKey(group_id=group_id)), None),
    ]
