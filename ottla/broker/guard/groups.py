"""Guards of requests about groups and their offsets."""

from __future__ import annotations

from typing import Any

from ottla.broker.call.handler import Call, Handler
from ottla.broker.call.reply import Reply
from ottla.broker.guard.authorizer import CODES, Authorizer
from ottla.broker.guard.parts import Guard, amended, divided, split, with_field
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.security.acl import WILDCARD, AclKind, Operation
from ottla.wire.api.offset_delete import OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic
from ottla.wire.api.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_BATCHED_FROM = 4
_MANY_GROUPS_FROM = 8
_PROTOCOL_FROM = 5
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."
#: What stands in an answer for an offset that may not be seen.
_NO_OFFSET: dict[str, Any] = {
    "committed_offset": -1,
    "committed_leader_epoch": -1,
    "metadata": "",
    "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}
_GROUP_DENIED = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def find_coordinator(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Describe on each group or transactional id; share coordinators are for nodes."""
    if request.key_type == _SHARE:
        authorizer.check(call, Operation.CLUSTER_ACTION, AclKind.CLUSTER)
        return handler.function(call, request)
    kind = {_GROUP: AclKind.GROUP, _TRANSACTION: AclKind.TRANSACTIONAL_ID}.get(request.key_type)
    if kind is None:
        return handler.function(call, request)
    if call.version < _BATCHED_FROM:
        authorizer.check(call, Operation.DESCRIBE, kind, request.key)
        return handler.function(call, request)

    def may(key: str) -> bool:
        return authorizer.allows(call, Operation.DESCRIBE, kind, key)

    return split(handler, call, request, "coordinator_keys", "coordinators", may, KafkaError(CODES[kind]))


def sync(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Read on the group, after a look at what every request must have."""
    if call.version >= _PROTOCOL_FROM and (request.protocol_type is None or request.protocol_name is None):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    authorizer.check(call, Operation.READ, AclKind.GROUP, request.group_id)
    return handler.function(call, request)


def subscribe(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Describe on every topic that a heartbeat names; an expression may match any topic there is."""
    names = set(request.subscribed_topic_names or ())
    if getattr(request, "subscribed_topic_regex", None):
        names.add(WILDCARD)
    for name in names:
        authorizer.check(call, Operation.DESCRIBE, AclKind.TOPIC, name)
    return handler.function(call, request)


def streams_heartbeat(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Describe on every topic of the topology, and Create on the internal ones that are not there."""
    internal: set[str] = set()
    named: set[str] = set()
    for each in request.topology.subtopologies if request.topology is not None else ():
        named.update(each.source_topics)
        named.update(each.repartition_sink_topics)
        internal.update(topic.name for topic in each.repartition_source_topics)
        internal.update(topic.name for topic in each.state_changelog_topics)
    for name in named | internal:
        authorizer.check(call, Operation.DESCRIBE, AclKind.TOPIC, name)
    missing = [name for name in internal if name not in call.node.image.topics]
    if missing and not authorizer.allows(call, Operation.CREATE, AclKind.CLUSTER, told=False):
        for name in missing:
            authorizer.check(call, Operation.CREATE, AclKind.TOPIC, name)
    return handler.function(call, request)


# ---- looking in


def describe(field: str) -> Guard:
    """Describe on each group. A group whose members speak of topics that the client may not describe is hidden."""

    def guard(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
        def may(name: str) -> bool:
            return authorizer.allows(call, Operation.DESCRIBE, AclKind.GROUP, name)

        def amend(response: Any) -> Any:
            for group in response.groups:
                if group.error_code:
                    continue
                if request.include_authorized_operations:
                    group.authorized_operations = authorizer.operations(call, AclKind.GROUP, group.group_id)
                if not all(
                    authorizer.allows(call, Operation.DESCRIBE, AclKind.TOPIC, name, told=False)
                    for name in _topics_of(group)
                ):
                    group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    group.error_message = _HIDDEN
                    group.members = []
                    if hasattr(group, "topology"):
                        group.topology = None
            return response

        return amended(split(handler, call, request, field, "groups", may, _GROUP_DENIED), amend)

    return guard


def _topics_of(group: Any) -> set[str]:
    """The topics that a described group speaks of; a classic group's are bytes of its own."""
    found: set[str] = set()
    for member in group.members:
        found.update(getattr(member, "subscribed_topic_names", None) or ())
        for field in ("assignment", "target_assignment"):
            assignment = getattr(member, field, None)
            found.update(each.topic_name for each in getattr(assignment, "topic_partitions", ()))
    topology = getattr(group, "topology", None)
    for each in (topology.subtopologies or ()) if topology is not None else ():
        found.update(each.source_topics)
        found.update(each.repartition_sink_topics)
        found.update(topic.name for topic in (*each.state_changelog_topics, *each.repartition_source_topics))
    return found


def list_groups(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """All groups to those who may describe the cluster, else those that one may describe."""
    if authorizer.allows(call, Operation.DESCRIBE, AclKind.CLUSTER, told=False):
        return handler.function(call, request)

    def amend(response: Any) -> Any:
        response.groups = [
            each
            for each in response.groups
            if authorizer.allows(call, Operation.DESCRIBE, AclKind.GROUP, each.group_id, told=False)
        ]
        return response

    return amended(handler.function(call, request), amend)


# ---- offsets


def offset_fetch(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Describe on each group, and on each topic."""
    if call.version < _MANY_GROUPS_FROM:
        authorizer.check(call, Operation.DESCRIBE, AclKind.GROUP, request.group_id)
        return _offsets(authorizer, handler, call, request)

    def may(group: Any) -> bool:
        return authorizer.allows(call, Operation.DESCRIBE, AclKind.GROUP, group.group_id)

    def topics(call: Call, request: Any) -> Reply:
        return _offsets_of_groups(authorizer, handler, call, request)

    inner = Handler(handler.api, topics, handler.refuse)
    return split(inner, call, request, "groups", "groups", may, _GROUP_DENIED)


def _describes(authorizer: Authorizer, call: Call, topic: Any, *, told: bool = True) -> bool:
    name = getattr(topic, "topic_name", "") or getattr(topic, "name", "")
    if not name and hasattr(topic, "topic_id"):
        name = call.node.topic_name(topic.topic_id)
    return name is None or authorizer.allows(call, Operation.DESCRIBE, AclKind.TOPIC, name, told=told)


def _offsets(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Offsets of one group, in the versions of one group."""
    if request.topics is None:

        def amend(response: Any) -> Any:
            response.topics = [each for each in response.topics if _describes(authorizer, call, each, told=False)]
            return response

        return amended(handler.function(call, request), amend)
    kept, refused = divided(request.topics, lambda each: _describes(authorizer, call, each))
    if not refused:
        return handler.function(call, request)
    told = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(partition_index=index, **_NO_OFFSET) for index in topic.partition_indexes
            ],
        )
        for topic in refused
    ]
    if not kept:
        return OffsetFetchResponse(topics=told)

    def add(response: Any) -> Any:
        if not response.error_code:
            response.topics = [*response.topics, *told]
        return response

    return amended(handler.function(call, with_field(request, "topics", kept)), add)


def _offsets_of_groups(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Offsets of many groups: refused topics are taken out of each group, and put back into its answer."""
    refused: dict[str, list[Any]] = {}
    groups = []
    for group in request.groups:
        if group.topics is not None:
            shown, hidden = divided(group.topics, lambda each: _describes(authorizer, call, each))
            if hidden:
                refused.setdefault(group.group_id, []).extend(hidden)
                group = with_field(group, "topics", shown)
        groups.append(group)

    def amend(response: Any) -> Any:
        for group in response.groups:
            group.topics = [each for each in group.topics if _describes(authorizer, call, each, told=False)]
            if not group.error_code:
                group.topics += [_refused_topic(each) for each in refused.get(group.group_id, ())]
        return response

    return amended(handler.function(call, with_field(request, "groups", groups)), amend)


def offset_delete(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Read on each topic; the group is asked about the others only."""
    kept, refused = divided(
        request.topics, lambda each: authorizer.allows(call, Operation.READ, AclKind.TOPIC, each.name)
    )
    if not refused:
        return handler.function(call, request)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    told = [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ],
        )
        for topic in refused
    ]
    if not kept:
        return OffsetDeleteResponse(topics=told)

    def add(response: Any) -> Any:
        if not response.error_code:
            response.topics = [*response.topics, *told]
        return response

    return amended(handler.function(call, with_field(request, "topics", kept)), add)


def _refused_topic(asked: Any) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, **_NO_OFFSET) for index in asked.partition_indexes
        ],
    )


def share_offsets(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Describe on each share group, and on each topic."""

    def may(group: Any) -> bool:
        return authorizer.allows(call, Operation.DESCRIBE, AclKind.GROUP, group.group_id)

    def topics(call: Call, request: Any) -> Reply:
        refused: dict[str, list[Any]] = {}
        groups = []
        for group in request.groups:
            shown, hidden = divided(group.topics or (), lambda each: _describes(authorizer, call, each))
            if hidden:
                refused[group.group_id] = hidden
                group = with_field(group, "topics", shown)
            groups.append(group)

        def amend(response: Any) -> Any:
            for group in response.groups:
                group.topics = [each for each in group.topics if _describes(authorizer, call, each, told=False)]
                if not group.error_code:
                    group.topics += [_refused_share_topic(each) for each in refused.get(group.group_id, ())]
            return response

        return amended(handler.function(call, with_field(request, "groups", groups)), amend)

    inner = Handler(handler.api, topics, handler.refuse)
    return split(inner, call, request, "groups", "groups", may, _GROUP_DENIED)


def _refused_share_topic(asked: Any) -> Any:
    from ottla.wire.api import describe_share_group_offsets as wire

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return wire.DescribeShareGroupOffsetsResponseTopic(
        topic_name=asked.topic_name,
        partitions=[
            wire.DescribeShareGroupOffsetsResponsePartition(
                partition_index=index, start_offset=-1, error_code=code, error_message="Topic authorization failed."
            )
            for index in asked.partitions
        ],
    )
