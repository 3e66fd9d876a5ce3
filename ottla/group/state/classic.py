"""A classic group: its members, its state and what it holds in common.

The states and what leads from one to the next:

    EMPTY                 -> PREPARING_REBALANCE   the first member joins
    PREPARING_REBALANCE   -> COMPLETING_REBALANCE  all members have joined, or the rebalance timeout is over
                          -> EMPTY                 the last member is gone
    COMPLETING_REBALANCE  -> STABLE                the leader's assignment is in the log
                          -> PREPARING_REBALANCE   a member joins, leaves, or fails
    STABLE                -> PREPARING_REBALANCE   a member joins, leaves, fails, or changes what it can do

What is durable (the `GroupMetadata` record) is the last generation that had its assignment, or none: a rebalance in
progress lives in memory only, and its members join again when the coordinator moves.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import java_string_hash

#: The protocol type of consumers; Connect and others have their own.
CONSUMER_PROTOCOL = "consumer"


class ClassicState(StrEnum):
    """Its text is what tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    #: Never held by a group in memory; what Describe answers for a group that is not there.
    DEAD = "Dead"


_BEFORE = {
    ClassicState.EMPTY: (ClassicState.PREPARING_REBALANCE,),
    ClassicState.PREPARING_REBALANCE: (
        ClassicState.STABLE,
        ClassicState.COMPLETING_REBALANCE,
        ClassicState.EMPTY,
    ),
    ClassicState.COMPLETING_REBALANCE: (ClassicState.PREPARING_REBALANCE,),
    ClassicState.STABLE: (ClassicState.COMPLETING_REBALANCE,),
}

#: (name, metadata) of each assignment protocol that a member can do, the one it likes best first.
Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True)
class ClassicMember:
    """A member. Made by JoinGroup or by the log; gone by LeaveGroup, by silence, or by missing a rebalance."""

    member_id: str
    #: group.instance.id of a static member (KIP-345).
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    #: What the leader gave it in the last completed generation.
    assignment: bytes = b""
    #: Joined for the first time and not answered: it cannot send heartbeats yet, so waiting for the
    #: answer does not count as a sign of life.
    is_new: bool = False

    def metadata(self, protocol: str) -> bytes:
        return dict(self.protocols)[protocol]

    def vote(self, candidates: Iterable[str]) -> str:
        """The protocol it likes best among those that all members can do."""
        return next(name for name, _ in self.protocols if name in candidates)


@dataclass(slots=True)
class ClassicGroup:
    """A group. Made by the first join, a commit without a group, or the log; ended by a tombstone."""

    group_id: str
    state: ClassicState = ClassicState.EMPTY
    #: EMPTY while the first rebalance gathers members: only then may the gathering be prolonged.
    previous_state: ClassicState = ClassicState.DEAD
    #: When it came into its state; -1 if an old record did not say.
    state_timestamp_ms: int = -1
    generation: int = 0
    #: None for a group that never had members and only stores offsets.
    protocol_type: str | None = None
    #: What the members of this generation agreed on.
    protocol_name: str | None = None
    leader: str | None = None
    #: By member id, in the order of joining.
    members: dict[str, ClassicMember] = field(default_factory=dict)
    #: Member id by instance id.
    static_members: dict[str, str] = field(default_factory=dict)
    #: Member ids that were handed out (KIP-394) and have not joined.
    promised: dict[str, None] = field(default_factory=dict)
    #: Ticket of the JoinGroup that each member waits with.
    joins: dict[str, int] = field(default_factory=dict)
    #: Ticket of the SyncGroup that each member waits with.
    syncs: dict[str, int] = field(default_factory=dict)
    #: Members of this generation that have not sent SyncGroup.
    unsynced: dict[str, None] = field(default_factory=dict)
    #: How many members can do each protocol.
    protocol_counts: dict[str, int] = field(default_factory=dict)
    #: What is left of the first rebalance: (delay of this round, ms that further rounds may take).
    initial_delay: tuple[int, int] = (0, 0)
    #: A member joined since the first rebalance was last prolonged.
    member_was_added: bool = False
    #: Union of the members' subscriptions, when they are consumers and could be read.
    subscribed_topics: frozenset[str] | None = None

    # -- members

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Take in a member; the first one gives the group its protocol type and leads it."""
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count(member, 1)
        self.promised.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Take out a member, or a promise. A request that waits for its answer must have been answered before."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.promised.pop(member_id, None)
        self.unsynced.pop(member_id, None)

    def replace_static(self, instance_id: str, new_id: str) -> ClassicMember:
        """A static member came back without its member id: the same member under a new id."""
        old_id = self.static_members[instance_id]
        member = self.members.pop(old_id)
        self.unsynced.pop(old_id, None)
        member.member_id = new_id
        member.is_new = False
        self.members[new_id] = member
        self.static_members[instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def update(self, member: ClassicMember, protocols: Protocols, rebalance_ms: int, session_ms: int) -> None:
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)
        member.rebalance_timeout_ms = rebalance_ms
        member.session_timeout_ms = session_ms

    def _count(self, member: ClassicMember, by: int) -> None:
        for name, _ in member.protocols:
            count = self.protocol_counts.get(name, 0) + by
            if count:
                self.protocol_counts[name] = count
            else:
                del self.protocol_counts[name]

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member that a request says it comes from, or UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if instance_id is not None:
            owner = self.static_members.get(instance_id)
            if owner is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if owner != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    # -- state

    def become(self, state: ClassicState, now_ms: int) -> None:
        assert self.state in _BEFORE[state], f"{self.group_id}: {self.state} -> {state}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def can_rebalance(self) -> bool:
        return self.state in _BEFORE[ClassicState.PREPARING_REBALANCE]

    @property
    def all_have_joined(self) -> bool:
        return len(self.joins) == len(self.members) and not self.promised

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of its members'."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    # -- protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Could a member that can do these be in the group, with at least one protocol that all can do?"""
        if self.is_empty:
            return bool(protocol_type and protocols)
        return self.protocol_type == protocol_type and any(
            self.protocol_counts.get(name, 0) == len(self.members) for name, _ in protocols
        )

    def choose_protocol(self) -> str:
        """The one with the most votes among those that all can do; of equals the first one in Apache's hash map.

        Half of a group that prefers another protocol is a rolling upgrade: who wins it should not change with us.
        """
        candidates = {name for name, count in self.protocol_counts.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = member.vote(candidates)
            votes[vote] = votes.get(vote, 0) + 1
        return max(sorted(votes, key=_bucket), key=lambda name: votes[name])

    def subscribes(self, topic: str) -> bool:
        """Does a member use this topic? A group of consumers that cannot be read is taken to use every topic."""
        if self.subscribed_topics is None:
            return self.is_of_consumers
        return topic in self.subscribed_topics

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert self.state is not ClassicState.DEAD
        assert set(self.joins) <= set(self.members) and set(self.syncs) <= set(self.members)
        assert not set(self.promised) & set(self.members)
        assert set(self.unsynced) <= set(self.members)
        assert all(self.members[member_id].instance_id == name for name, member_id in self.static_members.items())
        assert sum(member.instance_id is not None for member in self.members.values()) == len(self.static_members)
        counts: dict[str, int] = {}
        for member in self.members.values():
            for name, _ in member.protocols:
                counts[name] = counts.get(name, 0) + 1
        assert counts == self.protocol_counts
        assert (self.leader in self.members) if self.members else (self.leader is None)
        if self.state is ClassicState.EMPTY:
            assert not self.members and not self.joins and not self.syncs
        if self.state is ClassicState.PREPARING_REBALANCE:
            assert not self.syncs
        else:
            assert not self.joins, f"{self.group_id} is {self.state} and a member waits for a join"
        if self.state is ClassicState.STABLE:
            assert not self.syncs and self.members and self.protocol_name in self.protocol_counts
        if self.state is ClassicState.COMPLETING_REBALANCE:
            assert self.members and self.protocol_name in self.protocol_counts


def _bucket(name: str) -> int:
    """Where a name stands in a `java.util.HashMap` of up to twelve entries."""
    hashed = java_string_hash(name) & 0xFFFFFFFF
    return (hashed ^ hashed >> 16) & 15
