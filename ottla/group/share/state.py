"""The state of share partitions at the share coordinator: creation, alteration and deletion by the group.

Rules:
- The group's log records the intention first, then the share coordinator is asked, then the log records the outcome: a
  later leader knows what to ask again, whatever happens in between.
- State is created when a topic is first subscribed to, and for partitions that it gains. A leader retries after
  `group.share.initialize.retry.interval.ms`, a new leader at once.
- Offsets are altered and deleted only while the group has no members.
- When a topic is deleted, the share coordinators drop its state on their own; the group only forgets it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.coordinator.contract import Called
from ottla.group.event import DeleteShareState, InitializeShareState
from ottla.group.records.encode_share import state_partition_entry
from ottla.group.state.shard import CommandContext, ShareCall, StateErrors
from ottla.group.state.share import NamedPartitions, ShareGroup, merge, without
from ottla.group.topic import existing
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import NO_UUID, Uuid
from ottla.wire.api import alter_share_group_offsets as alter
from ottla.wire.api import delete_share_group_offsets as delete
from ottla.wire.compile import deferred

#: No start offset: `share.auto.offset.reset` decides.
_UNSET_OFFSET = -1
_UNKNOWN_NAME = "<UNKNOWN>"
_NO_TOPIC = "This server does not host this topic-partition."


def share_group(context: CommandContext, group_id: str) -> ShareGroup:
    """The group. Raises GROUP_ID_NOT_FOUND."""
    group = context.shard.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        raise not_a_share_group(group_id, group)
    return group


def not_a_share_group(group_id: str, group: object) -> KafkaError:
    """The error for a missing group or one of another kind."""
    text = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a share group."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _register_call(
    context: CommandContext, then: Callable[[CommandContext, StateErrors], None], calls: Sequence[Called]
) -> int:
    shard = context.shard
    shard.share_calls_made += 1
    call_id = shard.share_calls_made
    shard.share_calls[call_id] = ShareCall(then, tuple(calls))
    shard.undo.append(lambda: shard.share_calls.pop(call_id))
    return call_id


def _note_requested(context: CommandContext, group_id: str, topics: Iterable[Uuid]) -> None:
    requested_ms, keys = context.shard.share_requested_ms, [(group_id, topic_id) for topic_id in topics]
    requested_ms.update(dict.fromkeys(keys, context.monotonic_ms))
    # Without a time they are asked for again.
    context.shard.undo.append(lambda: [requested_ms.pop(key, None) for key in keys])


def _write_state_partitions(context: CommandContext, group: ShareGroup, **change: object) -> None:
    """Write the group's record of state partitions with the given changes."""
    fields = {
        "initializing": group.initializing,
        "initialized": group.initialized,
        "deleting": group.deleting,
        **change,
    }
    deleting = fields.pop("deleting")
    assert isinstance(deleting, Iterable)
    names = [(topic_id, context.shard.topics.topic_name(topic_id) or _UNKNOWN_NAME) for topic_id in deleting]
    context.append(state_partition_entry(group.group_id, deleting=names, **fields))  # type: ignore[arg-type]


# -- creation


def missing_state(context: CommandContext, group: ShareGroup, topics: Iterable[str]) -> dict[Uuid, NamedPartitions]:
    """The partitions of these topics that have no state and for which none is being created."""
    retry_ms = context.settings.group_share_initialize_retry_interval_ms
    missing = {}
    for name in existing(topics, context.shard.topics):
        topic_id = context.shard.topics.topic_id(name)
        assert topic_id is not None
        wanted = frozenset(range(context.shard.topics.partition_count(name)))
        if topic_id in group.initialized:
            wanted -= group.initialized[topic_id].partitions
        asked_ms = context.shard.share_requested_ms.get((group.group_id, topic_id))
        if topic_id in group.initializing and asked_ms is not None and context.monotonic_ms - asked_ms < retry_ms:
            wanted -= group.initializing[topic_id].partitions
        if wanted:
            missing[topic_id] = NamedPartitions(name, wanted)
    return missing


def create_state(
    context: CommandContext,
    group: ShareGroup,
    epoch: int,
    missing: Mapping[Uuid, NamedPartitions],
    then: Callable[[CommandContext], None],
) -> None:
    """Have the state of these partitions created; `then` is called after success or failure."""
    _note_requested(context, group.group_id, missing)
    _write_state_partitions(
        context,
        group,
        initializing=merge(group.initializing, missing),
        deleting=group.deleting - missing.keys(),
    )
    offsets = {topic_id: dict.fromkeys(sorted(each.partitions), _UNSET_OFFSET) for topic_id, each in missing.items()}
    group_id = group.group_id

    def answered(later: CommandContext, errors: StateErrors) -> None:
        finish_creation(later, group_id, missing, errors)
        then(later)

    call_id = _register_call(context, answered, ())
    context.after(InitializeShareState(call_id, group_id, epoch, offsets))


def finish_creation(
    context: CommandContext, group_id: str, asked: Mapping[Uuid, NamedPartitions], errors: StateErrors
) -> None:
    """Record the outcome of a creation; after an error of any partition all of them count as failed."""
    for topic_id in asked:
        context.shard.share_requested_ms.pop((group_id, topic_id), None)
    group = context.shard.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        return
    left = without(group.initializing, {topic_id: each.partitions for topic_id, each in asked.items()})
    _write_state_partitions(
        context, group, initializing=left, initialized=group.initialized if errors else merge(group.initialized, asked)
    )


# -- alteration


def alter_share_offsets(context: CommandContext, call: Called) -> None:
    """Handle AlterShareGroupOffsets: set the start offsets of a group without members, which is created if missing."""
    request: alter.AlterShareGroupOffsetsRequest = call.request
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    known = context.shard.groups.get(request.group_id)
    if known is not None and not isinstance(known, ShareGroup):
        raise not_a_share_group(request.group_id, known)
    group = known or ShareGroup(request.group_id)
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    response, offsets = _altered(context, request.topics)
    if not offsets:
        if known is None and any(context.shard.topics.topic_id(topic.topic_name) for topic in request.topics):
            # As in Apache Kafka, a topic that exists makes the group, whatever is said of its partitions.
            _write_state_partitions(context, group)
        context.answer(call.ticket, response({}))
        return
    asked = {
        topic_id: NamedPartitions(context.shard.topics.topic_name(topic_id) or _UNKNOWN_NAME, frozenset(each))
        for topic_id, each in offsets.items()
    }
    _note_requested(context, request.group_id, asked)
    _write_state_partitions(
        context, group, initializing=merge(group.initializing, asked), deleting=group.deleting - asked.keys()
    )

    def answered(later: CommandContext, errors: StateErrors) -> None:
        finish_creation(later, request.group_id, asked, errors)
        later.answer(call.ticket, response(errors))

    call_id = _register_call(context, answered, [call])
    context.after(InitializeShareState(call_id, request.group_id, group.epoch, offsets))


def _altered(
    context: CommandContext, topics: Iterable[alter.AlterShareGroupOffsetsRequestTopic]
) -> tuple[Callable[[StateErrors], alter.AlterShareGroupOffsetsResponse], dict[Uuid, dict[int, int]]]:
    """(what makes the response, the offsets to set). The response to many topics is made while it is written."""
    offsets: dict[Uuid, dict[int, int]] = {}
    here: list[tuple[alter.AlterShareGroupOffsetsRequestTopic, Uuid, int]] = []
    unknown: list[tuple[alter.AlterShareGroupOffsetsRequestTopic, Uuid, int]] = []
    for topic in topics:
        topic_id = context.shard.topics.topic_id(topic.topic_name)
        if topic_id is None:
            if topic.partitions:
                unknown.append((topic, NO_UUID, 0))
            continue
        count = context.shard.topics.partition_count(topic.topic_name)
        here.append((topic, topic_id, count))
        found = {
            each.partition_index: each.start_offset for each in topic.partitions if 0 <= each.partition_index < count
        }
        if found:
            offsets[topic_id] = found
    # As in Apache Kafka, unknown topics come first, the last one before the others.
    unknown.reverse()
    every = unknown + here

    def response(errors: StateErrors) -> alter.AlterShareGroupOffsetsResponse:
        answers = deferred(len(every), lambda: (_topic_answer(*each, errors) for each in every))
        return alter.AlterShareGroupOffsetsResponse(responses=answers)

    return response, offsets


def _topic_answer(
    topic: alter.AlterShareGroupOffsetsRequestTopic, topic_id: Uuid, count: int, errors: StateErrors
) -> alter.AlterShareGroupOffsetsResponseTopic:
    """The response part of one topic, which has so many partitions."""

    def partition(index: int) -> alter.AlterShareGroupOffsetsResponsePartition:
        answer = alter.AlterShareGroupOffsetsResponsePartition(partition_index=index)
        if not 0 <= index < count:
            answer.error_code, answer.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NO_TOPIC
        elif (topic_id, index) in errors:
            error = errors[topic_id, index]
            answer.error_code, answer.error_message = error.code, error.message or None
        return answer

    partitions = deferred(len(topic.partitions), lambda: (partition(each.partition_index) for each in topic.partitions))
    return alter.AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name, topic_id=topic_id, partitions=partitions
    )


# -- deletion


def delete_share_offsets(context: CommandContext, call: Called) -> None:
    """Handle DeleteShareGroupOffsets: delete the offsets of a group without members for some topics."""
    request: delete.DeleteShareGroupOffsetsRequest = call.request
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    group = share_group(context, request.group_id)
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    response = delete.DeleteShareGroupOffsetsResponse()
    deleting: dict[Uuid, Sequence[int]] = {}
    for topic in request.topics:
        answer = delete.DeleteShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
        response.responses.append(answer)
        topic_id = context.shard.topics.topic_id(topic.topic_name)
        if topic_id is not None and topic_id in group.initialized:
            deleting[topic_id] = sorted(group.initialized[topic_id].partitions)
        elif topic_id is not None and topic_id in group.deleting:
            deleting[topic_id] = range(context.shard.topics.partition_count(topic.topic_name))
        else:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            text = "There is no offset information to delete."
            answer.error_message = _NO_TOPIC if topic_id is None else text
            continue
        answer.topic_id = topic_id
    if not deleting:
        context.answer(call.ticket, response)
        return
    _write_state_partitions(
        context, group, initialized=without(group.initialized, deleting), deleting=group.deleting | deleting.keys()
    )

    def answered(later: CommandContext, errors: StateErrors) -> None:
        failed = {topic_id: error for (topic_id, _), error in errors.items()}
        for topic in response.responses:
            error = failed.get(topic.topic_id)
            if error is not None:
                topic.error_code, topic.error_message = error.code, error.message or None
        present = later.shard.groups.get(request.group_id)
        if isinstance(present, ShareGroup):
            _write_state_partitions(later, present, deleting=present.deleting - (deleting.keys() - failed.keys()))
        later.answer(call.ticket, response)

    call_id = _register_call(context, answered, [call])
    context.after(DeleteShareState(call_id, request.group_id, deleting))


def delete_state(
    context: CommandContext, group: ShareGroup, call: Called, then: Callable[[CommandContext, ErrorCode], None]
) -> None:
    """Have all state of a group without members deleted; `then` gets the error, or NONE."""
    every = merge(group.initialized, group.initializing)
    deleting: dict[Uuid, Sequence[int]] = {topic_id: sorted(named.partitions) for topic_id, named in every.items()}
    for topic_id in group.deleting - every.keys():
        name = context.shard.topics.topic_name(topic_id)
        if name is not None:
            deleting[topic_id] = range(context.shard.topics.partition_count(name))
    if not deleting:
        then(context, ErrorCode.NONE)
        return
    _write_state_partitions(context, group, initializing={}, initialized={}, deleting=frozenset(deleting))

    def answered(later: CommandContext, errors: StateErrors) -> None:
        then(later, next((error.code for error in errors.values()), ErrorCode.NONE))

    call_id = _register_call(context, answered, [call])
    context.after(DeleteShareState(call_id, group.group_id, deleting))


def forget_state(context: CommandContext, group: ShareGroup, deleted: Iterable[Uuid]) -> None:
    """Drop the entries of deleted topics."""
    deleted_ids = frozenset(deleted)
    if not deleted_ids & {*group.initializing, *group.initialized, *group.deleting}:
        return
    kept = [
        {topic_id: named for topic_id, named in held.items() if topic_id not in deleted_ids}
        for held in (group.initializing, group.initialized)
    ]
    _write_state_partitions(
        context, group, initializing=kept[0], initialized=kept[1], deleting=group.deleting - deleted_ids
    )
