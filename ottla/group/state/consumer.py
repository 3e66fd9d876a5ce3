"""A consumer group (KIP-848): its members, what each has, and what each should have.

Rules:
- A partition is one member's at most, counting what a member was told to give up until it has: `owners` says whose.
- A member's epoch follows the assignment epoch when it has what the target says, or needs to give up nothing more.
- A member is immutable: every change makes another one and is in the log.

What it has in common with other kinds of groups is in `server_assigned_group`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from ottla.group.state.classic import CONSUMER_PROTOCOL, Protocols
from ottla.group.state.server_assigned_group import ModernGroup
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import Uuid
from ottla.kernel.named import NamedTuple

#: Topic id -> partition -> the epoch at which the member got it.
Owned = Mapping[Uuid, Mapping[int, int]]
#: Topic id -> partitions, ascending.
Target = Mapping[Uuid, tuple[int, ...]]

#: The epoch that a member sends, and is written with, when it goes for good.
LEAVE_EPOCH = -1
#: The epoch of a static member that is away and will be back.
LEAVE_STATIC_EPOCH = -2


class MemberState(IntEnum):
    """Where a member stands on its way to the target. The numbers are in the log."""

    STABLE = 0
    #: The member was told to give up partitions and still owns some of them.
    UNREVOKED_PARTITIONS = 1
    #: The member waits for partitions that others have not given up yet.
    UNRELEASED_PARTITIONS = 2
    #: Written by a newer version of Kafka.
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> "MemberState":
        return cls.UNKNOWN


class ConsumerState(StrEnum):
    """Its text is what tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ClassicMetadata(NamedTuple):
    """What the coordinator must remember of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: Protocols


class Resolved(NamedTuple):
    """The topics that a regular expression means."""

    topics: tuple[str, ...]
    #: The metadata version and the time at which it was looked up.
    version: int
    timestamp_ms: int


@frozen
class ConsumerMember:
    """A member."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    #: Sorted, each once.
    topics: tuple[str, ...] = ()
    #: None or empty: it has none.
    regex: str | None = None
    assignor: str | None = None
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    #: What it should give up and may still read from.
    revoking: Owned = field(default_factory=dict)
    #: None for a member that speaks the consumer protocol.
    classic: ClassicMetadata | None = None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def owned(self) -> Iterator[tuple[Uuid, int]]:
        """Everything it has or may still read from."""
        for owned in (self.assigned, self.revoking):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    yield topic_id, partition

    def epoch_of(self, topic_id: Uuid, partition: int) -> int | None:
        """Since when it owns the partition, or None."""
        for owned in (self.assigned, self.revoking):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


@dataclass(slots=True)
class ConsumerGroup(ModernGroup[ConsumerMember, Target]):
    """A group."""

    #: Member id by instance id.
    static_members: dict[str, str] = field(default_factory=dict)
    #: The owner of each partition. Never two members: `replay` gives it to the last and `validate` compares.
    owners: dict[tuple[Uuid, int], str] = field(default_factory=dict)
    #: The regular expressions that members use and what they mean.
    resolved: dict[str, Resolved] = field(default_factory=dict)
    #: A record of Kafka 3.7 to 4.0 that must be deleted when the group is next written.
    has_partition_metadata: bool = False

    # -- members

    def members_with(self, member: ConsumerMember) -> dict[str, ConsumerMember]:
        """The members once this one is written; a static member takes its predecessor's place."""
        members = dict(self.members)
        before = self.static_member(member.instance_id)
        if before is not None and before.member_id != member.member_id:
            del members[before.member_id]
        members[member.member_id] = member
        return members

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def put(self, member: ConsumerMember) -> None:
        self._release(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for key in member.owned():
            self.owners[key] = member.member_id

    def remove(self, member_id: str) -> None:
        self._release(member_id)
        member = self.members.pop(member_id)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]

    def _release(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        for key in member.owned():
            # A static member's successor may own it already.
            if self.owners.get(key) == member_id:
                del self.owners[key]

    # -- what can be said of it

    @property
    def state(self) -> ConsumerState:
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    def target_of(self, member_id: str, instance_id: str | None = None) -> Target:
        """What a member should have; a static member takes over the target of the one it replaces."""
        if instance_id is not None:
            owner = self.static_members.get(instance_id)
            return {} if owner is None else self.targets.get(owner, {})
        return self.targets.get(member_id, {})

    def subscribes(self, topic: str) -> bool:
        return topic in subscribed_topics(self.members.values(), self.resolved)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Could a classic member that can do these be in the group?"""
        if protocol_type != CONSUMER_PROTOCOL:
            return False
        counts: dict[str, int] = {}
        classic = 0
        for member in self.members.values():
            if member.classic is not None:
                classic += 1
                for name, _ in member.classic.protocols:
                    counts[name] = counts.get(name, 0) + 1
        return any(counts.get(name, 0) == classic for name, _ in protocols)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """True if another member still owns a partition of this member's target."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned.get(topic_id, {}) and (topic_id, partition) in self.owners
            for topic_id, partitions in self.targets.get(member.member_id, {}).items()
            for partition in partitions
        )

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        owners: dict[tuple[Uuid, int], str] = {}
        for member in self.members.values():
            for key in member.owned():
                assert key not in owners, f"{key} belongs to {owners[key]} and {member.member_id}"
                owners[key] = member.member_id
            assert member.epoch <= self.epoch
            if member.state is not MemberState.UNREVOKED_PARTITIONS and member.epoch >= 0:
                assert not member.revoking
        assert owners == self.owners
        assert set(self.targets) <= set(self.members)
        targets = [
            (topic_id, partition)
            for target in self.targets.values()
            for topic_id, partitions in target.items()
            for partition in partitions
        ]
        assert len(targets) == len(set(targets)), "a partition has two target members"
        assert self.assignment_epoch <= self.epoch
        for instance_id, member_id in self.static_members.items():
            assert self.members[member_id].instance_id == instance_id


def subscribed_topics(members: Iterable[ConsumerMember], resolved: Mapping[str, Resolved]) -> dict[str, None]:
    """Every topic that some member subscribes to, by name or by regular expression."""
    topics: dict[str, None] = {}
    expressions: dict[str, None] = {}
    for member in members:
        topics.update(dict.fromkeys(member.topics))
        if member.regex:
            expressions[member.regex] = None
    for regex in expressions:
        if regex in resolved:
            topics.update(dict.fromkeys(resolved[regex].topics))
    return topics


def topics_of(member: ConsumerMember, resolved: Mapping[str, Resolved]) -> tuple[str, ...]:
    """Every topic that one member subscribes to. An expression that was not looked up yet means none."""
    if member.regex and member.regex in resolved:
        return tuple(dict.fromkeys((*member.topics, *resolved[member.regex].topics)))
    return member.topics
