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
            partition_data = ReassignablePartition(
                partition_index=number, replicas=None if brokers is None else list(brokers)
            )
            topics.setdefault(topic, ReassignableTopic(name=topic)).partitions.append(partition_data)
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
                TopicPartition(topic.name, partition.partition_index): error_of(
                    partition.error_code, partition.error_message
                )
                for topic in response.responses
                for partition in topic.partitions
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
            TopicPartition(topic.name, partition.partition_index): Reassignment(
                tuple(partition.replicas), tuple(partition.adding_replicas), tuple(partition.removing_replicas)
            )
            for topic in response.topics
            for partition in topic.partitions
        }

    async def alter_replica_log_dirs(self, paths: Mapping[Replica, str]) -> Results[Replica, None]:
        """Move replicas to other log directories of their brokers (KIP-113)."""

        async def ask(broker: int) -> dict[Replica, KafkaError | None]:
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
                            for name, numbers in by_topic(partitions).items()
                        ],
                    )
                    for path, partitions in dirs.items()
                ]
            )
            response = await self._node(broker, request, AlterReplicaLogDirsResponse)
            return {
                Replica(topic.topic_name, partition.partition_index, broker): error_of(partition.error_code)
                for topic in response.results
                for partition in topic.partitions
            }

        answers = await self._each(sorted({replica.broker for replica in paths}), ask)
        outcomes: dict[Replica, KafkaError | None] = {}
        for answer in answers.succeeded.values():
            outcomes.update(answer)
        for replica in paths:
            if (error := answers.errors.get(replica.broker)) is not None:
                outcomes[replica] = error
        return collect(outcomes, paths)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker: int | None = None
    ) -> Results[TopicPartition, tuple[ActiveProducer, ...]]:
        """The producers that wrote to these partitions recently, according to the leaders or to `broker` (KIP-664)."""

        def request(wanted_partitions: list[TopicPartition]) -> DescribeProducersRequest:
            return DescribeProducersRequest(
                topics=[
                    TopicRequest(name=name, partition_indexes=numbers)
                    for name, numbers in by_topic(wanted_partitions).items()
                ]
            )

        if broker is not None:
            wanted = list(partitions)
            return collect(_producers(await self._node(broker, request(wanted), DescribeProducersResponse)), wanted)
        return await self._on_leaders(partitions, request, DescribeProducersResponse, _producers)


def _producers(
    response: DescribeProducersResponse,
) -> dict[TopicPartition, tuple[ActiveProducer, ...] | KafkaError]:
    return {
        TopicPartition(topic.name, partition.partition_index): error_of(partition.error_code, partition.error_message)
        or tuple(
            ActiveProducer(
                producer.producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch if producer.coordinator_epoch >= 0 else None,
                producer.current_txn_start_offset if producer.current_txn_start_offset >= 0 else None,
            )
            for producer in partition.active_producers
        )
        for topic in response.topics
        for partition in topic.partitions
    }
