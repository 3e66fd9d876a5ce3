"""TxnOffsetCommit (key 28): offsets that take effect when the producer's transaction commits.

Rules:
- The request goes to the group's coordinator, as part of the producer's transaction. It also adds the group's partition
  to the transaction from version 5 on (KIP-890).
- A long request is worked out in steps before the transaction is looked at: from there to the append nothing comes
  between.

KIPs: 447 offsets with group metadata, 890 transaction version 2.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import repeat

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later, Reply, in_turns
from ottla.broker.coordinators.group_driver import GroupDriver
from ottla.broker.coordinators.verification import Codes, CoordinatorQuestion
from ottla.group.failure import failure
from ottla.group.offsets.plan import CommitPlan
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.wire.api import ApiKey
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.compile import deferred

_IMPLICIT_FROM = 5
_OFFSETS_ABORTABLE_SINCE = 4
_OFFSETS_BY_ID_FROM = 6
#: About a millisecond.
_PARTITIONS_PER_STEP = 1000

#: Error of the check of a transaction -> the error for a group member, as in Apache Kafka.
_GROUP_ERRORS = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


@handles(ApiKey.TXN_OFFSET_COMMIT, error_response=failure)
def txn_offset_commit(call: Call, request: TxnOffsetCommitRequest) -> Reply:
    """Commit offsets that take effect when the transaction commits."""
    return in_turns(call.connection, _offsets_in_steps(call, request))


def _offsets_in_steps(call: Call, request: TxnOffsetCommitRequest) -> Generator[None, None, Reply]:
    node = call.node
    # An existing topic without partitions in the request is left out of the response.
    request.topics = [topic for topic in request.topics if topic.partitions or not _is_known(call, topic)]
    if not (yield from _any_exists(call, request)):
        # Nothing can be committed: ask no coordinator, as in Apache Kafka.
        return _offsets_error_response(call, request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not request.group_id:
        return _offsets_error_response(call, request, ErrorCode.INVALID_GROUP_ID)
    plan: CommitPlan | None = None
    if call.is_long:
        plan = yield from node.groups.driver_of(request.group_id).plan_commit(request, call.version)
    return _guard_and_commit(call, request, plan)


def _any_exists(call: Call, request: TxnOffsetCommitRequest) -> Generator[None, None, bool]:
    number = 0
    for topic in request.topics:
        for partition in topic.partitions:
            if _exists(call, topic, partition):
                return True
            number += 1
            if not number % _PARTITIONS_PER_STEP:
                yield
    return False


def _guard_and_commit(call: Call, request: TxnOffsetCommitRequest, plan: CommitPlan | None) -> Reply:
    node = call.node
    group = node.groups.driver_of(request.group_id)
    producer = request.producer_id, request.producer_epoch
    implicit = call.version >= _IMPLICIT_FROM
    later = Later()
    try:
        token = node.transactions.prepare(group.partition, *producer, sequence=0, implicit=implicit)
    except KafkaError as error:
        return _guarded_error_response(call, request, error.code)

    def verified(codes: Codes) -> None:
        answer = None if token is None else (token, codes[group.partition.tp])
        try:
            # A new coordinator may have replaced this one.
            if node.groups.driver_of(request.group_id) is not group:
                raise KafkaError(ErrorCode.NOT_COORDINATOR)
            node.transactions.pass_verified(group.partition, *producer, answer, implicit=implicit)
            _commit_offsets(call, request, group, later, plan)
        except KafkaError as error:
            later.resolve(_guarded_error_response(call, request, error.code))

    if token is None:
        verified({})
    else:
        wanted = (group.partition.tp,)
        node.transactions.verification.ask(
            CoordinatorQuestion(request.transactional_id, *producer, wanted, implicit, verified)
        )
    return later


def _guarded_error_response(call: Call, request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    if code is ErrorCode.TRANSACTION_ABORTABLE and call.version < _OFFSETS_ABORTABLE_SINCE:
        code = ErrorCode.INVALID_TXN_STATE
    return _offsets_error_response(call, request, _GROUP_ERRORS.get(code, code))


def _commit_offsets(
    call: Call, request: TxnOffsetCommitRequest, group: GroupDriver, later: Later, plan: CommitPlan | None
) -> None:
    """Have the group's coordinator write the offsets."""

    def answered(response: TxnOffsetCommitResponse | KafkaError) -> None:
        if isinstance(response, KafkaError):
            # The coordinator has ended, or its record was not committed in time.
            return later.resolve(_offsets_error_response(call, request, response.code))
        return later.resolve(_with_unknown(call, request, response))

    group.ask(
        request,
        call.version,
        answered,
        client_id=call.client_id,
        client_host=call.client_host,
        principal=call.principal,
        prepared=plan,
    )


def _with_unknown(
    call: Call, request: TxnOffsetCommitRequest, response: TxnOffsetCommitResponse
) -> TxnOffsetCommitResponse:
    """A nonexistent partition gets its own error, whatever the coordinator's answer is."""
    said = dict(zip(map(id, request.topics), response.topics, strict=True))

    def codes(topic: TxnOffsetCommitRequestTopic) -> Iterator[int]:
        return (each.error_code for each in said[id(topic)].partitions)

    return _offsets_response(call, request, codes)


def _unknown(call: Call, topic: TxnOffsetCommitRequestTopic) -> ErrorCode:
    nameless = call.version >= _OFFSETS_BY_ID_FROM and call.node.topic_name(topic.topic_id) is None
    return ErrorCode.UNKNOWN_TOPIC_ID if nameless else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _is_known(call: Call, topic: TxnOffsetCommitRequestTopic) -> bool:
    name = call.node.topic_name(topic.topic_id) if call.version >= _OFFSETS_BY_ID_FROM else topic.name
    return name in call.node.image.topics


def _exists(call: Call, topic: TxnOffsetCommitRequestTopic, partition: TxnOffsetCommitRequestPartition) -> bool:
    name = call.node.topic_name(topic.topic_id) if call.version >= _OFFSETS_BY_ID_FROM else topic.name
    return name is not None and call.node.image.has(TopicPartition(name, partition.partition_index))


def _offsets_error_response(call: Call, request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """The response when no coordinator was asked, or it has failed."""
    return _offsets_response(call, request, lambda _: repeat(code))


def _offsets_response(
    call: Call, request: TxnOffsetCommitRequest, codes_of: Callable[[TxnOffsetCommitRequestTopic], Iterator[int]]
) -> TxnOffsetCommitResponse:
    """The response with these codes for the partitions that exist."""

    def answer(topic: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitResponseTopic:
        def partitions() -> Iterator[TxnOffsetCommitResponsePartition]:
            unknown = _unknown(call, topic)
            for each, code in zip(topic.partitions, codes_of(topic), strict=False):
                code = code if _exists(call, topic, each) else unknown
                yield TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)

        return TxnOffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=deferred(len(topic.partitions), partitions)
        )

    return TxnOffsetCommitResponse(topics=deferred(len(request.topics), lambda: map(answer, request.topics)))
