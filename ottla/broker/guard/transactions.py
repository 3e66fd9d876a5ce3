"""Guards of requests about transactions and producer ids."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from ottla.broker.call.handler import Call, Handler
from ottla.broker.call.reply import Reply, in_turns
from ottla.broker.guard.authorizer import Authorizer
from ottla.broker.guard.parts import amended, divided, split
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import INTERNAL_TOPICS
from ottla.security.acl import AclOperation, AclResource
from ottla.wire.api import add_partitions_to_txn as add
from ottla.wire.compile import deferred

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

    def may(topic: Any) -> bool:
        # The handler, too, refuses the internal ones.
        return topic.name not in INTERNAL_TOPICS and authorizer.allows(
            call, AclOperation.WRITE, AclResource.TOPIC, topic.name
        )

    def work() -> Generator[None, None, Reply]:
        topics = request.v3_and_below_topics
        _, refused = yield from divided(call, topics, may)
        if not refused:
            return handler.function(call, request)
        names = {each.name for each in refused}
        results = deferred(len(topics), lambda: (_not_added(call, topic, topic.name in names) for topic in topics))
        return add.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    return in_turns(call.connection, work())


def _not_added(call: Call, topic: add.AddPartitionsToTxnTopic, is_refused: bool) -> add.AddPartitionsToTxnTopicResult:
    known = call.node.image.topics.get(topic.name)
    count = 0 if known is None else len(known.partitions)

    def code(index: int) -> ErrorCode:
        if is_refused:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        there = 0 <= index < count
        return ErrorCode.OPERATION_NOT_ATTEMPTED if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def partitions() -> Iterator[add.AddPartitionsToTxnPartitionResult]:
        for index in topic.partitions:
            yield add.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code(index))

    return add.AddPartitionsToTxnTopicResult(
        name=topic.name, results_by_partition=deferred(len(topic.partitions), partitions)
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
