"""A consumer group (KIP-848): its members, their current assignments and their targets.

Rules:
- A partition has at most one owner (`owners`); a member still owns a partition that it was told to give up until it has
  done so.
- A member's epoch follows the assignment epoch once it has nothing more to give up.
- A member is immutable: every change replaces it and is in the log.

`server_assigned_group` has the part that other kinds of groups share.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from ottla.group.state.classic import CONSUMER_PROTOCOL, Protocols
from ottla.group.state.server_assigned_group import ServerAssignedGroup
from ottla.group.topic import names_of
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import Uuid
from ottla.kernel.named import NamedTuple

#: Topic id -> partition -> the epoch in which the member got it.
Owned = Mapping[Uuid, Mapping[int, int]]
#: Topic id -> partitions, ascending.
Target = Mapping[Uuid, tuple[int, ...]]

#: The epoch of a member that leaves for good, in its request and its record.
LEAVE_EPOCH = -1
#: The epoch of a static member that left and will return.
LEAVE_STATIC_EPOCH = -2


class MemberState(IntEnum):
    """A member's state on the way to its target. The numbers are in the log."""

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
    """The state of a group; tools show its text."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ClassicMetadata(NamedTuple):
    """The extra state of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: Protocols


class Resolved(NamedTuple):
    """The topics that a regular expression matches."""

    topics: tuple[str, ...]
    #: The metadata version and the time of the resolution.
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
    #: Sorted and distinct.
    topics: tuple[str, ...] = ()
    #: None or empty for none.
    regex: str | None = None
    assignor: str | None = None
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    #: The partitions that it must give up and may still read from.
    revoking: Owned = field(default_factory=dict)
    #: None for a member that uses the consumer protocol.
    classic: ClassicMetadata | None = None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def owned(self) -> Iterator[tuple[Uuid, int]]:
        """All partitions of the member, including those that it must give up."""
        for owned in (self.assigned, self.revoking):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    yield topic_id, partition

    def epoch_of(self, topic_id: Uuid, partition: int) -> int | None:
        """The epoch since which the member owns the partition, or None."""
        for owned in (self.assigned, self.revoking):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


@dataclass(slots=True)
class ConsumerGroup(ServerAssignedGroup[ConsumerMember, Target]):
    """A group."""

    #: Instance id -> member id.
    static_members: dict[str, str] = field(default_factory=dict)
    #: The owner of each partition. Replay gives a partition to the last member that claims it; `validate` finds
    #: conflicts.
    owners: dict[tuple[Uuid, int], str] = field(default_factory=dict)
    #: The regular expressions that members use, with their topics.
    resolved: dict[str, Resolved] = field(default_factory=dict)
    #: Is there a record of Kafka 3.7 to 4.0 that the next write of the group must delete?
    has_partition_metadata: bool = False

    # -- members

    def members_with(self, member: ConsumerMember) -> dict[str, ConsumerMember]:
        """The members once `member` is written; a static member replaces its predecessor."""
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
        self._free_instance(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for key in member.owned():
            self.owners[key] = member.member_id

    def remove(self, member_id: str) -> None:
        self._release(member_id)
        self._free_instance(member_id)
        del self.members[member_id]

    def _free_instance(self, member_id: str) -> None:
        """Free the member's present instance id, unless a successor has it."""
        member = self.members.get(member_id)
        instance_id = None if member is None else member.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]

    def _release(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        for key in member.owned():
            # The successor of a static member may own the partition already.
            if self.owners.get(key) == member_id:
                del self.owners[key]

    # -- queries

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
        """The target of a member; a static member takes over the target of its predecessor."""
        if instance_id is not None:
            owner = self.static_members.get(instance_id)
            return {} if owner is None else self.targets.get(owner, {})
        return self.targets.get(member_id, {})

    def subscription(self) -> Callable[[str], bool]:
        """Whether a member subscribes to a topic, as of now."""
        return subscribed_topics(self.members.values(), self.resolved).__contains__

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """May a classic member with these protocols join the group?"""
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
        """Does another member still own a partition of this member's target?"""
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
    """All topics that the members subscribe to, by name or by regular expression."""
    members = list(members)
    topics = names_of(members)
    for regex in dict.fromkeys(member.regex for member in members):
        if regex and regex in resolved:
            topics.update(dict.fromkeys(resolved[regex].topics))
    return topics


def topics_of(member: ConsumerMember, resolved: Mapping[str, Resolved]) -> tuple[str, ...]:
    """All topics that one member subscribes to. An expression that is not resolved yet has none."""
    if member.regex and member.regex in resolved:
        return tuple(dict.fromkeys((*member.topics, *resolved[member.regex].topics)))
    return member.topics
