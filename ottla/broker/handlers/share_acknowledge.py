"""ShareAcknowledge (key 79): a member's acknowledgements of acquired records (KIP-932).

Rules:
- The request belongs to the member's session and carries its epoch. Epoch -1 ends the session after its
  acknowledgements are stored; records that the member still holds become available again.
- A partition fails alone; none of its acknowledgements counts then.
- The response leaves when all acknowledgements are stored.

KIPs: 932, 951 leader hints, 1222 renewal of locks (version 2), by requests that do nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.leader_hint import hint_to_share_member
from ottla.broker.call.reply import Later, Reply, in_turns
from ottla.broker.coordinators.group_protocol import SHARE, check_enabled
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.share.partition import Acknowledgement, AcknowledgeType
from ottla.share.session import FINAL_EPOCH, INITIAL_EPOCH, Key
from ottla.share.state import SharePartitionKey
from ottla.wire.api import ApiKey
from ottla.wire.api.share_acknowledge import (
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from ottla.wire.compile import deferred

_RENEW_FROM = 2
_MEMBER_ID_MAX = 36
#: About a millisecond.
PARTITIONS_PER_STEP = 100

#: The result of a partition's acknowledgements: None, or the error for which they do not count.
Outcome = KafkaError | None


@handles(ApiKey.SHARE_ACKNOWLEDGE)
def share_acknowledge(call: Call, request: ShareAcknowledgeRequest) -> Reply:
    """Store a member's acknowledgements, then answer."""
    check_enabled(call.node, SHARE)
    return in_turns(call.connection, _share_acknowledge(call, request))


def _share_acknowledge(call: Call, request: ShareAcknowledgeRequest) -> Generator[None, None, Later]:
    group_id, member_id = check_member(request)
    owner = group_id, member_id
    sessions = call.node.shares.sessions
    if request.share_session_epoch == INITIAL_EPOCH:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    if request.share_session_epoch == FINAL_EPOCH:
        session = sessions.find(owner)
    else:
        session = sessions.resume(owner, request.share_session_epoch)
    later = Later()

    def done(outcomes: dict[Key, Outcome]) -> None:
        if request.share_session_epoch == FINAL_EPOCH:
            call.node.shares.end_session(session)
        later.resolve(_response(call, group_id, outcomes))

    yield from acknowledge(call, owner, request.topics, done, renews=request.is_renew_ack)
    return later


def check_member(request: Any) -> tuple[str, str]:
    """(group id, member id) of a request, or INVALID_REQUEST."""
    if request.group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if not request.member_id or len(request.member_id) > _MEMBER_ID_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return request.group_id, request.member_id


def acknowledge(
    call: Call,
    owner: tuple[str, str],
    topics: Iterable[Any],
    done: Callable[[dict[Key, Outcome]], None],
    *,
    renews: bool,
) -> Generator[None, None, None]:
    """Store the acknowledgements of a request, in steps; `done` is called once with the outcome of each partition."""
    asked = [
        ((Uuid(topic.topic_id), partition.partition_index), partition.acknowledgement_batches)
        for topic in topics
        for partition in topic.partitions
    ]
    outcomes: dict[Key, Outcome] = dict.fromkeys((key for key, _ in asked), None)
    left = len(asked) + 1

    def answered(key: Key | None, outcome: Outcome) -> None:
        nonlocal left
        left -= 1
        if key is not None and outcome is not None:
            # A partition that the request names twice has failed if either of its parts has.
            outcomes[key] = outcome
        if not left:
            done(outcomes)

    for number, (key, batches) in enumerate(asked, 1):
        try:
            _acknowledge_partition(
                call, owner, key, partial(_parsed, batches, call.version, renews), partial(answered, key)
            )
        except KafkaError as error:
            answered(key, error)
        if not number % PARTITIONS_PER_STEP:
            yield
    answered(None, None)


def _acknowledge_partition(
    call: Call,
    owner: tuple[str, str],
    key: Key,
    parsed: Callable[[], Sequence[Acknowledgement]],
    done: Callable[[Outcome], None],
) -> None:
    group_id, member_id = owner
    topic_id, index = key
    name = call.node.topic_name(topic_id)
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    acknowledgements = parsed()
    if call.node.authorizer is not None:
        call.node.authorizer.check_read(call, name)
    leader = call.node.shares.find(SharePartitionKey(group_id, topic_id, index))
    if leader is None:
        # No fetch has created it here, or the partition has a new leader.
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not acknowledgements:
        done(None)
        return
    leader.acknowledge(member_id, acknowledgements, done)


def _parsed(batches: Iterable[Any], version: int, renews: bool) -> list[Acknowledgement]:
    """The acknowledgements, or INVALID_REQUEST if they are inconsistent."""
    highest = AcknowledgeType.RENEW if version >= _RENEW_FROM else AcknowledgeType.REJECT
    parsed = []
    last_offset = -1
    for batch in batches:
        types = batch.acknowledge_types
        length = batch.last_offset - batch.first_offset + 1
        valid = (
            length > 0
            and batch.first_offset >= last_offset
            and len(types) in (1, length)
            and all(AcknowledgeType.GAP <= each <= highest for each in types)
            and (renews or AcknowledgeType.RENEW not in types)
        )
        if not valid:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        last_offset = batch.last_offset
        parsed.append(Acknowledgement(batch.first_offset, batch.last_offset, types))
    return parsed


def _response(call: Call, group_id: str, outcomes: dict[Key, Outcome]) -> ShareAcknowledgeResponse:
    topics: dict[Uuid, list[PartitionData]] = {}
    parts: list[tuple[Key, PartitionData]] = []
    for key, outcome in outcomes.items():
        data = PartitionData(partition_index=key[1])
        if outcome is not None:
            data.error_code, data.error_message = outcome.code, outcome.message or None
        topics.setdefault(key[0], []).append(data)
        parts.append((key, data))
    response = ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=call.node.shares.settings_of(group_id).share_record_lock_duration_ms,
        responses=deferred(
            len(topics),
            lambda: (
                ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ),
        ),
    )
    hint_to_share_member(call, response, NodeEndpoint, parts)
    return response
