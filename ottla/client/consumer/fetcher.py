"""Fetches a consumer's partitions ahead of its polls.

The fetcher lives on the client's loop and is driven by `wake`. It has at most one fetch in flight per broker, on a
connection of its own.

Rules:
- A partition is fetched again while less than `max.partition.fetch.bytes` of it are buffered, so that the next fetch
  runs while the program processes the last one.
- A node that refuses a partition, or answers at once without records (fetch.min.bytes=0), is asked about it again only
  after a pause, however often polls wake the fetcher. Another node may be asked in the meantime.
- A position is compared with its leader whenever the metadata reports a leader change; `validation` asks the leaders.
- A fetch that fails as a whole is sent again. A partition's errors that fresh metadata can cure are retried, and
  UNKNOWN_SERVER_ERROR, too, with a warning; the next poll raises all others.

KIPs: 227 (sessions), 320 (leader epochs), 392 (nearest replica), 516 (topic ids), 951 (leader hints).
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
from ottla.client.connection.metadata import ClusterNode, PartitionState
from ottla.client.connection.wake_loop import WakeLoop
from ottla.client.consumer.fetch_session import FINAL_EPOCH, NO_SESSION, FetchSession, WantedPartition
from ottla.client.consumer.metric import ConsumerMeter
from ottla.client.consumer.position import Chunk, Doubt, PartitionPosition
from ottla.client.consumer.validation import Validation
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.client_error import RequestTimedOut, error_of
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import NO_UUID, TopicPartition, Uuid
from ottla.wire.api import ApiKey
from ottla.wire.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

_log = logging.getLogger("ottla.client")

#: The first version of Fetch with topic ids.
_TOPIC_IDS = 13
#: The longest wait of a fetch that leaves out partitions with full buffers, and the pause between fetches that do not
#: wait for records.
_BUSY_WAIT_MS = 5
_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


class Fetcher(WakeLoop):
    """A consumer's fetches. The consumer creates it, wakes it and closes it."""

    purpose = "fetch"

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        positions: dict[TopicPartition, PartitionPosition],
        lock: threading.Lock,
        meter: ConsumerMeter,
    ) -> None:
        super().__init__(cluster, settings, lock)
        #: Called on the loop to wake a waiting poll.
        self.on_data: list[Callable[[], None]] = []
        #: Topics in use beside those that are read.
        self.topics_in_use: Callable[[], Iterable[str]] = tuple
        self._settings = settings
        self._meter = meter
        self._positions = positions
        #: True if every partition has a position. If not, a poll first finds the missing ones.
        self.all_positioned = False
        #: The fetch session by node, and the connection that it belongs to.
        self._sessions: dict[int, tuple[BrokerConnection, FetchSession]] = {}
        self._busy: set[int] = set()
        self._validation = Validation(cluster, settings, positions, lock)
        #: Set and replaced with each answer about positions.
        self._validated = asyncio.Event()
        #: `moves` of the metadata when all positions were last compared with their leaders.
        self._moves = -1
        cluster.on_update.append(self.wake)

    def _topics(self) -> Iterable[str]:
        return {*(partition.topic for partition in list(self._positions)), *self.topics_in_use()}

    def _pass(self, now: int) -> None:
        by_node: dict[int, dict[TopicPartition, WantedPartition]] = {}
        full = False
        metadata = self._cluster.metadata
        doubts: dict[int, dict[TopicPartition, Doubt]] = {}
        moved, self._moves = self._moves != metadata.moves, metadata.moves
        with self._lock:
            for partition, state in self._positions.items():
                if moved or state.leader is None:
                    self._compare(state)
                if state.error is not None:
                    continue
                if doubt := state.doubt():
                    if now >= state.validate_at_ms:
                        state.validate_at_ms = now + self._settings.request_timeout_ms
                        doubts.setdefault(doubt.leader, {})[partition] = doubt
                    continue
                if state.position is None or state.paused or state.fetching:
                    continue
                if state.buffered >= self._settings.partition_full_bytes:
                    full = True
                    continue
                leader = self._compare(state)
                if leader is None:
                    metadata.request_update(now)
                    continue
                if state.validating:
                    self.wake()
                    continue
                node_id = leader.leader
                if state.preferred is not None:
                    if now < state.preferred[1] and state.preferred[0] in metadata.nodes:
                        node_id = state.preferred[0]
                    else:
                        state.preferred = None
                if state.held is not None and state.held[0] == node_id and now < state.held[1]:
                    continue
                wanted = WantedPartition(
                    state.fetch_offset,
                    leader.leader_epoch,
                    self._settings.max_partition_fetch_bytes,
                    metadata.topics[partition.topic].id,
                )
                by_node.setdefault(node_id, {})[partition] = wanted
        for node_id, asked in doubts.items():
            self._start(self._validate(node_id, asked))
        for node_id, wants in by_node.items():
            if node_id in self._busy:
                continue
            connection = self._open_connection(node_id)
            if connection is not None:
                self._fetch(node_id, connection, wants, full)

    def _compare(self, state: PartitionPosition) -> PartitionState | None:
        """Compare a position with the current leader; None if no leader is known."""
        leader = self._cluster.metadata.leader(*state.partition)
        if leader is not None:
            state.led_by(leader.leader, leader.leader_epoch)
        return leader

    async def _validate(self, node_id: int, doubts: dict[TopicPartition, Doubt]) -> None:
        retry = await self._validation.ask(node_id, doubts)
        with self._lock:
            self.all_positioned = self.all_positioned and all(
                state.position is not None for state in self._positions.values()
            )
        self._validated.set()
        self._validated = asyncio.Event()
        for callback in self.on_data:
            callback()
        if retry:
            self._loop.call_later(self._settings.retry_backoff_ms / 1000, self.wake)
        else:
            self.wake()

    async def settled(self, state: PartitionPosition, deadline_ms: int) -> None:
        """Wait until the leader has validated this position; raises its error, or RequestTimedOut at the deadline."""
        with self._lock:
            self._compare(state)
        while state.validating and state.error is None:
            self.wake()
            try:
                async with asyncio.timeout((deadline_ms - now_ms()) / 1000):
                    await self._validated.wait()
            except TimeoutError:
                raise RequestTimedOut(f"{state.partition}: the leader did not validate the position in time") from None
        if state.validating:
            state.raise_error()

    def _fetch(
        self, node_id: int, connection: BrokerConnection, wants: dict[TopicPartition, WantedPartition], full: bool
    ) -> None:
        known_connection, session = self._sessions.get(node_id, (None, FetchSession()))
        if known_connection is not connection:
            session.reset(keep_id=True)
            self._sessions[node_id] = (connection, session)
        session_request = session.next_request(wants)
        named = any(want.topic_id == NO_UUID for want in wants.values())
        settings = self._settings
        request = FetchRequest(
            # The program may empty a full partition's buffer at any moment, so that partition must not wait for a
            # fetch of other partitions that have nothing new.
            max_wait_ms=min(settings.fetch_max_wait_ms, _BUSY_WAIT_MS) if full else settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=int(settings.read_committed),
            session_id=session_request.session_id,
            session_epoch=session_request.epoch,
            topics=_topics(session_request.send),
            forgotten_topics_data=_forgotten(session_request.forget),
            rack_id=settings.client_rack,
        )
        try:
            version = connection.version_of(ApiKey.FETCH, _TOPIC_IDS - 1 if named else None)
            timeout_ms = settings.request_timeout_ms + settings.fetch_max_wait_ms
            answer = connection.send(request, timeout_ms=timeout_ms, version=version)
        except KafkaError:
            session.reset(keep_id=True)
            self._cluster.metadata.request_update(now_ms())
            return self._hold(node_id, wants)
        self._busy.add(node_id)
        with self._lock:
            for partition in wants:
                self._positions[partition].fetching = True
        answer.add_done_callback(functools.partial(self._answered, node_id, session, wants, now_ms()))

    def _answered(
        self,
        node_id: int,
        session: FetchSession,
        wants: dict[TopicPartition, WantedPartition],
        sent_ms: int,
        answer: asyncio.Future[FetchResponse],
    ) -> None:
        self._busy.discard(node_id)
        with self._lock:
            for partition in wants:
                state = self._positions.get(partition)
                if state is not None:
                    state.fetching = False
        if self._closed:
            if not answer.cancelled():
                answer.exception()
            return
        if answer.cancelled() or answer.exception() is not None:
            session.reset(keep_id=True)
            self._not_reached(node_id)
            self._cluster.metadata.request_update(now_ms())
            return self._hold(node_id, wants)
        response = answer.result()
        if not session.answered(response.error_code, response.session_id):
            return self.wake()
        if error := error_of(response.error_code):
            session.reset(keep_id=True)
            if not error.code.retriable:
                _log.warning("node %d failed to answer a fetch (%s); fetching again", node_id, error)
            return self._hold(node_id, wants)
        metadata = self._cluster.metadata
        metadata.add_nodes(
            ClusterNode(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints
        )
        refused: list[TopicPartition] = []
        size = 0
        now = now_ms()
        for topic in response.responses:
            name = topic.topic or metadata.topic_names.get(bytes(topic.topic_id), "")
            before = size
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                want = wants.get(partition)
                size += 0 if data.records is None else len(data.records)
                if want is not None and not self._take_in(partition, want, data):
                    refused.append(partition)
            if size > before:
                self._meter.topic(name, now).bytes.record(size - before, now)
        self._meter.fetched(size, now - sent_ms, response.throttle_time_ms, now)
        if refused:
            self._hold(node_id, refused)
        elif not size and 0 in (self._settings.fetch_min_bytes, self._settings.fetch_max_wait_ms):
            self._hold(node_id, wants, _BUSY_WAIT_MS)
        for callback in self.on_data:
            callback()
        self.wake()

    def _take_in(self, partition: TopicPartition, want: WantedPartition, data: PartitionData) -> bool:
        """Take in one partition of an answer. False if this node should be asked again only after a pause."""
        code = data.error_code
        with self._lock:
            state = self._positions.get(partition)
            if state is None or not state.answers(want.leader_epoch):
                return True
            if code == ErrorCode.NONE:
                state.high_watermark = data.high_watermark
                state.last_stable_offset = data.last_stable_offset
                state.log_start_offset = data.log_start_offset
                if data.preferred_read_replica >= 0:
                    state.preferred = (data.preferred_read_replica, now_ms() + self._settings.metadata_max_age_ms)
                if data.records is not None and len(data.records):
                    aborted = None
                    if self._settings.read_committed:
                        aborted = [
                            (transaction.producer_id, transaction.first_offset)
                            for transaction in data.aborted_transactions or ()
                        ]
                    try:
                        chunk = Chunk(data.records, want.offset, aborted, check_crcs=self._settings.check_crcs)
                    except KafkaError as error:
                        if state.fetch_offset == want.offset:
                            state.error = error
                        return True
                    if chunk.end_offset == want.offset and state.fetch_offset == want.offset:
                        why = f"{partition} at offset {want.offset}: the broker's answer contains no complete batch"
                        state.error = KafkaError(ErrorCode.CORRUPT_MESSAGE, why)
                    state.fetched(chunk, want.offset)
                return self._is_preferred_known(data.preferred_read_replica)
            preferred, state.preferred = state.preferred, None
            if code in _MOVED:
                hint = data.current_leader
                if hint.leader_id < 0 or not self._cluster.metadata.leader_moved(
                    *partition, hint.leader_id, hint.leader_epoch
                ):
                    self._cluster.metadata.request_update(now_ms())
                    return False
                return True
            if code == ErrorCode.OFFSET_OUT_OF_RANGE and preferred is not None:
                # A follower does not have the offset yet, or no longer: the leader decides (KIP-392). It may name the
                # follower again.
                return False
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                if state.fetch_offset == want.offset:
                    self._out_of_range(state, want.offset)
                return not state.chunks
            refusal = error_of(code, f"{partition} at offset {want.offset}")
            if refusal is not None and refusal.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                _log.warning("%s; fetching again", refusal)
                return False
            if state.fetch_offset == want.offset:
                # Skipped after a seek: an error at the old offset no longer matters.
                state.error = refusal
            return True

    def _is_preferred_known(self, node_id: int) -> bool:
        """Whether the metadata has the replica that a leader names. If not, the leader will name it again."""
        if node_id < 0 or node_id in self._cluster.metadata.nodes:
            return True
        self._cluster.metadata.request_update(now_ms())
        return False

    def _out_of_range(self, state: PartitionPosition, offset: int) -> None:
        policy = self._settings.auto_offset_reset
        if state.unread or state.chunks:
            # Buffered records before the offset are still good, even while paused: reset only when a poll gets there.
            return
        if policy == "none":
            why = f"{state.partition}: offset {offset} is out of range, and auto.offset.reset is none: seek or set it"
            state.error = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
        else:
            state.forget(policy)
            self.all_positioned = False

    async def end_sessions(self, timeout_ms: int) -> None:
        """Close the sessions, which take the brokers' slots otherwise. A broker that does not answer keeps its own."""
        timeout_ms = max(0, timeout_ms)
        ends = [
            self._end_session(node_id, connection, session.id, timeout_ms)
            for node_id, (connection, session) in self._sessions.items()
            if session.id != NO_SESSION and connection.closed is None
        ]
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.gather(*ends)
        except TimeoutError:
            _log.debug("not all fetch sessions were closed within %d ms", timeout_ms)

    async def _end_session(self, node_id: int, connection: BrokerConnection, session_id: int, timeout_ms: int) -> None:
        try:
            if node_id in self._busy:
                # The broker would read this request only when the fetch in flight has found records.
                connection = await self._cluster.node(node_id)
            request = FetchRequest(session_id=session_id, session_epoch=FINAL_EPOCH)
            await connection.call(request, FetchResponse, timeout_ms=timeout_ms)
        except (KafkaError, OttlaError) as error:
            _log.debug("node %d: the fetch session was not closed: %s", node_id, error)

    def _on_refusal(self) -> None:
        for callback in self.on_data:
            callback()

    def _not_reached(self, node_id: int) -> None:
        """Go back to the leaders, which may no longer name this replica (KIP-392)."""
        with self._lock:
            for state in self._positions.values():
                if state.preferred is not None and state.preferred[0] == node_id:
                    state.preferred = None

    def _hold(self, node_id: int, partitions: Iterable[TopicPartition], pause_ms: int | None = None) -> None:
        """Ask this node about these partitions again after a pause (default: retry.backoff.ms)."""
        pause_ms = self._settings.retry_backoff_ms if pause_ms is None else pause_ms
        until_ms = now_ms() + pause_ms
        with self._lock:
            for partition in partitions:
                state = self._positions.get(partition)
                if state is not None:
                    state.held = (node_id, until_ms)
        self._loop.call_later(pause_ms / 1000, self.wake)


def _topics(wants: dict[TopicPartition, WantedPartition]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for (topic, number), want in wants.items():
        if topic not in topics:
            topics[topic] = FetchTopic(topic=topic, topic_id=want.topic_id)
        topics[topic].partitions.append(
            FetchPartition(
                partition=number,
                current_leader_epoch=want.leader_epoch,
                fetch_offset=want.offset,
                partition_max_bytes=want.bytes_max,
            )
        )
    return list(topics.values())


def _forgotten(partitions: list[tuple[TopicPartition, Uuid]]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, Uuid], list[int]] = {}
    for (topic, number), topic_id in partitions:
        topics.setdefault((topic, topic_id), []).append(number)
    return [
        ForgottenTopic(topic=topic, topic_id=topic_id, partitions=numbers)
        for (topic, topic_id), numbers in topics.items()
    ]
