"""Sends the accumulator's batches to the leaders: requests, answers, retries and sequence numbers.

The sender lives on the client's loop and is driven by `wake` and by timers; it never blocks and runs no loop of its
own.

Rules:
- A request to a broker holds at most one batch per partition, and at most `max.request.size` bytes.
- `classify_error` decides what becomes of a refused batch; the sender carries it out.
- A batch in flight fails after delivery.timeout.ms, too, and its answer then changes nothing. One of a transaction
  waits for its answer, because the end of the transaction must not overtake it.
- With idempotence a batch keeps its producer id and sequence through all retries: the broker may have it already, and
  recognises it by them. When a batch with a sequence is given up, or a broker has lost the producer's state, nothing
  more is sent until all answers are in; then a new producer id starts at sequence 0. Only batches of a partition whose
  leader has lost that state get new sequences.

KIPs: 98 (idempotence), 360 (recovery from it), 91 (delivery timeout), 516 (topic ids), 951 (leader hints).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Iterable

from ottla.client.connection.clock import now_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.connection import BrokerConnection
from ottla.client.connection.metadata import ClusterNode
from ottla.client.connection.wake_loop import WakeLoop
from ottla.client.producer.accumulator import Accumulator, PartitionQueue
from ottla.client.producer.classify_error import (
    ErrorClass,
    Item,
    classify_error,
    explained,
    parts_of,
    pause_ms,
    topic_data,
    version_at_most,
)
from ottla.client.producer.delivery import ProducerBatch, how_many
from ottla.client.producer.metric import ProducerMeter
from ottla.client.settings.producer import ProducerSettings
from ottla.client.transaction.state import Transactions
from ottla.kernel.client_error import RequestTimedOut, check, error_of, kafka_error
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.wire.api import ApiKey
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.api.produce import ProduceRequest, ProduceResponse

_log = logging.getLogger("ottla.client")


class Sender(WakeLoop):
    """Sends one producer's batches. The producer creates it, wakes it and closes it."""

    purpose = "produce"

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        settings: ProducerSettings,
        lock: threading.Lock,
        transactions: Transactions | None,
    ) -> None:
        super().__init__(cluster, settings, lock)
        #: Producer id and epoch; None before the first, or without idempotence.
        self.producer: tuple[int, int] | None = None
        #: Called on the loop, without the lock, when batches have ended or memory was released.
        self.on_progress: list[Callable[[], None]] = []
        #: Called on the loop when partitions wait to be added to the transaction.
        self.on_pending: Callable[[], None] | None = None
        self.meter = ProducerMeter(now_ms())
        #: Failed batches whose outcome `flush` has not reported yet.
        self.failed: list[ProducerBatch] = []
        self._accumulator = accumulator
        accumulator.loop = self._loop
        self._settings = settings
        self._transactions = transactions
        self._timer: asyncio.TimerHandle | None = None
        #: Wakes the sender when the next batch expires.
        self._expiry: asyncio.TimerHandle | None = None
        self._in_flight: dict[int, int] = {}
        self._renewing = False
        self._initialising = False
        #: Whether `refusal` was logged: records wait silently otherwise.
        self._refusal_logged = False
        cluster.on_update.append(self._on_metadata)

    def _topics(self) -> Iterable[str]:
        # A topic that is no longer written is forgotten: asking for one that was deleted would create it again.
        with self._lock:
            return self._accumulator.topics_in_use()

    def close(self) -> None:
        """Send nothing more; all remaining batches fail."""
        super().close()
        for timer in (self._timer, self._expiry):
            if timer is not None:
                timer.cancel()
        with self._lock:
            left = self._accumulator.close()
        if records := sum(batch.records for batch in left if not batch.waiters):
            _log.warning("%s not sent: the producer was closed without a flush", how_many(records))
        for batch in left:
            batch.fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, "the producer was closed before the record was sent"))
        self._notify_progress()

    def _on_refusal(self) -> None:
        if not self._refusal_logged:
            self._refusal_logged = True
            _log.warning("%s; trying again until delivery.timeout.ms", self.refusal)

    # ---- out

    def _pass(self, now: int) -> None:
        ended: list[ProducerBatch] = []
        loads: dict[int, list[Item]] = {}
        with self._lock:
            for partition, batch in self._accumulator.expired(now, in_flight=self._transactions is None):
                self._end(partition, batch, self._timed_out(batch), ended)
            next_ms = self._collect(now, loads) if self._may_send() else None
            if self._expiry is None and self._transactions is None:
                self._await_expiry(now)
        for node_id, items in loads.items():
            self._transmit(node_id, items)
        self._finish(ended)
        if self._transactions is not None:
            if self._transactions.pending and self.on_pending is not None:
                self.on_pending()
            if self._transactions.error is not None and self._accumulator.active:
                # Nothing more of this transaction will be sent.
                self.abort(self._transactions.error)
        if next_ms is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(max(0, next_ms - now) / 1000, self.wake)

    def _await_expiry(self, now: int) -> None:
        deadline_ms = self._accumulator.next_deadline_ms()
        if deadline_ms is not None:
            self._expiry = self._loop.call_later(max(0, deadline_ms - now) / 1000, self._on_expiry)

    def _on_expiry(self) -> None:
        self._expiry = None
        self.wake()

    def _may_send(self) -> bool:
        if self._transactions is not None:
            return self._transactions.sends
        if not self._settings.enable_idempotence or (self.producer is not None and not self._renewing):
            return True
        if self._accumulator.active and not self._initialising and not any(self._in_flight.values()):
            self._initialising = True
            self._start(self._init_producer())
        return False

    def _collect(self, now: int, loads: dict[int, list[Item]]) -> int | None:
        """Take the batches that can be sent now, by node. Returns the time of the next pass, if known."""
        next_ms: int | None = None
        transactions = self._transactions
        bytes_by_node: dict[int, int] = {}
        for partition in list(self._accumulator.active):
            due = self._accumulator.due_ms(partition, now)
            if due is None:
                continue
            if due > now and not self._has_new_leader(partition):
                next_ms = due if next_ms is None else min(next_ms, due)
                continue
            state = self._cluster.metadata.leader(partition.topic, partition.number)
            if state is None:
                self._cluster.metadata.request_update(now)
                continue
            node_id = state.leader
            if self._in_flight.get(node_id, 0) >= self._settings.max_in_flight_requests_per_connection:
                continue
            if self._open_connection(node_id) is None:
                continue
            if transactions is not None and not transactions.admit(TopicPartition(partition.topic, partition.number)):
                continue
            waiting = partition.closed[0] if partition.closed else partition.open
            assert waiting is not None
            number = self.producer if waiting.renews else waiting.producer
            if partition.in_flight and partition.in_flight[-1].producer != number:
                # Sequences of different producer ids have no order: wait for the batches in flight.
                continue
            load = bytes_by_node.get(node_id, 0)
            if load and load + waiting.size > self._settings.max_request_size:
                next_ms = now
                continue
            bytes_by_node[node_id] = load + waiting.size
            batch = self._accumulator.take(partition)
            batch.leader_epoch = state.leader_epoch
            if self.producer is not None and batch.renews:
                batch.sequence(self.producer, partition.next_sequence, transactional=transactions is not None)
                partition.next_sequence = (partition.next_sequence + batch.records) & 0x7FFFFFFF
            loads.setdefault(node_id, []).append((partition, batch))
            if partition in self._accumulator.active and (next_ms is None or next_ms > now):
                # More of this partition may be ready for the next request.
                next_ms = now
        return next_ms

    def _has_new_leader(self, partition: PartitionQueue) -> bool:
        """True if the partition's next batch was refused by a former leader: the new one need not wait (KIP-951)."""
        if not partition.closed or not partition.closed[0].attempts:
            return False
        state = self._cluster.metadata.leader(partition.topic, partition.number)
        return state is not None and state.leader_epoch > partition.closed[0].leader_epoch

    def _transmit(self, node_id: int, items: list[Item]) -> None:
        items = self._encoded(items)
        if not items:
            return self.wake()
        connection = self._connections[node_id]
        settings, transactions = self._settings, self._transactions
        request = ProduceRequest(
            transactional_id=None if transactions is None else transactions.transactional_id,
            acks=settings.acks,
            timeout_ms=settings.request_timeout_ms,
            topic_data=topic_data(items, self._cluster.metadata, settings),
        )
        now = now_ms()
        self._count(items, request, now)
        try:
            version = connection.version_of(ApiKey.PRODUCE, version_at_most(request, transactions))
            if settings.acks == 0:
                connection.send_unanswered(request, version)
                return self._when_written(node_id, connection, items)
            answer = connection.send(request, timeout_ms=settings.request_timeout_ms, version=version)
        except KafkaError as error:
            return self._all_failed(items, error)
        except OttlaError as error:
            return self._all_failed(items, KafkaError(ErrorCode.INVALID_REQUEST, str(error)))
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        answer.add_done_callback(functools.partial(self._answered, node_id, items, now))

    def _encoded(self, items: list[Item]) -> list[Item]:
        """Encode the batches and return the good ones; one that cannot be encoded fails alone."""
        good: list[Item] = []
        ended: list[ProducerBatch] = []
        for partition, batch in items:
            try:
                batch.encode(self._settings.compression_type, self._settings.compression_level)
            except Exception as error:
                why = f"{batch.topic}-{batch.partition}: encoding the batch failed: {type(error).__name__}: {error}"
                with self._lock:
                    self._end(partition, batch, KafkaError(ErrorCode.INVALID_RECORD, why), ended)
            else:
                good.append((partition, batch))
        self._finish(ended)
        return good

    def _count(self, items: list[Item], request: ProduceRequest, now: int) -> None:
        total = records = 0
        data = {(topic.name, part.index): part for topic in request.topic_data for part in topic.partition_data}
        for _, batch in items:
            size = len(data[batch.topic, batch.partition].records or b"")
            self.meter.batch_sent(batch.topic, batch.records, size, now - batch.created_ms, now)
            total += size
            records += batch.records
        self.meter.request_sent(records, total, now)

    # ---- in

    def abort(self, error: KafkaError) -> None:
        """Fail every batch that is not in flight; those in flight get their answers."""
        ended: list[ProducerBatch] = []
        with self._lock:
            for partition in list(self._accumulator.active):
                for batch in partition.waiting():
                    self._end(partition, batch, error, ended)
        # The abort itself reports the error: `flush`, which reads `failed`, does not repeat it.
        for batch in ended:
            batch.fail(error)
        self._notify_progress()

    def renumber(self, producer: tuple[int, int] | None) -> None:
        """Set another producer id or epoch: every partition's sequence starts at 0. Under the lock."""
        if producer != self.producer:
            self.producer = producer
            for topic in self._accumulator.topics.values():
                for partition in topic.partitions:
                    partition.next_sequence = 0

    def _when_written(self, node_id: int, connection: BrokerConnection, items: list[Item]) -> None:
        """Complete batches without an answer (acks=0) when the socket has taken them, so that `buffer.memory` holds."""
        if connection.is_writable:
            return self._sent_unanswered(items)
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        return self._start(self._wait_until_written(node_id, connection, items))

    async def _wait_until_written(self, node_id: int, connection: BrokerConnection, items: list[Item]) -> None:
        await connection.writable()
        self._in_flight[node_id] -= 1
        self._sent_unanswered(items)

    def _sent_unanswered(self, items: list[Item]) -> None:
        items = _unended(items)
        with self._lock:
            for partition, batch in items:
                self._accumulator.complete(partition, batch)
        for _, batch in items:
            batch.succeed(-1, -1)
        self._notify_progress()
        self.wake()

    def _answered(self, node_id: int, items: list[Item], sent_ms: int, answer: asyncio.Future[ProduceResponse]) -> None:
        self._in_flight[node_id] -= 1
        items = _unended(items)
        if answer.cancelled():
            return self._all_failed(items, KafkaError(ErrorCode.NETWORK_EXCEPTION, "the request was cancelled"))
        error = answer.exception()
        if error is not None:
            if not isinstance(error, KafkaError):
                raise error
            return self._all_failed(items, error)
        response = answer.result()
        self.refusal, self._refusal_logged = None, False
        now = now_ms()
        self.meter.answered(now - sent_ms, response.throttle_time_ms, now)
        metadata = self._cluster.metadata
        metadata.add_nodes(
            ClusterNode(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints
        )
        parts = parts_of(response, metadata)
        ended: list[ProducerBatch] = []
        good: list[tuple[ProducerBatch, int, int]] = []
        with self._lock:
            for partition, batch in items:
                part = parts.get((batch.topic, batch.partition))
                if part is None:
                    why = KafkaError(ErrorCode.NETWORK_EXCEPTION, "the broker's answer lacks this partition")
                    self._failed(partition, batch, why, ended)
                elif part.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._accumulator.complete(partition, batch)
                    good.append((batch, part.base_offset, part.log_append_time_ms))
                else:
                    hint = part.current_leader
                    if hint.leader_id >= 0:
                        metadata.leader_moved(batch.topic, batch.partition, hint.leader_id, hint.leader_epoch)
                    part_error = error_of(part.error_code, explained(part, batch))
                    assert part_error is not None
                    self._failed(partition, batch, part_error, ended)
        for batch, offset, append_time in good:
            batch.succeed(offset, append_time)
        self._finish(ended)
        self._notify_progress()
        self.wake()

    def _all_failed(self, items: list[Item], error: KafkaError) -> None:
        ended: list[ProducerBatch] = []
        with self._lock:
            for partition, batch in items:
                self._failed(partition, batch, error, ended)
        self._finish(ended)
        self.wake()

    def _failed(
        self, partition: PartitionQueue, batch: ProducerBatch, error: KafkaError, ended: list[ProducerBatch]
    ) -> None:
        """Handle a batch in flight that was refused. Under the lock."""
        now = now_ms()
        error_class = classify_error(batch, partition, error, self._transactions, self._settings, now)
        if error_class is ErrorClass.SPLIT:
            return self._accumulator.split(partition, batch)
        if error_class is ErrorClass.FAIL:
            late = now >= batch.deadline_ms
            return self._end(partition, batch, self._timed_out(batch, error) if late else error, ended)
        if error_class is ErrorClass.RENUMBER:
            for queued in (*partition.in_flight, *partition.closed):
                queued.renews = True
            self._renewing = self._renewing or batch.producer == self.producer
        self._cluster.metadata.request_update(now)
        self.meter.retried(batch.topic, batch.records, now)
        self._accumulator.put_back(partition, batch, now + pause_ms(batch, error, self._settings))

    def _end(
        self, partition: PartitionQueue, batch: ProducerBatch, error: KafkaError, ended: list[ProducerBatch]
    ) -> None:
        self._accumulator.complete(partition, batch)
        if self._transactions is not None:
            self._transactions.given_up(error, numbered=batch.producer is not None)
        elif batch.producer is not None and batch.producer == self.producer:
            # Its sequence numbers are now a gap, or were written without a confirmation.
            self._renewing = True
        self.meter.failed(batch.topic, batch.records, now_ms())
        batch.error = error
        ended.append(batch)

    def _finish(self, ended: list[ProducerBatch]) -> None:
        """Complete failed batches. Without the lock: their callbacks may send again."""
        for batch in ended:
            assert batch.error is not None
            if not batch.waiters:
                _log.warning(
                    "%s-%d: %s not delivered: %s", batch.topic, batch.partition, how_many(batch.records), batch.error
                )
            self.failed.append(batch)
            batch.fail(batch.error)
        if ended:
            self._notify_progress()

    def _timed_out(self, batch: ProducerBatch, last: KafkaError | None = None) -> KafkaError:
        reason = last or self.refusal
        why = f" (last: {reason})" if reason is not None else ""
        return RequestTimedOut(f"not delivered within delivery.timeout.ms={self._settings.delivery_timeout_ms}{why}")

    def _notify_progress(self) -> None:
        for callback in self.on_progress:
            callback()

    # ---- tasks

    def _on_metadata(self) -> None:
        topics = self._cluster.metadata.topics
        with self._lock:
            for name in self._accumulator.topics:
                if name in topics:
                    self.set_partitions(name)
        self.wake()

    @property
    def requests_in_flight(self) -> int:
        """The number of requests without an answer yet."""
        return sum(self._in_flight.values())

    def set_partitions(self, topic: str) -> None:
        """Pass a topic's metadata to the accumulator; the topic must be in the metadata. Under the lock."""
        states = self._cluster.metadata.topics[topic].partitions
        nodes = self._cluster.metadata.nodes
        self._accumulator.set_partitions(
            topic, len(states), [state.partition for state in states if state.leader in nodes]
        )

    async def _init_producer(self) -> None:
        """Get a new producer id, with which all sequences start at 0."""
        settings = self._settings

        async def attempt() -> InitProducerIdResponse:
            connection = await self._cluster.any()
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
            response = await connection.call(request, InitProducerIdResponse, timeout_ms=settings.request_timeout_ms)
            check(response.error_code, "the producer id for idempotence was refused")
            return response

        try:
            response = await self._cluster.retry(attempt, settings.delivery_timeout_ms)
        except Exception as error:
            why = kafka_error(error)
            ended: list[ProducerBatch] = []
            with self._lock:
                for partition in list(self._accumulator.active):
                    for batch in partition.waiting():
                        self._end(partition, batch, why, ended)
            self._finish(ended)
        else:
            with self._lock:
                self.renumber((response.producer_id, response.producer_epoch))
                self._renewing = False
        finally:
            self._initialising = False
            self.wake()


def _unended(items: list[Item]) -> list[Item]:
    """The batches that have not expired while they were in flight."""
    return [item for item in items if not item[1].done]
