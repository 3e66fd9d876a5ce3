"""Guards of requests about groups and their offsets."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache
from typing import Any

from ottla.broker.call.handler import Call, Handler
from ottla.broker.call.reply import Reply, in_turns
from ottla.broker.coordinators.internal_topic import checked_names
from ottla.broker.guard.authorizer import CODES, Authorizer
from ottla.broker.guard.parts import Guard, amended, divided, joined, split, with_field
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.error_message import standard
from ottla.security.acl import AclOperation, AclResource
from ottla.wire.api.offset_fetch import (
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.wire.compile import deferred

_BATCHED_FROM = 4
_MANY_GROUPS_FROM = 8
_PROTOCOL_FROM = 5
_SHARE_FROM = 6
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."
_HIDDEN_TOPOLOGY = "The described group uses topics that the client is not authorized to describe."
#: The fields of a response for an offset that the client may not see.
_NO_OFFSET: dict[str, Any] = {
    "committed_offset": -1,
    "committed_leader_epoch": -1,
    "metadata": "",
    "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}
_TOPIC_DENIED: dict[str, Any] = {
    "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "error_message": standard(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
}
_GROUP_DENIED = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def find_coordinator(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Describe on each group or transactional id; only nodes may look up share coordinators."""
    if request.key_type == _SHARE and call.version >= _SHARE_FROM:
        authorizer.check(call, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)
        return handler.function(call, request)
    kind = {_GROUP: AclResource.GROUP, _TRANSACTION: AclResource.TRANSACTIONAL_ID}.get(request.key_type)
    if kind is None:
        return handler.function(call, request)
    if call.version < _BATCHED_FROM:
        authorizer.check(call, AclOperation.DESCRIBE, kind, request.key)
        return handler.function(call, request)

    def may(key: str) -> bool:
        return authorizer.allows(call, AclOperation.DESCRIBE, kind, key)

    return split(handler, call, request, "coordinator_keys", "coordinators", may, KafkaError(CODES[kind]))


def sync(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Read on the group, after a check of the request's mandatory fields."""
    if call.version >= _PROTOCOL_FROM and (request.protocol_type is None or request.protocol_name is None):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    authorizer.check(call, AclOperation.READ, AclResource.GROUP, request.group_id)
    return handler.function(call, request)


def subscribe(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Describe on every topic that a heartbeat names. The coordinator checks the matches of a regular expression."""

    def may(name: str) -> bool:
        authorizer.check(call, AclOperation.DESCRIBE, AclResource.TOPIC, name)
        return True

    def work() -> Generator[None, None, Reply]:
        yield from divided(call, set(request.subscribed_topic_names or ()), may)
        return handler.function(call, request)

    return in_turns(call.connection, work())


def streams_heartbeat(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Describe on every topic of a topology whose names may be used. The handler checks who creates internal topics."""

    def may(name: str) -> bool:
        authorizer.check(call, AclOperation.DESCRIBE, AclResource.TOPIC, name)
        return True

    def work() -> Generator[None, None, Reply]:
        yield from divided(call, (yield from checked_names(request.topology)), may)
        return handler.function(call, request)

    return handler.function(call, request) if request.topology is None else in_turns(call.connection, work())


# ---- describing


def describe(field: str) -> Guard:
    """Describe on each group. A group whose members use topics that the client may not describe is hidden."""

    def guard(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
        def may(name: str) -> bool:
            return authorizer.allows(call, AclOperation.DESCRIBE, AclResource.GROUP, name)

        @cache
        def shows(topic: str) -> bool:
            return authorizer.allows(call, AclOperation.DESCRIBE, AclResource.TOPIC, topic)

        def seen(group: Any) -> Any:
            if group.error_code:
                return group
            if request.include_authorized_operations:
                group.authorized_operations = authorizer.operations(call, AclResource.GROUP, group.group_id)
            # All of them are asked about: the log names every topic that hides a group.
            shown = [shows(name) for name in sorted(_topics_of(group))]
            return group if all(shown) else _hidden(group)

        def amend(response: Any) -> Any:
            groups = response.groups
            response.groups = deferred(len(groups), lambda: map(seen, groups))
            return response

        return amended(split(handler, call, request, field, "groups", may, _GROUP_DENIED), amend)

    return guard


def _hidden(group: Any) -> Any:
    """What a client learns about a group that it may describe, but not all of whose topics: nothing."""
    text = _HIDDEN_TOPOLOGY if hasattr(group, "topology") else _HIDDEN
    return type(group)(
        group_id=group.group_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=text, members=[]
    )


def _topics_of(group: Any) -> set[str]:
    """The topics in a group's description; a classic group's are opaque bytes of its protocol."""
    names: set[str] = set()
    for member in group.members:
        names.update(getattr(member, "subscribed_topic_names", None) or ())
        for field in ("assignment", "target_assignment"):
            assignment = getattr(member, field, None)
            names.update(each.topic_name for each in getattr(assignment, "topic_partitions", ()))
    topology = getattr(group, "topology", None)
    for subtopology in (topology.subtopologies or ()) if topology is not None else ():
        names.update(subtopology.source_topics)
        names.update(subtopology.repartition_sink_topics)
        names.update(
            topic.name for topic in (*subtopology.state_changelog_topics, *subtopology.repartition_source_topics)
        )
    return names


def list_groups(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """All groups for a client that may describe the cluster, otherwise the groups that it may describe."""
    if authorizer.allows(call, AclOperation.DESCRIBE, AclResource.CLUSTER, logged=False):
        return handler.function(call, request)

    def amend(response: Any) -> Any:
        response.groups = [
            group
            for group in response.groups
            if authorizer.allows(call, AclOperation.DESCRIBE, AclResource.GROUP, group.group_id, logged=False)
        ]
        return response

    return amended(handler.function(call, request), amend)


# ---- offsets


def offset_fetch(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Describe on each group, and on each topic."""
    if call.version < _MANY_GROUPS_FROM:
        authorizer.check(call, AclOperation.DESCRIBE, AclResource.GROUP, request.group_id)
        return _offsets(authorizer, handler, call, request)

    return _offsets_of_groups(authorizer, handler, call, request, _refused_topic)


def share_offsets(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Describe on each share group, and on each topic."""
    return _offsets_of_groups(authorizer, handler, call, request, _refused_share_topic)


def _describes(authorizer: Authorizer, call: Call, topic: Any) -> bool:
    name = getattr(topic, "topic_name", "") or getattr(topic, "name", "")
    if not name and hasattr(topic, "topic_id"):
        name = call.node.topic_name(topic.topic_id)
    return name is None or authorizer.allows(call, AclOperation.DESCRIBE, AclResource.TOPIC, name)


def _offsets(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    """Offsets of one group, in the versions that take one group."""
    if request.topics is None:

        def amend(response: Any) -> Any:
            response.topics = [each for each in response.topics if _describes(authorizer, call, each)]
            return response

        return amended(handler.function(call, request), amend)

    def work() -> Generator[None, None, Reply]:
        kept, refused = yield from divided(call, request.topics, lambda each: _describes(authorizer, call, each))
        denials = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(partition_index=index, **_NO_OFFSET)
                    for index in topic.partition_indexes
                ],
            )
            for topic in refused
        ]
        return joined(handler, call, with_field(request, "topics", kept), "topics", denials)

    return in_turns(call.connection, work())


def _offsets_of_groups(
    authorizer: Authorizer, handler: Handler, call: Call, request: Any, refusal: Callable[[Any], Any]
) -> Reply:
    """Offsets of several groups; `refusal` builds the response for a topic that the client may not describe."""

    def may(group: Any) -> bool:
        return authorizer.allows(call, AclOperation.DESCRIBE, AclResource.GROUP, group.group_id)

    def topics(call: Call, request: Any) -> Reply:
        return in_turns(call.connection, work(call, request))

    def work(call: Call, request: Any) -> Generator[None, None, Reply]:
        divisions = []
        for group in request.groups:
            division = yield from divided(call, group.topics or (), lambda each: _describes(authorizer, call, each))
            divisions.append(division)
        groups = [
            with_field(group, "topics", shown) if hidden else group
            for group, (shown, hidden) in zip(request.groups, divisions, strict=True)
        ]

        def amend(response: Any) -> Any:
            # The handler answers every entry in order, even if several name the same group.
            for group, asked, (_, hidden) in zip(response.groups, request.groups, divisions, strict=True):
                if asked.topics is None:
                    group.topics = [topic for topic in group.topics if _describes(authorizer, call, topic)]
                if not group.error_code:
                    group.topics = [*group.topics, *map(refusal, hidden)]
            return response

        return amended(handler.function(call, with_field(request, "groups", groups)), amend)

    inner = Handler(handler.api, topics, handler.error_response)
    return split(inner, call, request, "groups", "groups", may, _GROUP_DENIED)


def changed_offsets(name: str, out: str, refusal: Callable[[Any], Any]) -> Guard:
    """Read on each topic, whose name is in the attribute `name`; `refusal` builds a denial for the list `out`.

    The coordinator gets the other topics, even if there are none, because the group may not exist.
    """

    def guard(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
        def may(topic: Any) -> bool:
            return authorizer.allows(call, AclOperation.READ, AclResource.TOPIC, getattr(topic, name))

        def work() -> Generator[None, None, Reply]:
            kept, refused = yield from divided(call, request.topics, may)
            return joined(handler, call, with_field(request, "topics", kept), out, list(map(refusal, refused)))

        return in_turns(call.connection, work())

    return guard


# ---- refusals


def _refused_topic(asked: Any) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, **_NO_OFFSET) for index in asked.partition_indexes
        ],
    )


def _refused_share_topic(asked: Any) -> Any:
    from ottla.wire.api import describe_share_group_offsets as wire

    return wire.DescribeShareGroupOffsetsResponseTopic(
        topic_name=asked.topic_name,
        partitions=[
            wire.DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=-1, **_TOPIC_DENIED)
            for index in asked.partitions
        ],
    )


def refused_deletion(asked: Any) -> Any:
    """The response for a topic whose offsets the client may not delete."""
    from ottla.wire.api import offset_delete as wire

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return wire.OffsetDeleteResponseTopic(
        name=asked.name,
        partitions=[
            wire.OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition in asked.partitions
        ],
    )


def refused_share_deletion(asked: Any) -> Any:
    """The response for a topic whose share group offsets the client may not delete."""
    from ottla.wire.api import delete_share_group_offsets as wire

    return wire.DeleteShareGroupOffsetsResponseTopic(topic_name=asked.topic_name, **_TOPIC_DENIED)


def refused_share_change(asked: Any) -> Any:
    """The response for a topic whose share group offsets the client may not change."""
    from ottla.wire.api import alter_share_group_offsets as wire

    return wire.AlterShareGroupOffsetsResponseTopic(
        topic_name=asked.topic_name,
        partitions=[
            wire.AlterShareGroupOffsetsResponsePartition(partition_index=partition.partition_index, **_TOPIC_DENIED)
            for partition in asked.partitions
        ],
    )
