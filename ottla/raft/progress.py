"""The leader's view of its replicas: voters, observers, and the offset that a majority has.

Rules:
- A replica is identified by its id and its directory: a voter with a new disk is a new replica (KIP-853).
- An observer that has not fetched for five minutes is removed.
"""

from __future__ import annotations

from ottla.raft.checkpoint import Membership, VoterEndpoint
from ottla.raft.role import UNKNOWN, Voter

OBSERVER_SESSION_MS = 300_000
#: The maximum number of observers: a client that invents ids must not fill the memory.
OBSERVERS_MAX = 10_000
_HOUR_MS = 3_600_000


class LogReplica:
    """A voter or an observer, as the leader knows it."""

    __slots__ = ("caught_up_ms", "end_offset", "endpoints", "fetched_ms", "key", "leader_end_offset")

    def __init__(self, key: Voter, endpoints: tuple[VoterEndpoint, ...] = ()) -> None:
        self.key = key
        self.endpoints = endpoints
        #: The end of its log according to its last fetch; for the leader, the end of its durable log.
        self.end_offset = UNKNOWN
        self.fetched_ms = UNKNOWN
        self.caught_up_ms = UNKNOWN
        #: The end of the leader's log at its last fetch.
        self.leader_end_offset = UNKNOWN

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif 0 < self.leader_end_offset <= offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.leader_end_offset = leader_end_offset
        self.fetched_ms = max(self.fetched_ms, now_ms)
        self.end_offset = offset


class QuorumProgress:
    """The replicas of a leader. The leader creates it with the voters at the start of its epoch."""

    __slots__ = ("_fetched", "_me", "observers", "voters")

    def __init__(self, me: Voter, membership: Membership) -> None:
        self._me = me
        self.voters: dict[int, LogReplica] = {}
        #: Ordered by the last fetch, most recent last.
        self.observers: dict[Voter, LogReplica] = {}
        #: The voters that have fetched since a majority last had.
        self._fetched: set[int] = set()
        self.follow(membership)

    @property
    def counts_leader(self) -> bool:
        """True if the leader is a voter; a leader that removed itself is not."""
        own = self.voters.get(self._me.node_id)
        return own is not None and own.key.matches(self._me)

    def follow(self, membership: Membership) -> None:
        """Adopt the current voters; each replica keeps its progress."""
        old, self.voters = self.voters, {}
        for node in membership.voters:
            before = old.get(node.voter.node_id)
            if before is not None and (node.voter.matches(before.key) or before.key.matches(node.voter)):
                replica = old.pop(node.voter.node_id)
            else:
                replica = self._take_observer(node.voter)
            replica.key, replica.endpoints = node.voter, node.endpoints
            self.voters[node.voter.node_id] = replica
        for replica in old.values():
            replica.endpoints = ()
            self.observers.setdefault(replica.key, replica)
        self._fetched &= self.voters.keys()

    def replica(self, key: Voter) -> LogReplica:
        """Return the replica with this id and directory; an unknown one becomes an observer."""
        voter = self.voters.get(key.node_id)
        if voter is not None and voter.key.matches(key):
            return voter
        replica = self.observers[key] = self._take_observer(key)
        if len(self.observers) > OBSERVERS_MAX:
            del self.observers[next(iter(self.observers))]
        return replica

    def _take_observer(self, key: Voter) -> LogReplica:
        return self.observers.pop(key) if key in self.observers else LogReplica(key)

    def is_voter(self, key: Voter) -> bool:
        voter = self.voters.get(key.node_id)
        return voter is not None and voter.key.matches(key)

    def is_caught_up(self, key: Voter, now_ms: int) -> bool:
        """Return True if this observer may become a voter: it caught up once and fetched within the last hour."""
        replica = self.observers.get(key)
        return replica is not None and replica.caught_up_ms >= 0 and replica.fetched_ms > now_ms - _HOUR_MS

    def majority_offset(self) -> int:
        """Return the offset that a majority of the voters has made durable; UNKNOWN until a majority has fetched."""
        ends = sorted(replica.end_offset for replica in self.voters.values())
        return ends[(len(ends) - 1) // 2]

    def note_alive(self, key: Voter) -> bool:
        """Note a fetch; return True, and restart the count, once a majority of the voters has fetched."""
        if self.is_voter(key):
            self._fetched.add(key.node_id)
        majority = len(self.voters) // 2 + 1 - self.counts_leader
        if len(self._fetched) < majority:
            return False
        self._fetched.clear()
        return True

    def silent_voters(self, before_ms: int) -> list[Voter]:
        """Return the other voters that have not fetched since `before_ms`."""
        return [
            replica.key
            for replica in self.voters.values()
            if replica.key.node_id != self._me.node_id and (replica.fetched_ms < 0 or replica.fetched_ms <= before_ms)
        ]

    def successors(self) -> tuple[Voter, ...]:
        """Return the other voters, longest log first."""
        others = [replica for replica in self.voters.values() if not replica.key.matches(self._me)]
        others.sort(key=lambda replica: (-replica.end_offset, replica.key))
        return tuple(replica.key for replica in others)

    def live_observers(self, now_ms: int) -> list[LogReplica]:
        """Return the observers, after removing those whose session has expired."""
        for key, replica in list(self.observers.items()):
            if now_ms - replica.fetched_ms >= OBSERVER_SESSION_MS and key != self._me:
                del self.observers[key]
        return list(self.observers.values())
