"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch in this node's log (KIP-101, KIP-320)."""

from __future__ import annotations

from collections.abc import Generator

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Reply, in_turns
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api import ApiKey
from ottla.wire.api.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

#: About a millisecond.
_PARTITIONS_PER_STEP = 100


def _error_response(
    request: OffsetForLeaderEpochRequest, version: int, error: KafkaError
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_failed(partition.partition, error.code) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH, error_response=_error_response)
def offset_for_leader_epoch(call: Call, request: OffsetForLeaderEpochRequest) -> Reply:
    """The end offset for each partition; (-1, -1) where the epoch is older than the log."""
    return in_turns(call.connection, _find_each(call, request))


def _find_each(call: Call, request: OffsetForLeaderEpochRequest) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    number = 0
    for topic in request.topics:
        answer = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(answer)
        for partition in topic.partitions:
            answer.partitions.append(_find(call, topic.topic, partition))
            number += 1
            if not number % _PARTITIONS_PER_STEP:
                yield
    return response


def _find(call: Call, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = call.node.leader_of(topic, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
        epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
    except KafkaError as error:
        return _failed(asked.partition, error.code)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)


def _failed(index: int, code: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(partition=index, error_code=code, leader_epoch=-1, end_offset=-1)
