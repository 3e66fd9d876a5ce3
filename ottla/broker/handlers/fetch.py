"""Fetch (key 1) from a consumer: sends batches from the log to the socket, neither parsed nor copied.

Rules:
- A consumer reads up to the high watermark, with read_committed up to the last stable offset.
- The first batch of the first partition that has one is sent whole, however small the limits are, so that a consumer
  always makes progress (KIP-74).
- With less than `min_bytes` available the fetch waits up to `max_wait_ms`; an append wakes it. A Fetch or ListOffsets
  behind it on the same connection ends the wait, because Spark's connector abandons a long fetch when it seeks. Other
  requests wait behind it, as in Apache Kafka.
- Partitions that do not exist, or that the client may not read, are told with the rest: they end no wait, or a consumer
  of one deleted topic would fetch all the time. A partition that goes while the fetch waits ends it.

KIPs: 74 limits, 98 isolation, 227 sessions, 320 epochs, 392 racks (a consumer may read from a follower, up to the high
watermark that the follower knows), 516 topic ids (version 13), 951 leader hints.
"""

from __future__ import annotations

import logging
from asyncio import TimerHandle
from collections.abc import Collection, Generator, Iterable
from typing import TYPE_CHECKING

from ottla.broker.call.fetch_data import (
    BY_ID_FROM,
    append_data,
    cached_partitions,
    divergence,
    failed,
    fetched_data,
    sent_elsewhere,
)
from ottla.broker.call.handler import Call, handles
from ottla.broker.call.leader_hint import hint_to_consumer
from ottla.broker.call.reply import Later, Reply, in_turns
from ottla.broker.partitions.replica_fetch import fetch_as_replica
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.log.lookup import is_cut_off
from ottla.net.part import NO_REQUEST
from ottla.raft.message import replica_id
from ottla.replica.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, CachedPartition, Key, Session
from ottla.replica.followed import FollowedPartition
from ottla.replica.hosted import HostedReplica
from ottla.replica.partition import Partition
from ottla.replica.selector import LEADER
from ottla.wire.api import ApiKey
from ottla.wire.api.fetch import FetchRequest, FetchResponse, PartitionData

if TYPE_CHECKING:
    from ottla.broker.node import BrokerNode

_log = logging.getLogger("ottla.broker")
#: The first version whose clients may read from a follower (KIP-392).
_FROM_FOLLOWERS_SINCE = 11
#: A fetch of more partitions than this, including its session's, is answered in steps.
_STEPS_FROM = 1000
_PARTITIONS_PER_STEP = 200
#: The first version whose clients know KAFKA_STORAGE_ERROR; older ones are to look for another leader.
_STORAGE_ERROR_SINCE = 6
#: Errors of partitions that are not even looked at.
_REFUSALS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
#: Requests that show that the client no longer waits for the fetch before them; NO_REQUEST: it disconnected.
_ENDS_WAIT = frozenset({ApiKey.FETCH, ApiKey.LIST_OFFSETS, NO_REQUEST})


def _error_response(request: FetchRequest, _: int, error: KafkaError) -> FetchResponse:
    # Like Kafka, name no session in an error.
    return FetchResponse(error_code=error.code)


@handles(ApiKey.FETCH, error_response=_error_response)
def fetch(call: Call, request: FetchRequest) -> Reply:
    """Read now, and wait for more if there is too little and the client allows it."""
    follower = replica_id(request)
    if follower >= 0:
        return fetch_as_replica(call, request, follower)
    if call.is_long:
        return in_turns(call.connection, _long_fetch(call, request))
    parked = ParkedFetch(call, request)
    if len(parked.wanted) > _STEPS_FROM:
        return in_turns(call.connection, parked.attempt_in_steps())
    response = parked.attempt()
    if response is not None:
        return response
    return parked.park()


def _long_fetch(call: Call, request: FetchRequest) -> Generator[None, None, Reply]:
    """Answer a request that itself names many partitions: parse them in steps, too."""
    wanted: dict[Key, CachedPartition] = {}
    for number, each in enumerate(cached_partitions(request, call.version >= BY_ID_FROM), 1):
        wanted[each.topic, each.partition] = each
        if not number % _PARTITIONS_PER_STEP:
            yield
    return (yield from ParkedFetch(call, request, wanted).attempt_in_steps())


class ParkedFetch:
    """A fetch request: tried at once, and retried on each append while it waits."""

    #: True while the response is being built in steps; nothing stops that any more.
    _is_answering = False

    def __init__(self, call: Call, request: FetchRequest, named: dict[Key, CachedPartition] | None = None) -> None:
        """Open the session; `named` holds the request's partitions if they are already parsed."""
        self.call = call
        self.node: BrokerNode = call.node
        self.by_id = call.version >= BY_ID_FROM
        self.from_followers = call.version >= _FROM_FOLLOWERS_SINCE
        self.request = request
        self.bytes_max = min(request.max_bytes, self.node.settings.fetch_max_bytes)
        if self.node.quotas.active:
            most = self.node.quotas.fetch_bytes_max(call.user, call.client_id)
            self.bytes_max = self.bytes_max if most is None else min(self.bytes_max, most)
        # More than the response may hold is not waited for, as in Apache Kafka.
        self.bytes_min = min(request.min_bytes, self.bytes_max)
        self.session, self.wanted, self.incremental = self._open_session(named)
        #: What the partitions are told that were refused before the fetch waited.
        self._refused: dict[Key, PartitionData] = {}
        self.later: Later | None = None
        self._timer: TimerHandle | None = None
        #: The replicas where it waits.
        self._waits_at: list[HostedReplica] = []

    def _open_session(
        self, named: dict[Key, CachedPartition] | None
    ) -> tuple[Session | None, Collection[CachedPartition], bool]:
        request, sessions = self.request, self.node.fetch_sessions
        now_ms = self.node.clock.monotonic_ms()
        # As in Apache Kafka, the last entry for a partition counts.
        if named is None:
            named = {(each.topic, each.partition): each for each in cached_partitions(request, self.by_id)}
        wanted = list(named.values())
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                sessions.close(request.session_id)
            session = None
            if request.session_epoch == INITIAL_EPOCH:
                session = sessions.create(self.by_id, wanted, now_ms)
            return session, wanted, False
        forgotten = (
            (topic.topic_id if self.by_id else topic.topic, partition)
            for topic in request.forgotten_topics_data
            for partition in topic.partitions
        )
        session = sessions.resume(request.session_id, request.session_epoch, self.by_id, wanted, forgotten, now_ms)
        if not session.partitions:
            # No partitions remain, so the fetch is about those that the request itself names.
            sessions.close(session.session_id)
            return None, wanted, False
        return session, session.partitions.values(), True

    def attempt_in_steps(self) -> Generator[None, None, Reply]:
        """The first attempt of a fetch of many partitions; the loop serves others between its steps."""
        response = yield from self._attempt_in_steps()
        if response is not None:
            return response
        # Appends between the steps woke no fetch, so read again now that this one is parked.
        later = self.park()
        try:
            response = yield from self._attempt_in_steps()
        except BaseException:
            # The client is gone, or the fetch has failed.
            self._leave()
            raise
        if response is not None:
            self._resolve(response)
        return later

    def _attempt_in_steps(self) -> Generator[None, None, FetchResponse | None]:
        wanted = self.wanted = list(self.wanted)
        results: list[tuple[CachedPartition, PartitionData]] = []
        bytes_left, read_bytes, urgent = self.bytes_max, 0, self.request.max_wait_ms <= 0
        for first in range(0, len(wanted), _PARTITIONS_PER_STEP):
            step = wanted[first : first + _PARTITIONS_PER_STEP]
            bytes_left, read_bytes, urgent = self._read_all(step, results, bytes_left, read_bytes, urgent)
            yield
            if self.later is not None and self.later.resolved:
                return None
        urgent = urgent or len(self._refused) == len(wanted)
        if not urgent and read_bytes < self.bytes_min:
            return None
        # From here on the session counts this data as sent, so it must be the response.
        self._is_answering = True
        response = self._throttled(read_bytes)
        if response is None:
            response = self._empty_response()
            for first in range(0, len(results), _PARTITIONS_PER_STEP):
                self._add_news(response, results[first : first + _PARTITIONS_PER_STEP])
                yield
        return response

    def attempt(self, *, final: bool = False) -> FetchResponse | None:
        """The response, or None when it is worth waiting for more."""
        results: list[tuple[CachedPartition, PartitionData]] = []
        urgent = final or self.request.max_wait_ms <= 0
        _, read_bytes, urgent = self._read_all(self.wanted, results, self.bytes_max, 0, urgent)
        urgent = urgent or len(self._refused) == len(self.wanted)
        if not urgent and read_bytes < self.bytes_min:
            return None
        return self._throttled(read_bytes) or self._add_news(self._empty_response(), results)

    def _read_all(
        self,
        partitions: Iterable[CachedPartition],
        results: list[tuple[CachedPartition, PartitionData]],
        bytes_left: int,
        read_bytes: int,
        urgent: bool,
    ) -> tuple[int, int, bool]:
        """Read from each partition. `urgent` in the result: the response must not wait (an error, or no time left)."""
        incremental = self.incremental
        for wanted in partitions:
            if incremental and self._is_unchanged(wanted):
                continue
            refused = self._refused.get((wanted.topic, wanted.partition)) if self._refused else None
            if refused is not None:
                results.append((wanted, refused))
                continue
            data = self._read(wanted, bytes_left, min_one_batch=not read_bytes)
            if data.error_code in _REFUSALS and self.later is None:
                self._refused[wanted.topic, wanted.partition] = data
                results.append((wanted, data))
                continue
            if data.records:
                size = len(data.records)
                read_bytes += size
                bytes_left = max(0, bytes_left - size)
                urgent = urgent or (read_bytes < self.bytes_min and self._is_cut_off(wanted, data))
            urgent = urgent or data.error_code != 0 or data.diverging_epoch.epoch >= 0
            urgent = urgent or data.preferred_read_replica >= 0
            results.append((wanted, data))
        return bytes_left, read_bytes, urgent

    def _is_cut_off(self, wanted: CachedPartition, data: PartitionData) -> bool:
        """Whether there is more in the next segment, so that this read is not waited for, as in Apache Kafka."""
        end_offset = data.last_stable_offset if self.request.isolation_level else data.high_watermark
        return wanted.replica is not None and is_cut_off(wanted.replica.log, wanted.fetch_offset, end_offset)

    def _is_unchanged(self, wanted: CachedPartition) -> bool:
        """Whether nothing has changed since the last response: there are no new records and no new offsets to report.

        With ten thousand partitions in a session and few of them active, every fetch checks all of them.
        """
        partition = wanted.replica
        if partition is None or self.node.hosted.get(partition.tp) is not partition:
            return False
        log = partition.log
        return (
            wanted.fetch_offset == log.high_watermark == wanted.sent_high_watermark
            and log.start_offset == wanted.sent_log_start_offset
            and (wanted.current_leader_epoch == -1 or wanted.current_leader_epoch == partition.leader_epoch)
            # The client's last fetched epoch is the log's latest one, so its log cannot have diverged from ours.
            and (wanted.last_fetched_epoch < 0 or wanted.last_fetched_epoch == log.epochs.latest)
        )

    def _throttled(self, read_bytes: int) -> FetchResponse | None:
        """An empty response for a client that exceeds its quota, or None."""
        if not self.node.quotas.active:
            return None
        now_ms = self.node.clock.monotonic_ms()
        throttle_ms = self.node.quotas.fetched(self.call.user, self.call.client_id, read_bytes, now_ms)
        if not throttle_ms:
            return None
        session_id = self.session.session_id if self.session is not None and self.incremental else NO_SESSION
        return FetchResponse(throttle_time_ms=throttle_ms, session_id=session_id)

    def _read(self, wanted: CachedPartition, bytes_left: int, *, min_one_batch: bool) -> PartitionData:
        partition = None
        try:
            partition = wanted.replica = self._partition_of(wanted)
            partition.check_epoch(wanted.current_leader_epoch)
            diverging = divergence(partition, wanted)
            if diverging is not None:
                return diverging
            if self.request.rack_id and type(partition) is Partition:
                nearest = self.node.replication.nearest(partition, self.request.rack_id, wanted.fetch_offset)
                if nearest != LEADER:
                    return sent_elsewhere(wanted.partition, partition, nearest)
            fetched = partition.read(
                wanted.fetch_offset,
                min(wanted.partition_max_bytes, bytes_left),
                self.request.isolation_level,
                min_one_batch=min_one_batch,
            )
            return fetched_data(wanted.partition, fetched)
        except KafkaError as error:
            code = error.code
        except OSError as error:
            assert partition is not None
            _log.error("%s cannot be read: %s", partition.tp, error)
            self.node.log_dirs.check(partition.log, error)
            code = ErrorCode.KAFKA_STORAGE_ERROR
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self.call.version < _STORAGE_ERROR_SINCE:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return failed(wanted.partition, code)

    def _partition_of(self, wanted: CachedPartition) -> HostedReplica:
        name: str | None
        if self.by_id:
            assert isinstance(wanted.topic, bytes)
            name = self.node.topic_name(wanted.topic)
            if name is None:
                raise KafkaError(_unknown_topic_error(self.node, wanted))
        else:
            name = str(wanted.topic)
        authorizer = self.node.authorizer
        if authorizer is not None:
            # Checked here because a session contains partitions that the request does not name.
            authorizer.check_read(self.call, name)
        try:
            return self.node.leader_of(name, wanted.partition)
        except KafkaError as error:
            followed = self.node.hosted.get((name, wanted.partition))
            may = self.from_followers and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            if not may or not isinstance(followed, FollowedPartition):
                raise
            return followed

    def _empty_response(self) -> FetchResponse:
        return FetchResponse(session_id=self.session.session_id if self.session else NO_SESSION)

    def _add_news(self, response: FetchResponse, results: list[tuple[CachedPartition, PartitionData]]) -> FetchResponse:
        """Add to the response whatever the client does not know yet."""
        session = self.session
        for wanted, data in results:
            has_records = bool(data.records)
            news = wanted.must_respond(
                data.high_watermark, data.log_start_offset, has_records=has_records, failed=data.error_code != 0
            )
            if self.incremental and not news and data.diverging_epoch.epoch < 0 and data.preferred_read_replica < 0:
                continue
            if has_records and self.incremental and session is not None:
                session.move_to_end((wanted.topic, wanted.partition))
            if data.error_code:
                hint_to_consumer(self.call, response, wanted.topic, data)
            append_data(response, wanted.topic, data)
        return response

    # ---- waiting

    def park(self) -> Later:
        """Wait at every partition for enough bytes, the timeout, or another request from the client."""
        self.later = Later(superseded=self._supersede)
        wake = self._try
        for wanted in self.wanted:
            # The attempt before has looked up every partition; only those that it refused are at no replica.
            if wanted.replica is not None:
                wanted.replica.waiting[wake] = None
                self._waits_at.append(wanted.replica)
        self._timer = self.node.loop.call_later(self.request.max_wait_ms / 1000, self._finish)
        return self.later

    def _try(self) -> None:
        if self._is_answering:
            return
        response = self.attempt()
        if response is not None:
            self._resolve(response)

    def _supersede(self, key: int) -> None:
        if key in _ENDS_WAIT:
            self._finish()

    def _finish(self) -> None:
        if self._is_answering:
            return
        response = self.attempt(final=True)
        assert response is not None
        self._resolve(response)

    def _resolve(self, response: FetchResponse) -> None:
        assert self.later is not None
        self._leave()
        if not self.later.resolved:
            self.later.resolve(response)

    def _leave(self) -> None:
        """Wait no more."""
        if self._timer is not None:
            self._timer.cancel()
        # A timer that has run would keep this object alive through its callback.
        self._timer = None
        wake = self._try
        for partition in self._waits_at:
            partition.waiting.pop(wake, None)


def _unknown_topic_error(node: BrokerNode, wanted: CachedPartition) -> ErrorCode:
    """The error for an unknown topic id: never seen, or deleted while a session was using it."""
    if wanted.replica is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    comes_again = wanted.replica.tp.topic in node.image.topics
    return ErrorCode.INCONSISTENT_TOPIC_ID if comes_again else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
