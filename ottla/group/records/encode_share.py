"""Encode the records of share groups in `__consumer_offsets`, as Apache Kafka 4.3 writes them.

A tombstone has the key of the record that it deletes and no value.
"""

from collections.abc import Collection, Mapping

from ottla.coordinator.contract import Entry
from ottla.group.state.consumer import MemberState, Target
from ottla.group.state.share import PartitionsByTopic, ShareGroup, ShareMember
from ottla.kernel.ids import Uuid
from ottla.wire.record.offset import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    key_bytes,
    value_bytes,
)
from ottla.wire.record.share_group import TopicInfo, TopicPartition, TopicPartitions, TopicPartitionsInfo


def share_member_entry(group_id: str, member: ShareMember) -> Entry:
    """The record of a member's metadata."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
    )
    return key_bytes(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)), value_bytes(value)


def share_epoch_entry(group_id: str, epoch: int, metadata_hash: int) -> Entry:
    """The record of the group epoch."""
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return key_bytes(ShareGroupMetadataKey(group_id=group_id)), value_bytes(value)


def share_target_entry(group_id: str, member_id: str, target: Target) -> Entry:
    """The record of a member's target."""
    value = ShareGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic_id, partitions=list(partitions)) for topic_id, partitions in target.items()
        ]
    )
    return (
        key_bytes(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)),
        value_bytes(value),
    )


def share_assignment_epoch_entry(group_id: str, epoch: int, timestamp_ms: int) -> Entry:
    """The record of the target's group epoch and time."""
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return key_bytes(ShareGroupTargetAssignmentMetadataKey(group_id=group_id)), value_bytes(value)


def share_current_entry(group_id: str, member: ShareMember) -> Entry:
    """The record of a member's current assignment."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=MemberState.STABLE,
        assigned_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=list(partitions))
            for topic_id, partitions in member.assigned.items()
        ],
    )
    return (
        key_bytes(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)),
        value_bytes(value),
    )


def state_partition_entry(
    group_id: str,
    initializing: PartitionsByTopic,
    initialized: PartitionsByTopic,
    deleting: Mapping[Uuid, str] | Collection[tuple[Uuid, str]],
) -> Entry:
    """The record of the partitions whose state the share coordinator has, creates or deletes."""
    names = deleting.items() if isinstance(deleting, Mapping) else deleting
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=_infos(initializing),
        initialized_topics=_infos(initialized),
        deleting_topics=[TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in names],
    )
    return key_bytes(ShareGroupStatePartitionMetadataKey(group_id=group_id)), value_bytes(value)


def _infos(held: PartitionsByTopic) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=each.name, partitions=sorted(each.partitions))
        for topic_id, each in held.items()
    ]


def share_member_tombstones(group_id: str, member_id: str) -> list[Entry]:
    """The tombstones of a member: current assignment, target, metadata."""
    return [
        (key_bytes(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)), None),
        (key_bytes(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)), None),
        (key_bytes(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id)), None),
    ]


def share_group_tombstones(group: ShareGroup) -> list[Entry]:
    """The tombstones of a group without members."""
    return [
        (key_bytes(ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id)), None),
        (key_bytes(ShareGroupStatePartitionMetadataKey(group_id=group.group_id)), None),
        (key_bytes(ShareGroupMetadataKey(group_id=group.group_id)), None),
    ]
