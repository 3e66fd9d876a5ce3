"""The admin calls for replicas: their placement, reassignments, and the producers that write to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.client.admin.call import by_topic, collect
from ottla.client.admin.offset import OffsetCalls
from ottla.client.admin.result import Results
from ottla.kernel.client_error import check, error_of
from ottla.kernel.error import KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import TopicPartition
from ottla.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.api.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ottla.wire.api.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from ottla.wire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)


@frozen
class Reassignment:
    """A partition being reassigned: all its current replicas, and which of them are being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@frozen
class ActiveProducer:
    """A producer that a partition remembers. `transaction_start_offset` is None without an open transaction there.

    `last_timestamp` is in ms since 1970.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


@frozen
class Replica:
    """A partition's replica on one broker."""

    topic: str
    partition: int
    broker: int


class ReplicaCalls(OffsetCalls):
    """The part of `AsyncAdmin` for replicas."""

    async def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, allow_replication_factor_change: bool = True
    ) -> Results[TopicPartition, None]:
        """Reassign partitions to these brokers; None cancels a reassignment (KIP-455)."""
        topics: dict[str, ReassignableTopic] = {}
        for (topic, number), brokers in replicas.items():
            part = ReassignablePartition(partition_index=number, replicas=None if brokers is None else list(brokers))
            topics.setdefault(topic, ReassignableTopic(name=topic)).partitions.append(part)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._settings.request_timeout_ms,
            allow_replication_factor_change=allow_replication_factor_change,
            topics=list(topics.values()),
        )
        response = await self._any(
            request,
            AlterPartitionReassignmentsResponse,
            lambda answer: check(answer.error_code, answer.error_message),
        )
        return collect(
            {
                TopicPartition(topic.name, one.partition_index): error_of(one.error_code, one.error_message)
                for topic in response.responses
                for one in topic.partitions
            },
            replicas,
        )

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The reassignments in progress, of these partitions or of all (KIP-455)."""
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
                for name, numbers in by_topic(partitions).items()
            ]
        request = ListPartitionReassignmentsRequest(timeout_ms=self._settings.request_timeout_ms, topics=topics)
        response = await self._any(
            request,
            ListPartitionReassignmentsResponse,
            lambda answer: check(answer.error_code, answer.error_message),
        )
        return {
            TopicPartition(topic.name, one.partition_index): Reassignment(
                tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
            )
            for topic in response.topics
            for one in topic.partitions
        }

    async def alter_replica_log_dirs(self, paths: Mapping[Replica, str]) -> Results[Replica, None]:
        """Move replicas to other log directories of their brokers (KIP-113)."""
        found: dict[Replica, KafkaError | None] = {}
        for broker in sorted({one.broker for one in paths}):
            dirs: dict[str, list[TopicPartition]] = {}
            for replica, path in paths.items():
                if replica.broker == broker:
                    dirs.setdefault(path, []).append(TopicPartition(replica.topic, replica.partition))
            request = AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path=path,
                        topics=[
                            AlterReplicaLogDirTopic(name=name, partitions=numbers)
                            for name, numbers in by_topic(some).items()
                        ],
                    )
                    for path, some in dirs.items()
                ]
            )
            try:
                response = await self._node(broker, request, AlterReplicaLogDirsResponse)
            except KafkaError as error:
                found.update({one: error for one in paths if one.broker == broker})
                continue
            for topic in response.results:
                for one in topic.partitions:
                    found[Replica(topic.topic_name, one.partition_index, broker)] = error_of(one.error_code)
        return collect(found, paths)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker: int | None = None
    ) -> Results[TopicPartition, tuple[ActiveProducer, ...]]:
        """The producers that wrote to these partitions recently, according to the leaders or to `broker` (KIP-664)."""

        def request(some: list[TopicPartition]) -> DescribeProducersRequest:
            return DescribeProducersRequest(
                topics=[TopicRequest(name=name, partition_indexes=numbers) for name, numbers in by_topic(some).items()]
            )

        if broker is not None:
            wanted = list(partitions)
            return collect(_producers(await self._node(broker, request(wanted), DescribeProducersResponse)), wanted)
        return await self._on_leaders(partitions, request, DescribeProducersResponse, _producers)


def _producers(
    response: DescribeProducersResponse,
) -> dict[TopicPartition, tuple[ActiveProducer, ...] | KafkaError]:
    return {
        TopicPartition(topic.name, part.partition_index): error_of(part.error_code, part.error_message)
        or tuple(
            ActiveProducer(
                one.producer_id,
                one.producer_epoch,
                one.last_sequence,
                one.last_timestamp,
                one.coordinator_epoch if one.coordinator_epoch >= 0 else None,
                one.current_txn_start_offset if one.current_txn_start_offset >= 0 else None,
            )
            for one in part.active_producers
        )
        for topic in response.topics
        for part in topic.partitions
    }
