"""Delete groups and offsets: DeleteGroups (0-2), expiration, and the deletion of topics.

Rules:
- Only a group without members can be deleted; its offsets are deleted with it, including those of open transactions.
- The offsets of a group without members expire `offsets.retention.minutes` after its last member left. Offsets of a
  group that never had members, and of topics that a group no longer subscribes to, expire that long after their commit.
- A group without members is deleted with its last offset.

KIPs: 211 (expiration).
"""

from collections.abc import Sequence

from ottla.coordinator.contract import Called, Entry
from ottla.group.records.encode import classic_group_tombstone, consumer_group_tombstones, offset_tombstone
from ottla.group.records.encode_share import share_group_tombstones
from ottla.group.records.encode_streams import streams_group_tombstones
from ottla.group.share.state import delete_state
from ottla.group.state.classic import ClassicGroup, ClassicState
from ottla.group.state.consumer import ConsumerGroup
from ottla.group.state.offsets import Committed
from ottla.group.state.shard import CommandContext, Group
from ottla.group.state.share import ShareGroup
from ottla.group.state.streams import StreamsGroup
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import NO_UUID, Uuid
from ottla.wire.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def group_tombstones(group: Group) -> list[Entry]:
    """The tombstones of the group itself; its offsets stay."""
    if isinstance(group, ConsumerGroup):
        return consumer_group_tombstones(group)
    if isinstance(group, ShareGroup):
        return share_group_tombstones(group)
    if isinstance(group, StreamsGroup):
        return streams_group_tombstones(group)
    return [classic_group_tombstone(group.group_id)]


def delete_groups(context: CommandContext, call: Called) -> None:
    """Handle DeleteGroups: delete groups without members. A share group comes in a request of its own."""
    request: DeleteGroupsRequest = call.request
    names = list(dict.fromkeys(request.groups_names))
    group = context.shard.groups.get(names[0]) if len(names) == 1 else None
    if isinstance(group, ShareGroup) and group.is_empty:
        delete_state(context, group, call, lambda later, error: _delete_share_group(later, call, names[0], error))
        return
    results = [DeletableGroupResult(group_id=group_id, error_code=_delete(context, group_id)) for group_id in names]
    context.answer(call.ticket, DeleteGroupsResponse(results=results))


def _delete_share_group(context: CommandContext, call: Called, group_id: str, error: ErrorCode) -> None:
    """Delete the group after its state at the share coordinator; after an error the group stays."""
    error = error or _delete(context, group_id)
    context.answer(
        call.ticket, DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group_id, error_code=error)])
    )


def _delete(context: CommandContext, group_id: str) -> ErrorCode:
    group = context.shard.groups.get(group_id)
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if not group.is_empty:
        return ErrorCode.NON_EMPTY_GROUP
    if isinstance(group, ShareGroup) and (group.initialized or group.initializing):
        # The state was created again meanwhile.
        return ErrorCode.GROUP_DELETION_FAILED
    for topic, partition in context.shard.offsets.all_partitions(group_id):
        context.append(offset_tombstone(group_id, topic, partition))
    context.extend(group_tombstones(group))
    context.timers.cancel_group(group_id)
    return ErrorCode.NONE


def expire_group(context: CommandContext, group: Group) -> None:
    """Delete a group's expired offsets, and the group if nothing is left."""
    if isinstance(group, ShareGroup):
        # A share group has no offsets here, and lives until it is deleted.
        return
    promised = isinstance(group, ClassicGroup) and bool(group.promised)
    if _expire_offsets(context, group) and group.is_empty and not promised:
        context.extend(group_tombstones(group))
        context.timers.cancel_group(group.group_id)


def _expire_offsets(context: CommandContext, group: ClassicGroup | ConsumerGroup | StreamsGroup) -> bool:
    """Delete expired offsets; True if no offset is left, pending ones included."""
    offsets = context.shard.offsets
    nothing_left = not offsets.pending_partitions(group.group_id)
    subscribes = group.subscription()
    for topic, partitions in offsets.of_group(group.group_id).items():
        subscribed = subscribes(topic)
        for partition, committed in partitions.items():
            held = subscribed or offsets.has_pending(group.group_id, topic, partition)
            if not held and _is_expired(context, group, committed):
                context.append(offset_tombstone(group.group_id, topic, partition))
            else:
                nothing_left = False
    return nothing_left


def _is_expired(
    context: CommandContext, group: ClassicGroup | ConsumerGroup | StreamsGroup, committed: Committed
) -> bool:
    since_ms = committed.commit_timestamp_ms
    if isinstance(group, ClassicGroup) and group.protocol_type is not None:
        if group.is_empty:
            if group.state_timestamp_ms != -1:
                since_ms = group.state_timestamp_ms
        elif not (group.is_of_consumers and group.subscribed_topics is not None and group.state is ClassicState.STABLE):
            return False
    if committed.expire_timestamp_ms != -1:
        return context.now_ms >= committed.expire_timestamp_ms
    return context.now_ms - since_ms >= context.settings.offsets_retention_ms


def forget_topics(context: CommandContext, group_id: str, deleted: Sequence[tuple[str, Uuid]], log_end: int) -> None:
    """Delete a group's offsets of deleted topics, except those of a later topic of the same name.

    Some commits have no topic id; those from `log_end` on came after the deletion.
    """
    offsets = context.shard.offsets
    held = [offsets.of_group(group_id), *(groups.get(group_id, {}) for groups in offsets.pending.values())]
    forgotten: dict[tuple[str, int], None] = {}
    for name, topic_id in deleted:
        for topics in held:
            for partition, committed in topics.get(name, {}).items():
                if committed.topic_id in (NO_UUID, topic_id) and committed.record_offset < log_end:
                    forgotten[name, partition] = None
    for name, partition in forgotten:
        context.append(offset_tombstone(group_id, name, partition))
