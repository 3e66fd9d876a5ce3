"""What a Produce request carries, what its answer says, and what becomes of a batch that was refused. Pure.

Rules:
- An error that may pass puts the batch back, until `delivery.timeout.ms`; any other ends it.
- With idempotence a batch keeps its number through all retries. "Out of order" behind a batch that failed before only
  says so; the first in line says that the broker has lost track of us, and has taken none of its partition's batches.

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

#: The broker no longer knows this producer, or finds a gap: only a new producer id helps.
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
    """The highest version that can carry this; None for any."""
    if transactions is not None and transactions.version < 2:
        return _JOINS_BY_WRITING - 1
    return _TOPIC_IDS - 1 if any(topic.topic_id == NO_UUID for topic in request.topic_data) else None


def parts_of(response: ProduceResponse, metadata: Metadata) -> dict[tuple[str, int], PartitionProduceResponse]:
    """The answer by topic and partition."""
    parts: dict[tuple[str, int], PartitionProduceResponse] = {}
    for topic in response.responses:
        name = topic.name or metadata.topic_names.get(bytes(topic.topic_id), "")
        for one in topic.partition_responses:
            parts[name, one.index] = one
    return parts


def explained(part: PartitionProduceResponse, batch: ProducerBatch) -> str:
    """What the broker says of a batch that it refuses."""
    where = f"{batch.topic}-{batch.partition}"
    if part.record_errors:
        first = part.record_errors[0]
        detail = first.batch_index_error_message or part.error_message or ""
        return f"{where}: record {first.batch_index} of the batch: {detail}"
    return f"{where}: {part.error_message}" if part.error_message else where


class ErrorClass(Enum):
    """What becomes of a batch that was refused."""

    SPLIT = "split"
    AGAIN = "again"
    #: Again, with a new producer id: the broker has lost track of this one.
    RENEWED = "renewed"
    OVER = "over"


def classify_error(
    batch: ProducerBatch,
    partition: PartitionQueue,
    error: KafkaError,
    transactions: Transactions | None,
    settings: ProducerSettings,
    now_ms: int,
) -> ErrorClass:
    """Decide it. The batch is still among those of its partition that are on their way."""
    code = error.code
    if transactions is not None and not transactions.sends:
        # An abort has begun: halves, or another try, would wait for a send that does not come.
        return ErrorClass.OVER
    if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE) and batch.records > 1:
        return ErrorClass.SPLIT
    retriable = code.retriable
    lost = False
    if batch.producer is not None and code in _LOST_TRACK:
        first = partition.in_flight[0] is batch and not any(one.attempts for one in partition.closed)
        if transactions is None:
            lost, retriable = first, True
        else:
            # Nothing mends it within the transaction.
            retriable = not first and code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    if retriable and now_ms < batch.deadline_ms and batch.attempts < settings.retries:
        return ErrorClass.RENEWED if lost else ErrorClass.AGAIN
    return ErrorClass.OVER


def pause_ms(batch: ProducerBatch, error: KafkaError, settings: ProducerSettings) -> int:
    """How long a batch waits before it is sent again."""
    # The end of the last transaction is short; the pause is Kafka's for its requests to the coordinator.
    ending = error.code is ErrorCode.CONCURRENT_TRANSACTIONS
    backoff = Backoff(TRANSACTION_PAUSE_MS if ending else settings.retry_backoff_ms, settings.retry_backoff_max_ms)
    backoff.attempts = batch.attempts
    return backoff.next_ms()
