"""DeleteRecords (key 21): move a partition's log start offset forward (KIP-107)."""

from __future__ import annotations

from ottla.broker.call.handler import Call, handles
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import INTERNAL_TOPICS
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
def delete_records(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """One answer a partition: its new low watermark. Of a partition that is named twice the last counts."""
    topics: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.topics:
        for each in topic.partitions:
            topics.setdefault(topic.name, {})[each.partition_index] = each
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=name, partitions=[_delete(call, name, each) for each in partitions.values()])
            for name, partitions in topics.items()
        ]
    )


def _delete(call: Call, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
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
        result.low_watermark = partition.log.start_offset
    except KafkaError as error:
        result.error_code = error.code
    return result
