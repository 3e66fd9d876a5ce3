"""A follower's fetch session at its leader: the partitions that it fetches, and which of them have news for it.

Rules:
- A partition is marked when something is appended to it, when its high watermark or start moves, when the follower
  names it, while it has records that the follower was not sent, and while its answer is an error or a divergence. A
  fetch looks only at the marked partitions, so that its cost follows the changes, not the number of partitions
  (KIP-227 from the leader's side).
- A partition that had records moves to the end of the order, behind those that had no room, so that none starves.
- A session parks one fetch at a time; an append to any of its partitions wakes it at the end of the turn.
- Followers' sessions are separate from consumers', which never evict them; a broker has at most `SESSIONS_PER_BROKER`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ports import Rng
from ottla.replica.fetch_session import CachedPartition, Key

if TYPE_CHECKING:
    from ottla.replica.partition import Partition
    from ottla.wire.api.fetch import FetchRequest

_EPOCH_MAX = 0x7FFFFFFF
#: A broker of Apache Kafka opens num.replica.fetchers sessions; beyond this number the oldest is closed.
SESSIONS_PER_BROKER = 32
#: The bound over all brokers: any client that claims to be a broker may open a session.
SESSIONS_MAX = 1_000


class Parked(Protocol):
    """A fetch that waits for records."""

    #: When it is answered at the latest, on the loop's clock.
    deadline: float

    def retry(self) -> None:
        """Answer it soon if there is something to say."""

    def finish(self) -> None:
        """Answer it now."""


class Timer(Protocol):
    """A planned call of the loop."""

    def when(self) -> float: ...
    def cancel(self) -> None: ...


class WatchedPartition:
    """A partition of a session."""

    __slots__ = ("cached", "key", "partition")

    def __init__(self, key: Key, cached: CachedPartition) -> None:
        self.key = key
        self.cached = cached
        #: The led partition that marks it in the session; None while this node does not lead it, as far as is known.
        self.partition: Partition | None = None


class ReplicaSession:
    """A session of one broker. `ReplicaSessions` creates and closes it."""

    def __init__(self, session_id: int, replica_id: int, broker_epoch: int, by_id: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.by_id = by_id
        #: The epoch that the next request must carry.
        self.epoch = 1
        #: When it last fetched, on the monotonic clock.
        self.fetched_ms = now_ms
        self.watched: dict[Key, WatchedPartition] = {}
        #: The partitions that the next fetch looks at, in the order in which they are served.
        self.marked: dict[Key, WatchedPartition] = {}
        self.parked: Parked | None = None
        #: Goes off at the deadline of the parked fetch or before it.
        self.timer: Timer | None = None

    def update(self, request: FetchRequest) -> None:
        """Take over the partitions of a request."""
        for topic in request.topics:
            name = topic.topic_id if self.by_id else topic.topic
            for named in topic.partitions:
                key = name, named.partition
                watched = self.watched.get(key)
                if watched is None:
                    watched = self.watched[key] = WatchedPartition(key, CachedPartition(*key, 0, 0))
                watched.cached.update(named)
                self.marked[key] = watched
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if self.by_id else forgotten.topic
            for partition in forgotten.partitions:
                self.forget((name, partition))

    def forget(self, key: Key) -> None:
        """Remove a partition from the session."""
        watched = self.watched.pop(key, None)
        self.marked.pop(key, None)
        if watched is not None:
            self.watch(watched, None)

    def watch(self, watched: WatchedPartition, partition: Partition | None) -> None:
        """Have `partition` mark `watched` from now on; None detaches it."""
        if watched.partition is not partition:
            if watched.partition is not None:
                watched.partition.sessions.pop(self, None)
            watched.partition = partition
            if partition is not None:
                partition.sessions[self] = watched

    def is_marked(self, watched: WatchedPartition) -> bool:
        """Will the next fetch look at this partition?"""
        return watched.key in self.marked

    def mark(self, watched: WatchedPartition) -> bool:
        """Have the next fetch look at this partition; False if it would anyway."""
        if watched.key in self.marked:
            return False
        self.marked[watched.key] = watched
        return True

    def served(self, watched: WatchedPartition, *, again: bool, had_records: bool) -> None:
        """Clear the mark unless the next fetch must look `again`; a partition that had records then comes last."""
        if not again or had_records:
            self.marked.pop(watched.key, None)
        if again:
            self.marked[watched.key] = watched

    def wake(self) -> None:
        """Retry the parked fetch: something was appended."""
        if self.parked is not None:
            self.parked.retry()

    def end(self) -> None:
        """Detach the session from its partitions and wake its parked fetch."""
        for watched in self.watched.values():
            self.watch(watched, None)
        self.marked.clear()
        self.wake()


class ReplicaSessions:
    """The sessions of all followers of a node's partitions. The node creates it."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._sessions: dict[int, ReplicaSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, replica_id: int, broker_epoch: int, by_id: bool, now_ms: int) -> ReplicaSession:
        """Open a session, and close those of earlier incarnations of its broker."""
        own = [session for session in self._sessions.values() if session.replica_id == replica_id]
        for stale in [session for session in own if session.broker_epoch < broker_epoch]:
            own.remove(stale)
            self.close(stale.session_id)
        candidates = own if len(own) >= SESSIONS_PER_BROKER else list(self._sessions.values())
        if candidates is own or len(candidates) >= SESSIONS_MAX:
            self.close(min(candidates, key=lambda session: session.fetched_ms).session_id)
        session_id = 0
        while not session_id or session_id in self._sessions:
            session_id = 1 + self._rng.randrange(_EPOCH_MAX - 1)
        session = self._sessions[session_id] = ReplicaSession(session_id, replica_id, broker_epoch, by_id, now_ms)
        return session

    def close(self, session_id: int) -> None:
        """Close a session; no error if there is none with this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.end()

    def resume(self, session_id: int, epoch: int, replica_id: int, by_id: bool, now_ms: int) -> ReplicaSession:
        """The session of an incremental request. Raises KafkaError as KIP-227 says."""
        session = self._sessions.get(session_id)
        if session is None or session.replica_id != replica_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        session.fetched_ms = now_ms
        return session

    def close_all(self) -> None:
        """Close all sessions at the node's shutdown."""
        for session_id in list(self._sessions):
            self.close(session_id)
