"""Holds a transactional produce request until the transaction coordinator, perhaps on another broker, has verified it.

Rules:
- One round of questions covers all partitions in which the transaction is not open yet; then the whole request is
  handled.
- The producer's connection is not read meanwhile, as in Apache Kafka, because its next request must not overtake this
  one. Other connections go on. At most one request per connection is held, its records copied out of the receive
  buffer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.broker.call.handler import Call
from ottla.broker.call.reply import Later, Reply
from ottla.broker.coordinators.verification import Codes, CoordinatorQuestion
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.net.inbound import PeerError
from ottla.replica.partition import Partition
from ottla.wire.api.produce import ProduceRequest, TopicProduceData
from ottla.wire.batch import header_at, is_transactional

_log = logging.getLogger("ottla.broker")
_IMPLICIT_FROM = 12
_Producer = tuple[int, int]

#: Partition -> (token of `prepare`, the coordinator's answer).
Verified = dict[TopicPartition, tuple[object, ErrorCode]]
PartitionOf = Callable[[Call, TopicProduceData, int], Partition]


def hold(call: Call, request: ProduceRequest, partition_of: PartitionOf, go_on: Callable[[Verified], Reply]) -> Reply:
    """Hold the request while the coordinator is asked about its partitions; handle it at once without questions."""
    tokens: dict[TopicPartition, object] = {}
    producers: dict[_Producer, list[TopicPartition]] = {}
    implicit = call.version >= _IMPLICIT_FROM
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is None or not is_transactional(records):
                continue
            header = header_at(records)
            producer = header.producer_id, header.producer_epoch
            try:
                partition = partition_of(call, topic, data.index)
                token = call.node.transactions.prepare(
                    partition, *producer, sequence=header.base_sequence, implicit=implicit
                )
            except KafkaError:
                # The request gets this error when it is handled.
                continue
            if token is not None:
                tokens[partition.tp] = token
                producers.setdefault(producer, []).append(partition.tp)
    if not tokens:
        return go_on({})
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = bytearray(data.records)
    return _HeldRequest(call, request, tokens, go_on).ask(producers, adds=implicit)


class _HeldRequest:
    """A held request, and the coordinators' answers so far."""

    def __init__(
        self,
        call: Call,
        request: ProduceRequest,
        tokens: dict[TopicPartition, object],
        go_on: Callable[[Verified], Reply],
    ) -> None:
        self._call = call
        self._transactional_id = request.transactional_id or ""
        self._tokens = tokens
        self._go_on = go_on
        self._verified: Verified = {}
        self._later = Later()

    def ask(self, producers: dict[_Producer, list[TopicPartition]], *, adds: bool) -> Later:
        """Ask the coordinators, and return the future response of the whole request."""
        self._call.connection.pause()
        verification, left = self._call.node.transactions.verification, len(producers)

        def answered(codes: Codes) -> None:
            nonlocal left
            self._verified.update({tp: (self._tokens[tp], code) for tp, code in codes.items()})
            left -= 1
            if not left:
                self._handle()

        for (producer_id, epoch), partitions in producers.items():
            verification.ask(
                CoordinatorQuestion(self._transactional_id, producer_id, epoch, tuple(partitions), adds, answered)
            )
        return self._later

    def _handle(self) -> None:
        """Handle the request after the last answer, and read from the connection again."""
        if self._call.connection.closed:
            return
        try:
            reply = self._go_on(self._verified)
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
