"""Fetch (key 1) from a follower: the leader sends up to its log end and learns how far the follower is.

Rules:
- The fetch offset is the follower's log end offset; it moves the high watermark and the ISR. A fetch in another epoch,
  from a diverging log, or from a broker that is not a replica has no such effect.
- A fetch reads the marked partitions of its session (`ottla.replica.replica_session`) until the response is full, and
  leaves the rest marked.
- A throttled replica outside the ISR gets no records while the leader sends throttled replicas more than
  leader.replication.throttled.rate; it retries after at most `max_wait_ms`.
- With less than `min_bytes` available the fetch waits up to `max_wait_ms`; an append wakes it at the end of the loop's
  turn. A moved high watermark wakes it only when consumers read from followers; otherwise it goes with the next
  response. A session has one timer for all its fetches: nearly all end before their deadline, and a timer that is set
  and cancelled for each is a tenth of what a fetch costs in Python.

KIPs: 73 throttles, 74 limits, 227 sessions, 320 and 595 epochs, 516 topic ids, 903 broker epochs.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import TYPE_CHECKING

from ottla.broker.call.fetch_data import (
    BY_ID_FROM,
    add_records,
    append_data,
    divergence,
    failed,
    partition_data,
)
from ottla.broker.call.handler import Call
from ottla.broker.call.reply import Later, Reply, in_turns
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.log.lookup import is_cut_off
from ottla.net.part import NO_REQUEST
from ottla.replica.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION
from ottla.replica.partition import Partition
from ottla.replica.replica_session import ReplicaSession, WatchedPartition
from ottla.wire.api.fetch import FetchRequest, FetchResponse, PartitionData

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from ottla.broker.node import BrokerNode

_log = logging.getLogger("ottla.broker")
#: A fetch with more marked partitions than this is answered in steps.
_STEPS_FROM = 1000
_PARTITIONS_PER_STEP = 200


def fetch_as_replica(call: Call, request: FetchRequest, replica_id: int) -> Reply:
    """Record the follower's progress, read once, and wait if there is nothing to send."""
    fetch = ReplicaFetch(call, request, replica_id)
    if len(fetch.session.marked) > _STEPS_FROM:
        return in_turns(call.connection, fetch.in_steps())
    has_news = fetch.note()
    if not has_news and fetch.may_wait:
        return fetch.park()
    response = fetch.attempt()
    return response if response is not None else fetch.park()


class ReplicaFetch:
    """A follower's fetch: tried at once, and retried on appends while it waits."""

    def __init__(self, call: Call, request: FetchRequest, replica_id: int) -> None:
        self.node: BrokerNode = call.node
        self.request = request
        self.by_id = call.version >= BY_ID_FROM
        self.bytes_max = min(request.max_bytes, call.node.settings.fetch_max_bytes)
        self.session, self.incremental = self._open_session(replica_id)
        self.later: Later | None = None
        self.deadline = 0.0
        self._planned = False

    def _open_session(self, replica_id: int) -> tuple[ReplicaSession, bool]:
        request, sessions = self.request, self.node.replication.sessions
        now_ms, broker_epoch = self.node.clock.monotonic_ms(), request.replica_state.replica_epoch
        incremental = request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)
        if incremental:
            session = sessions.resume(request.session_id, request.session_epoch, replica_id, self.by_id, now_ms)
        else:
            if request.session_id != NO_SESSION:
                sessions.close(request.session_id)
            if request.session_epoch == FINAL_EPOCH:
                session = ReplicaSession(NO_SESSION, replica_id, broker_epoch, self.by_id, now_ms)
            else:
                session = sessions.create(replica_id, broker_epoch, self.by_id, now_ms)
        session.broker_epoch = broker_epoch
        session.update(request)
        return session, incremental

    @property
    def may_wait(self) -> bool:
        """Whether the fetch waits if no partition has records or an error. A moved high watermark may end it, too."""
        request = self.request
        return request.max_wait_ms > 0 and request.min_bytes > 0 and not self.node.replication.selects

    # ---- reading

    def note(self) -> bool:
        """Record the follower's progress in all marked partitions; return False if none has records or an error."""
        has_news = False
        for watched in list(self.session.marked.values()):
            has_news = self._note(watched) or has_news
        return has_news

    def in_steps(self) -> Generator[None, None, Reply]:
        """Answer a fetch of many partitions; the loop serves others between its steps.

        It waits only if there is nothing at all to say, because the throttle holds back whatever is marked.
        """
        marked = list(self.session.marked.values())
        response = FetchResponse(session_id=self.session.session_id)
        bytes_left, read_bytes = self.bytes_max, 0
        for first in range(0, len(marked), _PARTITIONS_PER_STEP):
            results: list[tuple[WatchedPartition, PartitionData]] = []
            for watched in marked[first : first + _PARTITIONS_PER_STEP]:
                self._note(watched)
                data = self._read(watched, bytes_left, min_one_batch=not read_bytes)
                size = len(data.records or b"")
                read_bytes += size
                bytes_left = max(0, bytes_left - size)
                results.append((watched, data))
            self._add_news(response, results)
            yield
        if self.incremental and not response.responses and self.request.max_wait_ms > 0:
            later = self.park()
            # Appends between the steps woke no fetch.
            self.retry()
            return later
        self._end_alone()
        return response

    def _note(self, watched: WatchedPartition) -> bool:
        """Report the follower's progress to the leader's machine; return False if there are no records and no error.

        `_read` answers any error in the request.
        """
        wanted, session = watched.cached, self.session
        try:
            partition = self._leader_of(watched)
            log, offset = partition.log, wanted.fetch_offset
            # The follower's claimed log end is on the leader's history and within its log.
            if not log.start_offset <= offset <= log.end_offset:
                return True
            if wanted.last_fetched_epoch >= 0 and divergence(partition, wanted) is not None:
                return True
            partition.fetched(session.replica_id, session.broker_epoch, offset, wanted.log_start_offset)
        except KafkaError:
            return True
        return offset < log.end_offset

    def _leader_of(self, watched: WatchedPartition) -> Partition:
        wanted, partition = watched.cached, watched.partition
        if partition is None:
            name: str | None
            if isinstance(wanted.topic, bytes):
                name = self.node.topic_name(wanted.topic)
                if name is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            else:
                name = wanted.topic
            partition = self.node.leader_of(name, wanted.partition)
            # Watch before the checks, which may fail: the session must hear of it when the partition ends.
            self.session.watch(watched, partition)
        if 0 <= wanted.current_leader_epoch != partition.leader_epoch:
            partition.check_epoch(wanted.current_leader_epoch)
        return partition

    def attempt(self, *, final: bool = False) -> FetchResponse | None:
        """The response, or None when it is worth waiting for more."""
        session, request = self.session, self.request
        results: list[tuple[WatchedPartition, PartitionData]] = []
        bytes_max, read_bytes = self.bytes_max, 0
        # A copy, because a disk failure in `_read` marks all partitions that it takes offline.
        for watched in list(session.marked.values()):
            data = self._read(watched, bytes_max - read_bytes, min_one_batch=not read_bytes)
            results.append((watched, data))
            if data.records:
                read_bytes += len(data.records)
                if read_bytes >= bytes_max:
                    break
        has_enough = final or request.max_wait_ms <= 0 or read_bytes >= request.min_bytes or read_bytes >= bytes_max
        if not has_enough and not any(self._is_urgent(watched, data) for watched, data in results):
            return None
        self._add_news(response := FetchResponse(session_id=session.session_id), results)
        if self.later is None:
            self._end_alone()
        return response

    def _is_urgent(self, watched: WatchedPartition, data: PartitionData) -> bool:
        """Is this an answer that does not wait for `min_bytes`?"""
        if data.error_code != 0 or data.diverging_epoch.epoch >= 0:
            return True
        wanted, partition = watched.cached, watched.partition
        if data.records and partition is not None:
            log = partition.log
            if is_cut_off(log, wanted.fetch_offset, log.end_offset):
                return True
        return self.node.replication.selects and data.high_watermark > wanted.sent_high_watermark >= 0

    def _read(self, watched: WatchedPartition, bytes_left: int, *, min_one_batch: bool) -> PartitionData:
        wanted, partition = watched.cached, None
        try:
            partition = self._leader_of(watched)
            partition.check_follower(self.session.replica_id, self.session.broker_epoch)
            diverging = divergence(partition, wanted) if wanted.last_fetched_epoch >= 0 else None
            if diverging is not None:
                return diverging
            log, offset = partition.log, wanted.fetch_offset
            end_offset = log.end_offset
            if not log.start_offset <= offset <= end_offset:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            data = partition_data(wanted.partition, log.high_watermark, log.last_stable_offset, log.start_offset)
            if offset < end_offset:
                bytes_max = min(wanted.partition_max_bytes, bytes_left)
                if (bytes_max > 0 or min_one_batch) and not self._is_throttled(partition):
                    add_records(data, log.read(offset, bytes_max, end_offset=end_offset, min_one_batch=min_one_batch))
            return data
        except KafkaError as error:
            return failed(wanted.partition, error.code)
        except OSError as error:
            assert partition is not None
            _log.error("%s cannot be read: %s", partition.tp, error)
            self.node.log_dirs.check(partition.log, error)
            return failed(wanted.partition, ErrorCode.KAFKA_STORAGE_ERROR)

    def _is_throttled(self, partition: Partition) -> bool:
        """Whether this replica must wait for the throttle. An in-sync replica never does: acks=all waits for it."""
        machine, throttle = partition.machine, self.node.throttles.leader
        in_sync = machine is None or self.session.replica_id in machine.state.isr
        return not in_sync and throttle.applies_to(partition.tp) and throttle.is_exceeded(self._now_ms())

    def _now_ms(self) -> int:
        return self.node.clock.monotonic_ms()

    def _end_alone(self) -> None:
        """End a fetch without a session, so that nothing is watched after it."""
        if self.session.session_id == NO_SESSION:
            self.session.end()

    def _add_news(self, response: FetchResponse, results: list[tuple[WatchedPartition, PartitionData]]) -> None:
        session, throttle = self.session, self.node.throttles.leader
        for watched, data in results:
            wanted, partition, records = watched.cached, watched.partition, data.records
            if records and partition is not None and throttle.applies_to(partition.tp):
                throttle.record(len(records), self._now_ms())
            failed, has_records = data.error_code != 0, bool(records)
            news = wanted.must_respond(
                data.high_watermark, data.log_start_offset, has_records=has_records, failed=failed
            )
            # Partitions with more records stay marked until the follower fetches past them; partitions that did not fit
            # stay marked for the next fetch. An error or a divergence is told until the follower names the partition
            # again or forgets it: a follower whose position has not changed names nothing (KIP-227).
            untrue = failed or data.diverging_epoch.epoch >= 0
            behind = partition is not None and wanted.fetch_offset < partition.log.end_offset
            session.served(watched, again=behind or untrue, had_records=has_records)
            if news or untrue or not self.incremental:
                append_data(response, wanted.topic, data)

    # ---- waiting

    def park(self) -> Later:
        """Wait for an append to one of the session's partitions, or for the timeout."""
        self.later = Later(superseded=self._supersede)
        self.session.parked = self
        self.deadline = self.node.loop.time() + self.request.max_wait_ms / 1000
        if self.session.timer is None or self.session.timer.when() > self.deadline:
            _set_timer(self.node.loop, self.session, self.deadline)
        return self.later

    def retry(self) -> None:
        """Schedule one attempt per turn of the loop, however much is appended in it."""
        if not self._planned:
            self._planned = True
            self.node.loop.call_soon(self._try)

    def _try(self) -> None:
        self._planned = False
        if self.later is not None and not self.later.resolved:
            response = self.attempt()
            if response is not None:
                self._resolve(response)

    def _supersede(self, key: int) -> None:
        if key == NO_REQUEST:
            self.finish()

    def finish(self) -> None:
        """Answer with what there is."""
        if self.later is not None and not self.later.resolved:
            response = self.attempt(final=True)
            assert response is not None
            self._resolve(response)

    def _resolve(self, response: FetchResponse) -> None:
        assert self.later is not None
        # A later fetch of the session may have parked itself by now.
        if self.session.parked is self:
            self.session.parked = None
        self._end_alone()
        self.later.resolve(response)


def _set_timer(loop: AbstractEventLoop, session: ReplicaSession, deadline: float) -> None:
    if session.timer is not None:
        session.timer.cancel()
    session.timer = loop.call_at(deadline, _time_passed, loop, session)


def _time_passed(loop: AbstractEventLoop, session: ReplicaSession) -> None:
    """End the parked fetch at its deadline, and wait for the deadline of one that was parked after it."""
    session.timer, parked = None, session.parked
    if parked is None:
        return
    if parked.deadline <= loop.time():
        parked.finish()
    else:
        _set_timer(loop, session, parked.deadline)
