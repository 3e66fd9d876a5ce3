"""Encode the records of streams groups in `__consumer_offsets`, as Apache Kafka 4.3 writes them.

A tombstone has the key of the record that it deletes and no value.
"""

from collections.abc import Mapping

from ottla.coordinator.contract import Entry
from ottla.group.state.streams import StreamsGroup, StreamsMember
from ottla.group.topology.task import TaskEpochs, Tasks, TaskSet
from ottla.group.topology.topology import Topology, topology_value
from ottla.wire.record.offset import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    key_bytes,
    value_bytes,
)
from ottla.wire.record.streams_group import Endpoint, KeyValue, LastAssignmentConfig, TaskIds, TaskIdsWithEpochs


def streams_member_entry(group_id: str, member: StreamsMember) -> Entry:
    """The record of a member's metadata."""
    value = StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if member.endpoint is None else Endpoint(host=member.endpoint[0], port=member.endpoint[1]),
        client_tags=[KeyValue(key=key, value=value) for key, value in sorted(member.client_tags.items())],
    )
    return key_bytes(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)), value_bytes(value)


def topology_entry(group_id: str, topology: Topology) -> Entry:
    """The record of the application's topology."""
    return key_bytes(StreamsGroupTopologyKey(group_id=group_id)), value_bytes(topology_value(topology))


def streams_epoch_entry(
    group_id: str, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> Entry:
    """The record of the group epoch."""
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[LastAssignmentConfig(key=key, value=value) for key, value in sorted(configs.items())],
    )
    return key_bytes(StreamsGroupMetadataKey(group_id=group_id)), value_bytes(value)


def streams_target_entry(group_id: str, member_id: str, target: TaskSet) -> Entry:
    """The record of a member's target."""
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=_ids(target.active), standby_tasks=_ids(target.standby), warmup_tasks=_ids(target.warmup)
    )
    return (
        key_bytes(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)),
        value_bytes(value),
    )


def _ids(tasks: Tasks) -> list[TaskIds]:
    return [
        TaskIds(subtopology_id=subtopology, partitions=list(partitions))
        for subtopology, partitions in sorted(tasks.items())
    ]


def streams_assignment_epoch_entry(group_id: str, epoch: int, timestamp_ms: int) -> Entry:
    """The record of the target's group epoch and time."""
    value = StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return key_bytes(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id)), value_bytes(value)


def streams_current_entry(group_id: str, member: StreamsMember) -> Entry:
    """The record of a member's current assignment."""
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        active_tasks=_with_epochs(member.assigned.active),
        standby_tasks=_without_epochs(member.assigned.standby),
        warmup_tasks=_without_epochs(member.assigned.warmup),
        active_tasks_pending_revocation=_with_epochs(member.revoking.active),
        standby_tasks_pending_revocation=_without_epochs(member.revoking.standby),
        warmup_tasks_pending_revocation=_without_epochs(member.revoking.warmup),
    )
    return (
        key_bytes(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)),
        value_bytes(value),
    )


def _with_epochs(tasks: TaskEpochs) -> list[TaskIdsWithEpochs]:
    return [
        TaskIdsWithEpochs(
            subtopology_id=subtopology,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[partition] for partition in sorted(epochs)],
        )
        for subtopology, epochs in sorted(tasks.items())
    ]


def _without_epochs(tasks: Tasks) -> list[TaskIdsWithEpochs]:
    return [
        TaskIdsWithEpochs(subtopology_id=subtopology, partitions=list(partitions))
        for subtopology, partitions in sorted(tasks.items())
    ]


def streams_member_tombstones(group_id: str, member_id: str) -> list[Entry]:
    """The tombstones of a member: current assignment, target, metadata."""
    return [
        (key_bytes(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)), None),
        (key_bytes(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)), None),
        (key_bytes(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id)), None),
    ]


def streams_group_tombstones(group: StreamsGroup) -> list[Entry]:
    """The tombstones of a group without members."""
    return [
        (key_bytes(StreamsGroupTargetAssignmentMetadataKey(group_id=group.group_id)), None),
        (key_bytes(StreamsGroupMetadataKey(group_id=group.group_id)), None),
        (key_bytes(StreamsGroupTopologyKey(group_id=group.group_id)), None),
    ]
