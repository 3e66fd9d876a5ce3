"""The contents of Produce requests and answers, and the fate of a refused batch. Pure.

Rules:
- A retriable error puts the batch back, until `delivery.timeout.ms`; any other error ends it.
- With idempotence a batch keeps its sequence through all retries. "Out of order" after an earlier batch that failed is
  only a consequence of that failure. For the first batch in flight it means that the broker has lost the producer's
  state, and has taken none of that partition's batches.

KIPs: 98 (idempotence), 360 (recovery from it), 91 (delivery timeout), 516 (topic ids), 890 (transactions).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from ottla.client.connection.clock import Backoff
from ottla.client.connection.metadata import Metadata
from ottla.client.producer.accumulator import PartitionQueue
from ottla.client.producer.delivery import ProducerBatch
from ottla.client.settings.producer import ProducerSettings
from ottla.client.transaction.state import TRANSACTION_PAUSE_MS, Transactions
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import NO_UUID
from ottla.wire.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

#: The broker no longer knows this producer, or finds a gap: only a new producer id cures that.
_LOST_TRACK = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
#: The first version of Produce that adds a partition to a transaction by writing to it (KIP-890).
_JOINS_BY_WRITING = 12
#: The first version of Produce with topic ids.
_TOPIC_IDS = 13

Item = tuple[PartitionQueue, ProducerBatch]


def topic_data(items: Iterable[Item], metadata: Metadata, settings: ProducerSettings) -> list[TopicProduceData]:
    """The batches by topic, encoded."""
    topics: dict[str, TopicProduceData] = {}
    for partition, batch in items:
        data = topics.get(batch.topic)
        if data is None:
            known = metadata.topics.get(batch.topic)
            topic_id = known.id if known is not None else NO_UUID
            data = topics[batch.topic] = TopicProduceData(name=batch.topic, topic_id=topic_id)
        records = batch.encode(settings.compression_type, settings.compression_level)
        data.partition_data.append(PartitionProduceData(index=partition.number, records=records))
    return list(topics.values())


def version_at_most(request: ProduceRequest, transactions: Transactions | None) -> int | None:
    """The highest version that can carry this request; None for any."""
    if transactions is not None and transactions.version < 2:
        return _JOINS_BY_WRITING - 1
    return _TOPIC_IDS - 1 if any(topic.topic_id == NO_UUID for topic in request.topic_data) else None


def parts_of(response: ProduceResponse, metadata: Metadata) -> dict[tuple[str, int], PartitionProduceResponse]:
    """The answer's partitions by topic and partition number."""
    parts: dict[tuple[str, int], PartitionProduceResponse] = {}
    for topic in response.responses:
        name = topic.name or metadata.topic_names.get(bytes(topic.topic_id), "")
        for result in topic.partition_responses:
            parts[name, result.index] = result
    return parts


def explained(part: PartitionProduceResponse, batch: ProducerBatch) -> str:
    """The text of the broker's error for a batch."""
    where = f"{batch.topic}-{batch.partition}"
    if part.record_errors:
        first = part.record_errors[0]
        detail = first.batch_index_error_message or part.error_message or ""
        return f"{where}: record {first.batch_index} of the batch: {detail}"
    return f"{where}: {part.error_message}" if part.error_message else where


class ErrorClass(Enum):
    """The fate of a refused batch."""

    SPLIT = "split"
    RETRY = "retry"
    #: Send again, with a new producer id: the broker has lost this one's state.
    RENUMBER = "renumber"
    FAIL = "fail"


def classify_error(
    batch: ProducerBatch,
    partition: PartitionQueue,
    error: KafkaError,
    transactions: Transactions | None,
    settings: ProducerSettings,
    now_ms: int,
) -> ErrorClass:
    """Decide the fate of a refused batch, which is still in its partition's `in_flight`."""
    code = error.code
    if transactions is not None and not transactions.sends:
        # An abort has begun: a retry, also of halves, would wait for a send that never comes.
        return ErrorClass.FAIL
    if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE) and batch.records > 1:
        return ErrorClass.SPLIT
    retriable = code.retriable
    lost = False
    if batch.producer is not None and code in _LOST_TRACK:
        # A batch that comes again later, such as the other half of a split one, is not to blame.
        earlier = any(queued.attempts and queued.serial < batch.serial for queued in partition.closed)
        first = partition.in_flight[0] is batch and not earlier
        if transactions is None:
            lost, retriable = first, True
        else:
            # Nothing within the transaction cures it.
            retriable = not first and code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    if retriable and now_ms < batch.deadline_ms and batch.attempts < settings.retries:
        return ErrorClass.RENUMBER if lost else ErrorClass.RETRY
    return ErrorClass.FAIL


def pause_ms(batch: ProducerBatch, error: KafkaError, settings: ProducerSettings) -> int:
    """How long a batch waits before it is sent again, in ms."""
    # The last transaction ends soon, so wait as briefly as Kafka does for requests to the coordinator.
    ending = error.code is ErrorCode.CONCURRENT_TRANSACTIONS
    backoff = Backoff(TRANSACTION_PAUSE_MS if ending else settings.retry_backoff_ms, settings.retry_backoff_max_ms)
    backoff.attempts = batch.attempts
    return backoff.next_ms()
