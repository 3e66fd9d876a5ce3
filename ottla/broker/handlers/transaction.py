"""Transactions (keys 24 to 27): add partitions and groups, end a transaction, write its markers.

Rules:
- Coordinators decide in `ottla.txn`; this module finds the coordinator and builds the response.
- If one partition of a request cannot be added to a transaction, none is: the others get OPERATION_NOT_ATTEMPTED.

KIPs: 98, 890 transaction version 2. `transaction_offsets` serves TxnOffsetCommit, `transaction_view` KIP-664.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import starmap

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later, Reply, in_turns
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import INTERNAL_TOPICS, OFFSETS_TOPIC, TopicPartition
from ottla.replica.commit_queue import CommitWaiter
from ottla.replica.partition import Partition
from ottla.wire.api import ApiKey
from ottla.wire.api import add_partitions_to_txn as add
from ottla.wire.api import write_txn_markers as markers
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.compile import deferred

_BATCHED_FROM = 4
_FENCED_SINCE = 2
_FIRST_PROTOCOL, _SECOND_PROTOCOL = 1, 2
#: Each step takes about a millisecond.
_MARKERS_PER_STEP = 10
_PARTITIONS_PER_STEP = 1000
_TRANSACTIONS_PER_STEP = 50
#: How long a marker may wait for its commit: less than a coordinator waits for the response.
_COMMIT_TIMEOUT_SECONDS = 5.0


#: Partitions to add to a transaction or to verify, each once.
Wanted = list[TopicPartition]


# ---- adding partitions


@handles(ApiKey.ADD_PARTITIONS_TO_TXN)
def add_partitions(call: Call, request: add.AddPartitionsToTxnRequest) -> Reply:
    """Add one producer's partitions (up to version 3), or a broker's batch of several producers' (from 4 on).

    A broker's batch may also ask only to verify partitions.
    """
    work = _join_one(call, request) if call.version < _BATCHED_FROM else _join_each(call, request)
    return in_turns(call.connection, work)


def _join_each(call: Call, request: add.AddPartitionsToTxnRequest) -> Generator[None, None, Reply]:
    later, left = Later(), 1
    results: dict[int, list[add.AddPartitionsToTxnTopicResult]] = {}

    def one_less() -> None:
        nonlocal left
        left -= 1
        if not left:
            answers = deferred(len(results), lambda: starmap(answer, enumerate(request.transactions)))
            later.resolve(add.AddPartitionsToTxnResponse(results_by_transaction=answers))

    def answer(number: int, each: add.AddPartitionsToTxnTransaction) -> add.AddPartitionsToTxnResult:
        return add.AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=results[number])

    def on_result(index: int, result: list[add.AddPartitionsToTxnTopicResult]) -> None:
        results[index] = result
        one_less()

    for number, each in enumerate(request.transactions):
        left += 1
        yield from _add_or_verify(call, each, partial(on_result, number))
        if number % _TRANSACTIONS_PER_STEP == _TRANSACTIONS_PER_STEP - 1:
            yield
    one_less()
    return later.value or later


def _join_one(call: Call, request: add.AddPartitionsToTxnRequest) -> Generator[None, None, Reply]:
    topics = request.v3_and_below_topics
    wanted = yield from _distinct(topics)
    missing = yield from _missing(call, wanted, denied=INTERNAL_TOPICS)
    if missing is not None:
        return add.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=missing)
    later = Later()

    def joined(code: ErrorCode) -> None:
        if code is ErrorCode.PRODUCER_FENCED and call.version < _FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        later.resolve(add.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, lambda _: code)))

    _join(
        call,
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        wanted,
        joined,
        client_version=_FIRST_PROTOCOL,
    )
    return later.value or later


def _add_or_verify(
    call: Call,
    asked: add.AddPartitionsToTxnTransaction,
    on_result: Callable[[list[add.AddPartitionsToTxnTopicResult]], None],
) -> Generator[None, None, None]:
    wanted = yield from _distinct(asked.topics)
    missing = yield from _missing(call, wanted)
    if missing is not None:
        return on_result(missing)
    name, producer_id, epoch = asked.transactional_id, asked.producer_id, asked.producer_epoch
    if not asked.verify_only:

        def joined(code: ErrorCode) -> None:
            # As asked: also a topic named twice, or without partitions.
            on_result(_results(asked.topics, lambda _: code))

        # Brokers add partitions only for producers with transaction version 2.
        return _join(call, name, producer_id, epoch, wanted, joined, client_version=_SECOND_PROTOCOL)
    topics = yield from _topics_of(wanted)
    try:
        driver = call.node.transactions.driver_of(name)
    except KafkaError as error:
        code = error.code
        return on_result(_results(topics, lambda _: code))
    return driver.verify(
        name, producer_id, epoch, wanted, lambda codes: on_result(_results(topics, lambda tp: codes[tp]))
    )


def _distinct(topics: list[add.AddPartitionsToTxnTopic]) -> Generator[None, None, Wanted]:
    """The partitions of these topics, each once. The partitions of a topic stand together."""
    wanted: dict[str, dict[TopicPartition, None]] = {}
    number = 0
    for topic in topics:
        for index in topic.partitions:
            wanted.setdefault(topic.name, {})[TopicPartition(topic.name, index)] = None
            number += 1
            if not number % _PARTITIONS_PER_STEP:
                yield
    return [tp for partitions in wanted.values() for tp in partitions]


def _missing(
    call: Call, wanted: Wanted, denied: frozenset[str] = frozenset()
) -> Generator[None, None, list[add.AddPartitionsToTxnTopicResult] | None]:
    """The response if some of the partitions do not exist or are of a `denied` topic, else None."""
    codes: dict[TopicPartition, ErrorCode] = {}
    image = call.node.image
    for number, tp in enumerate(wanted, 1):
        if tp.topic in denied:
            codes[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not image.has(tp):
            codes[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not number % _PARTITIONS_PER_STEP:
            yield
    if not codes:
        return None
    topics = yield from _topics_of(wanted)
    return _results(topics, lambda tp: codes.get(tp, ErrorCode.OPERATION_NOT_ATTEMPTED))


def _join(
    call: Call,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    wanted: Wanted,
    done: Callable[[ErrorCode], None],
    *,
    client_version: int,
) -> None:
    try:
        driver = call.node.transactions.driver_of(transactional_id)
    except KafkaError as error:
        return done(error.code)
    return driver.join(transactional_id, producer_id, epoch, wanted, client_version=client_version, done=done)


def _topics_of(wanted: Wanted) -> Generator[None, None, list[add.AddPartitionsToTxnTopic]]:
    """The topics without duplicate partitions and without empty topics."""
    topics: dict[str, add.AddPartitionsToTxnTopic] = {}
    for number, tp in enumerate(wanted, 1):
        if (topic := topics.get(tp.topic)) is None:
            topic = topics[tp.topic] = add.AddPartitionsToTxnTopic(name=tp.topic)
        topic.partitions.append(tp.partition)
        if not number % _PARTITIONS_PER_STEP:
            yield
    return [*topics.values()]


def _results(
    topics: list[add.AddPartitionsToTxnTopic], code_of: Callable[[TopicPartition], ErrorCode]
) -> list[add.AddPartitionsToTxnTopicResult]:
    def result(topic: add.AddPartitionsToTxnTopic) -> add.AddPartitionsToTxnTopicResult:
        def partitions() -> Iterator[add.AddPartitionsToTxnPartitionResult]:
            for index in topic.partitions:
                yield add.AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=code_of(TopicPartition(topic.name, index))
                )

        return add.AddPartitionsToTxnTopicResult(
            name=topic.name, results_by_partition=deferred(len(topic.partitions), partitions)
        )

    return deferred(len(topics), lambda: map(result, topics))


@handles(ApiKey.ADD_OFFSETS_TO_TXN)
def add_offsets(call: Call, request: AddOffsetsToTxnRequest) -> Reply:
    """Add the partition of `__consumer_offsets` that holds a group to the transaction."""
    tp = TopicPartition(OFFSETS_TOPIC, call.node.groups.partition_of(request.group_id))
    later = Later()

    def joined(code: ErrorCode) -> None:
        if code is ErrorCode.PRODUCER_FENCED and call.version < _FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        later.resolve(AddOffsetsToTxnResponse(error_code=code))

    _join(
        call,
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [tp],
        joined,
        client_version=_FIRST_PROTOCOL,
    )
    return later.value or later


# ---- ending transactions


@handles(ApiKey.END_TXN)
def end_txn(call: Call, request: EndTxnRequest) -> Reply:
    """Commit or abort at the coordinator of the transactional id."""
    later = Later()
    call.node.transactions.driver_of(request.transactional_id).ask(request, call.version, later.resolve)
    return later


@handles(ApiKey.WRITE_TXN_MARKERS)
def write_txn_markers(call: Call, request: markers.WriteTxnMarkersRequest) -> Reply:
    """Write markers for another coordinator, or for an administrator who ends a hanging transaction.

    The response has one entry per producer, however many markers the request has for it. It leaves when all markers
    are committed or the wait times out.
    """
    return in_turns(call.connection, _write_in_steps(call, request))


def _write_in_steps(call: Call, request: markers.WriteTxnMarkersRequest) -> Generator[None, None, Reply]:
    codes: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    later, left = Later(), 1
    timer: TimerHandle | None = None
    waiters: list[tuple[CommitWaiter, Callable[[KafkaError | None], None]]] = []

    def one_less() -> None:
        nonlocal left
        left -= 1
        if not left:
            if timer is not None:
                timer.cancel()
            later.resolve(_written(codes))

    def timed_out() -> None:
        for waiter, done in waiters:
            if waiter.done is not None:
                waiter.cancel()
                done(KafkaError(ErrorCode.REQUEST_TIMED_OUT))

    for number, (marker, topic, index) in enumerate(_distinct_markers(request), 1):
        of_topic = codes.setdefault(marker.producer_id, {}).setdefault(topic, {})
        partition = _write(call, marker, topic, index, of_topic)
        if partition is not None:
            left += 1
            done = partial(_committed, partition, of_topic, one_less)
            waiter = partition.when_committed(partition.log.end_offset, done)
            if waiter is not None:
                waiters.append((waiter, done))
        if not number % _MARKERS_PER_STEP:
            yield
    if waiters:
        # The coordinator has further markers for this broker, which wait for this response.
        timer = call.node.loop.call_later(_COMMIT_TIMEOUT_SECONDS, timed_out)
    one_less()
    return later.value or later


def _committed(
    partition: Partition, of_topic: dict[int, ErrorCode], done: Callable[[], None], error: KafkaError | None
) -> None:
    if error is not None:
        of_topic[partition.tp.partition] = error.code
    done()


def _written(codes: dict[int, dict[str, dict[int, ErrorCode]]]) -> markers.WriteTxnMarkersResponse:
    def producer(entry: tuple[int, dict[str, dict[int, ErrorCode]]]) -> markers.WritableTxnMarkerResult:
        producer_id, topics = entry
        return markers.WritableTxnMarkerResult(
            producer_id=producer_id, topics=deferred(len(topics), lambda: starmap(topic, topics.items()))
        )

    def topic(name: str, partitions: dict[int, ErrorCode]) -> markers.WritableTxnMarkerTopicResult:
        return markers.WritableTxnMarkerTopicResult(
            name=name, partitions=deferred(len(partitions), lambda: starmap(partition, partitions.items()))
        )

    def partition(index: int, code: ErrorCode) -> markers.WritableTxnMarkerPartitionResult:
        return markers.WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)

    return markers.WriteTxnMarkersResponse(markers=deferred(len(codes), lambda: map(producer, codes.items())))


def _distinct_markers(
    request: markers.WriteTxnMarkersRequest,
) -> Iterator[tuple[markers.WritableTxnMarker, str, int]]:
    """(marker, topic, partition) of each marker to write; a marker is written once to a partition."""
    for marker in request.markers:
        named: set[tuple[str, int]] = set()
        for topic in marker.topics:
            for index in topic.partition_indexes:
                if (topic.name, index) not in named:
                    named.add((topic.name, index))
                    yield marker, topic.name, index


def _write(
    call: Call, marker: markers.WritableTxnMarker, topic: str, index: int, of_topic: dict[int, ErrorCode]
) -> Partition | None:
    """Write a marker and note its error code in `of_topic`; return the partition if it was written."""
    of_topic[index] = ErrorCode.NONE
    try:
        partition = call.node.leader_of(topic, index)
        call.node.transactions.marker_writer.write(
            partition,
            marker.producer_id,
            marker.producer_epoch,
            committed=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )
    except KafkaError as error:
        of_topic[index] = error.code
        return None
    return partition
