"""The admin calls for topics and partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.client.admin.call import Calls, by_topic, collect
from ottla.client.admin.result import (
    ConfigValue,
    CreatedTopic,
    NewTopic,
    PartitionDescription,
    Results,
    TopicDescription,
    TopicListing,
)
from ottla.client.connection.clock import now_ms
from ottla.client.connection.connection import BrokerConnection
from ottla.client.connection.metadata import ClusterNode
from ottla.kernel.argument import config_texts
from ottla.kernel.client_error import check, error_of
from ottla.kernel.error import KafkaError
from ottla.kernel.ids import NO_UUID, TopicPartition, Uuid
from ottla.security.acl import authorized_operations
from ottla.wire.api import ApiKey
from ottla.wire.api.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.wire.api.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from ottla.wire.api.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.wire.api.elect_leaders import TopicPartitions as ElectedTopic
from ottla.wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

#: Partitions per page of a topic description (Apache's brokers return at most 2,000).
_PAGE_PARTITIONS = 2000


class TopicCalls(Calls):
    """The part of `AsyncAdmin` for topics."""

    async def list_topics(self, *, internal: bool = False) -> list[TopicListing]:
        """All topics that this client may see, sorted by name; with `internal`, Kafka's internal topics as well."""
        response = await self._metadata(None)
        listings = [
            TopicListing(topic.name, Uuid(bytes(topic.topic_id)), topic.is_internal)
            for topic in response.topics
            if topic.name is not None and (internal or not topic.is_internal)
        ]
        return sorted(listings, key=lambda topic: topic.name)

    async def describe_topics(
        self, names: Iterable[str], *, include_authorized_operations: bool = False
    ) -> Results[str, TopicDescription]:
        """Describe topics: their partitions with leaders, replicas and in-sync replicas.

        With `include_authorized_operations`, also the operations that the principal may perform on each (KIP-430).
        """
        with_operations = include_authorized_operations

        async def attempt(left: list[str]) -> dict[str, TopicDescription | KafkaError]:
            connection = await self._cluster.any()
            if connection.supports(ApiKey.DESCRIBE_TOPIC_PARTITIONS):
                return await self._paged(connection, left, with_operations=with_operations)
            response = await self._metadata(left, with_operations=with_operations)
            return {topic.name: self._described(topic) for topic in response.topics if topic.name is not None}

        return await self._with_retries(names, attempt)

    async def describe_topic(self, name: str, *, include_authorized_operations: bool = False) -> TopicDescription:
        """Describe a single topic. KafkaError UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""
        return (await self.describe_topics([name], include_authorized_operations=include_authorized_operations))[name]

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> Results[str, CreatedTopic]:
        """Create topics; with `validate_only`, only check whether that would work."""
        wanted = {topic.name: topic for topic in topics}

        async def attempt(left: list[str]) -> dict[str, CreatedTopic | KafkaError]:
            request = CreateTopicsRequest(
                topics=[_creatable(wanted[name]) for name in left],
                timeout_ms=self._settings.request_timeout_ms,
                validate_only=validate_only,
            )
            response = await self._any(request, CreateTopicsResponse)
            return {topic.name: _created(topic) for topic in response.topics}

        results = await self._with_retries(wanted, attempt)
        if not validate_only:
            self._cluster.metadata.request_update(now_ms())
        return results

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, ConfigValue] | None = None,
        *,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Create a topic. -1 means the broker's default; values of `configs` are text, numbers, booleans or lists.

        With `validate_only`, only check whether that would work. KafkaError TOPIC_ALREADY_EXISTS,
        INVALID_TOPIC_EXCEPTION, INVALID_CONFIG and others.
        """
        topic = NewTopic(name, partitions, replication_factor, configs or {})
        return (await self.create_topics([topic], validate_only=validate_only))[name]

    async def delete_topics(self, names: Iterable[str]) -> Results[str, None]:
        """Delete topics with all their records. UNKNOWN_TOPIC_OR_PARTITION for each that does not exist."""

        async def attempt(left: list[str]) -> dict[str, KafkaError | None]:
            connection = await self._cluster.any()
            timeout_ms = self._settings.request_timeout_ms
            if connection.supports(ApiKey.DELETE_TOPICS, 6):
                request = DeleteTopicsRequest(
                    topics=[DeleteTopicState(name=name) for name in left], timeout_ms=timeout_ms
                )
            else:
                request = DeleteTopicsRequest(topic_names=left, timeout_ms=timeout_ms)
            response = await self._on(connection, request, DeleteTopicsResponse)
            return {
                result.name or "": error_of(result.error_code, result.error_message) for result in response.responses
            }

        return await self._with_retries(names, attempt)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records. KafkaError UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""
        (await self.delete_topics([name])).check()

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
    ) -> Results[str, None]:
        """Add partitions to topics: `counts` are the new totals, `assignments` the replicas of each new partition.

        With `validate_only`, only check whether that would work.
        """

        async def attempt(left: list[str]) -> dict[str, KafkaError | None]:
            topics = [
                CreatePartitionsTopic(
                    name=name,
                    count=counts[name],
                    assignments=[CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assignments[name]]
                    if assignments and name in assignments
                    else None,
                )
                for name in left
            ]
            request = CreatePartitionsRequest(
                topics=topics, timeout_ms=self._settings.request_timeout_ms, validate_only=validate_only
            )
            response = await self._any(request, CreatePartitionsResponse)
            return {result.name: error_of(result.error_code, result.error_message) for result in response.results}

        results = await self._with_retries(counts, attempt)
        self._cluster.metadata.request_update(now_ms())
        return results

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> Results[TopicPartition, None]:
        """Elect the preferred replica of these partitions (default: all) as leader; with `unclean`, any live
        replica.
        """
        topics, wanted = None, list(partitions or ())
        if partitions is not None:
            topics = [ElectedTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(wanted).items()]
        request = ElectLeadersRequest(
            election_type=int(unclean), topic_partitions=topics, timeout_ms=self._settings.request_timeout_ms
        )
        response = await self._any(request, ElectLeadersResponse, lambda answer: check(answer.error_code))
        outcomes: dict[TopicPartition, KafkaError | None] = {}
        for topic in response.replica_election_results:
            for result in topic.partition_result:
                partition = TopicPartition(topic.topic, result.partition_id)
                outcomes[partition] = error_of(result.error_code, result.error_message)
        return collect(outcomes, wanted)

    async def _metadata(self, names: list[str] | None, *, with_operations: bool = False) -> MetadataResponse:
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=with_operations,
        )
        response = await self._any(request, MetadataResponse)
        self._cluster.metadata.add_nodes(
            ClusterNode(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers
        )
        return response

    async def _paged(
        self, connection: BrokerConnection, names: list[str], *, with_operations: bool
    ) -> dict[str, TopicDescription | KafkaError]:
        await self._cluster.update()
        pages_by_topic: dict[str, list[DescribeTopicPartitionsResponseTopic]] = {}
        cursor: Cursor | None = None
        while True:
            request = DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=name) for name in sorted(names)],
                response_partition_limit=_PAGE_PARTITIONS,
                cursor=cursor,
            )
            response = await self._on(connection, request, DescribeTopicPartitionsResponse)
            for topic in response.topics:
                pages_by_topic.setdefault(topic.name or "", []).append(topic)
            cursor = response.next_cursor
            if cursor is None:
                return {
                    name: self._from_pages(pages, with_operations=with_operations)
                    for name, pages in pages_by_topic.items()
                }

    def _from_pages(
        self, pages: list[DescribeTopicPartitionsResponseTopic], *, with_operations: bool
    ) -> TopicDescription | KafkaError:
        first = pages[0]
        if error := error_of(first.error_code, f"topic {first.name}"):
            return error
        partitions = [
            self._partition(
                data, self._nodes(data.eligible_leader_replicas or ()), self._nodes(data.last_known_elr or ())
            )
            for page in pages
            for data in page.partitions
        ]
        partitions.sort(key=lambda partition: partition.partition)
        # This API always returns them.
        operations = authorized_operations(first.topic_authorized_operations) if with_operations else None
        name, topic_id = first.name or "", Uuid(bytes(first.topic_id))
        return TopicDescription(name, topic_id, first.is_internal, tuple(partitions), operations)

    def _described(self, topic: MetadataResponseTopic) -> TopicDescription | KafkaError:
        if error := error_of(topic.error_code, f"topic {topic.name}"):
            return error
        partitions = [self._partition(data) for data in sorted(topic.partitions, key=lambda data: data.partition_index)]
        operations = authorized_operations(topic.topic_authorized_operations)
        name, topic_id = topic.name or "", Uuid(bytes(topic.topic_id))
        return TopicDescription(name, topic_id, topic.is_internal, tuple(partitions), operations)

    def _partition(
        self,
        data: MetadataResponsePartition | DescribeTopicPartitionsResponsePartition,
        elr: tuple[ClusterNode, ...] | None = None,
        last_known_elr: tuple[ClusterNode, ...] | None = None,
    ) -> PartitionDescription:
        return PartitionDescription(
            data.partition_index,
            self._node_or_unknown(data.leader_id) if data.leader_id >= 0 else None,
            data.leader_epoch,
            self._nodes(data.replica_nodes),
            self._nodes(data.isr_nodes),
            self._nodes(data.offline_replicas),
            elr,
            last_known_elr,
        )

    def _nodes(self, ids: Iterable[int]) -> tuple[ClusterNode, ...]:
        return tuple(self._node_or_unknown(node_id) for node_id in ids)


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = topic.assignments or {}
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assignments else topic.partitions,
        replication_factor=-1 if assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(ids))
            for partition, ids in assignments.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in config_texts(topic.configs).items()],
    )


def _created(topic: CreatableTopicResult) -> CreatedTopic | KafkaError:
    if error := error_of(topic.error_code, topic.error_message):
        return error
    configs = {config.name: config.value for config in topic.configs or ()}
    return CreatedTopic(
        topic.name, Uuid(bytes(topic.topic_id or NO_UUID)), topic.num_partitions, topic.replication_factor, configs
    )
