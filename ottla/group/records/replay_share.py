"""Replay the records of share groups in `__consumer_offsets` into the state.

As in `replay`, each record is applied on its own, and a tombstone for something missing does nothing.
"""

from dataclasses import replace

from ottla.group.records import replaying
from ottla.group.state.consumer import LEAVE_EPOCH
from ottla.group.state.shard import Shard
from ottla.group.state.share import NamedPartitions, ShareGroup, ShareMember
from ottla.group.topic import as_before
from ottla.wire.record.offset import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)


def _share_group(shard: Shard, group_id: str, create: bool) -> ShareGroup | None:
    group = shard.groups.get(group_id)
    if isinstance(group, ShareGroup):
        return group
    if not create:
        return None
    assert group is None, f"{group_id} is a group of another kind"
    made = shard.groups[group_id] = ShareGroup(group_id)
    return made


@replaying.with_group(_share_group)
def _replay_member(
    group: ShareGroup, key: ShareGroupMemberMetadataKey, value: ShareGroupMemberMetadataValue | None
) -> None:
    if value is None:
        group.members.pop(key.member_id, None)
        return
    member = group.members.get(key.member_id) or ShareMember(key.member_id)
    group.members[key.member_id] = replace(
        member,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=as_before(tuple(sorted(set(value.subscribed_topic_names))), group.members.values()),
    )


@replaying.with_group(_share_group)
def _replay_current(
    group: ShareGroup, key: ShareGroupCurrentMemberAssignmentKey, value: ShareGroupCurrentMemberAssignmentValue | None
) -> None:
    member = group.members.get(key.member_id)
    if value is None:
        if member is not None:
            gone = replace(member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={})
            group.members[key.member_id] = gone
        return
    group.members[key.member_id] = replace(
        member or ShareMember(key.member_id),
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        assigned={topic.topic_id: tuple(sorted(topic.partitions)) for topic in value.assigned_partitions},
    )


@replaying.with_group(_share_group)
def _replay_state_partitions(
    group: ShareGroup, key: ShareGroupStatePartitionMetadataKey, value: ShareGroupStatePartitionMetadataValue | None
) -> None:
    if value is None:
        value = ShareGroupStatePartitionMetadataValue()
    group.initializing, group.initialized = (
        {
            topic.topic_id: NamedPartitions(topic.topic_name, frozenset(topic.partitions))
            for topic in topics
            if topic.partitions
        }
        for topics in (value.initializing_topics, value.initialized_topics)
    )
    group.deleting = frozenset(topic.topic_id for topic in value.deleting_topics)


#: Key class -> replay function of a share group's record.
SHARE_RECORDS: dict[type, replaying.ReplayFunction] = {
    ShareGroupMemberMetadataKey: _replay_member,
    ShareGroupMetadataKey: replaying.epoch(_share_group),
    ShareGroupTargetAssignmentMemberKey: replaying.target(_share_group),
    ShareGroupTargetAssignmentMetadataKey: replaying.assignment_epoch(_share_group),
    ShareGroupCurrentMemberAssignmentKey: _replay_current,
    ShareGroupStatePartitionMetadataKey: _replay_state_partitions,
}
