"""Handlers of DescribeGroups (0-6), ConsumerGroupDescribe (0-1) and ListGroups (0-5).

Rules:
- Each kind of group has its own Describe. For a missing group or one of another kind the response is a group in state
  Dead (classic) or GROUP_ID_NOT_FOUND.
- State and type filters ignore case.

KIPs: 518 (states filter), 848, 1043 (error for a missing group), 1099 (member type).
"""

import re
from collections.abc import Container, Generator, Iterable, Mapping
from typing import Any

from ottla.coordinator.contract import Called
from ottla.group.consumer.target import preferred_assignor
from ottla.group.state.classic import ClassicGroup, ClassicMember, ClassicState
from ottla.group.state.consumer import ConsumerGroup, ConsumerMember, ConsumerState
from ottla.group.state.shard import CommandContext, Group
from ottla.group.state.share import ShareGroup, ShareState
from ottla.group.state.streams import StreamsGroup, StreamsState
from ottla.group.topic import TopicView
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.wire.api.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Member,
    TopicPartitions,
)
from ottla.wire.api.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from ottla.wire.api.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.wire.api.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

#: From this version on a missing group is an error.
_NOT_FOUND_FROM = 6
#: A name of a filter that no group has.
_NO_NAME = ""
#: About a millisecond.
_NAMES_PER_STEP = 5000


def describe_groups(context: CommandContext, call: Called) -> None:
    """Answer with the state and the members of classic groups."""
    request: DescribeGroupsRequest = call.request
    groups = [_describe(context.shard.groups.get(group_id), group_id, call.version) for group_id in request.groups]
    context.answer(call.ticket, DescribeGroupsResponse(groups=groups))


def _describe(group: Any, group_id: str, version: int) -> DescribedGroup:
    if not isinstance(group, ClassicGroup):
        dead = DescribedGroup(group_id=group_id, group_state=ClassicState.DEAD)
        if version >= _NOT_FOUND_FROM:
            dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            problem = "not found" if group is None else "is not a classic group"
            dead.error_message = f"Group {group_id} {problem}."
        return dead
    protocol = group.protocol_name if group.state is ClassicState.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[_describe_member(member, protocol) for member in group.members.values()],
    )


def _describe_member(member: ClassicMember, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.metadata(protocol),
        member_assignment=member.assignment,
    )


def known_names(names: Iterable[str], known: Container[str]) -> Generator[None, None, list[str]]:
    """The names of a filter without repetitions, as far as there is anything to find: each coordinator reads them.

    One name stays for all others, as without a name everything passes.
    """
    found: dict[str, None] = {}
    for number, name in enumerate(names, 1):
        plain = name.strip().lower()
        found[plain if plain in known else _NO_NAME] = None
        if not number % _NAMES_PER_STEP:
            yield
    return [*found]


def list_groups(context: CommandContext, call: Called) -> None:
    """Answer with the groups of this partition that pass the filters."""
    request: ListGroupsRequest = call.request
    states = {state.strip().lower() for state in request.states_filter}
    types = {kind.strip().lower() for kind in request.types_filter}
    listed = []
    for group in context.shard.groups.values():
        kind = _kind_of(group)
        if (not states or _names_of(group.state) & states) and (not types or kind in types):
            protocol_type = (group.protocol_type or "") if isinstance(group, ClassicGroup) else kind
            listed.append(
                ListedGroup(
                    group_id=group.group_id, protocol_type=protocol_type, group_state=group.state, group_type=kind
                )
            )
    context.answer(call.ticket, ListGroupsResponse(groups=listed))


def _names_of(state: str) -> set[str]:
    """The spellings of a state in a filter: Apache Kafka's brokers accept not_ready for NotReady."""
    return {state.lower(), re.sub(r"(?<=[a-z])(?=[A-Z])", "_", state).lower()}


#: The names that a filter of states or of types may have.
STATES = frozenset(
    name
    for states in (ClassicState, ConsumerState, ShareState, StreamsState)
    for state in states
    for name in _names_of(state)
)
TYPES = frozenset({"classic", "consumer", "share", "streams"})


def _kind_of(group: Group) -> str:
    if isinstance(group, ClassicGroup):
        return "classic"
    if isinstance(group, StreamsGroup):
        return "streams"
    return "share" if isinstance(group, ShareGroup) else "consumer"


def describe_consumer_groups(context: CommandContext, call: Called) -> None:
    """Answer with the epochs, the members and the assignments of consumer groups."""
    request: ConsumerGroupDescribeRequest = call.request
    groups = [_describe_consumer(context, group_id) for group_id in request.group_ids]
    context.answer(call.ticket, ConsumerGroupDescribeResponse(groups=groups))


def _describe_consumer(context: CommandContext, group_id: str) -> DescribedConsumerGroup:
    if not group_id:
        return DescribedConsumerGroup(group_id="", error_code=ErrorCode.INVALID_GROUP_ID)
    group = context.shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        problem = "not found" if group is None else "is not a consumer group"
        return DescribedConsumerGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {problem}.",
        )
    topics = context.shard.topics
    return DescribedConsumerGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=preferred_assignor(group.members.values(), context.settings),
        members=[_consumer_member(group, member, topics) for member in group.members.values()],
    )


def _consumer_member(group: ConsumerGroup, member: ConsumerMember, topics: TopicView) -> Member:
    owned: dict[Uuid, list[int]] = {}
    for topic_id, partition in member.owned():
        owned.setdefault(topic_id, []).append(partition)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex or "",
        assignment=_assignment(owned, topics),
        target_assignment=_assignment(group.targets.get(member.member_id, {}), topics),
        member_type=1 if member.classic is None else 0,
    )


def _assignment(partitions: Mapping[Uuid, Iterable[int]], topics: TopicView) -> Assignment:
    named = []
    for topic_id, indexes in partitions.items():
        name = topics.topic_name(topic_id)
        if name is not None:
            named.append(TopicPartitions(topic_id=topic_id, topic_name=name, partitions=list(indexes)))
    return Assignment(topic_partitions=named)
