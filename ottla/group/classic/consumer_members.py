"""Classic members of a consumer group: their JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-848).

Rules:
- The server assigns for them too: no member leads, the JoinGroup response lists no members, and SyncGroup returns an
  assignment and never takes one.
- The generation is the member's epoch. A heartbeat tells the member to rejoin when there is a newer target, when it
  must give up partitions, and when the partitions that it waits for are free.
- A member has its rebalance timeout to rejoin, and the same time again to sync.
"""

from dataclasses import replace

from ottla.coordinator.contract import Called
from ottla.group.consumer.group_epoch import Claimed, advance, bump_group_epoch
from ottla.group.consumer.membership import check_instance, check_room, fence, keep_session, take_static_place
from ottla.group.consumer.target import update_target
from ottla.group.conversion import assignment_bytes, downgrade
from ottla.group.records.subscription import protocol_version, read_subscription
from ottla.group.state.classic import CONSUMER_PROTOCOL, Protocols
from ottla.group.state.consumer import ClassicMetadata, ConsumerGroup, ConsumerMember, MemberState
from ottla.group.state.shard import CommandContext
from ottla.group.timer import Alarm, TimerKey
from ottla.group.topic import merged
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import uuid_text
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.api.leave_group import MemberIdentity
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.record.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.type import Malformed

#: From this version on a client rejoins with the id that it was given (KIP-394).
_PROMISES_FROM = 4


def join_consumer_group(context: CommandContext, call: Called, group: ConsumerGroup) -> None:
    """Add a classic member to a consumer group, or update it."""
    request: JoinGroupRequest = call.request
    if not (context.settings.may_upgrade or context.settings.may_downgrade):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    newcomer = not request.member_id
    member_id = request.member_id or uuid_text(context.shard.rng.randbytes(16))
    check_room(context, group, member_id)
    protocols: Protocols = tuple({protocol.name: protocol.metadata for protocol in request.protocols}.items())
    if not protocols or not group.supports(request.protocol_type, protocols):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if newcomer and request.group_instance_id is None and call.version >= _PROMISES_FROM:
        context.answer(call.ticket, JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
        return
    try:
        subscription = read_subscription(protocols[0][1])
    except Malformed as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from error
    if request.group_instance_id is None:
        before = group.members.get(member_id) or ConsumerMember(member_id)
    elif newcomer:
        before = take_static_place(context, group, member_id, request.group_instance_id, classic=True)
    else:
        before = check_instance(group, member_id, request.group_instance_id)
    rebalance_ms = request.session_timeout_ms if call.version == 0 else request.rebalance_timeout_ms
    after = replace(
        before,
        instance_id=request.group_instance_id or before.instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        rebalance_timeout_ms=rebalance_ms,
        topics=tuple(sorted(set(subscription.topics))),
        regex="",
        client_id=call.client_id,
        client_host=call.client_host,
        classic=ClassicMetadata(request.session_timeout_ms, protocols),
    )
    _join(context, call, group, before, after, _owned(context, subscription))


def _owned(context: CommandContext, subscription: ConsumerProtocolSubscription) -> Claimed:
    topics = ((context.shard.topics.topic_id(each.topic), each.partitions) for each in subscription.owned_partitions)
    return merged((topic_id, indexes) for topic_id, indexes in topics if topic_id is not None)


def _join(
    context: CommandContext,
    call: Called,
    group: ConsumerGroup,
    before: ConsumerMember,
    after: ConsumerMember,
    owned: Claimed,
) -> None:
    change = bump_group_epoch(context, group, before, after)
    if _downgrades(context, group, group.static_member(call.request.group_instance_id)):
        stale = group.assignment_epoch < change.epoch
        member = after
        if not stale:
            target = (group.assignment_epoch, group.target_of(after.member_id, after.instance_id))
            member = advance(context, group, after, change, target, owned)
        downgrade(context, group, [], joining=member, rebalance=stale)
    else:
        target = update_target(context, group, after, change.epoch, change.resolved)
        member = advance(context, group, after, change, target, owned)
        context.timers.cancel(TimerKey(Alarm.MEMBER_JOIN, group.group_id, member.member_id))
        keep_session(context, group, member)
        key = TimerKey(Alarm.MEMBER_SYNC, group.group_id, member.member_id)
        context.alarm_in(key, member.rebalance_timeout_ms)
    assert member.classic is not None
    context.answer(
        call.ticket,
        JoinGroupResponse(
            member_id=member.member_id,
            generation_id=member.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=member.classic.protocols[0][0],
        ),
    )


def _downgrades(context: CommandContext, group: ConsumerGroup, predecessor: ConsumerMember | None) -> bool:
    """Does the last member of the consumer protocol return as a classic one?"""
    if predecessor is None or predecessor.classic is not None:
        return False
    others = (member for member in group.members.values() if member is not predecessor)
    fits = len(group.members) <= context.settings.group_max_size
    return fits and context.settings.may_downgrade and all(member.classic is not None for member in others)


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicMetadata]:
    """The classic member that calls. Raises KafkaError unless it names its present generation."""
    member = group.member(member_id) if instance_id is None else check_instance(group, member_id, instance_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if member.epoch != generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def _must_rejoin_soon(context: CommandContext, group: ConsumerGroup, member: ConsumerMember) -> None:
    key = TimerKey(Alarm.MEMBER_JOIN, group.group_id, member.member_id)
    if key not in context.timers:
        context.alarm_in(key, member.rebalance_timeout_ms)


def sync_consumer_group(context: CommandContext, call: Called, group: ConsumerGroup) -> None:
    """Answer a classic member with its assignment."""
    request: SyncGroupRequest = call.request
    member, classic = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    name, metadata = classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol_name not in (None, name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    # A member that gives up partitions has rejoined already; it is told again when it has given them up.
    if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _must_rejoin_soon(context, group, member)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    context.timers.cancel(TimerKey(Alarm.MEMBER_SYNC, group.group_id, member.member_id))
    keep_session(context, group, member)
    context.answer(
        call.ticket,
        SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_bytes(member.assigned, protocol_version(metadata), context.shard.topics),
        ),
    )


def heartbeat_consumer_group(context: CommandContext, call: Called, group: ConsumerGroup) -> None:
    """Restart a classic member's session and tell it whether it must rejoin."""
    request: HeartbeatRequest = call.request
    member, _ = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    keep_session(context, group, member)
    error = ErrorCode.NONE
    calm = member.state is MemberState.STABLE or group.waits_for_others(member)
    if member.epoch < group.assignment_epoch or not calm:
        error = ErrorCode.REBALANCE_IN_PROGRESS
        _must_rejoin_soon(context, group, member)
    context.answer(call.ticket, HeartbeatResponse(error_code=error))


def leave_consumer_group(
    context: CommandContext, group: ConsumerGroup, identities: list[MemberIdentity]
) -> list[tuple[MemberIdentity, ErrorCode]]:
    """Remove members of either protocol; an administrator names static ones by instance id alone."""
    leaving: dict[str, ConsumerMember] = {}
    results = []
    for identity in identities:
        try:
            member = _leaving_member(group, identity)
        except KafkaError as error:
            results.append((identity, error.code))
            continue
        leaving[member.member_id] = member
        results.append((identity, ErrorCode.NONE))
    fence(context, group, list(leaving.values()))
    return results


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    if identity.group_instance_id is None:
        return group.member(identity.member_id)
    if identity.member_id:
        return check_instance(group, identity.member_id, identity.group_instance_id)
    member = group.static_member(identity.group_instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member
