"""DescribeShareGroupOffsets (key 90): start offsets and lag of share groups (KIP-932, KIP-1226).

Rules:
- The offsets come from the share coordinators. A partition without state, or of an unknown topic, has offset -1, which
  is no error.
- A topic or partition that is named twice is answered once, except an unknown topic.
- Without topics in the request the response has every partition whose state the group has initialized.
- The lag is the number of records from the start offset to the log end, less those already completed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later, Reply, Wait, in_turns
from ottla.broker.coordinators.group_protocol import SHARE, check_enabled
from ottla.group.state.share import ShareGroup
from ottla.kernel.error import KafkaError
from ottla.kernel.ids import NO_UUID, TopicPartition, Uuid
from ottla.share.state import UNSET_COUNT, UNSET_OFFSET, SharePartitionKey
from ottla.wire.api import ApiKey
from ottla.wire.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

_UNKNOWN_LAG = -1
#: About a millisecond.
_PARTITIONS_PER_STEP = 25
#: More questions than this do not wait at once: all of them may be answered, or asked again, in one turn of the loop.
_OPEN_MAX = 2000

_Question = Callable[[Callable[[], None]], None]


@handles(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
def describe_share_group_offsets(call: Call, request: DescribeShareGroupOffsetsRequest) -> Reply:
    """An answer for each group; a group fails alone."""
    check_enabled(call.node, SHARE)
    return in_turns(call.connection, _describe(call, request))


def _describe(call: Call, request: DescribeShareGroupOffsetsRequest) -> Generator[Wait | None, None, Later]:
    """Ask about every partition in steps; the response leaves after the last answer."""
    groups: list[_Described] = []
    later = Later()
    #: The questions that are not answered, and one more until all are asked.
    left = 1
    go_on: Callable[[], None] | None = None

    def one_less() -> None:
        nonlocal left, go_on
        left -= 1
        if not left:
            later.resolve(DescribeShareGroupOffsetsResponse(groups=[group.response for group in groups]))
        elif go_on is not None and left <= _OPEN_MAX // 2:
            step, go_on = go_on, None
            call.connection.turns.wait(step)

    def after_answers(step: Callable[[], None]) -> None:
        nonlocal go_on
        go_on = step

    for number, question in enumerate(_questions(call, request, groups), 1):
        if question is not None:
            left += 1
            question(one_less)
        if left > _OPEN_MAX:
            yield after_answers
        elif not number % _PARTITIONS_PER_STEP:
            yield None
    one_less()
    return later


def _questions(
    call: Call, request: DescribeShareGroupOffsetsRequest, groups: list[_Described]
) -> Iterator[_Question | None]:
    """The questions about each group, which is added to `groups` before; None for a group and for what has none."""
    for asked in request.groups:
        groups.append(_Described(call, asked))
        yield None
        yield from groups[-1].questions()


class _Described:
    """A group's part of the response, filled in as its partitions are answered."""

    def __init__(self, call: Call, asked: DescribeShareGroupOffsetsRequestGroup) -> None:
        self._call = call
        self._asked = asked
        self.response = DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)

    def questions(self) -> Iterator[_Question | None]:
        """The question about each partition, which calls its argument when it is answered; None if there is none."""
        try:
            wanted = self._wanted()
        except KafkaError as error:
            self.response.error_code, self.response.error_message = error.code, error.message or None
            wanted = []
        for name, topic_id, indexes in wanted:
            topic = DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id)
            self.response.topics.append(topic)
            for index in indexes:
                answer = DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=UNSET_OFFSET)
                topic.partitions.append(answer)
                key = SharePartitionKey(self._asked.group_id, topic_id, index)
                yield None if topic_id == NO_UUID else partial(self._ask, key, answer)

    def _ask(
        self, key: SharePartitionKey, answer: DescribeShareGroupOffsetsResponsePartition, done: Callable[[], None]
    ) -> None:
        self._call.node.persister.summary(key, lambda result: self._fill(key, answer, result, done))

    def _wanted(self) -> list[tuple[str, Uuid, Sequence[int]]]:
        node = self._call.node
        if self._asked.topics is not None:
            topics = node.image.topics
            known: dict[str, dict[int, None]] = {}
            unknown: list[tuple[str, Uuid, Sequence[int]]] = []
            for topic in self._asked.topics:
                if topic.topic_name in topics:
                    known.setdefault(topic.topic_name, {}).update(dict.fromkeys(topic.partitions))
                else:
                    unknown.append((topic.topic_name, NO_UUID, topic.partitions))
            return unknown + [(name, topics[name].topic_id, list(indexes)) for name, indexes in known.items()]
        group = node.groups.driver_of(self._asked.group_id).machine.shard.groups.get(self._asked.group_id)
        if not isinstance(group, ShareGroup):
            return []
        return [(each.name, topic_id, sorted(each.partitions)) for topic_id, each in group.initialized.items()]

    def _fill(
        self,
        key: SharePartitionKey,
        answer: DescribeShareGroupOffsetsResponsePartition,
        result: Any,
        done: Callable[[], None],
    ) -> None:
        if isinstance(result, KafkaError):
            answer.error_code, answer.error_message = result.code, result.message or None
            return done()
        answer.start_offset, answer.leader_epoch = result.start_offset, result.leader_epoch
        if result.start_offset == UNSET_OFFSET or result.delivery_complete_count == UNSET_COUNT:
            return done()

        def on_high_watermark(high_watermark: int | KafkaError) -> None:
            if isinstance(high_watermark, KafkaError):
                answer.error_code, answer.error_message = high_watermark.code, high_watermark.message or None
                answer.start_offset, answer.lag = UNSET_OFFSET, _UNKNOWN_LAG
            else:
                answer.lag = high_watermark - result.start_offset - result.delivery_complete_count
            done()

        name = self._call.node.topic_name(key.topic_id) or ""
        return self._call.node.persister.high_watermark(TopicPartition(name, key.partition), on_high_watermark)
