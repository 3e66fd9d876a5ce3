"""DeleteRecords (key 21): move a partition's log start offset forward (KIP-107)."""

from __future__ import annotations

from functools import partial

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later, Reply
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import INTERNAL_TOPICS
from ottla.replica.commit_queue import CommitWaiter
from ottla.replica.partition import Partition
from ottla.wire.api import ApiKey
from ottla.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_TO_HIGH_WATERMARK = -1


@handles(ApiKey.DELETE_RECORDS)
def delete_records(call: Call, request: DeleteRecordsRequest) -> Reply:
    """The new low watermark of each partition. If a request names a partition twice, the last entry counts.

    The response waits until every replica on a live broker has deleted the records, or ends with REQUEST_TIMED_OUT; the
    records stay deleted either way.
    """
    topics: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            topics.setdefault(topic.name, {})[partition.partition_index] = partition
    deleting: list[tuple[Partition, DeleteRecordsPartitionResult]] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name, partitions=[_delete(call, name, partition, deleting) for partition in partitions.values()]
            )
            for name, partitions in topics.items()
        ]
    )
    return _wait(call, deleting, response, request.timeout_ms) if deleting else response


def _wait(
    call: Call,
    deleting: list[tuple[Partition, DeleteRecordsPartitionResult]],
    response: DeleteRecordsResponse,
    timeout_ms: int,
) -> Later:
    later, left = Later(), 1 + len(deleting)
    waiting: list[tuple[CommitWaiter, Partition, DeleteRecordsPartitionResult]] = []

    def deleted(partition: Partition, result: DeleteRecordsPartitionResult, error: KafkaError | None) -> None:
        result.low_watermark = -1 if error is not None else partition.low_watermark
        result.error_code = ErrorCode.NONE if error is None else error.code
        one_less()

    def one_less() -> None:
        nonlocal left
        left -= 1
        if not left:
            timer.cancel()
            later.resolve(response)

    def timed_out() -> None:
        for waiter, partition, result in waiting:
            if waiter.done is not None:
                waiter.cancel()
                deleted(partition, result, KafkaError(ErrorCode.REQUEST_TIMED_OUT))

    for partition, result in deleting:
        waiter = partition.when_deleted(result.low_watermark, partial(deleted, partition, result))
        # The failure of a later partition may have taken the directory of this one offline.
        if waiter is not None:
            waiting.append((waiter, partition, result))
    timer = call.node.loop.call_later(max(0, timeout_ms) / 1000, timed_out)
    one_less()
    return later


def _delete(
    call: Call,
    topic: str,
    asked: DeleteRecordsPartition,
    deleting: list[tuple[Partition, DeleteRecordsPartitionResult]],
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = call.node.leader_of(topic, asked.partition_index)
        if partition.log.settings.cleanup_policy == {"compact"}:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        offset = partition.high_watermark if asked.offset == _TO_HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= partition.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        with call.node.log_dirs.guarding(partition.log):
            partition.log.advance_start_offset(offset)
        partition.log_start_moved()
        result.low_watermark = max(offset, partition.low_watermark)
        if partition.low_watermark < offset:
            deleting.append((partition, result))
    except KafkaError as error:
        result.error_code = error.code
    return result
