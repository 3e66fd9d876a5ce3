"""Transactions (keys 24 to 28, 61, 65, 66): partitions join, offsets join, the end, and looking in.

Rules:
- What a coordinator decides is in `ottla.txn`; here is which one to ask and what the answer looks like.
- Nothing is added to a transaction unless all of the request can be: the rest gets OPERATION_NOT_ATTEMPTED.
- TxnOffsetCommit goes to the group's coordinator, as part of the producer's transaction; from version 5 on it brings
  the group's partition into the transaction by itself (KIP-890).

KIPs: 98, 447 offsets with group metadata, 664 looking in, 890 the second protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later, Reply, in_turns
from ottla.broker.coordinators.markers import write_marker
from ottla.group.failure import failure
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import OFFSETS_TOPIC, TopicPartition
from ottla.kernel.re2.pattern import Expression, InvalidExpression
from ottla.kernel.topic_name import check_name
from ottla.replica.partition import Partition
from ottla.txn.transaction import TITLES, Transaction
from ottla.wire.api import ApiKey
from ottla.wire.api import add_partitions_to_txn as add
from ottla.wire.api import describe_producers as producers
from ottla.wire.api import describe_transactions as describe
from ottla.wire.api import list_transactions as listing
from ottla.wire.api import write_txn_markers as markers
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_BATCHED_FROM = 4
_LISTED_A_STEP = 100
_FENCED_SINCE = 2
_IMPLICIT_FROM = 5
_OFFSETS_ABORTABLE_SINCE = 4
_OFFSETS_BY_ID_FROM = 6


# ---- partitions join


@handles(ApiKey.ADD_PARTITIONS_TO_TXN)
def add_partitions(call: Call, request: add.AddPartitionsToTxnRequest) -> add.AddPartitionsToTxnResponse:
    """Up to version 3 one producer's partitions; from 4 on brokers' batches, which may only ask (verify)."""
    if call.version < _BATCHED_FROM:
        results = _missing(call, request.v3_and_below_topics) or _join(
            call,
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            request.v3_and_below_topics,
        )
        return add.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    response = add.AddPartitionsToTxnResponse()
    for each in request.transactions:
        work = _verify if each.verify_only else _join
        results = _missing(call, each.topics) or work(
            call, each.transactional_id, each.producer_id, each.producer_epoch, each.topics
        )
        response.results_by_transaction.append(
            add.AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=results)
        )
    return response


def _missing(call: Call, topics: list[add.AddPartitionsToTxnTopic]) -> list[add.AddPartitionsToTxnTopicResult] | None:
    """The answer when not all of the partitions are there, None when they are."""
    wanted = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
    missing = {tp for tp in wanted if not call.node.image.has(tp)}
    if not missing:
        return None
    unknown, rest = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    return _results(_once(topics), lambda tp: unknown if tp in missing else rest)


def _join(
    call: Call, transactional_id: str, producer_id: int, epoch: int, topics: list[add.AddPartitionsToTxnTopic]
) -> list[add.AddPartitionsToTxnTopicResult]:
    wanted = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
    try:
        driver = call.node.transactions.driver_of(transactional_id)
        code = driver.add(transactional_id, producer_id, epoch, wanted, client_version=1)
    except KafkaError as error:
        code = error.code
    if code is ErrorCode.PRODUCER_FENCED and call.version < _FENCED_SINCE:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return _results(topics, lambda _: code)


def _verify(
    call: Call, transactional_id: str, producer_id: int, epoch: int, topics: list[add.AddPartitionsToTxnTopic]
) -> list[add.AddPartitionsToTxnTopicResult]:
    machine = call.node.transactions.driver_of(transactional_id).machine

    def check(tp: TopicPartition) -> ErrorCode:
        return machine.verify(transactional_id, producer_id, epoch, tp)

    return _results(_once(topics), check)


def _once(topics: list[add.AddPartitionsToTxnTopic]) -> list[add.AddPartitionsToTxnTopic]:
    """Each partition once, and no topic without any."""
    named: dict[str, dict[int, None]] = {}
    for topic in topics:
        for index in topic.partitions:
            named.setdefault(topic.name, {})[index] = None
    return [add.AddPartitionsToTxnTopic(name=name, partitions=list(indexes)) for name, indexes in named.items()]


def _results(
    topics: list[add.AddPartitionsToTxnTopic], code_of: Callable[[TopicPartition], ErrorCode]
) -> list[add.AddPartitionsToTxnTopicResult]:
    return [
        add.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                add.AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=code_of(TopicPartition(topic.name, index))
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


@handles(ApiKey.ADD_OFFSETS_TO_TXN)
def add_offsets(call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """The partition of `__consumer_offsets` that holds a group joins the transaction."""
    tp = TopicPartition(OFFSETS_TOPIC, call.node.groups.partition_of(request.group_id))
    driver = call.node.transactions.driver_of(request.transactional_id)
    code = driver.add(request.transactional_id, request.producer_id, request.producer_epoch, [tp], client_version=1)
    if code is ErrorCode.PRODUCER_FENCED and call.version < _FENCED_SINCE:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=code)


@handles(ApiKey.TXN_OFFSET_COMMIT, refuse=failure)
def txn_offset_commit(call: Call, request: TxnOffsetCommitRequest) -> Reply:
    """Offsets that count when the transaction commits."""
    node = call.node
    # A topic that is there, and of which nothing is committed, is not answered.
    request.topics = [topic for topic in request.topics if topic.partitions or not _is_known(call, topic)]
    if not any(_is_there(call, topic, each) for topic in request.topics for each in topic.partitions):
        # Nothing that could be committed: no coordinator is asked, as in Apache Kafka.
        return _refuse_offsets(call, request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not request.group_id:
        return _refuse_offsets(call, request, ErrorCode.INVALID_GROUP_ID)
    try:
        node.transactions.guard(
            request.transactional_id,
            node.groups.driver_of(request.group_id).partition,
            request.producer_id,
            request.producer_epoch,
            implicit=call.version >= _IMPLICIT_FROM,
        )
    except KafkaError as error:
        if error.code is ErrorCode.TRANSACTION_ABORTABLE and call.version < _OFFSETS_ABORTABLE_SINCE:
            return _refuse_offsets(call, request, ErrorCode.INVALID_TXN_STATE)
        return _refuse_offsets(call, request, error.code)
    later = Later()
    group = node.groups.driver_of(request.group_id)

    def answered(response: TxnOffsetCommitResponse) -> None:
        # Whatever is said of the group, what is not there is not there.
        for topic, answer in zip(request.topics, response.topics, strict=True):
            for each, result in zip(topic.partitions, answer.partitions, strict=True):
                if not _is_there(call, topic, each):
                    result.error_code = _unknown(call, topic)
        later.resolve(response)

    group.ask(
        request,
        call.version,
        answered,
        client_id=call.client_id,
        client_host=call.client_host,
        principal=call.principal,
    )
    return later


def _unknown(call: Call, topic: TxnOffsetCommitRequestTopic) -> ErrorCode:
    nameless = call.version >= _OFFSETS_BY_ID_FROM and call.node.topic_name(topic.topic_id) is None
    return ErrorCode.UNKNOWN_TOPIC_ID if nameless else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _is_known(call: Call, topic: TxnOffsetCommitRequestTopic) -> bool:
    name = call.node.topic_name(topic.topic_id) if call.version >= _OFFSETS_BY_ID_FROM else topic.name
    return name in call.node.image.topics


def _is_there(call: Call, topic: TxnOffsetCommitRequestTopic, partition: TxnOffsetCommitRequestPartition) -> bool:
    name = call.node.topic_name(topic.topic_id) if call.version >= _OFFSETS_BY_ID_FROM else topic.name
    return name is not None and call.node.image.has(TopicPartition(name, partition.partition_index))


def _refuse_offsets(call: Call, request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """The answer to offsets that no coordinator was asked to commit."""
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        unknown = _unknown(call, topic)
        partitions = [
            TxnOffsetCommitResponsePartition(
                partition_index=each.partition_index, error_code=code if _is_there(call, topic, each) else unknown
            )
            for each in topic.partitions
        ]
        response.topics.append(
            TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
        )
    return response


# ---- the end


@handles(ApiKey.END_TXN)
def end_txn(call: Call, request: EndTxnRequest) -> Reply:
    """Commit or abort, by the coordinator of the transactional id."""
    later = Later()
    call.node.transactions.driver_of(request.transactional_id).ask(request, call.version, later.resolve)
    return later


@handles(ApiKey.WRITE_TXN_MARKERS)
def write_txn_markers(call: Call, request: markers.WriteTxnMarkersRequest) -> Reply:
    """Markers that another coordinator, or an administrator who ends a hanging transaction, wants written.

    One answer a producer, however many of its markers there are, when they are committed.
    """
    codes: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    later, left = Later(), 1

    def one_less() -> None:
        nonlocal left
        left -= 1
        if not left:
            later.resolve(_written(codes))

    for marker in request.markers:
        for partition, of_topic in _write(call, marker, codes.setdefault(marker.producer_id, {})):
            left += 1
            partition.when_committed(partition.log.end_offset, partial(_committed, partition, of_topic, one_less))
    one_less()
    return later.value or later


def _committed(
    partition: Partition, of_topic: dict[int, ErrorCode], done: Callable[[], None], error: KafkaError | None
) -> None:
    if error is not None:
        of_topic[partition.tp.partition] = error.code
    done()


def _written(codes: dict[int, dict[str, dict[int, ErrorCode]]]) -> markers.WriteTxnMarkersResponse:
    return markers.WriteTxnMarkersResponse(
        markers=[
            markers.WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    markers.WritableTxnMarkerTopicResult(
                        name=name,
                        partitions=[
                            markers.WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index, code in partitions.items()
                        ],
                    )
                    for name, partitions in topics.items()
                ],
            )
            for producer_id, topics in codes.items()
        ]
    )


def _write(
    call: Call, marker: markers.WritableTxnMarker, codes: dict[str, dict[int, ErrorCode]]
) -> list[tuple[Partition, dict[int, ErrorCode]]]:
    """Where a marker was written, and where the answer about it stands."""
    written = []
    for topic in marker.topics:
        for index in topic.partition_indexes:
            code = ErrorCode.NONE
            of_topic = codes.setdefault(topic.name, {})
            try:
                partition = call.node.leader_of(topic.name, index)
                write_marker(
                    call.node,
                    partition,
                    marker.producer_id,
                    marker.producer_epoch,
                    committed=marker.transaction_result,
                    coordinator_epoch=marker.coordinator_epoch,
                    transaction_version=marker.transaction_version,
                )
                written.append((partition, of_topic))
            except KafkaError as error:
                code = error.code
            of_topic[index] = code
    return written


# ---- looking in


@handles(ApiKey.DESCRIBE_TRANSACTIONS)
def describe_transactions(
    call: Call, request: describe.DescribeTransactionsRequest
) -> describe.DescribeTransactionsResponse:
    """The state of each transactional id."""
    return describe.DescribeTransactionsResponse(
        transaction_states=[_describe(call, transactional_id) for transactional_id in request.transactional_ids]
    )


def _describe(call: Call, transactional_id: str) -> describe.TransactionState:
    state = describe.TransactionState(transactional_id=transactional_id)
    if not transactional_id:
        state.error_code = ErrorCode.INVALID_REQUEST
        return state
    known = call.node.transactions.driver_of(transactional_id).machine.transactions.get(transactional_id)
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
    known = [each for driver in call.node.transactions.drivers() for each in driver.machine.transactions.values()]
    pattern = None
    if request.transactional_id_pattern:
        try:
            # Unlike names of topics, these are of any characters.
            pattern = Expression(request.transactional_id_pattern, "".join(each.transactional_id for each in known))
        except InvalidExpression as error:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
        yield
    now_ms = call.node.clock.now_ms()
    for number, each in enumerate(known, 1):
        if _passes(each, request, now_ms) and (pattern is None or _matches(pattern, each.transactional_id)):
            response.transaction_states.append(
                listing.TransactionState(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=TITLES[each.state],
                )
            )
        if not number % _LISTED_A_STEP:
            yield
    return response


def _matches(pattern: Expression, transactional_id: str) -> bool:
    try:
        return pattern.matches(transactional_id)
    except InvalidExpression as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error


def _passes(each: Transaction, request: listing.ListTransactionsRequest, now_ms: int) -> bool:
    if request.state_filters and TITLES[each.state] not in request.state_filters:
        return False
    if request.producer_id_filters and each.producer_id not in request.producer_id_filters:
        return False
    # A transaction that has not begun has been at it forever, as in Apache Kafka.
    return request.duration_filter < 0 or now_ms - each.start_ms > request.duration_filter


@handles(ApiKey.DESCRIBE_PRODUCERS)
def describe_producers(call: Call, request: producers.DescribeProducersRequest) -> producers.DescribeProducersResponse:
    """The producers that a partition remembers, and their open transactions."""
    return producers.DescribeProducersResponse(
        topics=[
            producers.TopicResponse(
                name=topic.name, partitions=[_producers(call, topic.name, index) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _producers(call: Call, topic: str, index: int) -> producers.PartitionResponse:
    answer = producers.PartitionResponse(partition_index=index)
    try:
        check_name(topic)
        partition = call.node.leader_of(topic, index)
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
