"""The admin calls for the cluster itself, its log directories, quorum and features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.admin.call import Calls, by_topic, collect
from ottla.client.admin.result import (
    ClusterDescription,
    Downgrade,
    FeatureLevels,
    Features,
    LogDirDescription,
    QuorumDescription,
    QuorumReplica,
    ReplicaLogDir,
    Results,
)
from ottla.client.connection.metadata import ClusterNode
from ottla.kernel.client_error import check, error_of, only
from ottla.kernel.error import KafkaError
from ottla.kernel.ids import METADATA_TOPIC, NO_UUID, TopicPartition, Uuid
from ottla.security.acl import authorized_operations
from ottla.wire.api import ApiKey
from ottla.wire.api.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
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
    ResponsePartitionData,
)
from ottla.wire.api.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.wire.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse


class ClusterCalls(Calls):
    """The part of `AsyncAdmin` for the cluster."""

    async def describe_cluster(
        self, *, include_fenced: bool = False, include_authorized_operations: bool = False
    ) -> ClusterDescription:
        """Describe the cluster: its id, controller and live brokers.

        With `include_fenced`, also the fenced brokers; with `include_authorized_operations`, also the operations that
        the principal may perform on the cluster (KIP-430).
        """
        response = await self._any(
            DescribeClusterRequest(
                include_fenced_brokers=include_fenced,
                include_cluster_authorized_operations=include_authorized_operations,
            ),
            DescribeClusterResponse,
            lambda answer: check(answer.error_code, answer.error_message),
        )
        nodes = tuple(
            ClusterNode(broker.broker_id, broker.host, broker.port, broker.rack) for broker in response.brokers
        )
        self._cluster.metadata.add_nodes(nodes)
        controller = next((node for node in nodes if node.id == response.controller_id), None)
        fenced = frozenset(broker.broker_id for broker in response.brokers if broker.is_fenced)
        ordered = tuple(sorted(nodes, key=lambda node: node.id))
        operations = authorized_operations(response.cluster_authorized_operations)
        return ClusterDescription(response.cluster_id, controller, ordered, fenced, operations)

    async def unregister_broker(self, broker: int) -> None:
        """Remove a broker that will not come back. KafkaError BROKER_ID_NOT_REGISTERED if there is no such broker."""
        await self._any(
            UnregisterBrokerRequest(broker_id=broker),
            UnregisterBrokerResponse,
            lambda answer: check(answer.error_code, answer.error_message),
        )

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, topics: Iterable[TopicPartition] | None = None
    ) -> Results[int, tuple[LogDirDescription, ...]]:
        """The log directories, with their replicas, of these brokers (default: all live brokers).

        `topics` limits the replicas to these partitions.
        """
        wanted = None
        if topics is not None:
            wanted = [
                DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in by_topic(topics).items()
            ]
        if brokers is None:
            brokers = [node.id for node in (await self.describe_cluster()).nodes]

        async def ask(broker: int) -> tuple[LogDirDescription, ...]:
            response = await self._node(
                broker,
                DescribeLogDirsRequest(topics=wanted),
                DescribeLogDirsResponse,
                lambda answer: check(answer.error_code),
            )
            return tuple(_log_dir(result) for result in response.results)

        return await self._each(brokers, ask)

    async def describe_quorum(self) -> QuorumDescription:
        """Describe the metadata quorum: its leader, voters and observers."""
        request = DescribeQuorumRequest(
            topics=[RequestTopicData(topic_name=METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)])]
        )

        def read(answer: DescribeQuorumResponse) -> None:
            check(answer.error_code, answer.error_message)
            quorum = _quorum(answer)
            check(quorum.error_code, quorum.error_message)

        response = await self._any(request, DescribeQuorumResponse, read)
        quorum = _quorum(response)
        return QuorumDescription(
            quorum.leader_id,
            quorum.leader_epoch,
            quorum.high_watermark,
            tuple(_replica(state) for state in quorum.current_voters),
            tuple(_replica(state) for state in quorum.observers),
            {
                node.node_id: tuple(f"{listener.name}://{listener.host}:{listener.port}" for listener in node.listeners)
                for node in response.nodes
            },
        )

    async def describe_features(self, node_id: int | None = None) -> Features:
        """The features that a broker (this one, or any) supports, and their finalized levels."""
        connection = await (self._cluster.any() if node_id is None else self._cluster.node(node_id))
        response = await self._on(
            connection,
            ApiVersionsRequest(client_software_name="ottla", client_software_version="admin"),
            ApiVersionsResponse,
            lambda answer: check(answer.error_code),
        )
        finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
        features = Features(
            (feature.name, FeatureLevels(finalized.get(feature.name), feature.min_version, feature.max_version))
            for feature in response.supported_features
        )
        features.epoch = response.finalized_features_epoch
        return features

    async def update_features(
        self, levels: Mapping[str, int], *, downgrade: Downgrade = Downgrade.NO, validate_only: bool = False
    ) -> Results[str, None]:
        """Set features to these levels, all or none; level 0 disables a feature. A lower level needs `downgrade`.

        With `validate_only`, only check whether that would work.
        """
        request = UpdateFeaturesRequest(
            timeout_ms=self._settings.request_timeout_ms,
            feature_updates=[
                FeatureUpdateKey(
                    feature=name,
                    max_version_level=level,
                    upgrade_type=int(downgrade),
                )
                for name, level in levels.items()
            ],
            validate_only=validate_only,
        )
        response = await self._any(request, UpdateFeaturesResponse)
        # From version 2 on there is one result for all features; before, one for each.
        error = error_of(response.error_code, response.error_message)
        outcomes: dict[str, KafkaError | None] = dict.fromkeys(levels, error)
        if error is None and response.results:
            outcomes = {
                result.feature: error_of(result.error_code, result.error_message) for result in response.results
            }
        return collect(outcomes, levels)

    async def add_raft_voter(
        self, voter: int, directory_id: Uuid, endpoints: Mapping[str, tuple[str, int]], *, cluster_id: str | None = None
    ) -> None:
        """Add a controller to the voters of the metadata quorum; `endpoints` are by listener name (KIP-853)."""
        request = AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=self._settings.request_timeout_ms,
            voter_id=voter,
            voter_directory_id=directory_id,
            listeners=[Listener(name=name, host=host, port=port) for name, (host, port) in endpoints.items()],
        )
        await self._any(request, AddRaftVoterResponse, lambda answer: check(answer.error_code, answer.error_message))

    async def remove_raft_voter(self, voter: int, directory_id: Uuid, *, cluster_id: str | None = None) -> None:
        """Remove a controller from the voters of the metadata quorum (KIP-853)."""
        request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter, voter_directory_id=directory_id)
        await self._any(request, RemoveRaftVoterResponse, lambda answer: check(answer.error_code, answer.error_message))

    async def api_versions(self) -> dict[int, dict[str, tuple[int, int]]]:
        """The (lowest, highest) request versions by live broker and by request name."""
        versions_by_node: dict[int, dict[str, tuple[int, int]]] = {}
        for node in (await self.describe_cluster()).nodes:
            connection = await self._cluster.node(node.id)
            versions_by_node[node.id] = {
                _api_name(key): versions for key, versions in sorted(connection.versions.items())
            }
        return versions_by_node


def _api_name(key: int) -> str:
    try:
        return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))
    except ValueError:
        return f"UNKNOWN({key})"


def _quorum(answer: DescribeQuorumResponse) -> ResponsePartitionData:
    return only(only(answer.topics, METADATA_TOPIC).partitions, METADATA_TOPIC)


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
            TopicPartition(topic.name, partition.partition_index),
            partition.partition_size,
            partition.offset_lag,
            partition.is_future_key,
        )
        for topic in result.topics
        for partition in topic.partitions
    )
    error = error_of(result.error_code)
    return LogDirDescription(result.log_dir, error, replicas, result.total_bytes, result.usable_bytes)
