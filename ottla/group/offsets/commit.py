"""OffsetCommit (2-10), TxnOffsetCommit (0-6) and OffsetDelete (0): validate and write offsets.

Rules:
- A commit without member id and generation (by an administrator, or a consumer without a group) is accepted only while
  the group has no members; a group's first offset creates it.
- Each partition has its own result. A commit with an older epoch by a member of a consumer or streams group is accepted
  if every partition in it was assigned to the member in that epoch or before.
- A transactional commit becomes visible with its marker. It checks the member, but not the group's state.

KIPs: 211 (expiration), 345 (static members), 447 (fencing in transactions), 516 (topic ids), 848 (member epochs), 1071
(streams groups), 1251 (assignment epochs).
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from ottla.coordinator.contract import Called, append_error
from ottla.group.offsets.plan import CommitPlan, planned
from ottla.group.rebalance import keep_alive
from ottla.group.records.encode import offset_tombstone
from ottla.group.state.classic import ClassicGroup, ClassicState
from ottla.group.state.consumer import ConsumerGroup, ConsumerMember
from ottla.group.state.shard import CommandContext, Group
from ottla.group.state.share import ShareGroup
from ottla.group.state.streams import StreamsGroup
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.kernel.re2.automaton import drained
from ottla.wire.api.offset_commit import OffsetCommitRequest
from ottla.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.api.txn_offset_commit import TxnOffsetCommitRequest
from ottla.wire.compile import deferred

#: From this version on members of consumer groups may commit, and a missing group is GROUP_ID_NOT_FOUND.
_MEMBER_EPOCHS_FROM = 9

#: Raises if the member may not commit this partition (topic id, topic, partition).
_PartitionCheck = Callable[[Uuid, str, int], None]


def commit_offsets(context: CommandContext, call: Called) -> None:
    """Handle OffsetCommit: write the accepted offsets."""
    request: OffsetCommitRequest = call.request
    plan = _plan(context, call)
    if not plan.any_exists and request.topics:
        context.answer(call.ticket, plan.response(request))
        return
    try:
        check = _check_commit(context, call, request.group_id)
        if check is not _accept_all:
            for offset in plan.offsets:
                check(offset.topic_id, offset.name, offset.partition)
    except KafkaError as refusal:
        context.answer(call.ticket, plan.response(request, refusal.code))
        return
    _write(context, plan)
    _keep_session(context, request)
    context.answer(call.ticket, plan.response(request))


def _keep_session(context: CommandContext, request: OffsetCommitRequest) -> None:
    """Keep the session of a classic member alive, as its heartbeat does."""
    group = context.shard.groups.get(request.group_id)
    if isinstance(group, ClassicGroup) and group.state in (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE):
        keep_alive(context, group, group.members[request.member_id])


def _plan(context: CommandContext, call: Called) -> CommitPlan:
    """What would be committed: as the broker has worked it out in steps, or a short request's."""
    plan: CommitPlan | None = call.prepared
    if plan is None:
        metadata_max = context.settings.offset_metadata_max_bytes
        return drained(planned(call.request, call.version, context.shard.topics, context.now_ms, metadata_max))
    plan.look_again(context.shard.topics)
    return plan


def _write(context: CommandContext, plan: CommitPlan) -> None:
    if plan.too_large:
        raise KafkaError(append_error(ErrorCode.MESSAGE_TOO_LARGE))
    context.extend(offset.entry for offset in plan.offsets)


def _check_commit(context: CommandContext, call: Called, group_id: str) -> _PartitionCheck:
    request: OffsetCommitRequest = call.request
    generation = request.generation_id_or_member_epoch
    group = context.shard.groups.get(group_id)
    if group is None:
        if generation >= 0:
            by_version = call.version >= _MEMBER_EPOCHS_FROM
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if by_version else ErrorCode.ILLEGAL_GENERATION)
        return _accept_all
    return check_member(group, request.member_id, request.group_instance_id, generation, call.version)


def check_member(
    group: Group, member_id: str, instance_id: str | None, generation: int, version: int, transactional: bool = False
) -> _PartitionCheck:
    """Raise KafkaError if this member may not commit; returns the check of each partition."""
    if isinstance(group, ShareGroup):
        raise _no_consumers(group)
    if isinstance(group, ConsumerGroup):
        return _check_consumer(group, member_id, instance_id, generation, version, transactional)
    if isinstance(group, StreamsGroup):
        return _check_streams(group, member_id, instance_id, generation, version, transactional)
    if generation < 0 and group.is_empty:
        return _accept_all
    if generation >= 0 or member_id or instance_id is not None:
        group.check_member(member_id, instance_id)
        if generation != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    elif not transactional and not group.is_empty:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if not transactional and group.state is ClassicState.COMPLETING_REBALANCE:
        # The member has the generation but no assignment yet, so it has nothing to commit.
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    return _accept_all


def _no_consumers(group: ShareGroup) -> KafkaError:
    """The error for share groups, whose offsets the share coordinator has."""
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group.")


def _accept_all(topic_id: Uuid, topic: str, partition: int) -> None:
    """Accept every partition."""


def _check_consumer(
    group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int, version: int, transactional: bool
) -> _PartitionCheck:
    if epoch < 0 and not group.members:
        return _accept_all
    if transactional and epoch == -1 and not member_id and instance_id is None:
        return _accept_all
    member = group.member(member_id)
    if not transactional and member.classic is None and version < _MEMBER_EPOCHS_FROM:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if epoch == member.epoch:
        return _accept_all
    if epoch > member.epoch:
        raise _stale(member)

    def check(topic_id: Uuid, topic: str, partition: int) -> None:
        since = member.epoch_of(topic_id, partition)
        if since is None or epoch < since:
            raise _stale(member)

    return check


def _check_streams(
    group: StreamsGroup, member_id: str, instance_id: str | None, epoch: int, version: int, transactional: bool
) -> _PartitionCheck:
    if epoch < 0 and not group.members:
        return _accept_all
    if transactional and epoch == -1 and not member_id and instance_id is None:
        return _accept_all
    member = group.member(member_id)
    if not transactional and version < _MEMBER_EPOCHS_FROM:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if epoch == member.epoch:
        return _accept_all
    if epoch > member.epoch or group.topology is None:
        raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)
    subtopologies = group.topology.sources

    def check(topic_id: Uuid, topic: str, partition: int) -> None:
        subtopology = subtopologies.get(topic)
        since = None if subtopology is None else member.epoch_of(subtopology, partition)
        if since is None or epoch < since:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    return check


def _stale(member: ConsumerMember) -> KafkaError:
    """The error of a stale epoch, which is the generation for a classic member."""
    return KafkaError(ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION)


def commit_transactional_offsets(context: CommandContext, call: Called) -> None:
    """Handle TxnOffsetCommit: write offsets that become visible when the transaction commits."""
    request: TxnOffsetCommitRequest = call.request
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    if request.producer_id < 0 or request.producer_epoch < 0:
        # The transaction coordinator refuses them too, but it is not asked if verification is switched off.
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    check: _PartitionCheck = _accept_all
    group = context.shard.groups.get(request.group_id)
    if group is not None:
        check = _check_transactional(group, request, call.version)
    elif request.generation_id_or_member_epoch >= 0:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    plan = _plan(context, call)
    if check is not _accept_all:
        try:
            for offset in plan.offsets:
                check(offset.topic_id, offset.name, offset.partition)
        except KafkaError as failure:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION) from failure
    _write(context, plan)
    context.producer_id, context.producer_epoch = request.producer_id, request.producer_epoch
    context.answer(call.ticket, plan.response(request))


def _check_transactional(group: Group, request: TxnOffsetCommitRequest, version: int) -> _PartitionCheck:
    try:
        return check_member(
            group,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            version,
            transactional=True,
        )
    except KafkaError as failure:
        if failure.code is ErrorCode.STALE_MEMBER_EPOCH:
            # Producers only understand this code.
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION) from failure
        raise


def delete_offsets(context: CommandContext, call: Called) -> None:
    """Handle OffsetDelete: delete offsets of topics that the group does not subscribe to."""
    request: OffsetDeleteRequest = call.request
    group_id = request.group_id
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    group = context.shard.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    if isinstance(group, ShareGroup):
        raise _no_consumers(group)
    if isinstance(group, ClassicGroup) and not group.is_empty and not group.is_of_consumers:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    offsets = context.shard.offsets
    subscribes = group.subscription()
    response = OffsetDeleteResponse()
    for topic in request.topics:
        name, count = topic.name, context.shard.topics.partition_count(topic.name)
        indexes = [partition.partition_index for partition in topic.partitions]
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribes(name) else ErrorCode.NONE
        if code is ErrorCode.NONE:
            stored = offsets.of_group(group_id).get(name, {})
            for index in dict.fromkeys(indexes):
                if 0 <= index < count and (index in stored or offsets.has_pending(group_id, name, index)):
                    context.append(offset_tombstone(group_id, name, index))
        results = deferred(len(indexes), partial(_deletions, indexes, count, code))
        response.topics.append(OffsetDeleteResponseTopic(name=name, partitions=results))
    context.answer(call.ticket, response)


def _deletions(indexes: Iterable[int], count: int, code: ErrorCode) -> Iterator[OffsetDeleteResponsePartition]:
    for index in indexes:
        error = code if 0 <= index < count else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        yield OffsetDeleteResponsePartition(partition_index=index, error_code=error)
