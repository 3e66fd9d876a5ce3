"""The cluster itself, its log directories, quorum and features: the admin calls about them."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.admin.call import Calls, by_topic, collect
from ottla.client.admin.result import (
    ClusterDescription,
    FeatureLevels,
    LogDirDescription,
    QuorumDescription,
    QuorumReplica,
    ReplicaLogDir,
    Results,
)
from ottla.client.error import check, error_of
from ottla.client.metadata import Node
from ottla.kernel.error import KafkaError
from ottla.kernel.name import METADATA_TOPIC, NO_UUID, TopicPartition, Uuid
from ottla.wire.api import ApiKey
from ottla.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.api.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from ottla.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaState,
    RequestPartitionData,
    RequestTopicData,
)


class ClusterCalls(Calls):
    """The part of `AsyncAdmin` about the cluster."""

    async def describe_cluster(self) -> ClusterDescription:
        """Cluster id and live brokers."""
        response = await self._any(
            DescribeClusterRequest(),
            DescribeClusterResponse,
            lambda answer: check(answer.error_code, answer.error_message),
        )
        nodes = tuple(Node(one.broker_id, one.host, one.port, one.rack) for one in response.brokers)
        self._cluster.metadata.add_nodes(nodes)
        controller = next((node for node in nodes if node.id == response.controller_id), None)
        return ClusterDescription(response.cluster_id, controller, tuple(sorted(nodes, key=lambda node: node.id)))

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, topics: Iterable[TopicPartition] | None = None
    ) -> Results[int, tuple[LogDirDescription, ...]]:
        """By broker (all live ones when none are named) its log directories with the replicas in them."""
        wanted = None
        if topics is not None:
            wanted = [
                DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in by_topic(topics).items()
            ]
        if brokers is None:
            brokers = [node.id for node in (await self.describe_cluster()).nodes]
        found: dict[int, tuple[LogDirDescription, ...] | KafkaError] = {}
        for broker in brokers:
            try:
                response = await self._node(
                    broker,
                    DescribeLogDirsRequest(topics=wanted),
                    DescribeLogDirsResponse,
                    lambda answer: check(answer.error_code),
                )
                found[broker] = tuple(_log_dir(one) for one in response.results)
            except KafkaError as error:
                found[broker] = error
        return collect(found)

    async def describe_quorum(self) -> QuorumDescription:
        """Leader, voters and observers of the metadata quorum."""
        request = DescribeQuorumRequest(
            topics=[RequestTopicData(topic_name=METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)])]
        )

        def read(answer: DescribeQuorumResponse) -> None:
            check(answer.error_code, answer.error_message)
            check(answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].error_message)

        response = await self._any(request, DescribeQuorumResponse, read)
        one = response.topics[0].partitions[0]
        return QuorumDescription(
            one.leader_id,
            one.leader_epoch,
            one.high_watermark,
            tuple(_replica(state) for state in one.current_voters),
            tuple(_replica(state) for state in one.observers),
        )

    async def describe_features(self) -> dict[str, FeatureLevels]:
        """The features that a broker supports, with their finalized levels."""
        connection = await self._cluster.any()
        response = await self._on(
            connection,
            ApiVersionsRequest(client_software_name="ottla", client_software_version="admin"),
            ApiVersionsResponse,
            lambda answer: check(answer.error_code),
        )
        finalized = {one.name: one.max_version_level for one in response.finalized_features}
        return {
            one.name: FeatureLevels(finalized.get(one.name), one.min_version, one.max_version)
            for one in response.supported_features
        }

    async def api_versions(self) -> dict[int, dict[str, tuple[int, int]]]:
        """By live broker the request versions that it takes, lowest and highest, by name."""
        found: dict[int, dict[str, tuple[int, int]]] = {}
        for node in (await self.describe_cluster()).nodes:
            connection = await self._cluster.node(node.id)
            found[node.id] = {_api_name(key): versions for key, versions in sorted(connection.versions.items())}
        return found


def _api_name(key: int) -> str:
    try:
        return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))
    except ValueError:
        return f"UNKNOWN({key})"


def _replica(state: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        Uuid(bytes(state.replica_directory_id or NO_UUID)),
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )


def _log_dir(result: DescribeLogDirsResult) -> LogDirDescription:
    replicas = tuple(
        ReplicaLogDir(
            TopicPartition(topic.name, one.partition_index), one.partition_size, one.offset_lag, one.is_future_key
        )
        for topic in result.topics
        for one in topic.partitions
    )
    error = error_of(result.error_code)
    return LogDirDescription(result.log_dir, error, replicas, result.total_bytes, result.usable_bytes)
