"""Metadata (key 3) and DescribeTopicPartitions (key 75): brokers, topics, partitions and their leaders.

Rules:
- A null list of topics asks for all topics; in version 0 an empty list does.
- A missing topic is created when the client allows it and `auto.create.topics.enable` is on. The response does not wait
  for it (`ottla.broker.coordinators.auto_creation`).
- Addresses are those of the client's listener.
- A response with many partitions is built while it is encoded, in steps.

KIPs: 430 authorized operations, 516 topic ids, 700 DescribeCluster, 966 paged topics, 1102 rebootstrap.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Reply, in_turns
from ottla.broker.coordinators.auto_creation import CREATING_MAX
from ottla.broker.metadata.broker_view import BrokerView
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import INTERNAL_TOPICS, NO_UUID
from ottla.kernel.topic_name import is_legal_name
from ottla.metadata.image import Image, PartitionImage, TopicImage
from ottla.wire.api import ApiKey
from ottla.wire.api import describe_topic_partitions as paged
from ottla.wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.compile import Deferred, deferred

#: A bit for each operation that Kafka's ACLs define for the resource; without an authorizer all are allowed.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
_BY_ID_FROM = 12
#: The first version whose clients know LISTENER_NOT_FOUND.
_LISTENER_ERROR_FROM = 6
_ID_FROM = 10
#: A response about more topics and partitions than this is built while it is being encoded.
_DEFERRED_FROM = 500
_TOPICS_PER_STEP = 2000
_PAGED_PER_STEP = 500


def _error_response(request: MetadataRequest, version: int, error: KafkaError) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(error_code=error.code, name=topic.name or "", topic_id=topic.topic_id)
        for topic in request.topics or ()
    ]
    return MetadataResponse(topics=topics)


@handles(ApiKey.METADATA, error_response=_error_response)
def metadata(call: Call, request: MetadataRequest) -> Reply:
    """The brokers and the requested topics."""
    if request.topics and _ID_FROM <= call.version < _BY_ID_FROM:
        _check_names(request.topics)
    if request.topics is None:
        return _answer(call, request, [])
    return in_turns(call.connection, _of_named(call, request, request.topics))


def _of_named(
    call: Call, request: MetadataRequest, topics: list[MetadataRequestTopic]
) -> Generator[None, None, MetadataResponse]:
    """The answer about these topics without duplicates. If one has an id, those that have only a name are ignored."""
    once: dict[object, MetadataRequestTopic] = {}
    by_id, creates = False, _creates(call, request)
    missing: dict[str, None] = {}
    for number, each in enumerate(topics, 1):
        by_id = by_id or (call.version >= _BY_ID_FROM and each.topic_id != NO_UUID)
        once[each.name if each.topic_id == NO_UUID else each.topic_id] = each
        if creates and len(missing) < CREATING_MAX and _is_missing(call, each):
            missing[each.name or ""] = None
        if not number % _TOPICS_PER_STEP:
            yield
    asked = [each for each in once.values() if each.topic_id != NO_UUID] if by_id else list(once.values())
    if missing and not by_id:
        call.node.auto_creation.create(missing)
    return _answer(call, request, asked)


def _creates(call: Call, request: MetadataRequest) -> bool:
    return request.allow_auto_topic_creation and call.node.settings.auto_create_topics_enable


def _is_missing(call: Call, asked: MetadataRequestTopic) -> bool:
    """Whether a topic can be created by this name, and is not there."""
    name = asked.name or ""
    return asked.topic_id == NO_UUID and name not in call.node.image.topics and is_legal_name(name)


def _answer(call: Call, request: MetadataRequest, asked: list[MetadataRequestTopic]) -> MetadataResponse:
    """The response about the distinct topics `asked`, or about all."""
    node, view = call.node, brokers_of(call)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in view.alive
        ],
        cluster_id=node.cluster_id,
        controller_id=view.any_alive_id(node.rng),
    )
    everything = request.topics is None or (call.version == 0 and not request.topics)
    if everything:
        known = node.image.topics
        counts = (len(topic.partitions) for topic in known.values())
        response.topics = _in_steps(
            call,
            len(known) + sum(counts),
            len(known),
            lambda: (_operations(request, _topic(call, view, topic)) for topic in known.values()),
        )
    else:
        counts = (_partition_count(call, each) for each in asked)
        response.topics = _in_steps(
            call,
            len(asked) + sum(counts),
            len(asked),
            lambda: (_operations(request, _requested_topic(call, view, each)) for each in asked),
        )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _in_steps(
    call: Call, elements: int, count: int, make: Callable[[], Iterator[MetadataResponseTopic]]
) -> list[MetadataResponseTopic]:
    """The topics of the response; built and encoded in steps if they have many partitions."""
    if elements <= _DEFERRED_FROM:
        return [*make()]
    call.answers_long = True
    return Deferred(count, make)


def _partition_count(call: Call, asked: MetadataRequestTopic) -> int:
    by_id = call.version >= _BY_ID_FROM and asked.topic_id != NO_UUID
    topic = call.node.image.topics.get((call.node.topic_name(asked.topic_id) if by_id else asked.name) or "")
    return 0 if topic is None else len(topic.partitions)


def brokers_of(call: Call) -> BrokerView:
    """The brokers as seen at the client's listener."""
    return call.node.brokers_at(call.connection.listener_name)


def _operations(request: MetadataRequest, topic: MetadataResponseTopic) -> MetadataResponseTopic:
    # Like Kafka, set no operations for an unknown topic id.
    if request.include_topic_authorized_operations and topic.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
        topic.topic_authorized_operations = TOPIC_OPERATIONS
    return topic


def _check_names(topics: list[MetadataRequestTopic]) -> None:
    """Reject topic ids: these versions have a field for them but do not support it."""
    if any(topic.name is None or topic.topic_id != NO_UUID for topic in topics):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topic ids are taken from version 12 on")


def _requested_topic(call: Call, view: BrokerView, asked: MetadataRequestTopic) -> MetadataResponseTopic:
    node = call.node
    if call.version >= _BY_ID_FROM and asked.topic_id != NO_UUID:
        name = node.topic_name(asked.topic_id)
        if name is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)
        return _topic(call, view, node.image.topics[name])
    name = asked.name or ""
    if not is_legal_name(name):
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=name)
    topic = node.image.topics.get(name)
    if topic is None:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name, is_internal=name in INTERNAL_TOPICS
        )
    return _topic(call, view, topic)


def _topic(call: Call, view: BrokerView, topic: TopicImage) -> MetadataResponseTopic:
    of = partial(_partition, call.node.image, view, call.version)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=deferred(
            len(topic.partitions), lambda: (of(index, each) for index, each in enumerate(topic.partitions))
        ),
    )


def _partition(
    image: Image, view: BrokerView, version: int, index: int, partition: PartitionImage
) -> MetadataResponsePartition:
    leader_id, error_code = view.leader(partition, names_listener=version >= _LISTENER_ERROR_FROM)
    replicas, isr = list(partition.replicas), list(partition.isr)
    if not version:
        # Clients of this version cannot handle replicas without an address in the response.
        replicas, isr = (
            [replica for replica in replicas if view.alive_node(replica)],
            [replica_id for replica_id in isr if view.alive_node(replica_id)],
        )
        missing = len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)
        if missing and error_code is ErrorCode.NONE:
            error_code = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        partition_index=index,
        leader_id=leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=view.offline(image, partition),
        error_code=error_code,
    )


def _page_error_response(
    request: paged.DescribeTopicPartitionsRequest, version: int, error: KafkaError
) -> paged.DescribeTopicPartitionsResponse:
    def topics() -> Iterator[paged.DescribeTopicPartitionsResponseTopic]:
        for topic in request.topics:
            yield paged.DescribeTopicPartitionsResponseTopic(error_code=error.code, name=topic.name, topic_id=NO_UUID)

    return paged.DescribeTopicPartitionsResponse(topics=deferred(len(request.topics), topics))


@handles(ApiKey.DESCRIBE_TOPIC_PARTITIONS, error_response=_page_error_response)
def describe_topic_partitions(call: Call, request: paged.DescribeTopicPartitionsRequest) -> Reply:
    """Topics in order of their names, at most `response_partition_limit` partitions per page."""
    return in_turns(call.connection, _describe_page(call, request))


def _describe_page(
    call: Call, request: paged.DescribeTopicPartitionsRequest
) -> Generator[None, None, paged.DescribeTopicPartitionsResponse]:
    image, view = call.node.image, brokers_of(call)
    cursor = request.cursor
    names = sorted({each.name for each in request.topics}) if request.topics else sorted(image.topics)
    if cursor is not None:
        if cursor.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if request.topics and cursor.topic_name not in names:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        names = [name for name in names if name >= cursor.topic_name]
    left = max(1, min(request.response_partition_limit, call.node.settings.max_request_partition_size_limit))
    response = paged.DescribeTopicPartitionsResponse()
    for number, name in enumerate(names, 1):
        if not number % _PAGED_PER_STEP:
            yield
        topic = image.topics.get(name)
        if topic is None and left <= 0:
            response.next_cursor = paged.Cursor(topic_name=name, partition_index=0)
            break
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
            response.topics.append(
                paged.DescribeTopicPartitionsResponseTopic(
                    error_code=code,
                    name=name,
                    topic_id=NO_UUID,
                    is_internal=name in INTERNAL_TOPICS,
                    topic_authorized_operations=TOPIC_OPERATIONS,
                )
            )
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if left <= 0:
            response.next_cursor = paged.Cursor(topic_name=name, partition_index=first)
            break
        # The topic may have fewer partitions than when the client got its cursor.
        first = min(first, len(topic.partitions))
        end = min(len(topic.partitions), first + left)
        response.topics.append(_page(image, view, topic, first, end))
        left -= end - first
        if end < len(topic.partitions):
            response.next_cursor = paged.Cursor(topic_name=name, partition_index=end)
            break
    return response


def _page(
    image: Image, view: BrokerView, topic: TopicImage, first: int, end: int
) -> paged.DescribeTopicPartitionsResponseTopic:
    return paged.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
        partitions=[
            paged.DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=view.leader(topic.partitions[index], names_listener=True)[0],
                leader_epoch=topic.partitions[index].leader_epoch,
                replica_nodes=list(topic.partitions[index].replicas),
                isr_nodes=list(topic.partitions[index].isr),
                offline_replicas=view.offline(image, topic.partitions[index]),
                # Empty and not null: Apache's Java Admin fails on null, which the schema allows.
                eligible_leader_replicas=list(topic.partitions[index].eligible_leader_replicas),
                last_known_elr=list(topic.partitions[index].last_known_elr),
            )
            for index in range(first, end)
        ],
    )
