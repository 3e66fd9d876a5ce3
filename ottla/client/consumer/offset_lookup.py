"""Looks up offsets by timestamp (ListOffsets) for partitions of several leaders, some of which may be missing.

Rules:
- An attempt asks all known leaders at once. Partitions without a leader, and brokers that cannot be reached or do not
  answer, do not hold up the others.
- A partial attempt raises an error; `left` has the partitions for the next attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from ottla.client.connection.cluster import Cluster
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.client_error import NotReachable, ServerFault, error_of
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_log = logging.getLogger("ottla.client")

EARLIEST, LATEST = -2, -1
#: Callback for a found offset; -1 if no record is at or after the time.
OnFound = Callable[[TopicPartition, int], None]


class OffsetLookup:
    """A lookup of several partitions; `times` are in ms, or EARLIEST or LATEST."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        times: Mapping[TopicPartition, int],
        on_found: OnFound | None = None,
    ) -> None:
        self._cluster = cluster
        self._on_found = on_found
        self._settings = settings
        self.left = {TopicPartition(*partition): time for partition, time in times.items()}
        #: (offset, timestamp) by partition; offset -1 if no record is at or after the time.
        self.found: dict[TopicPartition, tuple[int, int]] = {}

    async def attempt(self) -> None:
        """Look up all that can be found now; raises an error if partitions are left. For `Cluster.retry`."""
        topics = {partition.topic for partition in self.left}
        if any(topic not in self._cluster.metadata.topics for topic in topics):
            await self._cluster.update(topics)
        by_node, failure = self._requests()
        asks = (self._ask(node_id, topics_of_node) for node_id, topics_of_node in by_node.items())
        for outcome in await asyncio.gather(*asks, return_exceptions=True):
            if isinstance(outcome, NotReachable) or (isinstance(outcome, KafkaError) and outcome.retriable):
                failure = outcome
            elif outcome is not None:
                raise outcome
        if failure is not None:
            await self._cluster.update()
            raise failure

    def _requests(self) -> tuple[dict[int, dict[str, ListOffsetsTopic]], KafkaError | NotReachable | None]:
        by_node: dict[int, dict[str, ListOffsetsTopic]] = {}
        failure = None
        for partition, time in self.left.items():
            leader = self._cluster.metadata.leader(*partition)
            if leader is None:
                code = self._cluster.metadata.errors.get(partition.topic, ErrorCode.LEADER_NOT_AVAILABLE)
                failure = KafkaError(code, f"{partition} has no leader, or does not exist")
                if not code.retriable:
                    raise failure
                continue
            topics = by_node.setdefault(leader.leader, {})
            wanted = ListOffsetsPartition(
                partition_index=partition.partition, current_leader_epoch=leader.leader_epoch, timestamp=time
            )
            topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic)).partitions.append(wanted)
        return by_node, failure

    async def _ask(self, node_id: int, topics: Mapping[str, ListOffsetsTopic]) -> KafkaError | None:
        """Ask one broker. Returns a retriable error of one of its partitions, if any."""
        timeout_ms = self._settings.request_timeout_ms
        connection = await self._cluster.node(node_id)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(self._settings.read_committed),
            topics=list(topics.values()),
            timeout_ms=timeout_ms,
        )
        response = await connection.call(request, ListOffsetsResponse, timeout_ms=timeout_ms)
        failure = None
        unmentioned = {
            TopicPartition(topic.name, asked.partition_index) for topic in topics.values() for asked in topic.partitions
        }
        for topic in response.topics:
            for result in topic.partitions:
                topic_partition = TopicPartition(topic.name, result.partition_index)
                unmentioned.discard(topic_partition)
                if error := self._error(topic_partition, result.error_code):
                    if not error.retriable:
                        raise error
                    failure = error
                    continue
                if self.left.pop(topic_partition, None) is None:
                    continue
                found = (-1, -1) if result.error_code else (result.offset, result.timestamp)
                self.found[topic_partition] = found
                if self._on_found is not None:
                    self._on_found(topic_partition, found[0])
        if unmentioned:
            why = f"the broker's answer lacks the offset of {min(unmentioned)}"
            return KafkaError(ErrorCode.NETWORK_EXCEPTION, why)
        return failure

    @staticmethod
    def _error(partition: TopicPartition, code: int) -> KafkaError | None:
        if code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
            # The log is older than timestamps: no record is at or after the time.
            return None
        error = error_of(code, str(partition))
        if error is not None and error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
            _log.warning("%s: the broker failed to look up an offset and does not say why; asking again", partition)
            return ServerFault(error.message)
        return error
