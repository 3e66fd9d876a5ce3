"""Hanging transactions: open in a partition for longer than allowed, and unknown to their coordinator (KIP-664).

A read_committed consumer stops before such a transaction; `admin.abort_transaction(partition, start)` ends it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client import Admin, TopicPartition
    from ottla.client.admin.replica import ActiveProducer
    from ottla.client.admin.transaction import TransactionDescription

#: Partitions whose producers are asked for at once.
_BATCH = 500


class SearchFailed(KafkaError):
    """A failed call of the search; `doing` says which."""

    def __init__(self, doing: str, error: KafkaError) -> None:
        super().__init__(error.code, f"cannot {doing}: {error.message or error.code.name}")
        self.doing, self.error = doing, error


def find_hanging(
    ask: Admin,
    topic: str | None = None,
    *,
    longer_than_ms: int,
    partition: int | None = None,
    broker: int | None = None,
) -> list[tuple[TopicPartition, ActiveProducer]]:
    """Return (partition, producer) of each hanging transaction in a partition, in a topic, on a broker, or anywhere.

    Raises SearchFailed.
    """
    candidates: list[tuple[TopicPartition, ActiveProducer]] = []
    partitions = _partitions(ask, topic, partition, broker)
    latest = time.time_ns() // 1_000_000 - longer_than_ms
    for first in range(0, len(partitions), _BATCH):
        batch = partitions[first : first + _BATCH]
        try:
            described = ask.describe_producers(batch, broker=broker).check()
        except KafkaError as error:
            raise SearchFailed(f"describe producers for {len(batch)} partitions", error) from error
        candidates += [
            (tp, producer)
            for tp, producers in described.items()
            for producer in producers
            if producer.transaction_start_offset is not None and producer.last_timestamp < latest
        ]
    if not candidates:
        return []
    known = _transactions_of(ask, {producer.producer_id for _, producer in candidates})
    return [
        (tp, producer)
        for tp, producer in candidates
        if producer.producer_id not in known or tp not in known[producer.producer_id].partitions
    ]


def _partitions(ask: Admin, topic: str | None, partition: int | None, broker: int | None) -> list[TopicPartition]:
    from ottla.client import TopicPartition

    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    names = [listing.name for listing in ask.list_topics(internal=True)] if topic is None else [topic]
    try:
        topics = ask.describe_topics(names).check()
    except KafkaError as error:
        raise SearchFailed(f"describe {len(names)} topics", error) from error
    return [
        TopicPartition(name, description.partition)
        for name, described in topics.items()
        for description in described.partitions
        if broker is None or any(node.id == broker for node in description.replicas)
    ]


def _transactions_of(ask: Admin, producer_ids: set[int]) -> dict[int, TransactionDescription]:
    """Return producer id -> the transaction that its coordinator knows."""
    try:
        listed = ask.list_transactions(producer_ids=producer_ids)
    except KafkaError as error:
        raise SearchFailed(f"list transactions for {len(producer_ids)} producers", error) from error
    described = ask.describe_transactions(listing.transactional_id for listing in listed)
    for failure in described.errors.values():
        if failure.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise SearchFailed(f"describe {len(listed)} transactions", failure)
    return {
        listing.producer_id: described[listing.transactional_id]
        for listing in listed
        if listing.transactional_id in described.succeeded
    }
