"""Acquires a share group's records for one consumer, and sends its acknowledgements.

The fetcher lives on the client's loop and is driven by `wake`. It has at most one request in flight per broker.

Rules:
- Records are acquired when a poll waits for them, not ahead of it, because their lock runs from then on.
- A node that answers at once without records (fetch.min.bytes=0) is asked again only after a pause, however often polls
  wake the fetcher.
- In record_limit mode one node at a time is asked for records, so that a poll acquires no more than max.poll.records.
- Acknowledgements go with the next fetch to their broker, or alone when no poll waits for records.
- They go only to the broker that delivered the records, in the same session: when that is over, or the partition has
  another leader, the records are unlocked and delivered again, so their acknowledgements fail.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

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
Offsets = set[tuple[TopicPartition, int]]
#: Errors of acknowledgements that are not retried although they may pass: the records are not locked any more.
_UNLOCKED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


class _Source(NamedTuple):
    """Where a partition's records were acquired last."""

    node_id: int
    session: ShareFetchSession
    topic_id: Uuid


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
        self._sources: dict[TopicPartition, _Source] = {}
        self._busy: dict[int, Sent] = {}
        #: The nodes that were asked for records and have not answered.
        self._reading: set[int] = set()
        #: The number of the last request for records to each node; the node with the lowest one is next.
        self._turns: dict[int, int] = {}
        #: When to ask a node again that has refused something (monotonic ms), however often polls wake the fetcher.
        self._held: dict[int, int] = {}
        cluster.on_update.append(self.wake)

    def _topics(self) -> set[str]:
        return {partition.topic for partition in self.assigned}

    def unanswered(self) -> Offsets:
        """The offsets whose acknowledgements are to be sent, or are in flight."""
        with self._lock:
            found = {
                (partition, offset) for partition, kinds in self._acknowledgements.ready.items() for offset in kinds
            }
        for sent in self._busy.values():
            found.update((partition, offset) for partition, given in sent.items() for offset in offsets_of(given))
        return found

    def _pass(self, now: int) -> None:
        metadata = self._cluster.metadata
        wanted: dict[int, dict[TopicPartition, Uuid]] = {}
        for partition in sorted(self.assigned):
            leader = metadata.leader(*partition)
            if leader is None:
                metadata.request_update(now)
                continue
            wanted.setdefault(leader.leader, {})[partition] = metadata.topics[partition.topic].id
        for partition in sorted(self._acknowledgements.ready):
            source = self._source(partition)
            if source is not None:
                wanted.setdefault(source.node_id, {})
        for node_id in sorted(wanted, key=lambda node_id: self._turns.get(node_id, 0)):
            if node_id not in self._busy and now >= self._held.get(node_id, 0):
                connection = self._open_connection(node_id)
                if connection is not None:
                    self._ask(node_id, connection, wanted[node_id])

    def _source(self, partition: TopicPartition) -> _Source | None:
        """Where the acknowledgements of this partition go; None if they have failed."""
        metadata = self._cluster.metadata
        source = self._sources[partition]
        leader = metadata.leader(*partition)
        if partition.topic not in metadata.topics:
            metadata.request_update(now_ms())
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition}: the topic was deleted")
        elif not self._is_open(source) or (leader is not None and leader.leader != source.node_id):
            why = f"{partition}: the session in which the records were delivered is over; they are delivered again"
            error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, why)
        else:
            return source
        with self._lock:
            sent = self._acknowledgements.take([partition])
        self._report_failure(sent, error)
        self._wake_up()
        return None

    def _is_open(self, source: _Source) -> bool:
        connection, session = self._sessions.get(source.node_id, (None, None))
        return session is source.session and connection is not None and connection.closed is None

    def _ask(self, node_id: int, connection: BrokerConnection, wanted: dict[TopicPartition, Uuid]) -> None:
        """Send this node its acknowledgements, and ask it for the records of `wanted` if a poll waits."""
        session = self._session(node_id, connection)
        settings = self._settings
        limited = settings.share_acquire_mode == "record_limit"
        reads = bool(self.poll_waits and wanted and not self.records and not (limited and self._reading))
        ready = self._acknowledgements.ready
        with self._lock:
            ids = {
                partition: source.topic_id
                for partition in ready
                if (source := self._sources[partition]).session is session
            }
            renews = any(Acknowledge.RENEW in ready[partition].values() for partition in ids)
            sent = self._acknowledgements.take(ids)
        request: Any
        # Also alone if a partition is no longer read: a fetch that names it would acquire more of its records.
        if sent and (renews or not reads or any(wanted.get(partition) != ids[partition] for partition in sent)):
            reads = False
            request = session.acknowledge(ids, sent)
            request.is_renew_ack = renews
        elif reads:
            request = session.fetch(wanted, sent)
            request.max_wait_ms = settings.fetch_max_wait_ms
            request.min_bytes = settings.fetch_min_bytes
            request.max_bytes = settings.fetch_max_bytes
            request.max_records = request.batch_size = settings.max_poll_records
            request.share_acquire_mode = int(limited)
        else:
            return
        request.group_id, request.member_id = settings.group_id, self.member_id
        self._busy[node_id] = sent
        try:
            timeout_ms = settings.request_timeout_ms + settings.fetch_max_wait_ms
            answer = connection.send(request, timeout_ms=timeout_ms)
        except KafkaError as error:
            return self._failed(node_id, error)
        if reads:
            self._reading.add(node_id)
            self._turns[node_id] = max(self._turns.values(), default=0) + 1
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
            return self._failed(node_id, why)
        response: ShareFetchResponse | ShareAcknowledgeResponse = answer.result()
        if not session.answered(response.error_code):
            return self._failed(node_id, error_of(response.error_code, response.error_message))
        if error := error_of(response.error_code, response.error_message):
            if not error.code.retriable:
                _log.warning("node %d failed to answer a share fetch (%s); asking again", node_id, error)
            return self._failed(node_id, error)
        sent = self._busy.pop(node_id)
        self._reading.discard(node_id)
        self.lock_timeout_ms = response.acquisition_lock_timeout_ms or self.lock_timeout_ms
        metadata = self._cluster.metadata
        metadata.add_nodes(
            ClusterNode(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints
        )
        refused = acquired = False
        for partition, topic_id, data in self._acknowledged(sent, response):
            # The locks on records of a deleted topic expire on their own.
            if not partition.topic:
                continue
            refused = not self._take_in(partition, data) or refused
            if isinstance(data, PartitionData) and data.acquired_records:
                acquired = True
                self._sources[partition] = _Source(node_id, session, topic_id)
                self._acquire(partition, data)
        unwaited = 0 in (self._settings.fetch_min_bytes, self._settings.fetch_max_wait_ms)
        if refused:
            self._hold(node_id)
        elif unwaited and self.poll_waits and not acquired and isinstance(response, ShareFetchResponse):
            self._hold(node_id, _BUSY_WAIT_MS)
        self._wake_up()

    def _acknowledged(
        self, sent: Sent, response: ShareFetchResponse | ShareAcknowledgeResponse
    ) -> list[tuple[TopicPartition, Uuid, Any]]:
        """Report the outcome of each partition's acknowledgements. Returns the partitions of the answer.

        Acknowledgements that the answer does not mention have failed, as in Java's client. Those of a ShareAcknowledge
        that may pass later are sent again.
        """
        names = self._cluster.metadata.topic_names
        answers: list[tuple[TopicPartition, Uuid, Any]] = [
            (TopicPartition(names.get(bytes(topic.topic_id), ""), data.partition_index), topic.topic_id, data)
            for topic in response.responses
            for data in topic.partitions
        ]
        for partition, _, data in answers:
            if isinstance(data, PartitionData):
                error = error_of(data.acknowledge_error_code, data.acknowledge_error_message)
            else:
                error = error_of(data.error_code, data.error_message)
                if error and error.code.retriable and error.code not in _UNLOCKED and not self._closed:
                    with self._lock:
                        self._acknowledgements.put_back(partition, sent.get(partition, []))
                    continue
            self._report(partition, sent, error)
        for partition in set(sent).difference(partition for partition, _, _ in answers):
            why = f"{partition}: the broker's answer does not mention the acknowledgements"
            self._report(partition, sent, KafkaError(ErrorCode.INVALID_RECORD_STATE, why))
        return answers

    def _failed(self, node_id: int, error: KafkaError | None) -> None:
        """Handle a failed request: its acknowledgements are not retried, and a new session starts."""
        self._sessions.pop(node_id, None)
        self._reading.discard(node_id)
        self._report_failure(self._busy.pop(node_id, {}), error)
        if not self._closed:
            self._cluster.metadata.request_update(now_ms())
            self._hold(node_id)
        # Also after the end: a commit may wait for the answer.
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

    def _take_in(self, partition: TopicPartition, data: Any) -> bool:
        """Handle the error of one partition of an answer. False if the node is to be asked again only after a pause."""
        if not data.error_code:
            return True
        error = error_of(data.error_code, f"{partition}: {data.error_message}")
        assert error is not None
        hint = data.current_leader
        metadata = self._cluster.metadata
        if hint.leader_id >= 0 and metadata.leader_moved(*partition, hint.leader_id, hint.leader_epoch):
            return True
        if not isinstance(data, PartitionData):
            if error.code in _UNLOCKED:
                metadata.request_update(now_ms())
            return not error.code.retriable
        metadata.request_update(now_ms())
        if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
            _log.warning("%s; asking again", error)
        elif error.code is ErrorCode.CORRUPT_MESSAGE or not error.code.retriable:
            self.error = error
        return False

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

    async def finish(self, timeout_ms: int) -> None:
        """Send the ready acknowledgements and end the sessions, which releases all records still locked."""
        self._closed = True
        try:
            await asyncio.gather(
                *(
                    self._end(connection, session, timeout_ms)
                    for connection, session in self._sessions.values()
                    if connection.closed is None and session.began
                )
            )
        finally:
            why = "the consumer was closed, and has no session with the leader"
            ready = self._acknowledgements
            self._report_failure(ready.take(list(ready.ready)), KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, why))
            self.close()

    async def _end(self, connection: BrokerConnection, session: ShareFetchSession, timeout_ms: int) -> None:
        sources = self._sources
        ids = {
            partition: sources[partition].topic_id
            for partition in self._acknowledgements.ready
            if sources[partition].session is session
        }
        sent = self._acknowledgements.take(ids)
        request = session.acknowledge(ids, sent, last=True)
        request.group_id, request.member_id = self._settings.group_id, self.member_id
        try:
            response = await connection.call(request, ShareAcknowledgeResponse, timeout_ms=timeout_ms)
            check(response.error_code, response.error_message)
        except KafkaError as error:
            self._report_failure(sent, error)
        except OttlaError as error:
            self._report_failure(sent, KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)))
        except asyncio.CancelledError:
            self._report_failure(sent, KafkaError(ErrorCode.NETWORK_EXCEPTION, "the close was cancelled"))
            raise
        else:
            self._acknowledged(sent, response)

    def _report_failure(self, sent: Sent, error: KafkaError | None) -> None:
        for partition in sent:
            self._report(partition, sent, error)
