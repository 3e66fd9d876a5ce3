"""OffsetFetch (1-10): the committed offsets of groups.

Rules:
- Up to version 7 a request is for one group, from 8 on for several; the code always handles a list.
- `topics` null asks for all committed offsets of the group.
- With `require_stable` a partition with a pending transactional commit gets UNSTABLE_OFFSET_COMMIT.
- A topic that was deleted and created again is another topic: a request by id does not get offsets of the old id.
- A long answer is built while it is written, from what was committed when it was asked for.

KIPs: 98, 447 (stable offsets), 516 (topic ids), 709 (several groups), 848 (member epochs).
"""

from collections.abc import Container, Iterator

from ottla.coordinator.contract import Called
from ottla.group.state.consumer import ConsumerGroup, ConsumerMember
from ottla.group.state.offsets import Committed, TopicOffsets
from ottla.group.state.shard import CommandContext
from ottla.group.state.streams import StreamsGroup
from ottla.group.topic import TopicView
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.frozen import frozen
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
from ottla.wire.compile import FEW, deferred

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
    topics = deferred(len(group.topics), lambda: map(_old_topic, group.topics))
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def _old_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    """A topic in the form that a request for one group gets."""

    def partitions() -> Iterator[OffsetFetchResponsePartition]:
        for one in topic.partitions:
            yield OffsetFetchResponsePartition(
                partition_index=one.partition_index,
                committed_offset=one.committed_offset,
                committed_leader_epoch=one.committed_leader_epoch,
                metadata=one.metadata,
                error_code=one.error_code,
            )

    return OffsetFetchResponseTopic(name=topic.name, partitions=deferred(len(topic.partitions), partitions))


def group_error(group: OffsetFetchRequestGroup, error: ErrorCode, version: int) -> OffsetFetchResponseGroup:
    """The response part of a group that fails as a whole."""
    if version >= _GROUP_ERROR_FROM:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error)
    topics = group.topics or []
    return OffsetFetchResponseGroup(
        group_id=group.group_id, topics=deferred(len(topics), lambda: (_topic(topic, error) for topic in topics))
    )


def _topic(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    """A topic of which there are no offsets, for this reason."""
    indexes = topic.partition_indexes
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=deferred(len(indexes), lambda: (_partition(index, None, error) for index in indexes)),
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
    offsets = _Offsets.of(context, asked, require_stable, version)
    response = OffsetFetchResponseGroup(group_id=asked.group_id)
    if asked.topics is None:
        response.topics = [] if group is None else offsets.all_topics()
    else:
        topics = offsets.known_first(asked.topics)
        response.topics = deferred(len(topics), lambda: (offsets.topic(each, group is not None) for each in topics))
    return response


def _check_epoch(group: ConsumerGroup | StreamsGroup, member_id: str | None, epoch: int) -> None:
    """Raise KafkaError if the request names a member with another epoch. A request without a member may read."""
    if member_id is None and epoch < 0:
        return
    member = group.member(member_id or "")
    if epoch != member.epoch:
        classic = isinstance(member, ConsumerMember) and member.classic is not None
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH)


@frozen
class _Offsets:
    """The offsets of one group as they are now."""

    committed: TopicOffsets
    #: (topic, partition) of pending offsets, if a request for stable offsets wants to know.
    pending: Container[tuple[str, int]]
    topics: TopicView
    by_id: bool

    @classmethod
    def of(
        cls, context: CommandContext, asked: OffsetFetchRequestGroup, require_stable: bool, version: int
    ) -> "_Offsets":
        """The group's offsets. Copied if the answer is built later, so that it is of one moment."""
        store = context.shard.offsets
        committed, pending = store.of_group(asked.group_id), store.open.get(asked.group_id, {})
        topics = asked.topics
        if topics is None or len(topics) + sum(len(each.partition_indexes) for each in topics) > FEW:
            committed = {topic: dict(partitions) for topic, partitions in committed.items()}
            pending = dict(pending)
        return cls(committed, pending if require_stable else (), context.shard.topics, version >= _TOPIC_IDS_FROM)

    def known_first(self, asked: list[OffsetFetchRequestTopics]) -> list[OffsetFetchRequestTopics]:
        """The topics in the order of Apache's answer: those whose id is unknown are last.

        A long request keeps its order, which costs nothing before its answer is written.
        """
        if not self.by_id or len(asked) > FEW:
            return asked
        return sorted(asked, key=lambda each: self.topics.topic_name(each.topic_id) is None)

    def topic(self, asked: OffsetFetchRequestTopics, known: bool) -> OffsetFetchResponseTopics:
        """The offsets of one topic of the request. `known`: there is such a group."""
        name = self.topics.topic_name(asked.topic_id) if self.by_id else asked.name
        if name is None:
            return _topic(asked, ErrorCode.UNKNOWN_TOPIC_ID)
        if not known:
            return _topic(asked, ErrorCode.NONE)
        topic_id = asked.topic_id if self.by_id else NO_UUID
        return self._partitions(asked.name, asked.topic_id, name, topic_id, asked.partition_indexes)

    def all_topics(self) -> list[OffsetFetchResponseTopics]:
        """Every offset of the group."""
        topics = []
        for name, partitions in self.committed.items():
            # A deleted topic has no id to return.
            topic_id = self.topics.topic_id(name) if self.by_id else NO_UUID
            if topic_id is not None:
                topics.append(self._partitions(name, topic_id, name, NO_UUID, [*partitions]))
        return topics

    def _partitions(
        self, said_name: str, said_id: Uuid, name: str, topic_id: Uuid, indexes: list[int]
    ) -> OffsetFetchResponseTopics:
        partitions = deferred(len(indexes), lambda: (self._read(name, topic_id, index) for index in indexes))
        return OffsetFetchResponseTopics(name=said_name, topic_id=said_id, partitions=partitions)

    def _read(self, topic: str, topic_id: Uuid, index: int) -> OffsetFetchResponsePartitions:
        if (topic, index) in self.pending:
            return _partition(index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = self.committed.get(topic, {}).get(index)
        if committed is not None and topic_id != NO_UUID and committed.topic_id not in (NO_UUID, topic_id):
            committed = None
        return _partition(index, committed)
