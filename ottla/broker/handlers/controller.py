"""Requests that the controller decides: topics, partitions, configs, quotas, credentials, features, elections and
reassignments.

They go to the active controller (`ottla/broker/controllers`): by a call if it is this node, otherwise in an Envelope. A
change is in the metadata log and flushed before the response leaves; the flush does not block the loop.
`ottla.controller` deals with versions and error codes. When the metadata log cannot be written, every item of the
request gets KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later
from ottla.broker.limits.quota import Mutations
from ottla.controller.decision import RECORDS_MAX, check_count, unlimited
from ottla.kernel.error import KafkaError
from ottla.kernel.error_message import words
from ottla.kernel.lazy import LazyModule
from ottla.wire.api import ApiKey
from ottla.wire.api import create_topics as creation
from ottla.wire.compile import deferred

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

T = TypeVar("T")
R = TypeVar("R")
_ELECTION_ERROR_FROM = 1
#: The versions from which a client understands THROTTLING_QUOTA_EXCEEDED (KIP-599), by the name of the request.
_STRICT_FROM = {"CreateTopicsRequest": 6, "DeleteTopicsRequest": 5, "CreatePartitionsRequest": 3}


#: The fields with what a request changes, by the name of the request.
_CHANGES = {
    "CreateTopicsRequest": ("topics",),
    "DeleteTopicsRequest": ("topics", "topic_names"),
    "CreatePartitionsRequest": ("topics",),
    "AlterClientQuotasRequest": ("entries",),
    "AlterUserScramCredentialsRequest": ("deletions", "upsertions"),
}
#: Requests that need no record for a config that stays as it is: MirrorMaker names all topics.
_CONFIGS = ("AlterConfigsRequest", "IncrementalAlterConfigsRequest")
#: The field with the topics of a request whose partitions stand alone, by its name: it may be many batches of records.
_PARTITIONS = {"ElectLeadersRequest": "topic_partitions", "AlterPartitionReassignmentsRequest": "topics"}


def error_for_each(items: Collection[T], answer: Callable[..., R], error: KafkaError) -> list[R]:
    """The error for each item: what `answer` makes of the item, the code and the message."""
    return deferred(len(items), lambda: (answer(each, error.code, error.message or None) for each in items))


def error_for_each_resource(resources: Collection[Any], make: Callable[..., R], error: KafkaError) -> list[R]:
    """The error for each resource of AlterConfigs or IncrementalAlterConfigs; `make` is the class of its answer."""

    def answer(resource: Any, code: int, message: str | None) -> R:
        return make(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            error_code=code,
            error_message=message,
        )

    return error_for_each(resources, answer, error)


def creation_error_response(
    request: creation.CreateTopicsRequest, _: int, error: KafkaError
) -> creation.CreateTopicsResponse:
    """The error for each topic."""

    def answer(topic: creation.CreatableTopic, code: int, message: str | None) -> creation.CreatableTopicResult:
        return creation.CreatableTopicResult(name=topic.name, error_code=code, error_message=message, configs=None)

    return creation.CreateTopicsResponse(topics=error_for_each(request.topics, answer, error))


def deletion_error_response(
    request: deletion.DeleteTopicsRequest, _: int, error: KafkaError
) -> deletion.DeleteTopicsResponse:
    """The error for each topic."""

    def answer(each: deletion.DeleteTopicState | str, code: int, message: str | None) -> deletion.DeletableTopicResult:
        named = deletion.DeleteTopicState(name=each) if isinstance(each, str) else each
        return deletion.DeletableTopicResult(
            name=named.name, topic_id=named.topic_id, error_code=code, error_message=message
        )

    named = request.topics or request.topic_names
    return deletion.DeleteTopicsResponse(responses=error_for_each(named, answer, error))


def growth_error_response(
    request: partitions.CreatePartitionsRequest, _: int, error: KafkaError
) -> partitions.CreatePartitionsResponse:
    """The error for each topic."""

    def answer(
        topic: partitions.CreatePartitionsTopic, code: int, message: str | None
    ) -> partitions.CreatePartitionsTopicResult:
        return partitions.CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)

    return partitions.CreatePartitionsResponse(results=error_for_each(request.topics, answer, error))


def change_error_response(
    request: configs.AlterConfigsRequest, _: int, error: KafkaError
) -> configs.AlterConfigsResponse:
    """The error for each resource."""
    responses = error_for_each_resource(request.resources, configs.AlterConfigsResourceResponse, error)
    return configs.AlterConfigsResponse(responses=responses)


def quotas_error_response(request: quotas.AlterClientQuotasRequest, _: int, error: KafkaError) -> Any:
    """The error for each entity."""

    def answer(entry: quotas.RequestEntryData, code: int, message: str | None) -> quotas.ResponseEntryData:
        return quotas.ResponseEntryData(error_code=code, error_message=message, entity=list(entry.entity))

    return quotas.AlterClientQuotasResponse(entries=error_for_each(request.entries, answer, error))


def credentials_error_response(request: scram.AlterUserScramCredentialsRequest, _: int, error: KafkaError) -> Any:
    """The error for each user."""

    def answer(user: str, code: int, message: str | None) -> scram.AlterUserScramCredentialsResult:
        return scram.AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)

    users = dict.fromkeys([each.name for some in (request.deletions, request.upsertions) for each in some])
    return scram.AlterUserScramCredentialsResponse(results=error_for_each(users, answer, error))


def election_error_response(request: election.ElectLeadersRequest, version: int, error: KafkaError) -> Any:
    """The error for each partition."""

    def answer(index: int, code: int, _: str | None) -> election.PartitionResult:
        return election.PartitionResult(partition_id=index, error_code=code, error_message=words(error))

    def answers(topic: election.TopicPartitions, _: int, __: str | None) -> election.ReplicaElectionResult:
        results = error_for_each(topic.partitions, answer, error)
        return election.ReplicaElectionResult(topic=topic.topic, partition_result=results)

    return election.ElectLeadersResponse(
        error_code=error.code if version >= _ELECTION_ERROR_FROM else 0,
        replica_election_results=error_for_each(request.topic_partitions or (), answers, error),
    )


def check_changes(call: Call, request: Any) -> None:
    """Raise POLICY_VIOLATION if a request asks for more than a batch may have records: it is decided in one step.

    One that need not have a record for each, or may have several batches, may name as many as there are.
    """
    name = type(request).__name__
    for field in _CHANGES.get(name, ()):
        check_count(len(getattr(request, field)))
    if name in _CONFIGS:
        if len(request.resources) > RECORDS_MAX:
            check_count(len(request.resources), max(RECORDS_MAX, len(call.node.image.topics)))
        check_count(max((len(each.configs) for each in request.resources), default=0))
    elif name == "AlterClientQuotasRequest":
        check_count(max((len(each.ops) for each in request.entries), default=0))
        # An entity has at most two parts.
        check_count(sum(len(each.entity) for each in request.entries) // 2)
    elif name in _PARTITIONS:
        named = sum(len(topic.partitions) or 1 for topic in getattr(request, _PARTITIONS[name]) or ())
        if named > RECORDS_MAX:
            known = sum(len(topic.partitions) for topic in call.node.image.topics.values())
            check_count(named, max(RECORDS_MAX, known))


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
    check_changes(call, request)
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
