"""Requests that the controller decides: topics, partitions, configs, quotas, credentials, features, elections and
reassignments.

They go to the active controller (`ottla/broker/controllers`): by a call if it is this node, otherwise in an Envelope. A
change is in the metadata log and flushed before the response leaves; the flush does not block the loop.
`ottla.controller` deals with versions and error codes. When the metadata log cannot be written, every item of the
request gets KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later
from ottla.broker.limits.quota import Mutations
from ottla.controller.decision import unlimited
from ottla.kernel.error import KafkaError
from ottla.kernel.error_message import words
from ottla.kernel.lazy import LazyModule
from ottla.wire.api import ApiKey
from ottla.wire.api import create_topics as creation

if TYPE_CHECKING:
    from ottla.wire.api import alter_client_quotas as quotas
    from ottla.wire.api import alter_configs as configs
    from ottla.wire.api import alter_user_scram_credentials as scram
    from ottla.wire.api import create_partitions as partitions
    from ottla.wire.api import delete_topics as deletion
    from ottla.wire.api import elect_leaders as election
else:
    # The first request here creates a topic, with clients waiting for it.
    quotas = LazyModule("ottla.wire.api.alter_client_quotas")
    configs = LazyModule("ottla.wire.api.alter_configs")
    scram = LazyModule("ottla.wire.api.alter_user_scram_credentials")
    partitions = LazyModule("ottla.wire.api.create_partitions")
    deletion = LazyModule("ottla.wire.api.delete_topics")
    election = LazyModule("ottla.wire.api.elect_leaders")

_ELECTION_ERROR_FROM = 1
#: The versions from which a client understands THROTTLING_QUOTA_EXCEEDED (KIP-599), by the name of the request.
_STRICT_FROM = {"CreateTopicsRequest": 6, "DeleteTopicsRequest": 5, "CreatePartitionsRequest": 3}


def creation_error_response(
    request: creation.CreateTopicsRequest, _: int, error: KafkaError
) -> creation.CreateTopicsResponse:
    """The error for each topic."""
    return creation.CreateTopicsResponse(
        topics=[
            creation.CreatableTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message or None, configs=None
            )
            for topic in request.topics
        ]
    )


def deletion_error_response(
    request: deletion.DeleteTopicsRequest, _: int, error: KafkaError
) -> deletion.DeleteTopicsResponse:
    """The error for each topic."""
    named = request.topics or [deletion.DeleteTopicState(name=name) for name in request.topic_names]
    return deletion.DeleteTopicsResponse(
        responses=[
            deletion.DeletableTopicResult(
                name=each.name, topic_id=each.topic_id, error_code=error.code, error_message=error.message or None
            )
            for each in named
        ]
    )


def growth_error_response(
    request: partitions.CreatePartitionsRequest, _: int, error: KafkaError
) -> partitions.CreatePartitionsResponse:
    """The error for each topic."""
    return partitions.CreatePartitionsResponse(
        results=[
            partitions.CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message or None
            )
            for topic in request.topics
        ]
    )


def change_error_response(
    request: configs.AlterConfigsRequest, _: int, error: KafkaError
) -> configs.AlterConfigsResponse:
    """The error for each resource."""
    return configs.AlterConfigsResponse(
        responses=[
            configs.AlterConfigsResourceResponse(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                error_code=error.code,
                error_message=error.message or None,
            )
            for resource in request.resources
        ]
    )


def quotas_error_response(request: quotas.AlterClientQuotasRequest, _: int, error: KafkaError) -> Any:
    """The error for each entity."""
    return quotas.AlterClientQuotasResponse(
        entries=[
            quotas.ResponseEntryData(
                error_code=error.code, error_message=error.message or None, entity=list(entry.entity)
            )
            for entry in request.entries
        ]
    )


def credentials_error_response(request: scram.AlterUserScramCredentialsRequest, _: int, error: KafkaError) -> Any:
    """The error for each user."""
    users = dict.fromkeys(
        [each.name for each in request.deletions] + [upsertion.name for upsertion in request.upsertions]
    )
    return scram.AlterUserScramCredentialsResponse(
        results=[
            scram.AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message or None)
            for user in users
        ]
    )


def election_error_response(request: election.ElectLeadersRequest, version: int, error: KafkaError) -> Any:
    """The error for each partition."""
    results = [
        election.ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                election.PartitionResult(partition_id=index, error_code=error.code, error_message=words(error))
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    return election.ElectLeadersResponse(
        error_code=error.code if version >= _ELECTION_ERROR_FROM else 0, replica_election_results=results
    )


def mutations_of(call: Call, request: Any) -> Mutations | None:
    """The quota that counts the partitions a request creates and deletes, or None if no quota applies."""
    node = call.node
    strict_from = _STRICT_FROM.get(type(request).__name__) if node.quotas.active else None
    if strict_from is None:
        return None
    strict = call.version >= strict_from
    return node.quotas.mutations(call.user, call.client_id, node.clock.monotonic_ms(), strict=strict)


@handles(ApiKey.CREATE_TOPICS, error_response=creation_error_response)
@handles(ApiKey.DELETE_TOPICS, error_response=deletion_error_response)
@handles(ApiKey.CREATE_PARTITIONS, error_response=growth_error_response)
@handles(ApiKey.ALTER_CLIENT_QUOTAS, error_response=quotas_error_response)
@handles(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, error_response=credentials_error_response)
@handles(ApiKey.UNREGISTER_BROKER)
@handles(ApiKey.ELECT_LEADERS, error_response=election_error_response)
@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS)
@handles(ApiKey.UPDATE_FEATURES)
def decide(call: Call, request: Any) -> Later:
    """Pass the request to the active controller, and answer once the created topics can be used here."""
    node, later = call.node, Later()
    mutations = mutations_of(call, request)

    def committed(response: Any) -> None:
        if mutations is not None and not isinstance(response, KafkaError):
            # Another node's controller puts the throttle time it charged into its response.
            response.throttle_time_ms = max(mutations.throttle_ms, response.throttle_time_ms)
        if isinstance(response, creation.CreateTopicsResponse):
            results: Any = response.topics
        elif isinstance(response, partitions.CreatePartitionsResponse):
            results = response.results
        else:
            return later.resolve(response)
        node.leadership.on_created([result.name for result in results], lambda: later.resolve(response))

    node.controllers.forward(call, request, committed, unlimited if mutations is None else mutations.charge)
    return later
