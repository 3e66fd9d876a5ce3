"""The controller: a request on wire classes -> the records that it means, and the response.

Rules:
- It decides on one image and changes nothing. Whoever runs it appends the records, replays them into the next image,
  and lets the response leave when they are committed; then it may decide the next request.
- A whole request that fails raises KafkaError; what fails in part is in the response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.controller import broker, directory, producer_ids
from ottla.controller.decision import Decision, MutationQuota, unlimited
from ottla.kernel.lazy import LazyModule
from ottla.kernel.ports import Rng
from ottla.metadata.image import Image
from ottla.settings.server.settings import ServerSettings

if TYPE_CHECKING:
    from ottla.controller import (
        config,
        create_topics,
        delete_topics,
        election,
        quota,
        reassignment,
        scram,
        update_features,
    )
else:
    config = LazyModule("ottla.controller.config")
    create_topics = LazyModule("ottla.controller.create_topics")
    delete_topics = LazyModule("ottla.controller.delete_topics")
    election = LazyModule("ottla.controller.election")
    quota = LazyModule("ottla.controller.quota")
    reassignment = LazyModule("ottla.controller.reassignment")
    scram = LazyModule("ottla.controller.scram")
    update_features = LazyModule("ottla.controller.update_features")

#: A request whose version nobody named is as new as this program knows.
NEWEST = 32767


class Controller:
    """Decides for a cluster. `settings` are those of the node that it runs on; `rng` gives ids and placement."""

    def __init__(self, settings: ServerSettings, rng: Rng) -> None:
        self._settings = settings
        self._rng = rng
        #: The quorum's level, which is no record of the metadata (KIP-853); whoever runs it keeps it up to date.
        self.kraft_version = 1

    def handle(self, image: Image, request: Any, version: int = NEWEST, charge: MutationQuota = unlimited) -> Decision:
        """What a request comes to on this image. TypeError for a request that no controller takes."""
        match type(request).__name__:
            case "CreateTopicsRequest":
                return create_topics.create_topics(image, self._settings, self._rng, request, charge)
            case "DeleteTopicsRequest":
                return delete_topics.delete_topics(image, self._settings, request, version, charge)
            case "CreatePartitionsRequest":
                return create_topics.create_partitions(image, self._rng, request, charge)
            case "IncrementalAlterConfigsRequest":
                return config.incremental_alter_configs(image, self._settings, request)
            case "AlterConfigsRequest":
                return config.alter_configs(image, self._settings, request)
            case "AllocateProducerIdsRequest":
                return producer_ids.allocate_producer_ids(image, request)
            case "ElectLeadersRequest":
                return election.elect_leaders(image, request)
            case "AlterPartitionReassignmentsRequest":
                return reassignment.alter_reassignments(image, request)
            case "ListPartitionReassignmentsRequest":
                return reassignment.list_reassignments(image, request)
            case "UpdateFeaturesRequest":
                return update_features.update_features(image, self._settings, self.kraft_version, request, version)
            case "AlterClientQuotasRequest":
                return quota.alter_client_quotas(image, request)
            case "AlterUserScramCredentialsRequest":
                return scram.alter_user_scram_credentials(image, request)
            case "AssignReplicasToDirsRequest":
                return directory.assign_replicas(image, request)
            case "UnregisterBrokerRequest":
                return broker.unregister_broker(image, self._settings.node_id, request)
        raise TypeError(f"the controller does not take {type(request).__name__}")
