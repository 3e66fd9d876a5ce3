"""Asks leaders whether their logs still have what a consumer has read: OffsetForLeaderEpoch (KIP-320).

The fetcher decides when to ask; `position` applies the answers.

Rules:
- A broker without a version of the request for consumers (before Kafka 2.3) is not asked, and the position stands.
- Errors that fresh metadata can cure are retried; the next poll raises what the broker forbids.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from ottla.client.connection.clock import now_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.consumer.position import Doubt, PartitionPosition
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.client_error import error_of
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.wire.api import ApiKey
from ottla.wire.api.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_log = logging.getLogger("ottla.client")

#: The first version that consumers may send; earlier ones need the rights of a broker.
_FOR_CONSUMERS = 3
_CONSUMER = -1


class Validation:
    """Validates one consumer's positions. The fetcher creates it; it runs on the loop."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        positions: dict[TopicPartition, PartitionPosition],
        lock: threading.Lock,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._positions = positions
        self._lock = lock

    async def ask(self, node_id: int, doubts: Mapping[TopicPartition, Doubt]) -> bool:
        """Ask this leader about these positions and apply the answers. True if some must be asked about again."""
        timeout_ms = self._settings.request_timeout_ms
        try:
            connection = await self._cluster.node(node_id)
            if not connection.supports(ApiKey.OFFSET_FOR_LEADER_EPOCH, _FOR_CONSUMERS):
                return self._trust(doubts)
            request = OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=_topics(doubts))
            response = await connection.call(request, OffsetForLeaderEpochResponse, timeout_ms=timeout_ms)
        except KafkaError as error:
            return self._retry_later(doubts, None if error.code.retriable else error)
        except OttlaError:
            return self._retry_later(doubts, None)
        answers = {
            TopicPartition(topic.topic, result.partition): result
            for topic in response.topics
            for result in topic.partitions
        }
        left = {
            partition: doubt
            for partition, doubt in doubts.items()
            if not self._answered(partition, doubt, answers.get(partition))
        }
        return bool(left) and self._retry_later(left, None)

    def _answered(self, partition: TopicPartition, doubt: Doubt, answer: EpochEndOffset | None) -> bool:
        """Apply one partition of an answer. False if it must be asked about again."""
        if answer is None or answer.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
            return False
        policy = self._settings.auto_offset_reset
        with self._lock:
            state = self._positions.get(partition)
            if state is None or state.doubt() != doubt:
                return True
            if answer.error_code:
                state.error = error_of(answer.error_code, f"{partition}: validating offset {doubt.offset}")
                state.validate_at_ms = 0
                return True
            truncated = state.validated(doubt, answer.leader_epoch, answer.end_offset, policy)
            position = state.position
        if truncated is not None and policy != "none":
            _log.warning(
                "%s: the log was truncated below offset %d (leader epoch %d); continuing %s",
                partition,
                doubt.offset,
                doubt.epoch,
                f"by auto.offset.reset={policy}" if position is None else f"from offset {position}",
            )
        return True

    def _trust(self, doubts: Mapping[TopicPartition, Doubt]) -> bool:
        with self._lock:
            for partition, doubt in doubts.items():
                if (state := self._positions.get(partition)) is not None:
                    state.trusted(doubt)
        return False

    def _retry_later(self, doubts: Mapping[TopicPartition, Doubt], error: KafkaError | None) -> bool:
        """Schedule another try after a pause, with fresh metadata."""
        now = now_ms()
        self._cluster.metadata.request_update(now)
        with self._lock:
            for partition, doubt in doubts.items():
                state = self._positions.get(partition)
                if state is not None and state.doubt() == doubt:
                    state.validate_at_ms = now + self._settings.retry_backoff_ms
                    state.error = error or state.error
        return True


def _topics(doubts: Mapping[TopicPartition, Doubt]) -> list[OffsetForLeaderTopic]:
    topics: dict[str, OffsetForLeaderTopic] = {}
    for (topic, number), doubt in doubts.items():
        wanted = OffsetForLeaderPartition(
            partition=number, current_leader_epoch=doubt.leader_epoch, leader_epoch=doubt.epoch
        )
        topics.setdefault(topic, OffsetForLeaderTopic(topic=topic)).partitions.append(wanted)
    return list(topics.values())
