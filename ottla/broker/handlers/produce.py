"""Produce (key 0): append batches, and answer when they are as durable as requested.

Rules:
- The append happens before `produce` returns, so arrival order is log order. A request with very many partitions is
  handled in steps; its connection waits for the last one.
- A partition fails alone; the other partitions of the request go on. A failed write is a KAFKA_STORAGE_ERROR of that
  partition: the log stays as it was, and the producer retries (docs/decisions/0142).
- acks=0 has no response. If a part of the request fails, the connection is closed, the only signal such a client gets.
- With `flush.messages` or `flush.ms` set, acks 1 and all are answered after the fsync, which runs off the loop and
  serves all requests that arrived in the meantime (group commit).
- A partition that the request names twice is written and answered once: the last entry counts, as in Apache Kafka.
- acks=all is answered when the high watermark has passed the batch, including a duplicate. Errors: NOT_ENOUGH_REPLICAS
  before the append, NOT_ENOUGH_REPLICAS_AFTER_APPEND after it, NOT_LEADER_OR_FOLLOWER when another broker leads,
  REQUEST_TIMED_OUT after the request's timeout. After an error the batch may still be committed.

KIPs: 98 idempotence, 467 record errors, 516 topic ids (version 13), 890 transaction guard, 951 leader hints.
"""

from __future__ import annotations

import logging
from asyncio import TimerHandle
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.leader_hint import hint_to_producer
from ottla.broker.call.reply import FAILED_UNANSWERED, NO_REPLY, Later, Reply, in_turns
from ottla.kernel.error import ErrorCode, KafkaError, RefusedBatch
from ottla.kernel.ids import INTERNAL_TOPICS
from ottla.kernel.lazy import LazyModule
from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Buffer
from ottla.log.validate import only_batch
from ottla.net.inbound import PeerError
from ottla.replica.commit_queue import CommitWaiter
from ottla.replica.partition import Partition
from ottla.wire.api import ApiKey
from ottla.wire.api.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.batch import TRANSACTIONAL, attributes_of, header_at
from ottla.wire.codec import Codec

if TYPE_CHECKING:
    from ottla.broker.call import repeated_partition
    from ottla.broker.coordinators import held_produce
else:
    # Clients name a partition once.
    repeated_partition = LazyModule("ottla.broker.call.repeated_partition")
    # Only in a cluster of several brokers is a request held.
    held_produce = LazyModule("ottla.broker.coordinators.held_produce")

_log = logging.getLogger("ottla.broker")
_ZSTD_FROM = 7
_BY_ID_FROM = 13
_ABORTABLE_SINCE = 11
_IMPLICIT_FROM = 12
_CODEC_MASK = 7
#: Attribute bits that need a check: transactional, and the codec zstd, which is 4.
_CHECKED = TRANSACTIONAL | Codec.ZSTD
_ALL = -1
_ACKS = frozenset({0, 1, _ALL})
#: About a millisecond of work, if each partition is refused.
_PARTITIONS_PER_STEP = 200
#: Errors of transaction coordinators that older producers do not know to be retriable.
_RETRIABLE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
)
#: Only Apache's admin client may write to internal topics, as in Apache Kafka.
_INTERNAL_WRITER = "__admin_client"


def _error_response(request: ProduceRequest, version: int, error: KafkaError) -> ProduceResponse:
    if request.acks == 0:
        raise PeerError(FAILED_UNANSWERED)
    if _survey(request)[2]:
        for _ in repeated_partition.drop(request, _never):
            pass
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_failed(data.index, error) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


@handles(ApiKey.PRODUCE, error_response=_error_response)
def produce(call: Call, request: ProduceRequest) -> Reply:
    """Append each partition's batches now; answer when they are as durable as requested."""
    partitions_most, attributes, repeats = _survey(request)
    if call.is_long or repeats or partitions_most > _PARTITIONS_PER_STEP:
        return in_turns(call.connection, _produce_in_steps(call, request, attributes, repeats))
    if request.transactional_id is None:
        if attributes & TRANSACTIONAL:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif attributes & TRANSACTIONAL:
        return held_produce.hold(call, request, _partition_of, partial(_write, call, request, attributes))
    return _write(call, request, attributes, {})


def _write(call: Call, request: ProduceRequest, attributes: int, verified: held_produce.Verified) -> Reply:
    """Append and answer. `verified` holds the coordinator's answers, where it was asked beforehand."""
    pending: list[_Pending] = []
    check = attributes & _CHECKED
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    _append(call, request, topic, data, pending, check, verified) for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
            if topic.partition_data
        ]
    )
    return _reply(call, request, response, pending)


def _survey(request: ProduceRequest) -> tuple[int, int, bool]:
    """(most topics, or partitions in one topic; OR of the low attribute bytes; is a partition named twice?)."""
    topics = request.topic_data
    most, attributes = len(topics), 0
    repeats = most > 1 and len({topic.name or topic.topic_id for topic in topics}) < most
    for topic in topics:
        parts = topic.partition_data
        if len(parts) > 1:
            most = max(most, len(parts))
            repeats = repeats or len({data.index for data in parts}) < len(parts)
        for data in parts:
            if data.records is not None:
                attributes |= attributes_of(data.records)
    return most, attributes, repeats


def _produce_in_steps(
    call: Call, request: ProduceRequest, attributes: int, repeats: bool
) -> Generator[None, None, Reply]:
    """Handle very many partitions in steps; other connections go on, and this one waits for the end."""
    refused = None
    if request.transactional_id is None and attributes & TRANSACTIONAL:
        refused = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not call.is_long:
        # After the first step the receive buffer holds other data.
        for topic in request.topic_data:
            for data in topic.partition_data:
                data.records = data.records and bytes(data.records)
    if repeats:
        yield from repeated_partition.drop(request, partial(_refusal, call))
    if refused is None and attributes & TRANSACTIONAL:

        def go_on(verified: held_produce.Verified) -> Reply:
            return in_turns(call.connection, _write_in_steps(call, request, attributes, verified, None))

        return held_produce.hold(call, request, _partition_of, go_on)
    return (yield from _write_in_steps(call, request, attributes, {}, refused))


def _write_in_steps(
    call: Call,
    request: ProduceRequest,
    attributes: int,
    verified: held_produce.Verified,
    refused: KafkaError | None,
) -> Generator[None, None, Reply]:
    pending: list[_Pending] = []
    response = ProduceResponse()
    check, number = attributes & _CHECKED, 0
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            if refused is None:
                answers.append(_append(call, request, topic, data, pending, check, verified))
            else:
                answers.append(_failed(data.index, refused))
            number += 1
            if not number % _PARTITIONS_PER_STEP:
                yield
        if answers or refused is not None:
            answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            response.responses.append(answered)
    return _reply(call, request, response, pending)


def _reply(call: Call, request: ProduceRequest, response: ProduceResponse, pending: list[_Pending]) -> Reply:
    later = _Answer(call, response, pending, request.timeout_ms).later if pending else None
    if request.acks == 0:
        for topic in response.responses:
            if any(part.error_code for part in topic.partition_responses):
                raise PeerError(FAILED_UNANSWERED)
        return NO_REPLY
    return hint_to_producer(call, response) if later is None else later


class _Pending(NamedTuple):
    """A partition whose flush or commit a response waits for."""

    partition: Partition
    #: The part of the response to answer on commit; None: the log must be flushed.
    part: PartitionProduceResponse | None
    #: The offset that the high watermark must reach.
    offset: int


class _Answer:
    """A response that waits: `later` is resolved when all is flushed and committed, or on timeout."""

    __slots__ = ("_call", "_left", "_response", "_timer", "_unflushed", "_waiters", "later")

    def __init__(self, call: Call, response: ProduceResponse, pending: list[_Pending], timeout_ms: int) -> None:
        self.later = Later()
        self._call = call
        self._response = response
        self._timer: TimerHandle | None = None
        self._unflushed = [each.partition for each in pending if each.part is None]
        self._left = len(pending) - len(self._unflushed) + bool(self._unflushed)
        self._waiters: list[tuple[CommitWaiter, PartitionProduceResponse]] = []
        if self._unflushed:
            call.node.flusher.flush([partition.log for partition in self._unflushed], self._flushed)
        for partition, part, offset in pending:
            if part is not None:
                waiter = partition.when_committed(offset, partial(self._committed, part), stays=True)
                if waiter is not None:
                    self._waiters.append((waiter, part))
        if self._waiters and self._left:
            self._timer = call.node.loop.call_later(max(0, timeout_ms) / 1000, self._timed_out)

    def _flushed(self) -> None:
        for partition in self._unflushed:
            if partition.log.closed:
                _fail_partition(self._call, self._response, partition)
            else:
                partition.synced()
        self._one_done()

    def _committed(self, part: PartitionProduceResponse, error: KafkaError | None) -> None:
        if error is not None:
            # The batch is in the log; the response still says where.
            part.error_code, part.error_message = error.code, error.message or None
        self._one_done()

    def _timed_out(self) -> None:
        self._timer = None
        for waiter, part in self._waiters:
            if waiter.done is not None:
                waiter.cancel()
                self._committed(part, KafkaError(ErrorCode.REQUEST_TIMED_OUT))

    def _one_done(self) -> None:
        self._left -= 1
        if not self._left:
            if self._timer is not None:
                self._timer.cancel()
            self.later.resolve(hint_to_producer(self._call, self._response))


def _fail_partition(call: Call, response: ProduceResponse, partition: Partition) -> None:
    """Fail the partition's part of the response: its directory failed before the batch was flushed."""
    error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory has failed")
    for topic in response.responses:
        if (topic.name or call.node.topic_name(topic.topic_id)) == partition.tp.topic:
            topic.partition_responses = [
                _failed(partition_response.index, error)
                if partition_response.index == partition.tp.partition and not partition_response.error_code
                else partition_response
                for partition_response in topic.partition_responses
            ]


def _append(
    call: Call,
    request: ProduceRequest,
    topic: TopicProduceData,
    data: PartitionProduceData,
    pending: list[_Pending],
    check: int,
    verified: held_produce.Verified,
) -> PartitionProduceResponse:
    """Append one partition's batch. `check`: at least one batch of the request has attributes that need a check."""
    node = call.node
    log_start_offset = -1
    partition = None
    try:
        partition = _partition_of(call, topic, data.index)
        # Without a batch, this raises an error.
        records = data.records or only_batch(b"")
        if request.acks not in _ACKS:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        log_start_offset = partition.log.start_offset
        if partition.machine is not None and request.acks == _ALL:
            partition.check_in_sync()
        if check:
            _check_attributes(call, partition, records, verified)
        appended = partition.append(records, node.clock.now_ms())
    except KafkaError as error:
        return _failed(data.index, _first_error(call, request, topic, data) or error, log_start_offset)
    except OSError as error:
        if partition is not None:
            node.log_dirs.check(partition.log, error)
        _log.error("%s-%d cannot be written: %s", topic.name or topic.topic_id.hex(), data.index, error)
        return _failed(data.index, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log cannot be written: {error}"))
    log = partition.log
    if log.wants_flush:
        if log.must_flush:
            pending.append(_Pending(partition, None, -1))
        else:
            # The log has rolled: flush the old segment soon, as Apache Kafka does, but let no response wait for it.
            node.flusher.flush([log], _ignore)
    part = PartitionProduceResponse(
        index=data.index,
        base_offset=appended.base_offset,
        # For a duplicate, report the time of the original append.
        log_append_time_ms=appended.max_timestamp if appended.duplicate else appended.log_append_time_ms,
        log_start_offset=log.start_offset,
    )
    if partition.machine is not None and request.acks == _ALL:
        pending.append(_Pending(partition, part, appended.last_offset + 1))
    return part


def _first_error(
    call: Call, request: ProduceRequest, topic: TopicProduceData, data: PartitionProduceData
) -> KafkaError | None:
    """The error of the checks that Apache Kafka makes before it looks for the partition's leader, or None.

    Only after a refusal: most batches are appended, and the append makes the same checks when it has the header anyway.
    """
    try:
        known = call.node.image.topics.get(_name_of(call, topic))
        if known is None or not 0 <= data.index < len(known.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    except KafkaError as error:
        return error
    refused = _refusal(call, data)
    return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS) if refused is None and request.acks not in _ACKS else refused


def _refusal(call: Call, data: PartitionProduceData) -> KafkaError | None:
    """The error of records that are refused whatever the partition is, or None."""
    records = data.records or b""
    try:
        only_batch(records)
        _check_codec(call, attributes_of(records))
    except KafkaError as error:
        return error
    return None


def _never(_data: PartitionProduceData) -> None:
    return None


def _check_codec(call: Call, attributes: int) -> None:
    if attributes & _CODEC_MASK == Codec.ZSTD and call.version < _ZSTD_FROM:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd takes Produce version 7 or later")


def _check_attributes(
    call: Call,
    partition: Partition,
    records: Buffer,
    verified: held_produce.Verified,
) -> None:
    """Check that the batch's attributes agree with the request that carries it."""
    attributes = attributes_of(records)
    _check_codec(call, attributes)
    # A batch without a producer id is in no transaction, whatever its attributes say.
    if attributes & TRANSACTIONAL and (header := header_at(records)).producer_id >= 0:
        implicit = call.version >= _IMPLICIT_FROM
        try:
            call.node.transactions.pass_verified(
                partition,
                header.producer_id,
                header.producer_epoch,
                verified.get(partition.tp),
                implicit=implicit,
            )
        except KafkaError as error:
            raise _known_to_producers(error, call.version) from None


def _known_to_producers(error: KafkaError, version: int) -> KafkaError:
    """The error of a batch that its transaction coordinator did not verify, as producers of this version know it.

    Without a message the producer would show the one of the code, which says nothing about transactions.
    """
    code = error.code
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return KafkaError(code, error.message or "the partition was not added to the transaction")
    if code in _RETRIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _IMPLICIT_FROM):
        # Producers know this error to be retriable.
        why = f"cannot verify that the partition was added to the transaction: {code.name}"
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, why)
    return error


def _ignore() -> None:
    return None


def _name_of(call: Call, topic: TopicProduceData) -> str:
    if call.version < _BY_ID_FROM:
        return topic.name
    name: str | None = call.node.topic_name(topic.topic_id)
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    return name


def _partition_of(call: Call, topic: TopicProduceData, index: int) -> Partition:
    name = _name_of(call, topic)
    if name in INTERNAL_TOPICS and call.client_id != _INTERNAL_WRITER:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients may not write into {name}")
    return call.node.leader_of(name, index)


def _failed(index: int, error: KafkaError, log_start_offset: int = -1) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        error_message=error.message or None,
        base_offset=-1,
        log_start_offset=log_start_offset if isinstance(error, RefusedBatch) else -1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in (error.records if isinstance(error, RefusedBatch) else ())
        ],
    )
