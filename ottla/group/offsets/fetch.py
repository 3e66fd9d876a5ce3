"""OffsetFetch (1-10): the committed offsets of groups.

Rules:
- Up to version 7 a request is for one group, from 8 on for several; the code always handles a list.
- `topics` null asks for all committed offsets of the group.
- With `require_stable` a partition with a pending transactional commit gets UNSTABLE_OFFSET_COMMIT.
- A topic that was deleted and created again is another topic: a request by id does not get offsets of the old id.

KIPs: 98, 447 (stable offsets), 516 (topic ids), 709 (several groups), 848 (member epochs).
"""

from ottla.coordinator.contract import Called
from ottla.group.state.consumer import ConsumerGroup, ConsumerMember
from ottla.group.state.offsets import Committed
from ottla.group.state.shard import CommandContext
from ottla.group.state.streams import StreamsGroup
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import NO_UUID, Uuid
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

#: From this version on a request is for several groups.
GROUPS_FROM = 8
#: From this version on a group has an error field of its own.
_GROUP_ERROR_FROM = 2
#: From this version on topics are identified by id.
_TOPIC_IDS_FROM = 10


def fetch_offsets(context: CommandContext, call: Called) -> None:
    """Handle OffsetFetch."""
    request: OffsetFetchRequest = call.request
    asked = groups_asked(request, call.version)
    groups = [_fetch_group(context, one, request.require_stable, call.version) for one in asked]
    context.answer(call.ticket, fetch_response(groups, call.version))


def groups_asked(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    """The groups of a request of any version."""
    if version >= GROUPS_FROM:
        return request.groups
    topics = request.topics
    return [
        OffsetFetchRequestGroup(
            group_id=request.group_id,
            topics=None
            if topics is None
            else [
                OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics
            ],
        )
    ]


def fetch_response(groups: list[OffsetFetchResponseGroup], version: int) -> OffsetFetchResponse:
    """The response for these groups in the form of `version`."""
    if version >= GROUPS_FROM:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=one.partition_index,
                    committed_offset=one.committed_offset,
                    committed_leader_epoch=one.committed_leader_epoch,
                    metadata=one.metadata,
                    error_code=one.error_code,
                )
                for one in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def group_error(group: OffsetFetchRequestGroup, error: ErrorCode, version: int) -> OffsetFetchResponseGroup:
    """The response part of a group that fails as a whole."""
    if version >= _GROUP_ERROR_FROM:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error)
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[_topic(topic, [error] * len(topic.partition_indexes)) for topic in group.topics or []],
    )


def _topic(topic: OffsetFetchRequestTopics, errors: list[ErrorCode]) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            _partition(index, None, error) for index, error in zip(topic.partition_indexes, errors, strict=True)
        ],
    )


def _partition(
    index: int, committed: Committed | None, error: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    if committed is None or error is not ErrorCode.NONE:
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=error
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _fetch_group(
    context: CommandContext, asked: OffsetFetchRequestGroup, require_stable: bool, version: int
) -> OffsetFetchResponseGroup:
    group = context.shard.groups.get(asked.group_id)
    try:
        if isinstance(group, ConsumerGroup | StreamsGroup):
            _check_epoch(group, asked.member_id, asked.member_epoch)
    except KafkaError as error:
        return group_error(asked, error.code, version)
    response = OffsetFetchResponseGroup(group_id=asked.group_id)
    if asked.topics is None:
        response.topics = [] if group is None else _fetch_all_topics(context, asked.group_id, require_stable, version)
        return response
    for topic in asked.topics:
        response.topics.append(_fetch_topic(context, asked.group_id, group is not None, topic, require_stable, version))
    return response


def _check_epoch(group: ConsumerGroup | StreamsGroup, member_id: str | None, epoch: int) -> None:
    """Raise KafkaError if the request names a member with another epoch. A request without a member may read."""
    if member_id is None and epoch < 0:
        return
    member = group.member(member_id or "")
    if epoch != member.epoch:
        classic = isinstance(member, ConsumerMember) and member.classic is not None
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH)


def _read(
    context: CommandContext, group_id: str, topic: str, topic_id: Uuid, index: int, require_stable: bool
) -> OffsetFetchResponsePartitions:
    offsets = context.shard.offsets
    if require_stable and offsets.has_pending(group_id, topic, index):
        return _partition(index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = offsets.get(group_id, topic, index)
    if committed is not None and topic_id != NO_UUID and committed.topic_id not in (NO_UUID, topic_id):
        committed = None
    return _partition(index, committed)


def _fetch_topic(
    context: CommandContext,
    group_id: str,
    known: bool,
    topic: OffsetFetchRequestTopics,
    require_stable: bool,
    version: int,
) -> OffsetFetchResponseTopics:
    name: str | None = topic.name
    if version >= _TOPIC_IDS_FROM:
        name = context.shard.topics.topic_name(topic.topic_id)
    if name is None:
        return _topic(topic, [ErrorCode.UNKNOWN_TOPIC_ID] * len(topic.partition_indexes))
    if not known:
        return _topic(topic, [ErrorCode.NONE] * len(topic.partition_indexes))
    topic_id = topic.topic_id if version >= _TOPIC_IDS_FROM else NO_UUID
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            _read(context, group_id, name, topic_id, index, require_stable) for index in topic.partition_indexes
        ],
    )


def _fetch_all_topics(
    context: CommandContext, group_id: str, require_stable: bool, version: int
) -> list[OffsetFetchResponseTopics]:
    topics = []
    for name, partitions in context.shard.offsets.of_group(group_id).items():
        topic_id = NO_UUID
        if version >= _TOPIC_IDS_FROM:
            found = context.shard.topics.topic_id(name)
            if found is None:
                # A deleted topic has no id to return.
                continue
            topic_id = found
        topics.append(
            OffsetFetchResponseTopics(
                name=name,
                topic_id=topic_id,
                partitions=[_read(context, group_id, name, NO_UUID, index, require_stable) for index in partitions],
            )
        )
    return topics
