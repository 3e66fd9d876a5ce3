"""Inspection of transactions (keys 61, 65, 66): the state of this node's coordinators and of the partitions it leads.

KIPs: 664, 1152 patterns of transactional ids.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Reply, in_turns
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.re2.pattern import Expression, InvalidExpression
from ottla.kernel.topic_name import check_name
from ottla.txn.transaction import TITLES, Transaction
from ottla.wire.api import ApiKey
from ottla.wire.api import describe_producers as producers
from ottla.wire.api import describe_transactions as describe
from ottla.wire.api import list_transactions as listing

#: Each step takes about a millisecond.
_PER_STEP = 100


@handles(ApiKey.DESCRIBE_TRANSACTIONS)
def describe_transactions(call: Call, request: describe.DescribeTransactionsRequest) -> Reply:
    """The state of each transactional id."""
    return in_turns(call.connection, _describe_all(call, request))


def _describe_all(
    call: Call, request: describe.DescribeTransactionsRequest
) -> Generator[None, None, describe.DescribeTransactionsResponse]:
    response = describe.DescribeTransactionsResponse()
    for number, transactional_id in enumerate(request.transactional_ids, 1):
        response.transaction_states.append(_describe(call, transactional_id))
        if not number % _PER_STEP:
            yield
    return response


def _describe(call: Call, transactional_id: str) -> describe.TransactionState:
    state = describe.TransactionState(transactional_id=transactional_id)
    if not transactional_id:
        state.error_code = ErrorCode.INVALID_REQUEST
        return state
    try:
        known = call.node.transactions.driver_of(transactional_id).machine.transactions.get(transactional_id)
    except KafkaError as error:
        state.error_code = error.code
        return state
    if known is None:
        state.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return state
    topics: dict[str, list[int]] = {}
    for tp in known.partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    state.transaction_state = TITLES[known.state]
    state.transaction_timeout_ms = known.timeout_ms
    state.transaction_start_time_ms = known.start_ms
    state.producer_id = known.producer_id
    state.producer_epoch = known.producer_epoch
    state.topics = [describe.TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()]
    return state


@handles(ApiKey.LIST_TRANSACTIONS)
def list_transactions(call: Call, request: listing.ListTransactionsRequest) -> Reply:
    """Every transactional id that passes the filters."""
    return in_turns(call.connection, _list(call, request))


def _list(
    call: Call, request: listing.ListTransactionsRequest
) -> Generator[None, None, listing.ListTransactionsResponse]:
    titles = set(TITLES.values())
    response = listing.ListTransactionsResponse(
        unknown_state_filters=[each for each in dict.fromkeys(request.state_filters) if each not in titles]
    )
    known = [
        transaction
        for driver in call.node.transactions.drivers()
        for transaction in driver.machine.transactions.values()
    ]
    pattern = None
    if request.transactional_id_pattern:
        try:
            # Unlike topic names, transactional ids may contain any characters.
            others = "".join(each.transactional_id for each in known)
            pattern = yield from Expression.in_steps(request.transactional_id_pattern, others)
        except InvalidExpression as error:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
    passes = _filter(request, call.node.clock.now_ms())
    for number, each in enumerate(known, 1):
        if passes(each) and (pattern is None or (yield from _matches(pattern, each.transactional_id))):
            response.transaction_states.append(
                listing.TransactionState(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=TITLES[each.state],
                )
            )
        if not number % _PER_STEP:
            yield
    return response


def _filter(request: listing.ListTransactionsRequest, now_ms: int) -> Callable[[Transaction], bool]:
    """A predicate for all filters but the pattern. A client may send a million of each."""
    states, producer_ids = {*request.state_filters}, {*request.producer_id_filters}

    def passes(each: Transaction) -> bool:
        if states and TITLES[each.state] not in states:
            return False
        if producer_ids and each.producer_id not in producer_ids:
            return False
        # As in Apache Kafka, a transaction that has not begun counts as infinitely old.
        return request.duration_filter < 0 or now_ms - each.start_ms > request.duration_filter

    return passes


def _matches(pattern: Expression, transactional_id: str) -> Generator[None, None, bool]:
    try:
        return (yield from pattern.matches_in_steps(transactional_id))
    except InvalidExpression as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error


@handles(ApiKey.DESCRIBE_PRODUCERS)
def describe_producers(call: Call, request: producers.DescribeProducersRequest) -> Reply:
    """The producers that a partition knows, and their open transactions."""
    return in_turns(call.connection, _producers_of_all(call, request))


def _producers_of_all(
    call: Call, request: producers.DescribeProducersRequest
) -> Generator[None, None, producers.DescribeProducersResponse]:
    response = producers.DescribeProducersResponse()
    number = 0
    for topic in request.topics:
        answer = producers.TopicResponse(name=topic.name)
        response.topics.append(answer)
        for index in topic.partition_indexes:
            answer.partitions.append(_producers(call, topic.name, index))
            number += 1
            if not number % _PER_STEP:
                yield
    return response


def _producers(call: Call, topic: str, index: int) -> producers.PartitionResponse:
    answer = producers.PartitionResponse(partition_index=index)
    try:
        check_name(topic)
        # A follower may be asked, too: it knows the producers of its own log.
        partition = call.node.hosted.get((topic, index)) or call.node.leader_of(topic, index)
    except KafkaError as error:
        answer.error_code = error.code
        answer.error_message = error.message or "This server does not host this topic-partition."
        return answer
    answer.active_producers = [
        producers.ProducerState(
            producer_id=producer_id,
            producer_epoch=each.epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.last_timestamp,
            coordinator_epoch=each.coordinator_epoch,
            current_txn_start_offset=each.transaction_start,
        )
        for producer_id, each in partition.log.producers.by_id.items()
    ]
    return answer
