"""Looks up offsets by timestamp (ListOffsets) for partitions of several leaders, some of which may be missing.

Rules:
- An attempt asks all known leaders. Partitions without a leader and unreachable brokers do not hold up the others.
- A partial attempt raises an error; `left` has the partitions for the next attempt.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.connection.cluster import Cluster
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.client_error import NotReachable, error_of
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST, LATEST = -2, -1


class OffsetLookup:
    """A lookup of several partitions; `times` are in ms, or EARLIEST or LATEST."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings, times: Mapping[TopicPartition, int]) -> None:
        self._cluster = cluster
        self._settings = settings
        self.left = {TopicPartition(*one): time for one, time in times.items()}
        #: (offset, timestamp) by partition; offset -1 if no record is at or after the time.
        self.found: dict[TopicPartition, tuple[int, int]] = {}

    async def attempt(self) -> None:
        """Look up all that can be found now; raises an error if partitions are left. For `Cluster.retry`."""
        topics = {one.topic for one in self.left}
        if any(topic not in self._cluster.metadata.topics for topic in topics):
            await self._cluster.update(topics)
        by_node, failure = self._requests()
        for node_id, asked in by_node.items():
            try:
                failure = await self._ask(node_id, asked) or failure
            except NotReachable as error:
                failure = error
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                failure = error
        if failure is not None:
            await self._cluster.update()
            raise failure

    def _requests(self) -> tuple[dict[int, dict[str, ListOffsetsTopic]], KafkaError | NotReachable | None]:
        by_node: dict[int, dict[str, ListOffsetsTopic]] = {}
        failure = None
        for one, time in self.left.items():
            leader = self._cluster.metadata.leader(*one)
            if leader is None:
                code = self._cluster.metadata.errors.get(one.topic, ErrorCode.LEADER_NOT_AVAILABLE)
                failure = KafkaError(code, f"{one} has no leader, or does not exist")
                if not code.retriable:
                    raise failure
                continue
            topics = by_node.setdefault(leader.leader, {})
            asked = ListOffsetsPartition(
                partition_index=one.partition, current_leader_epoch=leader.leader_epoch, timestamp=time
            )
            topics.setdefault(one.topic, ListOffsetsTopic(name=one.topic)).partitions.append(asked)
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
        for topic in response.topics:
            for part in topic.partitions:
                where = TopicPartition(topic.name, part.partition_index)
                if error := error_of(part.error_code, str(where)):
                    if not error.code.retriable:
                        raise error
                    failure = error
                    continue
                self.found[where] = (part.offset, part.timestamp)
                self.left.pop(where, None)
        return failure
