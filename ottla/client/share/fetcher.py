"""Acquires a share group's records for one consumer, and sends its acknowledgements.

The fetcher lives on the client's loop and is driven by `wake`. It has at most one request in flight per broker.

Rules:
- Records are acquired when a poll waits for them, not ahead of it, because their lock runs from then on.
- A node that answers at once without records (fetch.min.bytes=0) is asked again only after a pause, however often polls
  wake the fetcher.
- Acknowledgements go with the next fetch to their broker, or alone when no poll waits for records.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ottla.client.acknowledgement import GAP, Acknowledge, Acknowledgements, Range, ShareRecord
from ottla.client.connection.clock import now_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.connection import BrokerConnection
from ottla.client.connection.metadata import ClusterNode
from ottla.client.connection.wake_loop import WakeLoop
from ottla.client.settings.share import ShareConsumerSettings
from ottla.client.share.session import ShareFetchSession, offsets_of
from ottla.columns.record import Unread, batches
from ottla.kernel.client_error import check, error_of
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.wire.api.share_acknowledge import ShareAcknowledgeResponse
from ottla.wire.api.share_fetch import PartitionData, ShareFetchResponse
from ottla.wire.batch import check as check_crc

_log = logging.getLogger("ottla.client")

#: The pause between fetches that do not wait for records.
_BUSY_WAIT_MS = 5
#: Callback for answered acknowledgements: partition, offsets, and the error (None: acknowledged).
OnAnswer = Callable[[TopicPartition, list[int], KafkaError | None], Any]
Sent = Mapping[TopicPartition, list[Range]]


class ShareFetcher(WakeLoop):
    """A share consumer's requests to leaders. The consumer creates it, wakes it and closes it."""

    purpose = "share"

    def __init__(
        self,
        cluster: Cluster,
        settings: ShareConsumerSettings,
        acknowledgements: Acknowledgements,
        lock: threading.Lock,
        on_answer: OnAnswer,
    ) -> None:
        super().__init__(cluster, settings, lock)
        #: The assigned partitions.
        self.assigned: set[TopicPartition] = set()
        #: True while a poll waits for records.
        self.poll_waits = False
        #: Acquired records that no poll has returned yet.
        self.records: list[ShareRecord] = []
        #: Error for the next poll to raise.
        self.error: Exception | None = None
        self.lock_timeout_ms: int | None = None
        self.on_data: list[Callable[[], None]] = []
        self._settings = settings
        self._acknowledgements = acknowledgements
        self._on_answer = on_answer
        self._sessions: dict[int, tuple[BrokerConnection, ShareFetchSession]] = {}
        self._busy: dict[int, Sent] = {}
        #: When to ask a node again that has refused something (monotonic ms), however often polls wake the fetcher.
        self._held: dict[int, int] = {}
        cluster.on_update.append(self.wake)

    def _topics(self) -> set[str]:
        return {partition.topic for partition in self.assigned}

    @property
    def idle(self) -> bool:
        """True if nothing is to be sent and no acknowledgement is in flight."""
        return not self._acknowledgements.ready and not any(self._busy.values())

    def _pass(self, now: int) -> None:
        metadata = self._cluster.metadata
        wanted: dict[int, dict[TopicPartition, Uuid]] = {}
        for partition in sorted({*self.assigned, *self._acknowledgements.ready}):
            leader = metadata.leader(*partition)
            if leader is None:
                metadata.request_update(now)
                if partition.topic not in metadata.topics and partition in self._acknowledgements.ready:
                    self._fail_deleted(partition)
                continue
            wanted.setdefault(leader.leader, {})[partition] = metadata.topics[partition.topic].id
        for node_id, ids in wanted.items():
            if node_id not in self._busy and now >= self._held.get(node_id, 0):
                connection = self._open_connection(node_id)
                if connection is not None:
                    self._ask(node_id, connection, ids)

    def _ask(self, node_id: int, connection: BrokerConnection, ids: dict[TopicPartition, Uuid]) -> None:
        session = self._session(node_id, connection)
        poll_waits = self.poll_waits and not self.records
        ready = [partition for partition in ids if partition in self._acknowledgements.ready]
        renews = any(Acknowledge.RENEW in self._acknowledgements.ready[partition].values() for partition in ready)
        with self._lock:
            sent = self._acknowledgements.take(ready) if session.began else {}
        settings = self._settings
        request: Any
        # Also alone if a partition is no longer read: a fetch that names it would acquire more of its records.
        if sent and (renews or not poll_waits or not self.assigned.issuperset(sent)):
            request = session.acknowledge(ids, sent)
            request.is_renew_ack = renews
        elif poll_waits or ready:
            request = session.fetch(
                {partition: ids[partition] for partition in ids if partition in self.assigned}, sent
            )
            # A session that is opened only to send acknowledgements does not wait for records.
            request.max_wait_ms = settings.fetch_max_wait_ms if poll_waits else 0
            request.min_bytes = settings.fetch_min_bytes
            request.max_bytes = settings.fetch_max_bytes
            request.max_records = request.batch_size = settings.max_poll_records
            request.share_acquire_mode = int(settings.share_acquire_mode == "record_limit")
        else:
            return
        request.group_id, request.member_id = settings.group_id, self.member_id
        self._busy[node_id] = sent
        try:
            timeout_ms = settings.request_timeout_ms + settings.fetch_max_wait_ms
            answer = connection.send(request, timeout_ms=timeout_ms)
        except KafkaError as error:
            return self._failed(node_id, session, error)
        answer.add_done_callback(functools.partial(self._answered, node_id, session))

    #: Set by the consumer before the first wake-up.
    member_id = ""

    def _session(self, node_id: int, connection: BrokerConnection) -> ShareFetchSession:
        session_entry = self._sessions.get(node_id)
        if session_entry is None or session_entry[0] is not connection:
            session_entry = self._sessions[node_id] = (connection, ShareFetchSession())
        return session_entry[1]

    # ---- answers

    def _answered(self, node_id: int, session: ShareFetchSession, answer: asyncio.Future[Any]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            error = None if answer.cancelled() else answer.exception()
            why = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error or "the request was cancelled"))
            return self._failed(node_id, session, why)
        response: ShareFetchResponse | ShareAcknowledgeResponse = answer.result()
        if not session.answered(response.error_code):
            return self._failed(node_id, session, error_of(response.error_code, response.error_message))
        if error := error_of(response.error_code, response.error_message):
            if not error.code.retriable:
                _log.warning("node %d failed to answer a share fetch (%s); asking again", node_id, error)
            return self._failed(node_id, session, error)
        sent = self._busy.pop(node_id)
        self.lock_timeout_ms = response.acquisition_lock_timeout_ms or self.lock_timeout_ms
        metadata = self._cluster.metadata
        metadata.add_nodes(
            ClusterNode(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints
        )
        refused = acquired = False
        for partition, data in self._acknowledged(sent, response):
            # The locks on records of a deleted topic expire on their own.
            if isinstance(data, PartitionData) and partition.topic:
                refused = not self._take_in(partition, data) or refused
                acquired = acquired or bool(data.acquired_records)
        unwaited = 0 in (self._settings.fetch_min_bytes, self._settings.fetch_max_wait_ms)
        if refused:
            self._hold(node_id)
        elif unwaited and self.poll_waits and not acquired and isinstance(response, ShareFetchResponse):
            self._hold(node_id, _BUSY_WAIT_MS)
        self._wake_up()

    def _acknowledged(
        self, sent: Sent, response: ShareFetchResponse | ShareAcknowledgeResponse
    ) -> list[tuple[TopicPartition, Any]]:
        """Report the outcome of each partition's acknowledgements. Returns the partitions of the answer.

        Acknowledgements that the answer does not mention have failed, as in Java's client.
        """
        names = self._cluster.metadata.topic_names
        answers: list[tuple[TopicPartition, Any]] = [
            (TopicPartition(names.get(bytes(topic.topic_id), ""), data.partition_index), data)
            for topic in response.responses
            for data in topic.partitions
        ]
        for partition, data in answers:
            if isinstance(data, PartitionData):
                error = error_of(data.acknowledge_error_code, data.acknowledge_error_message)
            else:
                error = error_of(data.error_code, data.error_message)
            self._report(partition, sent, error)
        for partition in set(sent).difference(partition for partition, _ in answers):
            why = f"{partition}: the broker's answer does not mention the acknowledgements"
            self._report(partition, sent, KafkaError(ErrorCode.INVALID_RECORD_STATE, why))
        return answers

    def _failed(self, node_id: int, session: ShareFetchSession, error: KafkaError | None) -> None:
        """Handle a failed request: its acknowledgements are not retried, and the session starts again."""
        session.reset()
        self._report_failure(self._busy.pop(node_id, {}), error)
        if not self._closed:
            self._cluster.metadata.request_update(now_ms())
            self._hold(node_id)
            self._wake_up()

    def _report(self, partition: TopicPartition, sent: Sent, error: KafkaError | None) -> None:
        if partition in sent:
            self._on_answer(partition, offsets_of(sent[partition]), error)

    def _wake_up(self) -> None:
        for callback in self.on_data:
            callback()
        self.wake()

    def _on_refusal(self) -> None:
        for callback in self.on_data:
            callback()

    def _hold(self, node_id: int, pause_ms: int | None = None) -> None:
        """Ask this node again after a pause (default: retry.backoff.ms)."""
        pause_ms = self._settings.retry_backoff_ms if pause_ms is None else pause_ms
        self._held[node_id] = now_ms() + pause_ms
        self._loop.call_later(pause_ms / 1000, self.wake)

    def _take_in(self, partition: TopicPartition, data: PartitionData) -> bool:
        """Take in one partition of an answer. False if the node should be asked again only after a pause."""
        if data.error_code:
            error = error_of(data.error_code, f"{partition}: {data.error_message}")
            assert error is not None
            hint = data.current_leader
            metadata = self._cluster.metadata
            if hint.leader_id >= 0 and metadata.leader_moved(*partition, hint.leader_id, hint.leader_epoch):
                return True
            metadata.request_update(now_ms())
            if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                _log.warning("%s; asking again", error)
            elif error.code is ErrorCode.CORRUPT_MESSAGE or not error.code.retriable:
                self.error = error
            return False
        if data.acquired_records:
            self._acquire(partition, data)
        return True

    def _acquire(self, partition: TopicPartition, data: PartitionData) -> None:
        """Take in acquired records. Those of a batch that cannot be read are rejected: no consumer could read them."""
        counts = {
            offset: acquired.delivery_count
            for acquired in data.acquired_records
            for offset in range(acquired.first_offset, acquired.last_offset + 1)
        }
        records: list[ShareRecord] = []
        unreadable: list[int] = []
        batches_data = data.records if data.records is not None else b""
        try:
            for position, header in batches(batches_data, min(counts), aborted=None, check_crcs=False):
                try:
                    if self._settings.check_crcs:
                        check_crc(batches_data, position)
                    found = Unread(batches_data, position, header, *partition, header.base_offset).take(header.count)
                except KafkaError as error:
                    self.error = error
                    end = header.base_offset + header.last_offset_delta
                    unreadable += [offset for offset in counts if header.base_offset <= offset <= end]
                    continue
                for record in found:
                    count = counts.pop(record.offset, None)
                    if count is not None:
                        records.append(ShareRecord(*record, count))
        except KafkaError as error:
            # Not even the batches can be told apart from here on.
            self.error = error
            unreadable = list(counts)
        for offset in unreadable:
            counts.pop(offset, None)
        with self._lock:
            self._acknowledgements.acknowledge_unseen(partition, unreadable, Acknowledge.REJECT)
            self._acknowledgements.acknowledge_unseen(partition, counts, GAP)
            if partition in self.assigned:
                self.records += records
            else:
                self._acknowledgements.acknowledge_unseen(
                    partition, [record.offset for record in records], Acknowledge.RELEASE
                )

    # ---- the end

    async def finish(self) -> None:
        """Send the ready acknowledgements and end the sessions, which releases all records still locked."""
        self._closed = True
        ready = self._acknowledgements
        for node_id, (connection, session) in self._sessions.items():
            if connection.closed is not None or not session.began:
                continue
            metadata = self._cluster.metadata
            led = [
                partition
                for partition in ready.ready
                if (state := metadata.leader(*partition)) and state.leader == node_id
            ]
            ids = {partition: metadata.topics[partition.topic].id for partition in led}
            sent = ready.take(led)
            request = session.acknowledge(ids, sent, last=True)
            request.group_id, request.member_id = self._settings.group_id, self.member_id
            try:
                response = await connection.call(
                    request, ShareAcknowledgeResponse, timeout_ms=self._settings.request_timeout_ms
                )
                check(response.error_code, response.error_message)
            except KafkaError as error:
                self._report_failure(sent, error)
            except OttlaError as error:
                self._report_failure(sent, KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)))
            else:
                self._acknowledged(sent, response)
        why = "the consumer was closed, and has no session with the leader"
        self._report_failure(ready.take(list(ready.ready)), KafkaError(ErrorCode.NETWORK_EXCEPTION, why))
        self.close()

    def _fail_deleted(self, partition: TopicPartition) -> None:
        """Fail the acknowledgements of a deleted topic, which no broker would take, so that no commit waits for
        them.
        """
        with self._lock:
            sent = self._acknowledgements.take([partition])
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition}: the topic was deleted")
        self._report_failure(sent, error)
        self._wake_up()

    def _report_failure(self, sent: Sent, error: KafkaError | None) -> None:
        for partition in sent:
            self._report(partition, sent, error)
