"""Incremental fetch sessions (KIP-227): requests and responses hold only the partitions that changed.

Rules:
- Epoch 0 asks for a new session, -1 for none; both carry the whole list of partitions.
- Any other epoch must be the next one of the session, or the client gets INVALID_FETCH_SESSION_EPOCH and starts over.
- A session uses topic names or topic ids, never both (FETCH_SESSION_TOPIC_ID_ERROR, KIP-516).
- When all slots are taken, a new session evicts the one that was unused the longest, if for two minutes, otherwise the
  smallest of those that are two minutes old and smaller than itself: a session saves a large fetch more.
- All sessions together hold at most `PARTITIONS_MAX` partitions. A new session evicts those that were unused for two
  minutes, then those that are larger than itself, the largest first. A client that gets no session is still served;
  it sends its whole list each time.
- A partition that returned records moves to the end of the order, so that no partition starves behind a busy one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.frozen import mutable
from ottla.kernel.ports import Rng
from ottla.replica.hosted import HostedReplica

if TYPE_CHECKING:
    from ottla.wire.api.fetch import FetchPartition

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 0x7FFFFFFF
#: min.incremental.fetch.session.eviction.ms: a session used more recently than this is not evicted for a new one.
_EVICTION_AGE_MS_MIN = 120_000
#: The most partitions of all sessions together: some 60 MiB. Apache Kafka bounds only the number of sessions.
PARTITIONS_MAX = 150_000

#: (topic name or 16 bytes of topic id, partition)
Key = tuple[str | bytes, int]


@mutable
class CachedPartition:
    """A partition of a session: what the client asks for, and what it was last sent."""

    topic: str | bytes
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    sent_high_watermark: int = -1
    sent_log_start_offset: int = -1
    #: The replica that served it last; the node may not host it any more.
    replica: HostedReplica | None = None

    def update(self, other: CachedPartition | FetchPartition) -> None:
        """Take over the fields of the client's newest request."""
        self.fetch_offset = other.fetch_offset
        self.partition_max_bytes = other.partition_max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch
        self.log_start_offset = other.log_start_offset

    def must_respond(self, high_watermark: int, log_start_offset: int, *, has_records: bool, failed: bool) -> bool:
        """Must the response include this partition? Remembers what is sent; a failed partition is sent again."""
        if failed:
            self.sent_high_watermark = -1
            return True
        changed = has_records or (
            (high_watermark, log_start_offset) != (self.sent_high_watermark, self.sent_log_start_offset)
        )
        self.sent_high_watermark = high_watermark
        self.sent_log_start_offset = log_start_offset
        return changed


class Session:
    """A client's session. `Sessions` creates and closes it."""

    __slots__ = ("by_id", "created_ms", "epoch", "partitions", "session_id", "used_ms")

    def __init__(self, session_id: int, by_id: bool, partitions: Iterable[CachedPartition], now_ms: int) -> None:
        self.session_id = session_id
        self.by_id = by_id
        #: The epoch that the next request must carry.
        self.epoch = 1
        self.created_ms = self.used_ms = now_ms
        self.partitions: OrderedDict[Key, CachedPartition] = OrderedDict(
            ((partition.topic, partition.partition), partition) for partition in partitions
        )

    def move_to_end(self, key: Key) -> None:
        """Serve this partition last next time: it returned records."""
        self.partitions.move_to_end(key)


class Sessions:
    """A node's fetch sessions, at most `slots_max` of them (max.incremental.fetch.session.cache.slots)."""

    def __init__(self, slots_max: int, rng: Rng) -> None:
        self._slots_max = slots_max
        self._rng = rng
        #: Ordered by last use, the oldest first.
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        #: The number of partitions of all sessions.
        self.partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: int) -> Session | None:
        """The session with this id, or None."""
        return self._sessions.get(session_id)

    def create(self, by_id: bool, partitions: Iterable[CachedPartition], now_ms: int) -> Session | None:
        """A new session, or None when sessions in use take all slots or all partitions."""
        partitions = list(partitions)
        is_full = len(self._sessions) >= self._slots_max
        if is_full and not self._evict(now_ms) and not self._evict_smaller(len(partitions)):
            return None
        if not self._make_room(len(partitions), now_ms):
            return None
        session_id = 0
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = 1 + self._rng.randrange(_EPOCH_MAX - 1)
        session = self._sessions[session_id] = Session(session_id, by_id, partitions, now_ms)
        self.partition_count += len(session.partitions)
        return session

    def _make_room(self, count: int, now_ms: int) -> bool:
        """Evict sessions until `count` more partitions fit; False if they cannot."""
        if count > PARTITIONS_MAX:
            return False
        while self.partition_count + count > PARTITIONS_MAX:
            if self._sessions and self._evict(now_ms):
                continue
            largest = max(self._sessions.values(), key=lambda session: len(session.partitions), default=None)
            if largest is None or len(largest.partitions) <= count:
                return False
            self.close(largest.session_id)
        return True

    def _evict(self, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.used_ms < _EVICTION_AGE_MS_MIN:
            return False
        self.close(oldest.session_id)
        return True

    def _evict_smaller(self, count: int) -> bool:
        """Evict the smallest session with fewer than `count` partitions that has been in use for long."""
        old = (each for each in self._sessions.values() if each.used_ms - each.created_ms > _EVICTION_AGE_MS_MIN)
        smallest = min(old, key=lambda each: len(each.partitions), default=None)
        if smallest is None or len(smallest.partitions) >= count:
            return False
        self.close(smallest.session_id)
        return True

    def close(self, session_id: int) -> None:
        """Drop a session; no error if there is none with this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)

    def resume(
        self,
        session_id: int,
        epoch: int,
        by_id: bool,
        changed: Iterable[CachedPartition],
        forgotten: Iterable[Key],
        now_ms: int,
    ) -> Session:
        """The session of an incremental request, updated by it. Raises KafkaError as KIP-227 says."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        before = len(session.partitions)
        for partition in changed:
            known = session.partitions.get((partition.topic, partition.partition))
            if known is None:
                session.partitions[partition.topic, partition.partition] = partition
            else:
                known.update(partition)
        for key in forgotten:
            session.partitions.pop(key, None)
        self.partition_count += len(session.partitions) - before
        if self.partition_count > PARTITIONS_MAX and len(session.partitions) > before:
            self.close(session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        session.used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return session
