"""Guards of requests about transactions and producer ids."""

from __future__ import annotations

from typing import Any

from ottla.broker.call.handler import Call, Handler
from ottla.broker.call.reply import Reply
from ottla.broker.guard.authorizer import Authorizer
from ottla.broker.guard.parts import amended, split
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import INTERNAL_TOPICS
from ottla.security.acl import AclOperation, AclResource
from ottla.wire.api import add_partitions_to_txn as add

_BATCHED_FROM = 4


def init_producer_id(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Write on the transactional id; without one, IdempotentWrite on the cluster or Write on any topic."""
    name = request.transactional_id
    if name is not None:
        authorizer.check(call, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, name)
        if getattr(request, "enable2_pc", False):
            authorizer.check(call, AclOperation.TWO_PHASE_COMMIT, AclResource.TRANSACTIONAL_ID, name)
    elif not authorizer.allows(
        call, AclOperation.IDEMPOTENT_WRITE, AclResource.CLUSTER, logged=False
    ) and not authorizer.allows_any(call, AclOperation.WRITE, AclResource.TOPIC):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return handler.function(call, request)


def add_partitions(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Write on a producer's id and on all of its topics, or none is added; ClusterAction for brokers' batches."""
    if call.version >= _BATCHED_FROM:
        authorizer.check(call, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)
        return handler.function(call, request)
    authorizer.check(call, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
    topics = request.v3_and_below_topics
    refused = {
        each.name
        for each in topics
        # The handler, too, refuses the internal ones.
        if each.name in INTERNAL_TOPICS or not authorizer.allows(call, AclOperation.WRITE, AclResource.TOPIC, each.name)
    }
    if not refused:
        return handler.function(call, request)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def code(name: str, index: int) -> ErrorCode:
        if name in refused:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = call.node.image.topics.get(name)
        there = topic is not None and 0 <= index < len(topic.partitions)
        return ErrorCode.OPERATION_NOT_ATTEMPTED if there else unknown

    return add.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            add.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    add.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code(topic.name, index)
                    )
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def write_markers(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Alter or ClusterAction on the cluster."""
    if not authorizer.allows(call, AclOperation.ALTER, AclResource.CLUSTER, logged=False):
        authorizer.check(call, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)
    return handler.function(call, request)


def describe(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Describe on each id; topics that the client may not describe are left out."""

    def may(name: str) -> bool:
        return authorizer.allows(call, AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, name)

    def amend(response: Any) -> Any:
        for transaction_state in response.transaction_states:
            transaction_state.topics = [
                topic
                for topic in transaction_state.topics
                if authorizer.allows(call, AclOperation.DESCRIBE, AclResource.TOPIC, topic.topic)
            ]
        return response

    denied = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return amended(split(handler, call, request, "transactional_ids", "transaction_states", may, denied), amend)


def list_transactions(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """The ids that the client may describe."""

    def amend(response: Any) -> Any:
        response.transaction_states = [
            transaction_state
            for transaction_state in response.transaction_states
            if authorizer.allows(
                call, AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, transaction_state.transactional_id
            )
        ]
        return response

    return amended(handler.function(call, request), amend)
