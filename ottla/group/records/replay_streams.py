"""Replay the records of streams groups in `__consumer_offsets` into the state.

As in `replay`, each record is applied on its own, a tombstone for something missing does nothing, and a group that was
created by an offset is replaced.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ottla.group.records import replaying
from ottla.group.state.consumer import LEAVE_EPOCH
from ottla.group.state.shard import Shard
from ottla.group.state.streams import StreamsGroup, StreamsMember, TaskState
from ottla.group.topology.task import OwnedTasks, TaskEpochs, TaskSet, read_tasks
from ottla.group.topology.topology import read_topology
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
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from ottla.wire.record.streams_group import TaskIdsWithEpochs

_streams_group = replaying.replacing_simple_group(StreamsGroup)


@replaying.with_group(_streams_group)
def _replay_member(
    group: StreamsGroup, key: StreamsGroupMemberMetadataKey, value: StreamsGroupMemberMetadataValue | None
) -> None:
    if value is None:
        if key.member_id in group.members:
            group.remove(key.member_id)
        return
    member = group.members.get(key.member_id) or StreamsMember(key.member_id)
    endpoint = value.user_endpoint
    group.put(
        replace(
            member,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
            client_tags={tag.key: tag.value for tag in value.client_tags},
        )
    )


@replaying.with_group(_streams_group)
def _replay_topology(
    group: StreamsGroup, key: StreamsGroupTopologyKey, value: StreamsGroupTopologyValue | None
) -> None:
    group.topology = None if value is None else read_topology(value)


_epoch = replaying.epoch(_streams_group)


def _replay_epoch(shard: Shard, key: StreamsGroupMetadataKey, value: StreamsGroupMetadataValue | None) -> None:
    _epoch(shard, key, value)
    if value is None:
        return
    group = _streams_group(shard, key.group_id, True)
    assert group is not None
    group.validated_topology_epoch = value.validated_topology_epoch
    group.assignment_configs = {each.key: each.value for each in value.last_assignment_configs or ()}


@replaying.with_group(_streams_group)
def _replay_target(
    group: StreamsGroup,
    key: StreamsGroupTargetAssignmentMemberKey,
    value: StreamsGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
        return
    group.targets[key.member_id] = TaskSet(
        read_tasks(value.active_tasks), read_tasks(value.standby_tasks), read_tasks(value.warmup_tasks)
    )


@replaying.with_group(_streams_group)
def _replay_current(
    group: StreamsGroup,
    key: StreamsGroupCurrentMemberAssignmentKey,
    value: StreamsGroupCurrentMemberAssignmentValue | None,
) -> None:
    member = group.members.get(key.member_id)
    if value is None:
        if member is not None:
            gone = replace(member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, state=TaskState.STABLE)
            group.put(replace(gone, assigned=OwnedTasks(), revoking=OwnedTasks()))
        return
    group.put(
        replace(
            member or StreamsMember(key.member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=TaskState(value.state),
            assigned=_owned(value.active_tasks, value.standby_tasks, value.warmup_tasks, value.member_epoch),
            revoking=_owned(
                value.active_tasks_pending_revocation,
                value.standby_tasks_pending_revocation,
                value.warmup_tasks_pending_revocation,
                value.member_epoch,
            ),
        )
    )


def _owned(
    active: Iterable[TaskIdsWithEpochs],
    standby: Iterable[TaskIdsWithEpochs],
    warmup: Iterable[TaskIdsWithEpochs],
    epoch: int,
) -> OwnedTasks:
    return OwnedTasks(_epochs(active, epoch), read_tasks(standby), read_tasks(warmup))


def _epochs(ids: Iterable[TaskIdsWithEpochs], epoch: int) -> TaskEpochs:
    tasks = {}
    for each in ids:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            # Written before Kafka 4.3: take the member's epoch for each task.
            epochs = [max(epoch, 0)] * len(each.partitions)
        tasks[each.subtopology_id] = dict(zip(each.partitions, epochs, strict=True))
    return tasks


#: Key class -> replay function of a streams group's record.
STREAMS_RECORDS: dict[type, Any] = {
    StreamsGroupMemberMetadataKey: _replay_member,
    StreamsGroupTopologyKey: _replay_topology,
    StreamsGroupMetadataKey: _replay_epoch,
    StreamsGroupTargetAssignmentMemberKey: _replay_target,
    StreamsGroupTargetAssignmentMetadataKey: replaying.assignment_epoch(_streams_group),
    StreamsGroupCurrentMemberAssignmentKey: _replay_current,
}
