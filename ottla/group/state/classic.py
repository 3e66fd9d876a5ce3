"""A classic group: its members, its state and its generation.

| from | to | when |
|---|---|---|
| EMPTY | PREPARING_REBALANCE | the first member joins |
| EMPTY | STABLE | the log is loaded, and its last generation has members |
| PREPARING_REBALANCE | COMPLETING_REBALANCE | all members have joined, or the rebalance timeout has passed |
| PREPARING_REBALANCE | EMPTY | the last member is gone |
| COMPLETING_REBALANCE | STABLE | the leader's assignment is in the log |
| COMPLETING_REBALANCE | PREPARING_REBALANCE | a member joins, leaves, or fails |
| STABLE | PREPARING_REBALANCE | a member joins, leaves, fails, or changes its protocols |

The durable part (the `GroupMetadata` record) is the last generation with an assignment, if any. A rebalance in progress
lives only in memory, and its members rejoin when the coordinator moves.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import java_string_hash

#: The protocol type of consumers; Connect and others have their own.
CONSUMER_PROTOCOL = "consumer"


class ClassicState(StrEnum):
    """The state of a group; tools show its text."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    #: Never the state of a group in memory; Describe returns it for a missing group.
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

#: (name, metadata) of each assignment protocol that a member supports, in its order of preference.
Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True)
class ClassicMember:
    """A member. JoinGroup or the log creates it; LeaveGroup, its session or a missed rebalance removes it."""

    member_id: str
    #: group.instance.id of a static member (KIP-345).
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    #: The leader's assignment in the last completed generation.
    assignment: bytes = b""
    #: Is its first join still unanswered? It cannot send heartbeats yet, so waiting is no sign that it is alive.
    is_new: bool = False

    def metadata(self, protocol: str) -> bytes:
        return dict(self.protocols)[protocol]

    def vote(self, candidates: Iterable[str]) -> str:
        """The protocol that the member prefers among the candidates."""
        return next(name for name, _ in self.protocols if name in candidates)


@dataclass(slots=True)
class ClassicGroup:
    """A group. The first join, a commit without a group, or the log creates it; a tombstone removes it."""

    group_id: str
    state: ClassicState = ClassicState.EMPTY
    #: EMPTY during the first rebalance, the only one whose join phase may be prolonged.
    previous_state: ClassicState = ClassicState.DEAD
    #: When the group entered its state; -1 if an old record did not have it.
    state_timestamp_ms: int = -1
    generation: int = 0
    #: None for a group that only stores offsets and never had members.
    protocol_type: str | None = None
    #: The protocol chosen for this generation.
    protocol_name: str | None = None
    leader: str | None = None
    #: By member id, in the order in which they joined.
    members: dict[str, ClassicMember] = field(default_factory=dict)
    #: Instance id -> member id.
    static_members: dict[str, str] = field(default_factory=dict)
    #: The promised member ids (KIP-394) that have not joined yet.
    promised: dict[str, None] = field(default_factory=dict)
    #: Member id -> ticket of its waiting JoinGroup.
    joins: dict[str, int] = field(default_factory=dict)
    #: Member id -> ticket of its waiting SyncGroup.
    syncs: dict[str, int] = field(default_factory=dict)
    #: The members of this generation that have not sent SyncGroup.
    unsynced: dict[str, None] = field(default_factory=dict)
    #: Protocol name -> number of members that support it.
    protocol_counts: dict[str, int] = field(default_factory=dict)
    #: The first rebalance: (delay of this round, ms left for further rounds).
    initial_delay: tuple[int, int] = (0, 0)
    #: Has a member joined since the first rebalance was last prolonged?
    member_was_added: bool = False
    #: The union of the members' subscriptions, if they are consumers and it could be decoded.
    subscribed_topics: frozenset[str] | None = None

    # -- members

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Add a member; the first one sets the group's protocol type and becomes the leader."""
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
        """Remove a member or a promised id. The caller has answered its waiting request before."""
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
        """Give a static member that returned without its member id a new one."""
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
        """The member that a request names. Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
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
        """The longest rebalance timeout of its members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    # -- protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """May a member with these protocols join: does every member support one of them?"""
        if self.is_empty:
            return bool(protocol_type and protocols)
        return self.protocol_type == protocol_type and any(
            self.protocol_counts.get(name, 0) == len(self.members) for name, _ in protocols
        )

    def choose_protocol(self) -> str:
        """The protocol with the most votes among those that all members support; ties go by Apache's hash map order.

        A tie occurs in a rolling upgrade that is half done; the outcome must not depend on the implementation.
        """
        candidates = {name for name, count in self.protocol_counts.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = member.vote(candidates)
            votes[vote] = votes.get(vote, 0) + 1
        return max(sorted(votes, key=_bucket), key=lambda name: votes[name])

    def subscription(self) -> Callable[[str], bool]:
        """Whether a member uses a topic, as of now. Consumers with undecodable subscriptions count as using all."""
        if self.subscribed_topics is None:
            uses_all = self.is_of_consumers
            return lambda _: uses_all
        return self.subscribed_topics.__contains__

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
    """The bucket of a name in a `java.util.HashMap` of up to twelve entries."""
    hashed = java_string_hash(name) & 0xFFFFFFFF
    return (hashed ^ hashed >> 16) & 15
