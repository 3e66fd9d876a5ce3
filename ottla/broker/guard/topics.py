"""Guards of requests about topics, their records and their configs.

A topic that a client may not describe is refused in the same way whether it exists or not; a request for all topics
leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

from ottla.broker.call.handler import Call, Handler
from ottla.broker.call.reply import FAILED_UNANSWERED, NO_REPLY, Later, Reply, in_turns
from ottla.broker.guard.authorizer import CODES, Authorizer
from ottla.broker.guard.parts import (
    PARTS_PER_STEP,
    amended,
    divided,
    each_amended,
    joined,
    repetitions,
    split,
    with_field,
)
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import METADATA_TOPIC, NO_UUID, Uuid
from ottla.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from ottla.net.inbound import PeerError
from ottla.raft.message import replica_id
from ottla.security.acl import CLUSTER_NAME, AclOperation, AclResource
from ottla.wire.api import ApiKey
from ottla.wire.api.create_topics import CreateTopicsRequest
from ottla.wire.api.describe_cluster import DescribeClusterRequest
from ottla.wire.api.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.wire.api.produce import ProduceRequest
from ottla.wire.batch import is_transactional
from ottla.wire.compile import deferred

_BY_ID_FROM = 12
_PRODUCE_BY_ID_FROM = 13
_DENIED = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def produce(authorizer: Authorizer, handler: Handler, call: Call, request: ProduceRequest) -> Reply:
    """Write on each topic, and on the transactional id if there are transactional batches."""
    parts = (data for topic in request.topic_data for data in topic.partition_data)
    if request.transactional_id is not None and any(is_transactional(data.records) for data in parts):
        authorizer.check(call, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, request.transactional_id)

    def may(topic: Any) -> bool:
        name = topic.name if call.version < _PRODUCE_BY_ID_FROM else call.node.topic_name(topic.topic_id)
        return name is None or authorizer.allows(call, AclOperation.WRITE, AclResource.TOPIC, name)

    if request.acks == 0:
        return in_turns(call.connection, _produce_unanswered(handler, call, request, may))
    return split(handler, call, request, "topic_data", "responses", may, _DENIED)


def _produce_unanswered(
    handler: Handler, call: Call, request: ProduceRequest, may: Callable[[Any], bool]
) -> Generator[None, None, Reply]:
    """Write what is permitted. A denial closes the connection afterwards, the only signal of it without a response."""
    kept, refused = yield from divided(call, request.topic_data, may)
    if not refused:
        return handler.function(call, request)
    reply = handler.function(call, with_field(request, "topic_data", kept)) if kept else NO_REPLY
    if not isinstance(reply, Later):
        raise PeerError(FAILED_UNANSWERED)
    later = Later(reply.superseded)
    reply.then(lambda _: call.connection.close(FAILED_UNANSWERED))
    return later


def fetch(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """ClusterAction for followers and observers; for consumers the handler checks the topic at each read."""
    if replica_id(request) >= 0 or _is_at_controller(call):
        authorizer.check(call, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)
    return handler.function(call, request)


def _is_at_controller(call: Call) -> bool:
    return call.connection.listener_name in call.node.settings.controller_listener_names


def leader_epochs(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Nodes may ask about all topics, clients about those that they may describe."""
    if authorizer.allows(call, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER, logged=False):
        return handler.function(call, request)

    def may(topic: Any) -> bool:
        return authorizer.allows(call, AclOperation.DESCRIBE, AclResource.TOPIC, topic.topic)

    return split(handler, call, request, "topics", "topics", may, _DENIED)


# ---- describing


def metadata(authorizer: Authorizer, handler: Handler, call: Call, request: MetadataRequest) -> Reply:
    """The topics that the client may describe; missing ones are created if it may create them."""
    everything = request.topics is None or (call.version == 0 and not request.topics)
    named = request.topics or ()
    if call.version < _BY_ID_FROM and any(each.name is None or each.topic_id != NO_UUID for each in named):
        # The handler refuses what the version does not have.
        return handler.function(call, request)

    by_id = call.version >= _BY_ID_FROM and any(topic.topic_id != NO_UUID for topic in named)

    def work() -> Generator[None, None, Reply]:
        if everything:
            shown: list[MetadataRequestTopic] = []
            for number, name in enumerate([*call.node.image.topics], 1):
                if authorizer.allows(call, AclOperation.DESCRIBE, AclResource.TOPIC, name, logged=False):
                    shown.append(MetadataRequestTopic(name=name))
                if not number % PARTS_PER_STEP:
                    yield
            permitted = with_field(with_field(request, "topics", shown), "allow_auto_topic_creation", False)
            reply = handler.function(call, permitted)
            return amended(reply, partial(_with_refusals, authorizer, call, request, bool(shown), False, []))
        asked = {(topic.name, topic.topic_id): topic for topic in named}.values()
        kept, refused = yield from divided(call, asked, _may_see(authorizer, call, request, by_id=by_id))
        reply = handler.function(call, with_field(request, "topics", kept))
        return amended(reply, partial(_with_refusals, authorizer, call, request, bool(kept), by_id, refused))

    return in_turns(call.connection, work())


def _may_see(authorizer: Authorizer, call: Call, request: MetadataRequest, *, by_id: bool) -> Callable[[Any], bool]:
    """Whether a topic of the request is answered: it may be described, or a missing one may be created."""
    node = call.node
    creates = request.allow_auto_topic_creation and node.settings.auto_create_topics_enable

    def may(topic: Any) -> bool:
        if by_id:
            name = node.topic_name(topic.topic_id) if topic.topic_id != NO_UUID else None
            return name is None or authorizer.allows(call, AclOperation.DESCRIBE, AclResource.TOPIC, name)
        name = topic.name or ""
        allowed = authorizer.allows(call, AclOperation.DESCRIBE, AclResource.TOPIC, name)
        if allowed and creates and name not in node.image.topics:
            return authorizer.allows(call, AclOperation.CREATE, AclResource.CLUSTER, logged=False) or authorizer.allows(
                call, AclOperation.CREATE, AclResource.TOPIC, name
            )
        return allowed

    return may


def _with_refusals(
    authorizer: Authorizer,
    call: Call,
    request: MetadataRequest,
    any_kept: bool,
    by_id: bool,
    refused: list[Any],
    response: MetadataResponse,
) -> MetadataResponse:
    """The named topics, and the denials."""
    # In version 0 an empty list would ask the handler for all topics.
    topics = response.topics if any_kept else []

    def answers() -> Iterator[MetadataResponseTopic]:
        for topic in topics:
            yield _with_operations(authorizer, call, request, topic)
        for each in refused:
            name, topic_id = (None, each.topic_id) if by_id else (each.name or "", NO_UUID)
            yield MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=topic_id)

    response.topics = deferred(len(topics) + len(refused), answers)
    return _of_cluster(authorizer, call, request, response)


def _with_operations(
    authorizer: Authorizer, call: Call, request: MetadataRequest, topic: MetadataResponseTopic
) -> MetadataResponseTopic:
    if request.include_topic_authorized_operations and topic.name is not None:
        topic.topic_authorized_operations = authorizer.operations(call, AclResource.TOPIC, topic.name)
    return topic


def _of_cluster(
    authorizer: Authorizer, call: Call, request: MetadataRequest, response: MetadataResponse
) -> MetadataResponse:
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _cluster_operations(authorizer, call)
    return response


def describe_topic_partitions(
    authorizer: Authorizer, handler: Handler, call: Call, request: DescribeTopicPartitionsRequest
) -> Reply:
    """The topics that the client may describe, as if there were no others."""
    cursor = request.cursor
    named = dict.fromkeys(each.name for each in request.topics)
    if cursor is not None and (cursor.partition_index < 0 or (named and cursor.topic_name not in named)):
        # The handler refuses the cursor.
        return handler.function(call, request)

    def work() -> Generator[None, None, Reply]:
        # As in Apache Kafka, a page has no word of the topics before it, the refused ones included.
        shown, hidden = yield from divided(
            call,
            (name for name in named or call.node.image.topics if cursor is None or name >= cursor.topic_name),
            lambda name: authorizer.allows(call, AclOperation.DESCRIBE, AclResource.TOPIC, name),
        )
        refusals = with_field(request, "topics", [TopicRequest(name=name) for name in hidden] if named else [])
        refused = handler.error_response(refusals, call.version, _DENIED)
        if not shown:
            return refused
        permitted = with_field(request, "topics", [TopicRequest(name=name) for name in shown])
        if cursor is not None and cursor.topic_name not in shown:
            permitted.cursor = None

        def amend(response: Any) -> Any:
            topics = response.topics

            def answers() -> Iterator[Any]:
                for topic in topics:
                    topic.topic_authorized_operations = authorizer.operations(call, AclResource.TOPIC, topic.name)
                    yield topic
                yield from refused.topics

            response.topics = deferred(len(topics) + len(refused.topics), answers)
            return response

        return amended(handler.function(call, permitted), amend)

    return in_turns(call.connection, work())


def describe_cluster(authorizer: Authorizer, handler: Handler, call: Call, request: DescribeClusterRequest) -> Reply:
    """Any client may see the brokers, and only Alter lets it see the controllers; the operations are its own."""
    if _is_at_controller(call):
        authorizer.check(call, AclOperation.ALTER, AclResource.CLUSTER)

    def amend(response: Any) -> Any:
        if request.include_cluster_authorized_operations and not response.error_code:
            response.cluster_authorized_operations = _cluster_operations(authorizer, call)
        return response

    return amended(handler.function(call, request), amend)


def _cluster_operations(authorizer: Authorizer, call: Call) -> int:
    """The authorized operations on the cluster; none for a client that may not describe it."""
    if not authorizer.allows(call, AclOperation.DESCRIBE, AclResource.CLUSTER):
        return 0
    return authorizer.operations(call, AclResource.CLUSTER)


# ---- changes


def create_topics(authorizer: Authorizer, handler: Handler, call: Call, request: CreateTopicsRequest) -> Reply:
    """Create on the cluster or on each topic; the response shows configs only with DescribeConfigs."""
    everywhere = authorizer.allows(call, AclOperation.CREATE, AclResource.CLUSTER, logged=False)

    # The handler refuses what is named more than once, and the quorum's own topic.
    unasked = repetitions(topic.name for topic in request.topics) | {METADATA_TOPIC}

    def may(topic: Any) -> bool:
        if everywhere or topic.name in unasked:
            return True
        return authorizer.allows(call, AclOperation.CREATE, AclResource.TOPIC, topic.name)

    def amend(response: Any) -> Any:
        for each in response.topics:
            if not each.error_code and not authorizer.allows(
                call, AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC, each.name, logged=False
            ):
                each.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                each.num_partitions = each.replication_factor = -1
                each.configs = []
        return response

    return amended(split(handler, call, request, "topics", "topics", may, _DENIED), amend)


def delete_topics(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Delete on the cluster or on each topic. A topic that the client may not describe is refused without its name."""
    if not call.node.settings.delete_topic_enable:
        # The controller refuses all topics alike. One that does delete topics has a guard of its own.
        return handler.function(call, request)
    everywhere = authorizer.allows(call, AclOperation.DELETE, AclResource.CLUSTER, logged=False)
    field = "topics" if request.topics else "topic_names"
    repeated = repetitions(_named(each) for each in getattr(request, field))

    def may(each: Any) -> bool:
        # The handler refuses what is named more than once.
        if everywhere or _named(each) in repeated:
            return True
        name = each if isinstance(each, str) else each.name or call.node.topic_name(each.topic_id)
        if name is None:
            return True
        if not authorizer.allows(call, AclOperation.DESCRIBE, AclResource.TOPIC, name):
            return False
        # A client that may describe a topic may learn that it does not exist.
        return name not in call.node.image.topics or authorizer.allows(
            call, AclOperation.DELETE, AclResource.TOPIC, name
        )

    def show(each: Any) -> None:
        if each.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and each.topic_id != NO_UUID:
            name = call.node.topic_name(each.topic_id)
            shows = name is not None and authorizer.allows(
                call, AclOperation.DESCRIBE, AclResource.TOPIC, name, logged=False
            )
            each.name = name if shows else None

    def amend(response: Any) -> Any:
        response.responses = each_amended(response.responses, show)
        return response

    return amended(split(handler, call, request, field, "responses", may, _DENIED), amend)


def _named(each: Any) -> tuple[str | None, Uuid]:
    """(name, id) of a topic to delete."""
    return (each, NO_UUID) if isinstance(each, str) else (each.name, each.topic_id)


_CONFIG_KINDS = {TOPIC: AclResource.TOPIC, GROUP: AclResource.GROUP}


def describe_configs(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """DescribeConfigs on topics, groups and, for brokers, on the cluster."""
    return _configs(authorizer, handler, call, request, AclOperation.DESCRIBE_CONFIGS, "results")


def alter_configs(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """AlterConfigs on topics, groups and, for brokers, on the cluster."""
    return _configs(authorizer, handler, call, request, AclOperation.ALTER_CONFIGS, "responses")


def _configs(
    authorizer: Authorizer, handler: Handler, call: Call, request: Any, operation: AclOperation, out: str
) -> Reply:
    """Check each resource once; the code of a denial depends on its type."""
    known = {TOPIC, GROUP, BROKER, BROKER_LOGGER, CLIENT_METRICS}
    if handler.api.key == ApiKey.ALTER_CONFIGS:
        known.remove(BROKER_LOGGER)
    repeated = repetitions((resource.resource_type, resource.resource_name) for resource in request.resources)

    def may(resource: Any) -> bool:
        kind, needed = _config_kind(resource), operation
        name = CLUSTER_NAME if kind is AclResource.CLUSTER else resource.resource_name
        if out == "responses" and resource.resource_type == BROKER_LOGGER and _is_at_controller(call):
            needed = AclOperation.CLUSTER_ACTION
        # The handler refuses other resource types, and a change that is named more than once.
        is_repeated = out == "responses" and (resource.resource_type, resource.resource_name) in repeated
        return resource.resource_type not in known or is_repeated or authorizer.allows(call, needed, kind, name)

    def work() -> Generator[None, None, Reply]:
        kept, denied = yield from divided(call, request.resources, may)
        refused: dict[AclResource, list[Any]] = {}
        for resource in denied:
            refused.setdefault(_config_kind(resource), []).append(resource)
        answers = [
            handler.error_response(with_field(request, "resources", resources), call.version, KafkaError(CODES[kind]))
            for kind, resources in refused.items()
        ]
        refusals = [denial for answer in answers for denial in getattr(answer, out)]
        if kept or not answers:
            return joined(handler, call, with_field(request, "resources", kept), out, refusals)
        return with_field(answers[0], out, refusals)

    return in_turns(call.connection, work())


def _config_kind(resource: Any) -> AclResource:
    return _CONFIG_KINDS.get(resource.resource_type, AclResource.CLUSTER)
