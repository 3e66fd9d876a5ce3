"""Fetches all partitions that this node follows from one leader: one connection, one session, one request in flight.

Rules:
- A request names the partitions whose position has changed since the last one, and those that left the session
  (KIP-227): a fetch costs in proportion to the changes, not to the partitions followed.
- A response is applied partition by partition, at most `_TURN_BYTES` of appends per turn of the loop. The next request
  is sent when all is applied and, where `flush.messages` requires it, flushed: fetching from an offset tells the leader
  that everything below it is durable.
- A partition that fails backs off alone for replica.fetch.backoff.ms. When the leader does not respond, all back off.
- While throttled replicas fetch more than follower.replication.throttled.rate, those that lag are not fetched; they are
  retried when the rate is down, at the latest after replica.fetch.backoff.ms.
- Data for a replica of an earlier leader epoch is dropped, because that replica is no longer followed.

KIPs: 73 throttles, 74 limits, 227 sessions, 320 and 595 (truncation, in `ottla.replica.follower`), 516 topic ids,
903 broker epochs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.metadata.broker_view import peer_of
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.net.peer import Peer, Unanswered
from ottla.replica.followed import FollowedPartition
from ottla.replica.follower import AskOffsets, FetchAnswered, OffsetsAnswered, Pause, Position
from ottla.wire.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from ottla.broker.limits.throttles import Throttles
    from ottla.broker.partitions.flush import Flusher
    from ottla.broker.partitions.log_dirs import LogDirs
    from ottla.broker.runtime import Dial, Runtime
    from ottla.net.outbound import Outbound

_log = logging.getLogger("ottla.broker")
#: Fetch by topic id (13) with the replica's state (15).
_FETCH_VERSION_MIN = 15
_TURN_BYTES = 1 << 20
_EPOCH_MAX = 0x7FFFFFFF
_LATEST, _EARLIEST = -1, -2
#: The leader does not know the session as this fetcher does: start a new one at once.
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_Key = tuple[Uuid, int]


class _Followed:
    """A followed partition of a fetcher."""

    __slots__ = ("failure", "is_behind", "paused", "replica", "sent")

    def __init__(self, replica: FollowedPartition) -> None:
        self.replica = replica
        #: The position last sent in the session; None while the partition is not in the session.
        self.sent: Position | None = None
        #: Whether the log was below the leader's high watermark at the last response; True until the first one.
        self.is_behind = True
        #: The timer that ends the partition's backoff.
        self.paused: asyncio.TimerHandle | None = None
        #: The last logged reason why the log cannot be written; "" while it can.
        self.failure = ""


class ReplicaFetcher:
    """Fetches from one leader. `Replication` creates it with its first replica and closes it with its last."""

    def __init__(
        self,
        runtime: Runtime,
        flusher: Flusher,
        log_dirs: LogDirs,
        throttles: Throttles,
        dial: Dial,
        leader_id: int,
    ) -> None:
        self._runtime = runtime
        self._flusher = flusher
        self._log_dirs = log_dirs
        self._throttles = throttles
        self._dial = dial
        self._leader_id = leader_id
        self._followed: dict[_Key, _Followed] = {}
        #: Partitions whose position may differ from the session's.
        self._changed: dict[_Key, None] = {}
        #: Partitions in the session that a throttle may pause.
        self._throttled: dict[_Key, None] = {}
        #: Partitions to remove from the session, unless the next request names them again.
        self._forgotten: dict[_Key, None] = {}
        self._session_id = self._epoch = 0
        self._outbound: Outbound | None = None
        self._peer: Peer | None = None
        self._busy = False
        self._backoff: asyncio.TimerHandle | None = None
        self._answers: deque[tuple[_Key, PartitionData]] = deque()
        #: The last logged reason why the leader does not respond; "" while it responds.
        self._logged_reason = ""
        self.closed = False

    def __len__(self) -> int:
        return len(self._followed)

    # ---- partitions

    def add(self, replica: FollowedPartition) -> None:
        """Start fetching for this replica."""
        key = replica.topic_id, replica.tp.partition
        self.remove(replica)
        self._followed[key] = _Followed(replica)
        self._throttled[key] = None
        self._change(key)

    def remove(self, replica: FollowedPartition) -> None:
        """Stop fetching for a replica that has ended; data that still arrives for it is dropped."""
        key = replica.topic_id, replica.tp.partition
        followed = self._followed.pop(key, None)
        self._changed.pop(key, None)
        self._throttled.pop(key, None)
        if followed is not None:
            if followed.paused is not None:
                followed.paused.cancel()
            if followed.sent is not None:
                self._forgotten[key] = None

    def _change(self, key: _Key) -> None:
        if key not in self._followed:
            # A disk that failed meanwhile has ended the replica.
            return
        self._changed[key] = None
        if not self._busy and self._backoff is None:
            # All changes within this turn of the loop go in one request.
            self._busy = True
            self._runtime.loop.call_soon(self._send_next)

    def brokers_changed(self) -> None:
        """Reconnect if the metadata names another address for the leader."""
        if self._peer is not None and self._peer != self._find_peer():
            self._disconnect()

    def close(self) -> None:
        """Close the connection and drop all responses that still arrive."""
        self.closed = True
        if self._backoff is not None:
            self._backoff.cancel()
        for followed in self._followed.values():
            if followed.paused is not None:
                followed.paused.cancel()
        self._followed.clear()
        self._answers.clear()
        self._disconnect()

    # ---- the connection

    def _find_peer(self) -> Peer | None:
        return peer_of(self._runtime.image, self._leader_id, self._runtime.settings.inter_broker_listener_name)

    def _connected(self) -> Outbound | None:
        """The connection, opened on demand; None while the metadata does not know the leader's address."""
        if self._outbound is None:
            peer = self._peer = self._find_peer()
            if peer is not None:
                self._outbound = self._dial(peer)
        return self._outbound

    def _disconnect(self) -> None:
        outbound, self._outbound, self._peer = self._outbound, None, None
        if outbound is not None:
            outbound.close()

    # ---- requests

    def _send_next(self) -> None:
        """Send the next request, unless there is nothing to fetch."""
        self._busy = False
        if self.closed or self._backoff is not None:
            return
        outbound = self._connected()
        if outbound is None:
            return self._back_off()
        request = self._request()
        if request is None:
            return None
        self._busy = True
        # A connection closed in the meantime may still respond; `_answered` drops that response.
        outbound.ask(
            request,
            partial(self._answered, outbound),
            timeout_ms=self._runtime.settings.replica_socket_timeout_ms,
            at_least=_FETCH_VERSION_MIN,
        )
        return None

    def _request(self) -> FetchRequest | None:
        settings = self._runtime.settings
        new = self._epoch == 0
        self._apply_throttle()
        keys = list(self._followed) if new else list(self._changed)
        self._changed.clear()
        topics: dict[Uuid, FetchTopic] = {}
        for key in keys:
            followed = self._followed[key]
            position = None if followed.paused is not None else followed.replica.position()
            if position is None:
                if followed.sent is not None:
                    self._forgotten[key] = None
            elif new or position != followed.sent:
                topic = topics.setdefault(key[0], FetchTopic(topic_id=key[0]))
                topic.partitions.append(self._fetch_partition(key[1], position))
                # The session has it of an earlier epoch.
                self._forgotten.pop(key, None)
            followed.sent = position
        forgotten: dict[Uuid, ForgottenTopic] = {}
        if not new:
            for topic_id, index in self._forgotten:
                forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
        self._forgotten.clear()
        if not topics and not any(each.sent is not None for each in self._followed.values()):
            # Nothing to fetch for now; the next partition starts a new session.
            self._session_id = self._epoch = 0
            return None
        broker = self._runtime.image.brokers.get(self._runtime.node_id)
        return FetchRequest(
            replica_state=ReplicaState(
                replica_id=self._runtime.node_id, replica_epoch=-1 if broker is None else broker.epoch
            ),
            max_wait_ms=settings.replica_fetch_wait_max_ms,
            min_bytes=settings.replica_fetch_min_bytes,
            max_bytes=settings.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    def _apply_throttle(self) -> None:
        """Pause the lagging throttled partitions while the rate is exceeded."""
        throttle = self._throttles.follower
        wait_ms = throttle.wait_ms(self._runtime.clock.monotonic_ms())
        for key in list(self._throttled) if wait_ms else ():
            followed = self._followed[key]
            if followed.is_behind and throttle.applies_to(followed.replica.tp):
                self._changed[key] = None
                self._pause(key, followed, wait_ms)
            else:
                del self._throttled[key]

    def _fetch_partition(self, index: int, position: Position) -> FetchPartition:
        return FetchPartition(
            partition=index,
            current_leader_epoch=position.current_leader_epoch,
            fetch_offset=position.offset,
            last_fetched_epoch=position.last_fetched_epoch,
            log_start_offset=position.log_start_offset,
            partition_max_bytes=self._runtime.settings.replica_fetch_max_bytes,
        )

    # ---- responses

    def _answered(self, outbound: Outbound, response: FetchResponse | Unanswered) -> None:
        if self.closed:
            return
        if outbound is not self._outbound:
            # The leader's address has changed.
            self._reset_session()
            return self._send_next()
        if isinstance(response, Unanswered):
            self._log_unresponsive(str(response))
            self._reset_session()
            return self._back_off()
        self._logged_reason = ""
        if response.error_code:
            _log.info("broker %d refused a fetch: %s", self._leader_id, ErrorCode.of(response.error_code).name)
            self._reset_session()
            return self._send_next() if response.error_code in _SESSION_ERRORS else self._back_off()
        self._session_id = response.session_id
        if response.session_id:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        for topic in response.responses:
            for part in topic.partitions:
                self._answers.append(((topic.topic_id, part.partition_index), part))
        self._apply_answers([])
        return None

    def _log_unresponsive(self, why: str) -> None:
        """Log once why the leader cannot be fetched from, until it responds or the reason changes."""
        if why == self._logged_reason:
            return
        self._logged_reason = why
        peer = self._peer
        where = f"{peer.host}:{peer.port}" if peer is not None else "an unknown address"
        _log.warning(
            "broker %d, whose partitions this broker follows, does not answer a fetch at %s: %s; if that broker runs, "
            "check that its advertised.listeners for %s can be reached from here",
            self._leader_id,
            where,
            why,
            self._runtime.settings.inter_broker_listener_name,
        )

    def _reset_session(self) -> None:
        """Forget the session."""
        self._session_id = self._epoch = 0
        self._forgotten.clear()
        for followed in self._followed.values():
            followed.sent = None

    def _back_off(self) -> None:
        """Pause all fetches for replica.fetch.backoff.ms."""
        self._busy = False
        if self._backoff is None and not self.closed:
            seconds = self._runtime.settings.replica_fetch_backoff_ms / 1000
            self._backoff = self._runtime.loop.call_later(seconds, self._backoff_ended)

    def _backoff_ended(self) -> None:
        self._backoff = None
        self._send_next()

    def _apply_answers(self, unsynced: list[FollowedPartition]) -> None:
        """Apply one turn's worth of the response; at its end flush what must be flushed, and fetch again."""
        size = 0
        while self._answers and size < _TURN_BYTES:
            key, data = self._answers.popleft()
            followed = self._followed.get(key)
            if followed is not None and followed.sent is not None:
                size += len(data.records or b"")
                self._carry_out(key, followed, data)
                if followed.replica.log.must_flush:
                    unsynced.append(followed.replica)
        if self._answers:
            self._runtime.loop.call_soon(self._apply_answers, unsynced)
        elif unsynced:
            self._flusher.flush([replica.log for replica in unsynced], self._send_next)
        elif not self.closed:
            self._send_next()

    def _carry_out(self, key: _Key, followed: _Followed, data: PartitionData) -> None:
        replica, throttle = followed.replica, self._throttles.follower
        assert followed.sent is not None
        if throttle.applies_to(replica.tp):
            # In-sync replicas count towards the rate, although they never wait for it.
            self._throttled[key] = None
            throttle.record(len(data.records or b""), self._runtime.clock.monotonic_ms())
        diverging = data.diverging_epoch
        event = FetchAnswered(
            followed.sent,
            ErrorCode.of(data.error_code),
            (diverging.epoch, diverging.end_offset) if diverging.epoch >= 0 else None,
            data.high_watermark,
            data.log_start_offset,
            len(data.records or b""),
        )
        if event.error is not ErrorCode.NONE:
            _log.info("cannot fetch %s from broker %d: %s", replica.tp, self._leader_id, event.error.name)
        self._changed[key] = None
        self._change_log(key, followed, lambda now_ms: replica.fetched(event, data.records, now_ms))
        if event.error is ErrorCode.NONE and event.diverging is None:
            followed.is_behind = replica.log.end_offset < data.high_watermark

    def _change_log(self, key: _Key, followed: _Followed, act: Callable[[int], list[Any]]) -> None:
        """Change the replica's log. A disk failure, or records that it cannot append, pause this partition alone.

        After a bug its state cannot be trusted: it is not fetched until the next leader epoch, as in Apache Kafka.
        """
        replica, failure = followed.replica, ""
        try:
            effects = act(self._runtime.clock.now_ms())
        except OSError as error:
            failure = f"cannot write {replica.tp}: {error}"
            effects = [Pause()]
            self._log_dirs.check(replica.log, error)
        except KafkaError as error:
            failure = f"cannot append to {replica.tp} what broker {self._leader_id} sent: {error}"
            effects = [Pause()]
        except Exception:
            _log.exception("cannot follow %s any further in leader epoch %d", replica.tp, replica.leader_epoch)
            return self.remove(replica)
        if failure and failure != followed.failure:
            # A disk may be full for hours, and the next attempt comes after the backoff.
            _log.error("%s; will retry", failure)
        followed.failure = failure
        for effect in effects:
            if isinstance(effect, AskOffsets):
                self._ask_offsets(key, followed)
            else:
                self._pause(key, followed)
        return None

    def _pause(self, key: _Key, followed: _Followed, most_ms: int | None = None) -> None:
        """Do not fetch a partition for replica.fetch.backoff.ms, or for `most_ms` if that is less."""

        def over() -> None:
            followed.paused = None
            if self._followed.get(key) is followed:
                self._change(key)

        if followed.paused is None and not followed.replica.ended:
            backoff_ms = self._runtime.settings.replica_fetch_backoff_ms
            wait_ms = backoff_ms if most_ms is None else min(backoff_ms, most_ms)
            followed.paused = self._runtime.loop.call_later(wait_ms / 1000, over)

    # ---- start and end of the leader's log

    def _ask_offsets(self, key: _Key, followed: _Followed) -> None:
        """Ask with two requests, because a ListOffsets request may name a partition only once."""
        offsets: dict[int, int] = {}
        replica, outbound = followed.replica, self._outbound
        epoch = replica.leader_epoch
        if outbound is None:
            # The leader's address changed while its response was being applied.
            return self._change_log(key, followed, lambda now_ms: replica.answered_offsets(None, now_ms))

        def on_answer(timestamp: int, response: Any) -> None:
            if self._followed.get(key) is not followed:
                return
            offsets[timestamp] = _offset_of(response)
            if len(offsets) == 2:
                known = min(offsets.values()) >= 0
                event = OffsetsAnswered(epoch, offsets[_EARLIEST], offsets[_LATEST]) if known else None
                self._change_log(key, followed, lambda now_ms: replica.answered_offsets(event, now_ms))
                self._change(key)

        for timestamp in (_EARLIEST, _LATEST):
            wanted = ListOffsetsPartition(partition_index=key[1], current_leader_epoch=epoch, timestamp=timestamp)
            request = ListOffsetsRequest(
                replica_id=self._runtime.node_id,
                topics=[ListOffsetsTopic(name=replica.tp.topic, partitions=[wanted])],
            )
            outbound.ask(
                request, partial(on_answer, timestamp), timeout_ms=self._runtime.settings.replica_socket_timeout_ms
            )
        return None


def _offset_of(response: Any) -> int:
    """The offset in a response for one partition; -1 on an error."""
    if isinstance(response, Unanswered):
        return -1
    part = response.topics[0].partitions[0]
    return -1 if part.error_code else int(part.offset)
