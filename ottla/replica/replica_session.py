"""A follower's fetch session at its leader: what it has of all that is led here, and what of that is news to it.

Rules:
- A partition is marked when something is appended to it, when its high watermark or start moves, when the follower
  names it, and while it has records that the follower was not sent. A fetch looks at the marked partitions only, so it
  costs what there is to do, not what there is (KIP-227 from the leader's side).
- A partition that had records, or no room for them, goes behind the others: none starves.
- One fetch of a session is parked at a time; an append to any of its partitions wakes it at the end of the turn.
- A broker's sessions are its own: they are not evicted for consumers', and a broker has at most `SESSIONS_A_BROKER`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ports import Rng
from ottla.replica.fetch_session import Key, Wanted

if TYPE_CHECKING:
    from ottla.replica.partition import Partition

_EPOCH_MAX = 0x7FFFFFFF
#: A broker of Apache Kafka has num.replica.fetchers sessions; the oldest goes when there are more than this.
SESSIONS_A_BROKER = 32
#: A bound over all brokers: any client that claims to be a broker may have a session.
SESSIONS_MAX = 1_000


class Watched:
    """A partition of a session."""

    __slots__ = ("key", "partition", "wanted")

    def __init__(self, key: Key, wanted: Wanted) -> None:
        self.key = key
        self.wanted = wanted
        #: The led partition that tells the session of what is new; None while there is none.
        self.partition: Partition | None = None


class ReplicaSession:
    """A session of one broker. `ReplicaSessions` makes and ends it."""

    def __init__(self, session_id: int, replica_id: int, broker_epoch: int, by_id: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.by_id = by_id
        #: The epoch that the next request must carry.
        self.epoch = 1
        #: When it was last heard of, on the monotonic clock.
        self.fetched_ms = now_ms
        self.watched: dict[Key, Watched] = {}
        #: What has to be looked at, in the order in which it is served.
        self.marked: dict[Key, Watched] = {}
        #: Tries the parked fetch again; None while none is parked.
        self.on_news: Callable[[], None] | None = None

    def learn(self, changed: Iterable[Wanted], forgotten: Iterable[Key]) -> None:
        """Take over what a request says."""
        for wanted in changed:
            key = wanted.topic, wanted.partition
            watched = self.watched.get(key)
            if watched is None:
                watched = self.watched[key] = Watched(key, wanted)
            else:
                watched.wanted.learn(wanted)
            self.mark(watched)
        for key in forgotten:
            self.forget(key)

    def forget(self, key: Key) -> None:
        """The follower wants nothing of this partition any more."""
        watched = self.watched.pop(key, None)
        self.marked.pop(key, None)
        if watched is not None:
            self.watch(watched, None)

    def watch(self, watched: Watched, partition: Partition | None) -> None:
        """From now on this partition tells of what is new; None for none."""
        if watched.partition is not partition:
            if watched.partition is not None:
                watched.partition.sessions.pop(self, None)
            watched.partition = partition
            if partition is not None:
                partition.sessions[self] = watched

    def has_marked(self, watched: Watched) -> bool:
        """Is it to be looked at in the next fetch?"""
        return watched.key in self.marked

    def mark(self, watched: Watched) -> None:
        """There is something to tell of this partition."""
        self.marked[watched.key] = watched

    def served(self, watched: Watched, *, again: bool) -> None:
        """The partition was looked at. `again`: there is more, or the follower has not confirmed what it was sent."""
        self.marked.pop(watched.key, None)
        if again:
            self.marked[watched.key] = watched

    def wake(self) -> None:
        """Something was appended."""
        if self.on_news is not None:
            self.on_news()

    def end(self) -> None:
        """Let the partitions forget it."""
        for watched in self.watched.values():
            self.watch(watched, None)
        self.marked.clear()
        self.wake()


class ReplicaSessions:
    """All sessions of the followers of a node's partitions. The node makes it."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._sessions: dict[int, ReplicaSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, replica_id: int, broker_epoch: int, by_id: bool, now_ms: int) -> ReplicaSession:
        """A new session. Those of an earlier life of its broker end."""
        own = [each for each in self._sessions.values() if each.replica_id == replica_id]
        for each in [each for each in own if each.broker_epoch < broker_epoch]:
            own.remove(each)
            self.close(each.session_id)
        crowd = own if len(own) >= SESSIONS_A_BROKER else list(self._sessions.values())
        if crowd is own or len(crowd) >= SESSIONS_MAX:
            self.close(min(crowd, key=lambda each: each.fetched_ms).session_id)
        session_id = 0
        while not session_id or session_id in self._sessions:
            session_id = 1 + self._rng.randrange(_EPOCH_MAX - 1)
        session = self._sessions[session_id] = ReplicaSession(session_id, replica_id, broker_epoch, by_id, now_ms)
        return session

    def close(self, session_id: int) -> None:
        """Forget a session; no error if it is not there."""
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

    def end_all(self) -> None:
        """The node ends."""
        for session_id in list(self._sessions):
            self.close(session_id)
