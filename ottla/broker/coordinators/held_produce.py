"""Holds a transactional produce request until the transaction coordinator, perhaps on another broker, has verified it.

Rules:
- The coordinator is asked once about all partitions in which the transaction is not open yet; the whole request is
  handled after its answer.
- A coordinator that still ends the producer's last transaction is asked again, every
  `add.partitions.to.txn.retry.backoff.ms` for `add.partitions.to.txn.retry.backoff.max.ms`: for the producer it would
  cost more to send its records again.
- The producer's connection is not read meanwhile, as in Apache Kafka, because its next request must not overtake this
  one. Other connections go on. At most one request per connection is held, its records copied out of the receive
  buffer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.broker.call.handler import Call
from ottla.broker.call.reply import FAILED_UNANSWERED, Later, Reply
from ottla.broker.coordinators.verification import Codes, CoordinatorQuestion
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.net.inbound import PeerError
from ottla.replica.partition import Partition
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.batch import BatchHeader, header_at, is_transactional

_log = logging.getLogger("ottla.broker")
_IMPLICIT_FROM = 12
_Producer = tuple[int, int]

#: Partition -> (token of `prepare`, the coordinator's answer).
Verified = dict[TopicPartition, tuple[object, ErrorCode]]
PartitionOf = Callable[[Call, TopicProduceData, int], Partition]


def hold(call: Call, request: ProduceRequest, partition_of: PartitionOf, go_on: Callable[[Verified], Reply]) -> Reply:
    """Hold the request while the coordinator is asked about its partitions; handle it at once without questions."""
    producers = {
        (header.producer_id, header.producer_epoch)
        for topic in request.topic_data
        for data in topic.partition_data
        if (header := _header(data)) is not None
    }
    if not producers:
        return go_on({})
    if len(producers) > 1:
        if request.acks == 0:
            raise PeerError(FAILED_UNANSWERED)
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the request has batches of several producers")
    held = _HeldRequest(call, request, producers.pop(), partition_of, go_on)
    if not held.prepare():
        return go_on({})
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = bytearray(data.records)
    return held.begin()


def _header(data: PartitionProduceData) -> BatchHeader | None:
    """The header of a batch of a transaction. A batch without a producer id is in none, whatever its attributes say."""
    if data.records is None or not is_transactional(data.records):
        return None
    header = header_at(data.records)
    return header if header.producer_id >= 0 else None


class _HeldRequest:
    """A held request, and what its coordinator is asked."""

    def __init__(
        self,
        call: Call,
        request: ProduceRequest,
        producer: _Producer,
        partition_of: PartitionOf,
        go_on: Callable[[Verified], Reply],
    ) -> None:
        self._call = call
        self._request = request
        self._producer = producer
        self._partition_of = partition_of
        self._go_on = go_on
        self._adds = call.version >= _IMPLICIT_FROM
        self._tokens: dict[TopicPartition, object] = {}
        self._asked_until = 0.0
        self._later = Later()

    def prepare(self) -> bool:
        """Find the partitions that the coordinator must be asked about; is there one?"""
        self._tokens.clear()
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                if (header := _header(data)) is None:
                    continue
                try:
                    partition = self._partition_of(self._call, topic, data.index)
                    token = self._call.node.transactions.prepare(
                        partition, *self._producer, sequence=header.base_sequence, implicit=self._adds
                    )
                except KafkaError:
                    # The request gets this error when it is handled.
                    continue
                if token is not None:
                    self._tokens[partition.tp] = token
        return bool(self._tokens)

    def begin(self) -> Later:
        """Ask the coordinator, and return the future response of the whole request."""
        settings = self._call.node.settings
        limit_ms = min(settings.add_partitions_to_txn_retry_backoff_max_ms, settings.request_timeout_ms)
        self._asked_until = self._call.node.loop.time() + limit_ms / 1000
        self._call.connection.pause()
        self._ask()
        return self._later

    def _ask(self) -> None:
        self._call.node.transactions.verification.ask(
            CoordinatorQuestion(
                self._request.transactional_id or "",
                *self._producer,
                partitions=tuple(self._tokens),
                adds=self._adds,
                done=self._answered,
            )
        )

    def _answered(self, codes: Codes) -> None:
        if self._adds and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values():
            node = self._call.node
            if node.loop.time() < self._asked_until:
                node.loop.call_later(node.settings.add_partitions_to_txn_retry_backoff_ms / 1000, self._ask_again)
                return
        self._handle({tp: (self._tokens[tp], code) for tp, code in codes.items()})

    def _ask_again(self) -> None:
        if self._call.connection.closed:
            return
        # The last transaction's marker, or a change of the partition's leader, ends what was prepared.
        if self.prepare():
            self._ask()
        else:
            self._handle({})

    def _handle(self, verified: Verified) -> None:
        """Handle the request after the last answer, and read from the connection again."""
        if self._call.connection.closed:
            return
        try:
            reply = self._go_on(verified)
        except PeerError as error:
            self._call.connection.close(str(error))
            return
        except KafkaError as error:
            reply = error
        except Exception:
            _log.exception("a held produce request failed")
            reply = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if type(reply) is Later:
            reply.then(self._later.resolve)
        else:
            self._later.resolve(reply)
        self._call.connection.resume()
