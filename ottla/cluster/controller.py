"""The controller: a request on wire classes -> the records that it means, and the response.

Rules:
- It decides on one image and changes nothing. Whoever runs it appends the records, replays them into the next image,
  and lets the response leave when they are committed; then it may decide the next request.
- A whole request that fails raises KafkaError; what fails in part is in the response.
"""

from __future__ import annotations

from typing import Any

from ottla.cluster.broker import unregister_broker
from ottla.cluster.config import alter_configs, incremental_alter_configs
from ottla.cluster.creation import create_partitions, create_topics
from ottla.cluster.decision import Charge, Decision, free
from ottla.cluster.deletion import delete_topics
from ottla.cluster.directory import assign_replicas
from ottla.cluster.election import elect_leaders
from ottla.cluster.feature import update_features
from ottla.cluster.image import Image
from ottla.cluster.producer_id import allocate_producer_ids
from ottla.cluster.quota import alter_client_quotas
from ottla.cluster.reassignment import alter_reassignments, list_reassignments
from ottla.cluster.scram import alter_user_scram_credentials
from ottla.kernel.port import Rng
from ottla.kernel.server_settings import ServerSettings
from ottla.wire.api.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.api.alter_client_quotas import AlterClientQuotasRequest
from ottla.wire.api.alter_configs import AlterConfigsRequest
from ottla.wire.api.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.wire.api.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.wire.api.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.wire.api.create_partitions import CreatePartitionsRequest
from ottla.wire.api.create_topics import CreateTopicsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest
from ottla.wire.api.elect_leaders import ElectLeadersRequest
from ottla.wire.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.wire.api.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.wire.api.unregister_broker import UnregisterBrokerRequest
from ottla.wire.api.update_features import UpdateFeaturesRequest

#: A request whose version nobody named is as new as this program knows.
NEWEST = 32767


class Controller:
    """Decides for a cluster. `settings` are those of the node that it runs on; `rng` gives ids and placement."""

    def __init__(self, settings: ServerSettings, rng: Rng) -> None:
        self._settings = settings
        self._rng = rng

    def handle(self, image: Image, request: Any, version: int = NEWEST, charge: Charge = free) -> Decision:
        """What a request comes to on this image. TypeError for a request that no controller takes."""
        match request:
            case CreateTopicsRequest():
                return create_topics(image, self._settings, self._rng, request, charge)
            case DeleteTopicsRequest():
                return delete_topics(image, self._settings, request, version, charge)
            case CreatePartitionsRequest():
                return create_partitions(image, self._rng, request, charge)
            case IncrementalAlterConfigsRequest():
                return incremental_alter_configs(image, self._settings, request)
            case AlterConfigsRequest():
                return alter_configs(image, self._settings, request)
            case AllocateProducerIdsRequest():
                return allocate_producer_ids(image, request)
            case ElectLeadersRequest():
                return elect_leaders(image, request)
            case AlterPartitionReassignmentsRequest():
                return alter_reassignments(image, request)
            case ListPartitionReassignmentsRequest():
                return list_reassignments(image, request)
            case UpdateFeaturesRequest():
                return update_features(image, self._settings.node_id, request, version)
            case AlterClientQuotasRequest():
                return alter_client_quotas(image, request)
            case AlterUserScramCredentialsRequest():
                return alter_user_scram_credentials(image, request)
            case AssignReplicasToDirsRequest():
                return assign_replicas(image, request)
            case UnregisterBrokerRequest():
                return unregister_broker(image, self._settings.node_id, request)
        raise TypeError(f"the controller does not take {type(request).__name__}")
