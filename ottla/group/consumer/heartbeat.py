"""ConsumerGroupHeartbeat (0-1): all of the consumer protocol in one call (KIP-848).

Rules:
- Epoch 0 joins, -1 leaves, -2 leaves a static member's place for its return; any other is a member's present epoch,
  or, when the answer with the present one was lost, the one before.
- A member sends what it wants only when it changes; null means as before. It sends what it owns when that has changed,
  and so the coordinator learns that partitions were given up.
- The answer has the assignment when it changed, and when the member joins or sends everything.
- An empty classic group gives way to a consumer group; one with consumers in it is converted (`conversion`).

KIPs: 848, 1082 member ids made by clients.
"""

from dataclasses import replace

from ottla.coordinator.contract import Called
from ottla.group.consumer.group_epoch import Claimed, advance, bump_group_epoch
from ottla.group.consumer.membership import (
    check_epoch,
    check_instance,
    check_room,
    fence,
    keep_session,
    leave_for_a_while,
    take_static_place,
)
from ottla.group.consumer.target import update_target
from ottla.group.conversion import finish_upgrade, upgrade
from ottla.group.deletion import group_tombstones
from ottla.group.state.classic import ClassicGroup
from ottla.group.state.consumer import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ConsumerGroup, ConsumerMember
from ottla.group.state.shard import CommandContext
from ottla.group.state.share import ShareGroup
from ottla.group.state.streams import StreamsGroup
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid, uuid_text
from ottla.wire.api.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

#: From this version on the client makes the member id (KIP-1082).
_MEMBER_ID_FROM = 1


def consumer_heartbeat(turn: CommandContext, call: Called) -> None:
    """Let a member join, leave, or go on."""
    request: ConsumerGroupHeartbeatRequest = call.request
    _check_request(turn, request, call.version)
    if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
        _leave(turn, call)
    else:
        _go_on(turn, call)


def _check_request(turn: CommandContext, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    epoch = request.member_epoch
    needs_id = version >= _MEMBER_ID_FROM or epoch > 0 or epoch == LEAVE_EPOCH
    names = {"GroupId": request.group_id, "InstanceId": request.instance_id, "RackId": request.rack_id}
    if needs_id:
        names = {"MemberId": request.member_id, **names}
    for what, value in names.items():
        if value is not None and not value.strip():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} can't be empty.")
    if epoch == 0:
        _check_join(request)
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    known = turn.settings.group_consumer_assignors
    if request.server_assignor is not None and request.server_assignor not in known:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(known)}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    problem = ""
    if request.rebalance_timeout_ms == -1:
        problem = "RebalanceTimeoutMs must be provided in first request."
    elif request.topic_partitions is None or request.topic_partitions:
        problem = "TopicPartitions must be empty when (re-)joining."
    elif request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        problem = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    if problem:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def _leave(turn: CommandContext, call: Called) -> None:
    request: ConsumerGroupHeartbeatRequest = call.request
    group = turn.shard.groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        raise _not_a_consumer_group(request.group_id, group)
    if request.instance_id is None:
        fence(turn, group, [group.member(request.member_id)])
    else:
        member = check_instance(group, request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            leave_for_a_while(turn, group, member)
        else:
            fence(turn, group, [member])
    turn.answer(
        call.ticket, ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    )


def _not_a_consumer_group(group_id: str, group: object) -> KafkaError:
    text = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _go_on(turn: CommandContext, call: Called) -> None:
    request: ConsumerGroupHeartbeatRequest = call.request
    known = turn.shard.groups.get(request.group_id)
    group = _group_for(turn, request, known)
    check_room(turn, group, request.member_id)
    claimed = _claimed(request)
    before = _member_for(turn, group, request, claimed)
    after = replace(
        before,
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=before.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        assignor=before.assignor if request.server_assignor is None else request.server_assignor,
        topics=before.topics
        if request.subscribed_topic_names is None
        else tuple(sorted(set(request.subscribed_topic_names))),
        regex=before.regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
        client_id=call.client_id,
        client_host=call.client_host,
        classic=None,
    )
    revision = bump_group_epoch(turn, group, before, after)
    target = update_target(turn, group, after, revision.epoch, revision.resolved)
    member = advance(turn, group, after, revision, target, claimed)
    if isinstance(known, ClassicGroup) and known.members:
        finish_upgrade(turn, known, group)
    keep_session(turn, group, member)
    turn.answer(call.ticket, _response(turn, request, before, member))


def _group_for(turn: CommandContext, request: ConsumerGroupHeartbeatRequest, known: object) -> ConsumerGroup:
    """The group; on joining one is made, in place of an empty classic group or from one with consumers."""
    if isinstance(known, ConsumerGroup):
        return known
    if request.member_epoch != 0 or isinstance(known, ShareGroup | StreamsGroup):
        raise _not_a_consumer_group(request.group_id, known)
    if isinstance(known, ClassicGroup):
        if known.members:
            return upgrade(turn, known)
        turn.extend(group_tombstones(known))
    return ConsumerGroup(request.group_id)


def _claimed(request: ConsumerGroupHeartbeatRequest) -> Claimed:
    if request.topic_partitions is None:
        return None
    claimed: dict[Uuid, frozenset[int]] = {}
    for topic in request.topic_partitions:
        claimed[topic.topic_id] = claimed.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return claimed


def _member_for(
    turn: CommandContext, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, claimed: Claimed
) -> ConsumerMember:
    joins = request.member_epoch == 0
    # Before version 1 the coordinator made the id, in Kafka's text form of a UUID.
    member_id = request.member_id or uuid_text(turn.shard.rng.randbytes(16))
    if request.instance_id is not None:
        if joins:
            return take_static_place(turn, group, member_id, request.instance_id, classic=False)
        member = check_instance(group, member_id, request.instance_id)
    elif joins:
        return group.members.get(member_id) or ConsumerMember(member_id)
    else:
        member = group.member(member_id)
    check_epoch(member, request.member_epoch, claimed)
    return member


def _response(
    turn: CommandContext, request: ConsumerGroupHeartbeatRequest, before: ConsumerMember, member: ConsumerMember
) -> ConsumerGroupHeartbeatResponse:
    interval_ms = turn.shard.override(request.group_id).consumer_heartbeat_interval_ms
    if interval_ms is None:
        interval_ms = turn.settings.group_consumer_heartbeat_interval_ms
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    says_all = request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None
    assignment = None
    if request.member_epoch == 0 or says_all or before.assigned != member.assigned:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in member.assigned.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=assignment,
    )
