"""ListOffsets (key 2): the offset for a timestamp, or of an end of the log. OffsetForLeaderEpoch (key 23): the end of
a leader epoch in this node's log.

Rules:
- -2 earliest, -1 latest, -3 the record with the greatest timestamp (KIP-734), -4 earliest local, -5 last tiered,
  -6 earliest pending upload. Without tiered storage -4 equals -2, and -5 and -6 have no offset (-1).
- Latest is the high watermark, or the last stable offset with read_committed.
- A new leader may not know yet how far its predecessor had committed. Until its high watermark has reached the start of
  its epoch, a consumer gets OFFSET_NOT_AVAILABLE for every offset that it cannot read yet: offsets must not go back.
- A partition named twice in one request fails as INVALID_REQUEST.
- A tool that debugs names itself replica -2, and gets the answer of a follower, too.

KIPs: 101 and 320 (ends of epochs), 207 (a new leader's offsets), 734.
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Reply, Wait, Work, in_turns
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.log.lookup import max_timestamp, offset_for_timestamp
from ottla.replica.hosted import LOG_END, HostedReplica
from ottla.wire.api import ApiKey
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.wire.api.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from ottla.wire.compile import deferred

_CONSUMER = -1
_DEBUGGING = -2
#: Step sizes of a long request.
_PARTITIONS_PER_STEP = 200
_NAMED_PER_STEP = 2000
_EPOCH_FROM = 4
#: Before this version clients know LEADER_NOT_AVAILABLE instead of OFFSET_NOT_AVAILABLE.
_NOT_AVAILABLE_FROM = 5
_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_LAST_TIERED = -5
_EARLIEST_PENDING_UPLOAD = -6
#: Special timestamp -> the version that introduced it; an older request with it gets UNSUPPORTED_VERSION.
_VERSION_SINCE = {_MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LAST_TIERED: 9, _EARLIEST_PENDING_UPLOAD: 11}


def _error_response(request: ListOffsetsRequest, version: int, error: KafkaError) -> ListOffsetsResponse:
    def answer(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
        asked = topic.partitions
        failed = deferred(len(asked), lambda: (_failed(partition.partition_index, error.code) for partition in asked))
        return ListOffsetsTopicResponse(name=topic.name, partitions=failed)

    return ListOffsetsResponse(topics=deferred(len(request.topics), lambda: map(answer, request.topics)))


@handles(ApiKey.LIST_OFFSETS, error_response=_error_response)
def list_offsets(call: Call, request: ListOffsetsRequest) -> Reply:
    """An answer for each partition, however often it is named; a partition fails on its own."""
    return in_turns(call.connection, _answer(call, request))


def _answer(call: Call, request: ListOffsetsRequest) -> Work:
    twice: set[tuple[str, int]] = set()
    topics: dict[str, dict[int, ListOffsetsPartition]] = {}
    for topic in request.topics:
        partitions = topics.setdefault(topic.name, {}) if topic.partitions else {}
        for number, each in enumerate(topic.partitions, 1):
            if each.partition_index in partitions:
                twice.add((topic.name, each.partition_index))
            partitions[each.partition_index] = each
            if not number % _NAMED_PER_STEP:
                yield None
    # Only consumers must not see uncommitted records.
    isolation_level = request.isolation_level if request.replica_id == _CONSUMER else LOG_END
    response = ListOffsetsResponse()
    number_done = 0
    for name, partitions in topics.items():
        answers: list[ListOffsetsPartitionResponse] = []
        for partition in partitions.values():
            number_done += 1
            if not number_done % _PARTITIONS_PER_STEP:
                yield None
            try:
                if (name, partition.partition_index) in twice:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                answers.append((yield from _find(call, name, partition, isolation_level, request.replica_id)))
            except KafkaError as error:
                answers.append(_failed(partition.partition_index, error.code))
        response.topics.append(ListOffsetsTopicResponse(name=name, partitions=answers))
    return response


def _replica(call: Call, topic: str, index: int, epoch: int, replica_id: int = _CONSUMER) -> HostedReplica:
    """The replica that is asked. Raises KafkaError if this broker may not answer for it.

    As in Apache Kafka, a follower looks at the client's leader epoch before it says that it does not lead.
    """
    hosted = call.node.hosted.get((topic, index))
    if hosted is not None:
        hosted.check_epoch(epoch)
        if replica_id == _DEBUGGING:
            return hosted
    return call.node.leader_of(topic, index)


def _find(
    call: Call, topic: str, asked: ListOffsetsPartition, isolation_level: int, replica_id: int
) -> Generator[Wait | None, None, ListOffsetsPartitionResponse]:
    timestamp = asked.timestamp
    if timestamp < _EARLIEST_PENDING_UPLOAD or call.version < _VERSION_SINCE.get(timestamp, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    partition = _replica(call, topic, asked.partition_index, asked.current_leader_epoch, replica_id)
    log = partition.log
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index, timestamp=-1, offset=-1)
    epoch = -1
    lags = isolation_level != LOG_END and partition.is_catching_up
    if timestamp == _LATEST:
        if lags:
            raise _not_available(call)
        answer.offset = partition.read_bound(isolation_level)
        epoch = partition.leader_epoch
    elif timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        answer.offset = log.start_offset
        epoch = partition.epoch_at(log.start_offset)
    elif timestamp not in (_LAST_TIERED, _EARLIEST_PENDING_UPLOAD):
        bound = partition.read_bound(isolation_level)
        with call.node.log_dirs.guarding(log):
            # Where the high watermark lags, a record beyond it must be told from none.
            end = log.end_offset if lags else bound
            look = max_timestamp(log) if timestamp == _MAX_TIMESTAMP else offset_for_timestamp(log, timestamp, end)
            position = yield from call.node.look_ups.steps(look)
        if position is not None and position[1] < bound:
            answer.timestamp, answer.offset, epoch = position
        elif position is not None and lags:
            raise _not_available(call)
    if call.version >= _EPOCH_FROM:
        answer.leader_epoch = epoch
    return answer


def _not_available(call: Call) -> KafkaError:
    known = call.version >= _NOT_AVAILABLE_FROM
    return KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE)


def _failed(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code, timestamp=-1, offset=-1)


# ---- the ends of leader epochs


def _ends_error_response(
    request: OffsetForLeaderEpochRequest, version: int, error: KafkaError
) -> OffsetForLeaderEpochResponse:
    def answer(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
        asked = topic.partitions
        ends = deferred(len(asked), lambda: (_no_end(partition.partition, error.code) for partition in asked))
        return OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends)

    return OffsetForLeaderEpochResponse(topics=deferred(len(request.topics), lambda: map(answer, request.topics)))


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH, error_response=_ends_error_response)
def offset_for_leader_epoch(call: Call, request: OffsetForLeaderEpochRequest) -> Reply:
    """The end offset for each partition; (-1, -1) where the epoch is older than the log."""
    return in_turns(call.connection, _ends(call, request))


def _ends(call: Call, request: OffsetForLeaderEpochRequest) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    number = 0
    for topic in request.topics:
        answer = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(answer)
        for partition in topic.partitions:
            answer.partitions.append(_end(call, topic.topic, partition))
            number += 1
            if not number % _PARTITIONS_PER_STEP:
                yield
    return response


def _end(call: Call, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = _replica(call, topic, asked.partition, asked.current_leader_epoch)
        epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
    except KafkaError as error:
        return _no_end(asked.partition, error.code)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)


def _no_end(index: int, code: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(partition=index, error_code=code, leader_epoch=-1, end_offset=-1)
