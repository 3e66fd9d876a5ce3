"""DeleteRecords (key 21): move a partition's log start offset forward (KIP-107)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later, Reply, in_turns
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
#: Each step takes about a millisecond.
_PARTITIONS_PER_STEP = 50
_NAMED_PER_STEP = 2000


@handles(ApiKey.DELETE_RECORDS)
def delete_records(call: Call, request: DeleteRecordsRequest) -> Reply:
    """The new low watermark of each partition. If a request names a partition twice, the last entry counts.

    The response waits until every replica on a live broker has deleted the records, or ends with REQUEST_TIMED_OUT; the
    records stay deleted either way.
    """
    return in_turns(call.connection, _delete_each(call, request))


def _delete_each(call: Call, request: DeleteRecordsRequest) -> Generator[None, None, Reply]:
    response, deletions = DeleteRecordsResponse(), _Deletions()
    number = 0
    for topic, partitions in (yield from _asked(request)).items():
        results: list[DeleteRecordsPartitionResult] = []
        response.topics.append(DeleteRecordsTopicResult(name=topic, partitions=results))
        for asked in partitions.values():
            result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
            results.append(result)
            partition = _delete(call, topic, asked, result)
            if partition is not None:
                deletions.wait_for(partition, result)
            number += 1
            if not number % _PARTITIONS_PER_STEP:
                yield
    return deletions.answer(call, response, request.timeout_ms)


def _asked(
    request: DeleteRecordsRequest,
) -> Generator[None, None, dict[str, dict[int, DeleteRecordsPartition]]]:
    """The partitions of the whole request by topic, each once."""
    topics: dict[str, dict[int, DeleteRecordsPartition]] = {}
    number = 0
    for topic in request.topics:
        for partition in topic.partitions:
            topics.setdefault(topic.name, {})[partition.partition_index] = partition
            number += 1
            if not number % _NAMED_PER_STEP:
                yield
    return topics


class _Deletions:
    """The partitions of a request that some replicas have not deleted yet."""

    def __init__(self) -> None:
        self._waiting: list[tuple[CommitWaiter, Partition, DeleteRecordsPartitionResult]] = []
        self._left = 1
        self._done: Callable[[], None] = lambda: None

    def wait_for(self, partition: Partition, result: DeleteRecordsPartitionResult) -> None:
        """Put the outcome into `result` when every replica has deleted the records, or the partition is lost."""
        self._left += 1
        waiter = partition.when_deleted(result.low_watermark, partial(self._deleted, partition, result))
        # The failure of a later partition may have taken the directory of this one offline.
        if waiter is not None:
            self._waiting.append((waiter, partition, result))

    def answer(self, call: Call, response: DeleteRecordsResponse, timeout_ms: int) -> Reply:
        """The response after the last outcome, or after the timeout."""
        if self._left == 1:
            return response
        later = Later()
        timer = call.node.loop.call_later(max(0, timeout_ms) / 1000, self._timed_out)

        def done() -> None:
            timer.cancel()
            later.resolve(response)

        self._done = done
        self._one_less()
        return later

    def _deleted(self, partition: Partition, result: DeleteRecordsPartitionResult, error: KafkaError | None) -> None:
        result.low_watermark = -1 if error is not None else partition.low_watermark
        result.error_code = ErrorCode.NONE if error is None else error.code
        self._one_less()

    def _one_less(self) -> None:
        self._left -= 1
        if not self._left:
            self._done()

    def _timed_out(self) -> None:
        for waiter, partition, result in self._waiting:
            if waiter.done is not None:
                waiter.cancel()
                self._deleted(partition, result, KafkaError(ErrorCode.REQUEST_TIMED_OUT))


def _delete(
    call: Call, topic: str, asked: DeleteRecordsPartition, result: DeleteRecordsPartitionResult
) -> Partition | None:
    """Move the start of a log; return the partition if other replicas have not done so yet."""
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
    except KafkaError as error:
        result.error_code = error.code
        return None
    result.low_watermark = max(offset, partition.low_watermark)
    return partition if partition.low_watermark < offset else None
