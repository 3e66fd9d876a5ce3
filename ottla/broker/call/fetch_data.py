"""The parts of Fetch requests and responses that consumers and followers share, one partition at a time."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.log.segment.segment import Slice
from ottla.replica.fetch_session import CachedPartition
from ottla.replica.hosted import Fetched, HostedReplica
from ottla.wire.api.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

BY_ID_FROM = 13
#: Below this size a copy is cheaper than a separate sendfile call.
_COPY_BYTES_MAX = 16 << 10
_NO_RECORDS = b""
#: Errors for which the log is not consulted at all.
_UNKNOWN = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)


def cached_partitions(request: FetchRequest, by_id: bool) -> Iterator[CachedPartition]:
    """The partitions that a request names."""
    for topic in request.topics:
        key = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            yield CachedPartition(
                key,
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
                partition.log_start_offset,
            )


def divergence(replica: HostedReplica, wanted: CachedPartition) -> PartitionData | None:
    """The point where the client's log diverges from ours according to its last fetched epoch (KIP-320, KIP-595)."""
    if wanted.last_fetched_epoch < 0:
        return None
    epoch, end_offset = replica.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch >= wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
        return None
    if wanted.fetch_offset < replica.log.start_offset:
        # Nothing to compare is left there: the client must begin again at our start, whatever it has.
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return PartitionData(
        partition_index=wanted.partition,
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.log.last_stable_offset,
        log_start_offset=replica.log.start_offset,
        diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset),
        aborted_transactions=None,
        records=_NO_RECORDS,
    )


def partition_data(index: int, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> PartitionData:
    """The response for a partition without records."""
    return PartitionData(
        partition_index=index,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        aborted_transactions=None,
        records=_NO_RECORDS,
    )


def add_records(data: PartitionData, records: Slice) -> None:
    """Add the records of a read, of which there may be none."""
    if records.size:
        data.records = records.bytes() if records.size <= _COPY_BYTES_MAX else records


def fetched_data(index: int, fetched: Fetched) -> PartitionData:
    """The response for a successful read."""
    data = partition_data(index, fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset)
    if fetched.records is not None:
        add_records(data, fetched.records)
    if fetched.aborted is not None:
        data.aborted_transactions = [
            AbortedTransaction(producer_id=producer_id, first_offset=offset) for producer_id, offset in fetched.aborted
        ]
    return data


def sent_elsewhere(index: int, replica: HostedReplica, broker_id: int) -> PartitionData:
    """The response that sends a consumer to another replica (KIP-392)."""
    return PartitionData(
        partition_index=index,
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.log.last_stable_offset,
        log_start_offset=replica.log.start_offset,
        aborted_transactions=None,
        preferred_read_replica=broker_id,
        records=_NO_RECORDS,
    )


def failed(index: int, code: ErrorCode) -> PartitionData:
    """The response for a partition that cannot be read."""
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=[] if code in _UNKNOWN else None,
        records=_NO_RECORDS,
    )


def append_data(response: FetchResponse, topic: str | bytes, data: PartitionData) -> None:
    """Add a partition to the response, merged with the previous one if both belong to the same topic."""
    last = response.responses[-1] if response.responses else None
    if last is None or topic != (last.topic_id if isinstance(topic, bytes) else last.topic):
        last = FetchableTopicResponse()
        if isinstance(topic, bytes):
            last.topic_id = Uuid(topic)
        else:
            last.topic = topic
        response.responses.append(last)
    last.partitions.append(data)
