"""The group APIs: route each request to its group's coordinator, or to several coordinators, and merge the answers.

Rules:
- Coordinators decide in `ottla.group`; this module only finds the coordinator and merges answers.
- `ottla.group.failure` builds the response to a request that fails as a whole, as some responses have error codes only
  in their parts.

KIPs: 345 static members, 394 two-step member ids, 699 several coordinators in one request, 709 several groups in one
OffsetFetch, 848 the consumer protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Any

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later, Reply, in_turns
from ottla.broker.coordinators.coordinators import Coordinators
from ottla.broker.coordinators.group_driver import GroupDriver
from ottla.broker.coordinators.group_protocol import CONSUMER, SHARE, STREAMS, check_enabled
from ottla.group.description import STATES, TYPES, known_names
from ottla.group.failure import failure
from ottla.group.selection import select
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.error_message import words
from ottla.share.state import SharePartitionKey
from ottla.wire.api import ApiKey
from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.api.offset_commit import OffsetCommitRequest
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.wire.api.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.wire.api.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from ottla.wire.compile import deferred

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_BATCHED_FROM = 4
_MANY_GROUPS_FROM = 8
_SHARE_FROM = 6
#: About a millisecond.
_GROUPS_PER_STEP = 50
_MEMBERS_PER_STEP = 500
#: A bit for each operation on a group: read, delete, describe, describe and alter its configs.
_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))


# ---- looking up coordinators


@handles(ApiKey.FIND_COORDINATOR)
def find_coordinator(call: Call, request: FindCoordinatorRequest) -> Reply:
    """The broker that coordinates each group or transactional id; creates the internal topic first if necessary."""
    kind = _kind(call, request.key_type)
    keys = request.coordinator_keys if call.version >= _BATCHED_FROM else [request.key]
    if kind is None or not any(request.key_type != _SHARE or _is_share_key(key) for key in keys):
        return _response(call, request)
    later = Later()
    kind.ensure_topic(lambda: later.resolve(_response(call, request)))
    return later


def _kind(call: Call, key_type: int) -> Coordinators[Any] | None:
    node = call.node
    if key_type == _SHARE and call.version >= _SHARE_FROM:
        return node.share_states
    if key_type == _TRANSACTION:
        return node.transactions
    return node.groups if key_type == _GROUP else None


def _is_share_key(key: str) -> bool:
    try:
        SharePartitionKey.parse(key)
    except ValueError:
        return False
    return True


def _response(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if call.version >= _BATCHED_FROM:
        keys = request.coordinator_keys
        coordinators = deferred(len(keys), lambda: (_find(call, request.key_type, key) for key in keys))
        return FindCoordinatorResponse(coordinators=coordinators)
    coordinator = _find(call, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


def _find(call: Call, key_type: int, key: str) -> Coordinator:
    try:
        kind = _kind(call, key_type)
        if kind is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if key_type == _SHARE:
            SharePartitionKey.parse(key)
        if not kind.has_topic:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = call.node.image.topics[kind.topic].partitions[kind.partition_of(key)]
        broker = call.node.brokers_at(call.connection.listener_name).alive_node(partition.leader)
        if broker is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except (ValueError, KafkaError) as error:
        refused = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.INVALID_REQUEST)
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=refused.code, error_message=words(refused))
    # As in Apache Kafka, whose two forms of the response have different messages for success.
    message = "" if call.version >= _BATCHED_FROM else ErrorCode.NONE.name
    return Coordinator(key=key, node_id=broker.node_id, host=broker.host, port=broker.port, error_message=message)


# ---- one group, one coordinator


@handles(ApiKey.JOIN_GROUP, error_response=failure)
@handles(ApiKey.SYNC_GROUP, error_response=failure)
@handles(ApiKey.HEARTBEAT, error_response=failure)
@handles(ApiKey.OFFSET_DELETE, error_response=failure)
def ask_coordinator(call: Call, request: Any) -> Later:
    """Pass the request to its group's coordinator."""
    return _ask(call, call.node.groups.driver_of(request.group_id), request)


@handles(ApiKey.LEAVE_GROUP, error_response=failure)
def leave_group(call: Call, request: LeaveGroupRequest) -> Reply:
    """Pass the request to its group's coordinator; the members of a long one leave in parts, a step for each."""
    if len(request.members) <= _MEMBERS_PER_STEP:
        return ask_coordinator(call, request)

    def merge(answers: list[LeaveGroupResponse]) -> LeaveGroupResponse:
        # After a failure the client asks again, and learns that the others are unknown by then.
        failed = next((answer for answer in answers if answer.error_code), None)
        members = [answer.members for answer in answers]
        return failed or LeaveGroupResponse(
            members=deferred(sum(map(len, members)), lambda: chain.from_iterable(members))
        )

    def part(at: int) -> tuple[str, LeaveGroupRequest]:
        members = request.members[at : at + _MEMBERS_PER_STEP]
        return request.group_id, LeaveGroupRequest(group_id=request.group_id, members=members)

    return _ask_each(call, map(part, range(0, len(request.members), _MEMBERS_PER_STEP)), merge, per_step=1)


@handles(ApiKey.OFFSET_COMMIT, error_response=failure)
def offset_commit(call: Call, request: OffsetCommitRequest) -> Reply:
    """Pass the commit to its group's coordinator; a long one is worked out in steps before."""
    if not call.is_long:
        return ask_coordinator(call, request)
    return in_turns(call.connection, _plan_and_ask(call, request))


def _plan_and_ask(call: Call, request: OffsetCommitRequest) -> Generator[None, None, Later]:
    plan = yield from call.node.groups.driver_of(request.group_id).plan_commit(request, call.version)
    return _ask(call, call.node.groups.driver_of(request.group_id), request, prepared=plan)


@handles(ApiKey.CONSUMER_GROUP_HEARTBEAT, error_response=failure)
def consumer_group_heartbeat(call: Call, request: ConsumerGroupHeartbeatRequest) -> Reply:
    """Pass the heartbeat to its group's coordinator (KIP-848)."""
    check_enabled(call.node, CONSUMER)
    if request.subscribed_topic_regex or call.is_long:
        return in_turns(call.connection, _select_and_ask(call, request))
    return ask_coordinator(call, request)


def _select_and_ask(call: Call, request: ConsumerGroupHeartbeatRequest) -> Generator[None, None, Later]:
    """Select the topics of the member's expression in steps, and then ask its coordinator, which may have moved."""
    regex, selected = request.subscribed_topic_regex, None
    driver = call.node.groups.driver_of(request.group_id)
    if call.is_long:
        yield from driver.name_once(request)
    if regex:
        selected = yield from select(regex, driver.machine.shard.topics)
    return _ask(call, call.node.groups.driver_of(request.group_id), request, selected=selected)


@handles(ApiKey.SHARE_GROUP_HEARTBEAT, error_response=failure)
def share_group_heartbeat(call: Call, request: ShareGroupHeartbeatRequest) -> Reply:
    """Pass the heartbeat to its coordinator, which may delay the answer until the next request (decision 0130)."""
    check_enabled(call.node, SHARE)
    return in_turns(call.connection, _name_and_ask(call, request)) if call.is_long else _ask_held(call, request)


def _name_and_ask(call: Call, request: ShareGroupHeartbeatRequest) -> Generator[None, None, Later]:
    yield from call.node.groups.driver_of(request.group_id).name_once(request)
    return _ask_held(call, request)


def _ask_held(call: Call, request: ShareGroupHeartbeatRequest) -> Later:
    driver = call.node.groups.driver_of(request.group_id)
    later = Later()
    ticket = _put(call, driver, request, later)
    if not later.resolved:
        later.superseded = lambda _: driver.release_held(ticket)
    return later


@handles(ApiKey.ALTER_SHARE_GROUP_OFFSETS, error_response=failure)
@handles(ApiKey.DELETE_SHARE_GROUP_OFFSETS, error_response=failure)
def ask_share_group(call: Call, request: Any) -> Later:
    """Pass the request to its share group's coordinator (KIP-932)."""
    check_enabled(call.node, SHARE)
    return ask_coordinator(call, request)


def _ask(call: Call, driver: GroupDriver, request: Any, **worked_out: Any) -> Later:
    later = Later()
    _put(call, driver, request, later, **worked_out)
    return later


def _put(call: Call, driver: GroupDriver, request: Any, later: Later, **worked_out: Any) -> int:
    authorizer = call.node.authorizer
    return driver.ask(
        request,
        call.version,
        later.resolve,
        client_id=call.client_id,
        client_host=call.client_host,
        principal=call.principal,
        may_describe=None if authorizer is None else partial(authorizer.describes, call),
        **worked_out,
    )


# ---- many groups, many coordinators


@handles(ApiKey.OFFSET_FETCH, error_response=failure)
def offset_fetch(call: Call, request: OffsetFetchRequest) -> Reply:
    """Committed offsets of one group, or from version 8 on of several."""
    if call.version < _MANY_GROUPS_FROM:
        return ask_coordinator(call, request)

    def request_for(group: Any) -> OffsetFetchRequest:
        return OffsetFetchRequest(groups=[group], require_stable=request.require_stable)

    def merge(answers: list[OffsetFetchResponse]) -> OffsetFetchResponse:
        return OffsetFetchResponse(groups=[group for answer in answers for group in answer.groups])

    return _ask_each(call, ((group.group_id, request_for(group)) for group in request.groups), merge)


#: Request type -> (response type, field that names the groups, kind that must be enabled).
_DESCRIPTIONS: Mapping[type[Any], tuple[type[Any], str, str | None]] = {
    DescribeGroupsRequest: (DescribeGroupsResponse, "groups", None),
    ConsumerGroupDescribeRequest: (ConsumerGroupDescribeResponse, "group_ids", CONSUMER),
    ShareGroupDescribeRequest: (ShareGroupDescribeResponse, "group_ids", SHARE),
    StreamsGroupDescribeRequest: (StreamsGroupDescribeResponse, "group_ids", STREAMS),
}


@handles(ApiKey.DESCRIBE_GROUPS, error_response=failure)
@handles(ApiKey.CONSUMER_GROUP_DESCRIBE, error_response=failure)
@handles(ApiKey.SHARE_GROUP_DESCRIBE, error_response=failure)
@handles(ApiKey.STREAMS_GROUP_DESCRIBE, error_response=failure)
def describe(call: Call, request: Any) -> Reply:
    """Describe groups of one kind, each at its coordinator: classic, consumer, share or streams groups."""
    response, names, kind = _DESCRIPTIONS[type(request)]
    if kind is not None:
        check_enabled(call.node, kind)

    def request_for(group_id: str) -> Any:
        part = {names: [group_id], "include_authorized_operations": request.include_authorized_operations}
        return type(request)(**part)

    def merge(answers: list[Any]) -> Any:
        groups = [group for answer in answers for group in answer.groups]
        if request.include_authorized_operations:
            _authorize(groups)
        return response(groups=groups)

    return _ask_each(call, ((group_id, request_for(group_id)) for group_id in getattr(request, names)), merge)


def _authorize(groups: Iterable[Any]) -> None:
    """Set the authorized operations: without an authorizer, all of them on every existing group."""
    for group in groups:
        if not group.error_code:
            group.authorized_operations = _OPERATIONS


@handles(ApiKey.DELETE_GROUPS, error_response=failure)
def delete_groups(call: Call, request: DeleteGroupsRequest) -> Reply:
    """Delete groups without members, with their offsets."""

    def merge(answers: list[DeleteGroupsResponse]) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[result for answer in answers for result in answer.results])

    parts = ((name, DeleteGroupsRequest(groups_names=[name])) for name in dict.fromkeys(request.groups_names))
    # A tombstone for each offset of a group takes ten times as long as an answer about it.
    return _ask_each(call, parts, merge, per_step=1)


@handles(ApiKey.LIST_GROUPS, error_response=failure)
def list_groups(call: Call, request: ListGroupsRequest) -> Reply:
    """The groups of every coordinator on this node."""
    return in_turns(call.connection, _list_groups(call, request))


def _list_groups(call: Call, request: ListGroupsRequest) -> Generator[None, None, Later]:
    states = yield from known_names(request.states_filter, STATES)
    types = yield from known_names(request.types_filter, TYPES)
    wanted = ListGroupsRequest(states_filter=states, types_filter=types)

    def merge(answers: list[ListGroupsResponse]) -> ListGroupsResponse:
        failed = next((answer for answer in answers if answer.error_code), None)
        return failed or ListGroupsResponse(groups=[group for answer in answers for group in answer.groups])

    gathered = _Gathered(call, merge)
    for driver in call.node.groups.drivers():
        gathered.add(_ask(call, driver, wanted), wanted)
    return gathered.end()


def _ask_each(
    call: Call,
    parts: Iterable[tuple[str, Any]],
    merge: Callable[[list[Any]], Any],
    per_step: int = _GROUPS_PER_STEP,
) -> Reply:
    """Ask the coordinator of each group; a group whose coordinator is not here, or is loading, fails alone."""
    return in_turns(call.connection, _ask_in_steps(call, parts, merge, per_step))


def _ask_in_steps(
    call: Call, parts: Iterable[tuple[str, Any]], merge: Callable[[list[Any]], Any], per_step: int
) -> Generator[None, None, Reply]:
    gathered = _Gathered(call, merge)
    for number, (group_id, request) in enumerate(parts, 1):
        try:
            answer = _ask(call, call.node.groups.driver_of(group_id), request)
        except KafkaError as error:
            answer = Later()
            answer.resolve(error)
        gathered.add(answer, request)
        if not number % per_step:
            yield
    return gathered.end()


class _Gathered:
    """The answers to parts of a request, which are merged after the last one in the order of the parts."""

    def __init__(self, call: Call, merge: Callable[[list[Any]], Any]) -> None:
        self._version, self._merge = call.version, merge
        self._answers: list[Any] = []
        #: The parts without an answer, and one more until all are asked.
        self._left = 1
        self._whole = Later()

    def add(self, answer: Later, request: Any) -> None:
        """Wait for the answer to one more part."""
        self._left += 1
        self._answers.append(None)
        answer.then(partial(self._arrived, len(self._answers) - 1, request))

    def end(self) -> Later:
        """The merged response; no part follows."""
        self._count()
        return self._whole

    def _arrived(self, index: int, request: Any, value: Any) -> None:
        self._answers[index] = failure(request, self._version, value) if isinstance(value, KafkaError) else value
        self._count()

    def _count(self) -> None:
        self._left -= 1
        if not self._left:
            self._whole.resolve(self._merge(self._answers))
